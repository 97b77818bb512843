"""Reads what a run leaves behind (common/records/record.h): record.json, and steps.jsonl, which grows by a
line per step while the run goes on. Standard library only."""

import contextlib
import dataclasses
import errno
import itertools
import json
import math
import os
import re
import stat
import sys

# Exit codes, as in docs/troubleshooting.md, "How a run ends".
USAGE, DATA, MISSING, CANNOT_WRITE = 64, 65, 69, 73
# The largest record and the longest line, in bytes, as in common/records/record_reader.cpp.
MOST_OF_A_RECORD, MOST_OF_A_LINE = 32 << 20, 16 << 10
MOST_FOLDERS = 10_000
WHOLE = "a run writes it whole or not at all, so it was damaged later: take another run, or train again"
A_LINE = (
    "a run writes one JSON object per line, so it was damaged later: remove that line, or take another run"
)


class Refused(Exception):
    """Bad input: exit code, where, what, fix."""

    def __init__(self, code, where, what, fix):
        super().__init__(f"error: {where}: {what}\n  fix: {fix}")
        self.code = code


def printable(text):
    """Escapes what could steer a terminal, and bytes that are no UTF-8, as \\x1b; like
    common/input/printable.h."""
    return "".join(
        c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in str(text)
    )


def say(text, file=None):
    print(printable(text), file=file or sys.stdout, flush=True)


def run_program(main):
    """Runs main() as a program: what is refused is one message and an exit code."""
    sys.stdout.reconfigure(
        errors="backslashreplace"
    )  # of characters that the locale's encoding does not have
    try:
        sys.exit(main(sys.argv[1:]))
    except Refused as error:
        say(error, sys.stderr)
        sys.exit(error.code)
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:  # of the output: its reader has seen enough, or there is no room
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            sys.exit(0)
        say(
            f"error: {error.filename or 'stdout'}: {error.strerror}\n  fix: free some space, or write "
            "elsewhere",
            sys.stderr,
        )
        sys.exit(CANNOT_WRITE)


def some_run(below="runs"):
    """Says how a run is named, by the newest one that lies there: through no link, and in no more folders
    than are soon read."""
    some = itertools.islice(os.walk(below), MOST_FOLDERS)
    found = [folder for folder, _, files in some if "record.json" in files]
    newest = max(
        found,
        key=lambda folder: os.lstat(os.path.join(folder, "record.json")).st_mtime,
        default="runs/01_data_parallel/2025-01-31T12-00-00",
    )
    return f"name the folder of a run or its record.json, such as {newest}"


def parsed(text, path, fix, first_line=1):
    try:
        return json.loads(text)
    except RecursionError:
        raise Refused(DATA, f"{path}:{first_line}", "lists and objects are nested too deep", fix) from None
    except ValueError as error:  # also of bytes that are no text
        line, column = getattr(error, "lineno", 1), getattr(error, "colno", 1)
        raise Refused(DATA, f"{path}:{first_line + line - 1}:{column}", "is not JSON", fix) from None


ELEMENT_BYTES = {"f64": 8, "f32": 4, "bf16": 2, "f16": 2, "i64": 8, "i32": 4, "u8": 1}
# How JSON spells a loss that is not finite; a run without a loss has null instead.
WORDS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def whole(
    least=0, most=1 << 50
):  # as in record_reader.cpp: far above what a run can have, and sums over all of a record have room
    return lambda value: type(value) is int and least <= value <= most


def one_of(words):
    return lambda value: isinstance(value, str) and value in words


def real(value):
    return type(value) in (int, float) and abs(value) < 1e100


def maybe(value):
    return value is None or real(value)


