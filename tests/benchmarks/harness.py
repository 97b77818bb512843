"""What the scripts of this folder share: what they are asked, how they start programs and lessons' runs, how
they name and keep results."""
import argparse
import datetime
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RESULTS = ROOT / "docs/results"
CPU_BIN = ROOT / "build/cpu/bin"
MPIRUN = ["mpirun", "-q", "--oversubscribe", "--bind-to", "none"]
OF_MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "EVENT_NOEPOLL": "1"}
# NVLink multicast (NVLS) is off for all programs alike.
ENVIRONMENT = {
    **OF_MPI,
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "STAGECRAFT_TERMINAL": "0",
}
ONE_THREAD = {"OMP_NUM_THREADS": "1"}

# Arguments of several scripts, with what add_argument() is told of each.
BIN = {"--bin": {"default": "build/cuda/bin", "help": "where the lessons' programs are"}}
COMMIT = {"--commit": {"help": "of the sources, where this is no git checkout"}}
CHECKED = {
    "--check": {"action": "store_true"},
    "--programs": {"type": lambda text: pathlib.Path(text).resolve(), "default": CPU_BIN},
}


def out(default=None, **more):
    where = {"required": True} if default is None else {"default": default}
    return {"--out": {"type": pathlib.Path, **where, **more}}


def parser_of(about, asked):
    """The parser of a script whose docstring is `about`; `asked` is what add_argument is told of each
    argument."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, settings in asked.items():
        parser.add_argument(name, **settings)
    return parser


def arguments(about, asked):
    return parser_of(about, asked).parse_args()


def arguments_of_runs(about, asked, required=False):
    """With those of all scripts that run lessons from beginning to end: the programs, and of which commit
    they are."""
    both = {
        "--bin": {"type": pathlib.Path, "default": ROOT / "build/cuda/bin", "required": required},
        "--commit": {
            "required": required,
            "help": "of the programs, where this is no git checkout of theirs",
        },
    }
    args = arguments(about, {**both, **asked})
    args.bin = args.bin.resolve()
    if args.commit:
        os.environ["STAGECRAFT_COMMIT"] = args.commit
    return args


def sets(settings):
    return [word for one in settings for word in ("--set", one)]


def said_by(command, environment=None, shown=None, under=()):
    """What a program prints, run from the repository's root. A failure ends this process, too, and names it
    as `shown`."""
    words = [str(word) for word in command]
    done = subprocess.run(
        [*under, *words],
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        text=True,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"error: {shown or ' '.join(words)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def record_in(folder):
    return json.loads((pathlib.Path(folder) / "record.json").read_text())


def shown_and_said_by(command):
    """Runs a command on GPUs, prints the command first, and returns what it said."""
    print(*command, flush=True)
    return said_by(command, ENVIRONMENT)


def record_of(command, folder, ranks=1):
    """The record of a lesson's run, on as many GPUs as ranks."""
    shown_and_said_by([*([*MPIRUN, "-n", ranks] if ranks > 1 else []), *command, "--out", folder])
    return record_in(folder)


def lesson_program(folder, name):
    return built(folder, name, f"lessons/{name}/run.sh --preset cuda --build-only")


def benchmark_program(folder, name):
    """Where a benchmark that CMake builds lies, beside lessons or among tests."""
    return built(folder, name, f"ninja -C build/cuda {name}", "tests")


def built(folder, name, fix, *others):
    paths = [pathlib.Path(folder).resolve() / other / name for other in ("", *others)]
    if not (found := [path for path in paths if path.exists()]):
        sys.exit(f"error: {paths[0]} is not built\n  fix: {fix}, or --bin DIR")
    return found[0]


def git(*words):
    return subprocess.run(
        ["git", "-C", ROOT, *words], text=True, capture_output=True, check=False
    ).stdout.strip()


def sources():
    """The commit of the programs' sources, "-dirty" if changed, "unknown" outside git. Pages and records,
    such as those that a benchmark writes, are no change of a program."""
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs", ":!*.md")
    head = git("rev-parse", "--short=12", "HEAD")
    return head + ("-dirty" if changed else "") if head else "unknown"


def command_text(command):
    """The command as a reader would type it: files of this repository from its root, others by name, since
    their folder is this machine's."""
    return shlex.join(name_of(str(word)) for word in command)


def own_command(script):
    return command_text([HERE / script, *sys.argv[1:]])


def name_of(word):
    if (
        re.fullmatch(r"(.*/)?\d\d_\w+", word) and "=" not in word
    ):  # a lesson's program, wherever it was put for this run
        return f"build/cuda/bin/{pathlib.Path(word).name}"
    key, equals, value = word.rpartition("=")
    if not value.startswith("/"):
        return word
    path = pathlib.Path(value)
    return key + equals + (str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name)


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def first_paragraph(text):
    """On one line: what a docstring says of its program is what the record says it is about."""
    return " ".join(text.split("\n\n", maxsplit=1)[0].split())


def kept(path, otherwise):
    """What an earlier call left there, or else."""
    return json.loads(path.read_text()) if path.exists() else otherwise


def result(name):
    return json.loads((RESULTS / f"{name}.json").read_text())


def write(path, found):
    """Complete or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(found, indent=1) + "\n")
    partial.replace(path)


def write_or_compare(about, name, key, rows, check):
    """A record of one row to a line, so that a difference is short. With `check` nothing is written; whether
    it differs."""
    path, lines = RESULTS / f"{name}.json", [json.dumps(row) for row in rows]
    head = f'{{"about": {json.dumps(first_paragraph(about))}, "{key}": ['
    lines = [head, *(f"{row}," for row in lines[:-1]), lines[-1], "]}"]
    before = path.read_text().splitlines() if path.exists() else []
    if not check:
        path.write_text("\n".join(lines) + "\n")
        return False
    for stored, said in zip([*before, *[""] * len(lines)], lines):
        if stored != said:
            print(f"docs/results/{name}.json has\n  {stored}\nthe programs say\n  {said}")
    if before != lines:
        print(f"fix: python3 tests/benchmarks/{name}.py, then python3 docs/render.py")
    return before != lines
