"""The lessons on one workload, side by side: what a rank holds and moves, and whose bits the weights are.
Called by lessons/all.sh; standard library only."""

import dataclasses
import hashlib
import json
import pathlib
import re
import subprocess
import sys
import tempfile

from report import PLACES, PURPOSES, Arguments, aligned, bytes_rows, checked, moved_rows
from run_files import USAGE, Refused, load_record, run_program

ROOT = pathlib.Path(__file__).resolve().parents[3]
# Ranks and steps of each lesson but 00; the run is checked at its second step.
RANKS, STEPS = 4, 3
# Every lesson runs this workload, because lessons 10 and 11 have another default.
WORKLOAD = ("--workload", "configs/tiny.json")
# The exit code if weights differ.
DIFFERENT = 70
DIFFER = "DIFFERENT"


@dataclasses.dataclass(frozen=True)
class Row:
    lesson: str
    flags: str
    order: str | None  # lesson 00's flags for the same order of sums; None: no order gives these bits

    @property
    def ranks(self):
        return 0 if self.lesson == "00_one_device" else RANKS

    def words(self, flags=None):
        return [*WORKLOAD, *(self.flags if flags is None else flags).split()]

    def command(self, flags=None):
        """The command as a reader would type it."""
        return [
            f"lessons/{self.lesson}/run.sh",
            *(["-n", str(RANKS)] if self.ranks else []),
            *self.words(flags),
        ]


ROWS = tuple(
    Row(lesson, one.get("flags", ""), one["order"])
    for lesson, one in json.loads((ROOT / "lessons/lessons.json").read_text()).items()
    if "order" in one
)
ONE_DEVICE = ROWS[0]
MOVED = ("sent to other ranks", "copied to and from the host", "read from and written to the disk")


def held(run):
    """{place: bytes} of the rank that holds most on its device."""
    rows = bytes_rows(run)
    return {
        "device": rows["total"],
        **{place: sum(rows.get(f"{purpose}, {place}", 0) for purpose in PURPOSES) for place in PLACES},
    }


def moved(run):
    """{way: bytes of a step}: of each way the most that a rank moves."""
    rows = moved_rows(run)
    return {way: rows.get(way, 0) for way in MOVED}


# --- runs ---------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Ran:
    record: dict
    weights: str = ""  # SHA-256 of the file of trained weights


def ran(words, more, folder):
    """What a run leaves, in a folder of its own. A run that fails ends this program as it ended."""
    out = pathlib.Path(tempfile.mkdtemp(dir=folder))
    save = out / "weights.safetensors"
    places = [
        "--out",
        out,
        "--save",
        save,
        *(["--checkpoints", out / "checkpoints"] if "--save-every" in words else []),
    ]
    words = [*words, *more, "--threads", "1", "--page", "off", "--sample", "0", *places]
    done = subprocess.run(words, cwd=ROOT, text=True, capture_output=True, check=False)
    if done.returncode != 0:
        sys.stderr.write(done.stderr)
        sys.exit(done.returncode)
    return Ran(load_record(str(out / "record.json")), hashlib.sha256(save.read_bytes()).hexdigest())


def all_of(rows, steps):
    """Yields (row, what it left, what lesson 00 left in its order of sums)."""
    more, orders = ["--steps", str(steps), "--preset", "cpu", "--no-build"], {}
    with tempfile.TemporaryDirectory() as folder:
        for row in rows:
            mine = ran(row.command(), more, folder)
            if row.order is not None and row.order not in orders:
                same = row == ONE_DEVICE
                orders[row.order] = mine if same else ran(ONE_DEVICE.command(row.order), more, folder)
            yield row, mine, orders.get(row.order)


# --- the table ----------------------------------------------------------------------------------------------


def bits(row, mine, reference):
    if row.order is None:
        return "its own"
    if mine.weights != reference.weights:
        return DIFFER
    return f"00 {row.order}".strip()


HELD = ("held by a rank, bytes", "ranks", "device", *PLACES, "bytes are")
PER_STEP = ("moved by a rank per step, bytes", "sent", "copied", "disk", "weights", "bits of lesson")


def counts(numbers):
    return [f"{count:,}" if count else "-" for count in numbers]


def held_line(row, mine):
    return [
        row.lesson.replace("_", " ", 1),
        str(mine.record["world"]),
        *counts(held(mine).values()),
        {"measured": "as predicted"}.get(checked(mine), checked(mine)),
    ]


def moved_line(row, mine, reference):
    return [
        row.lesson.replace("_", " ", 1),
        *counts(moved(mine).values()),
        mine.weights[:12],
        bits(row, mine, reference),
    ]


def text_of(*lines):
    """The first column and the last stand left."""
    return "\n".join(aligned(lines, left=(0, len(lines[0]) - 1)))


def asked_rows(numbers):
    known = [row.lesson[:2] for row in ROWS]
    for number in numbers:
        if number not in known:
            raise Refused(
                USAGE, "lessons/all.sh", f"{number!r} is no lesson", f"name some of {', '.join(known)}"
            )
    return [row for row in ROWS if row.lesson[:2] in numbers or not numbers]


def steps_of(text):
    if not re.fullmatch("[0-9]{1,6}", text) or int(text) < 2:
        raise Refused(
            USAGE,
            "--steps",
            f"{text!r} is not a number of steps from 2 on: bytes are checked in the second",
            f"--steps {STEPS}",
        )
    return int(text)


def main(arguments):
    parser = Arguments("lessons/all.sh", add_help=False, allow_abbrev=False)
    parser.add_argument("lessons", nargs="*")
    parser.add_argument("--steps", default=str(STEPS))
    parser.add_argument("--no-build", action="store_true")
    asked = parser.parse_intermixed_args(arguments)
    rows, steps = asked_rows(asked.lessons), steps_of(asked.steps)
    for lesson in () if asked.no_build else dict.fromkeys([ONE_DEVICE.lesson, *(row.lesson for row in rows)]):
        words = ["common/setup/launch.sh", lesson, "--preset", "cpu", "--build-only"]
        if code := subprocess.run(words, cwd=ROOT, check=False).returncode:
            return code
    found = []
    for row, mine, reference in all_of(rows, steps):
        print(f"{' '.join(row.command())} --steps {steps}", flush=True)
        found.append((row, mine, reference))
    print("\n" + text_of(HELD, *(held_line(row, mine) for row, mine, _ in found)))
    print("\n" + text_of(PER_STEP, *(moved_line(*one) for one in found)))
    return DIFFERENT if any(bits(*one) == DIFFER for one in found) else 0


if __name__ == "__main__":
    run_program(main)