# The shape of a record as far as it is read, here and where runs are shown. A kind is a type, None, a
# function that accepts a value, a list of one kind, an object, or a tuple of kinds of which one fits. In an
# object, a key with ? may be missing, * stands for all other keys, and keys that are not named are not read.
#
# These numbers are null where they are not finite.
NUMBERS = ("loss", "lr", "grad_norm", "waited_seconds")
LOSS = (maybe, one_of(WORDS))
STEP = {
    "step": whole(),
    "tokens": whole(),
    "seconds": lambda value: real(value) and value >= 0,
    **dict.fromkeys(NUMBERS, maybe),
    "validation_loss?": LOSS,
}
FILE = {"file": str, "sum?": str}
TEXTS, PURPOSES = {"*": str}, {"*": whole()}
BYTES = {"total": whole(), "pinned?": PURPOSES, "host?": (whole(), PURPOSES), "disk?": PURPOSES, "*": whole()}
OPERATIONS = [
    {"kind": str, "dtype": one_of(ELEMENT_BYTES), "elements": whole(), "count": whole(), "ranks?": whole(1)}
]
MEASURED = {"measured_bytes": (None, BYTES), "measured_operations": (None, OPERATIONS)}
RECORD = {
    "lesson": lambda value: isinstance(value, str)
    and re.fullmatch("[A-Za-z0-9_-]{1,80}", value),  # it becomes the name of a folder
    "started": str,
    "exit_code": (None, whole(0, 255)),
    "device": str,
    "world": whole(1),
    "validation_loss": LOSS,
    "workload": TEXTS,
    "strategy?": TEXTS,
    "versions?": TEXTS,
    "init?": FILE,
    "validation?": FILE,
    "resumed_from?": {"step": whole(), "tokens?": whole()},
    "test?": {**FILE, "rows": whole(), "loss": maybe},
    "ranks": [
        {
            "rank": whole(),
            "cpu?": str,
            "predicted_bytes": BYTES,
            "predicted_operations": OPERATIONS,
            **MEASURED,
        }
    ],
    "steps": {},
}


def fault(value, kind, path=""):
    """What is wrong with a value, in words; nothing where it is of its kind."""
    if (
        value is None
        if kind is None
        else isinstance(value, kind)
        if isinstance(kind, type)
        else callable(kind) and kind(value)
    ):
        return None
    if isinstance(kind, tuple):
        found = [fault(value, one, path) for one in kind]
        return None if None in found else found[-1]
    if callable(kind) or not isinstance(value, type(kind)):
        return (f'"{path[:200]}" ' if path else "") + "is not what a run writes"
    if isinstance(kind, list):
        return next(filter(None, (fault(one, kind[0], f"{path}[{i}]") for i, one in enumerate(value))), None)
    for key in kind:
        if key not in value and key[-1] not in "?*":
            return f'"{key}" is missing' + (f' in "{path}"' if path else "")
    for key, member in value.items():
        of = kind.get(key, kind.get(key + "?", kind.get("*")))
        if of is not None and (wrong := fault(member, of, f"{path}.{key}" if path else key)):
            return wrong
    return None


def checked(values, kind, place, fix):
    """`values` of that kind, with a number in place of the word of a validation loss."""
    if wrong := fault(values, kind):
        raise Refused(DATA, place, wrong, fix)
    loss = values.get("validation_loss")
    return {**values, "validation_loss": WORDS[loss]} if isinstance(loss, str) else values


def number(value):
    return math.nan if value is None else value


def checked_step(values, place, fix):
    step = checked(values, STEP, place, fix)
    return {**step, **{key: number(step[key]) for key in NUMBERS}}


def open_file(path):
    """For reading. A pipe or a device is no file of a run, and would be waited for."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file")
    return open(descriptor, "rb")


def too_large(path, most):
    return Refused(
        DATA, path, f"is larger than {most >> 10} KiB: nothing of its kind needs that much", some_run()
    )


class StepFile:
    """steps.jsonl: each read() gives the steps that came since the last one."""

    def __init__(self, path):
        self.path, self._at, self._rest, self._lines = path, 0, b"", 0

    def read(self):
        steps = []
        try:
            with open_file(self.path) as file:
                file.seek(self._at)
                while new := file.read(1 << 20):
                    self._at += len(new)
                    steps += self._steps_of(new)
        except FileNotFoundError:  # the run has only begun
            return []
        except OSError as error:
            raise Refused(DATA, self.path, f"cannot be read: {error.strerror}", some_run()) from None
        return steps

    def _steps_of(self, new):
        *lines, self._rest = (self._rest + new).split(b"\n")
        steps = []
        for line in lines:
            self._lines += 1
            if len(line) > MOST_OF_A_LINE:
                raise too_large(f"{self.path}:{self._lines}", MOST_OF_A_LINE)
            values = parsed(line, self.path, A_LINE, self._lines)
            steps.append(checked_step(values, f"{self.path}:{self._lines}", A_LINE))
        if len(self._rest) > MOST_OF_A_LINE:
            raise too_large(f"{self.path}:{self._lines + 1}", MOST_OF_A_LINE)
        return steps

    @property
    def torn(self):
        """What to say of a last line without an end: the run was killed in it, or is writing it."""
        return f"{self.path}:{self._lines + 1}: the last line is cut off and left out" if self._rest else ""


@dataclasses.dataclass
class Run:
    given: str  # the path as it was given
    file: str  # of the record
    record: dict
    steps: list = dataclasses.field(default_factory=list)
    note: str = ""  # what was left out

    @property
    def folder(self):
        return os.path.dirname(self.file) or "."

    @property
    def ended(self):
        return self.record["exit_code"] is not None

    @property
    def steps_file(self):
        return os.path.join(self.folder, "steps.jsonl")

    @property
    def name(self):
        """lesson/folder; a record that has another name than a run gives it is named after its file."""
        own = os.path.splitext(os.path.basename(self.file))[0]
        return os.path.join(
            self.record["lesson"], os.path.basename(os.path.abspath(self.folder)) if own == "record" else own
        )


def load_record(path):
    try:
        with open_file(path) as file:
            text = file.read(MOST_OF_A_RECORD + 1)
    except OSError as error:
        raise Refused(DATA, path, f"cannot be read: {error.strerror}", some_run()) from None
    if len(text) > MOST_OF_A_RECORD:
        raise too_large(path, MOST_OF_A_RECORD)
    if not text.strip():
        raise Refused(DATA, path, "is empty", WHOLE)
    record = parsed(text, path, WHOLE)
    if not isinstance(record, dict) or "format" not in record:
        raise Refused(DATA, path, 'is no record of a run: it has no "format"', some_run())
    if record["format"] != 1:
        said = f'"format" is {record["format"]}, not 1, the one this version reads'
        raise Refused(DATA, path, said, "use the version that wrote it")
    record = checked(record, RECORD, path, WHOLE)
    return {**record, "workload": in_todays_keys(record["workload"])}


def in_todays_keys(workload):
    """Older records have evaluations in micro-batches (common/config/other_names.cpp)."""
    batches, micro = (str(workload.get(key, "")) for key in ("data.validation_batches", "batch.micro"))
    if not all(number.isascii() and number.isdecimal() and len(number) <= 8 for number in (batches, micro)):
        return workload
    kept = {key: value for key, value in workload.items() if key != "data.validation_batches"}
    return {"data.validation_rows": str(int(batches) * int(micro)), **kept}


def columns_to_steps(columns, path):
    """The record keeps a step's numbers as columns."""
    kept = {key: values for key, values in columns.items() if isinstance(values, list)}
    if len({len(values) for values in kept.values()}) > 1:
        raise Refused(DATA, path, '"steps": its columns are not of one length', WHOLE)
    rows = [dict(zip(kept, values)) for values in zip(*kept.values())]
    return [checked_step(row, f'{path}: "steps"', WHOLE) for row in rows]


def find_run(path):
    """The run without its steps."""
    if not os.path.exists(path):
        raise Refused(DATA, path, "there is no such run", some_run())
    file = os.path.join(path, "record.json") if os.path.isdir(path) else path
    if os.path.basename(file) == "steps.jsonl":
        file = os.path.join(os.path.dirname(file), "record.json")
    if not os.path.exists(file):
        raise Refused(DATA, path, "holds no record.json", some_run(path if os.path.isdir(path) else "runs"))
    return Run(path, file, load_record(file))


def read_run(path):
    """The run with the steps that it has so far: of the record where it ended, else of steps.jsonl."""
    run = find_run(path)
    run.steps = columns_to_steps(run.record["steps"], run.file)
    if not run.steps and not run.ended:
        steps = StepFile(run.steps_file)
        run.steps, run.note = steps.read(), steps.torn
    return run


def finite(value):
    """A number for JSON: null where it is not finite, or missing."""
    return value if isinstance(value, (int, float)) and math.isfinite(value) else None


def write_whole(text, path, otherwise):
    """Writes through no link, and over no file but the one that is replaced; like atomic_write_file of
    common/storage."""
    if os.path.islink(path):
        fix = "give the path of the file that it leads to, or remove the link"
        raise Refused(USAGE, path, "is a symbolic link, and would be replaced", fix)
    if os.path.lexists(path) and not os.path.isfile(path):
        raise Refused(CANNOT_WRITE, path, "is not a file that could be replaced", otherwise)
    temporary = f"{path}.tmp-{os.getpid()}"
    try:
        with open(
            temporary, "x", encoding="utf-8", errors="backslashreplace"
        ) as file:  # of names that are no UTF-8
            file.write(text)
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            if not isinstance(error, FileExistsError):
                os.remove(temporary)
        raise Refused(CANNOT_WRITE, path, f"cannot be written: {error.strerror}", otherwise) from None
