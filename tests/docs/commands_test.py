#!/usr/bin/env python3
"""Every command that a page shows is run as it stands there, from a copy of the repository's start scripts.

A lesson's run is cut to 2 steps unless the command says how many; what needs a GPU is asked for its --plan;
what is marked as not run (docs/rendering/checks.py) must still exist. What pages say twice runs once.

Ordinarily a lesson's command that has little but settings is asked for its --plan, too, which refuses what a
run would, no run makes more than 3 steps unless its flags count them, and what is slow and shown elsewhere is
left out; with STAGECRAFT_SETTINGS=all (tests/soak.sh) each runs as it stands.

  python3 tests/docs/commands_test.py build/cpu/bin [page ...]
"""
import argparse
import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))
sys.path.insert(0, str(ROOT / "tests/processes"))
import support  # noqa: E402
from rendering import checks, marks  # noqa: E402
from rendering.registry import RenderError  # noqa: E402

ALL = support.all_settings()
ONLY_ON_GPU = {
    "--profile": 0,
    "--share-gpu": 0,
    "--transport": 1,
    "--graph": 1,
    "--ops": 1,
    "--trace": 0,
    "--sample": 1,
}  # flag: its values; a plan refuses them
# Flags that a plan accepts as a run does, and flags that a plan would refuse; tests/processes tests their
# effect for every lesson.
SETTINGS = {
    "-n",
    "--set",
    "--workload",
    "--memory-cap",
    "--steps",
    "--threads",
    "--virtual-ranks",
    "--reduce-every",
    "--tensor-ranks",
    "--tied-sum",
}
LEFT_OUT = {"--brief": 0, "--save": 1, "--trace": 0}
COUNTING = {"--inject", "--save-every", "--resume"}  # flags that mean certain steps
SAMPLE = "The page says: my.txt is your own text. " * 800


def playground(folder, programs):
    """A folder with everything a command may name, whose build/cpu holds the programs under test."""
    for name in ("lessons", "common/setup", "common/records/curves", "pipedream"):
        shutil.copytree(ROOT / name, folder / name, symlinks=True)
    for name in ("configs", "docs", "tests", "notebooks"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "build/cpu").mkdir(parents=True)
    (folder / "build/cpu/bin").symlink_to(programs)
    if (ROOT / ".cache").exists():
        (folder / ".cache").symlink_to(ROOT / ".cache")
    (folder / "my.txt").write_text(SAMPLE)
    return folder


def without(words, flags):
    kept, skip = [], 0
    for word in words:
        if skip:
            skip -= 1
        elif word.split("=")[0] in flags:
            skip = 0 if "=" in word else flags[word]
        else:
            kept.append(word)
    return kept


def lesson_words(command):
    """The words that run: built before, on the CPU, short."""
    words = command.words
    planned = any(
        word in ("--plan", "--help", "--version", "--dry-run", "--build-only") or word.startswith("--explain")
        for word in words
    )
    if command.gpu and not planned:
        return [*without(words, ONLY_ON_GPU), "--preset", "cpu", "--no-build", "--plan"]
    flags = {word.split("=")[0] for word in words if word.startswith("-")}
    if not ALL and not planned and flags and flags <= SETTINGS | set(LEFT_OUT) and command.exit_code == 0:
        return [*without(words, LEFT_OUT), "--preset", "cpu", "--no-build", "--plan", "--strict"]
    short = [] if planned or "--steps" in flags else ["--steps", "2"]
    if not ALL and "--steps" in words and not flags & COUNTING:
        words, short = without(words, {"--steps": 1}), [
            "--steps",
            str(min(3, int(words[words.index("--steps") + 1]))),
        ]
    return [*words, "--preset", "cpu", "--no-build", *short]


def what_runs(command, folder):
    """The words to run, or None where nothing has to run; what cannot be judged is an error."""
    first = command.words[0]
    path = folder / first
    if "/" in first and not path.exists():
        raise RenderError(f"{command.place}: {first} is not there")
    if command.not_run:
        if not ("/" in first or shutil.which(first)):
            print(f"note: {command.place}: {first} is not on this machine")
        return None
    if first.startswith("lessons/") and first.endswith("/run.sh"):
        return lesson_words(command)
    if not ALL and {"1024", "--max-restarts"} & set(command.words):
        # These commands take ten seconds of a core each and are tested elsewhere: choose_test.cpp searches
        # the same 1,024 GPUs, and checkpoint_test.py restarts runs.
        return None
    if first in ("lessons/choose.sh", "lessons/all.sh"):
        return [first, "--no-build", *command.words[1:]]
    if first == "pipedream/run.sh":
        return [str(folder / "build/cpu/bin/pipedream"), *command.words[1:]]
    if command.gpu:
        return None
    return command.words


def clean_environment(*more):
    """Without what another MPI, a batch system or this project's variables would change; `more`: other
    beginnings of names."""
    left_out = ("OMPI_", "PMIX_", "SLURM_", "STAGECRAFT_", *more)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    return {**kept, "OMP_NUM_THREADS": "1"}


def run(command, folder):
    """What went wrong, or None."""
    words = what_runs(command, folder)
    if words is None:
        return None
    try:
        done = subprocess.run(
            words,
            cwd=folder,
            env=clean_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"{command.place}: did not end within 200 s"
    if done.returncode != command.exit_code:
        return (
            f"{command.place}: exit {done.returncode}, {command.exit_code} was "
            f"expected\n{done.stdout[-1500:]}{done.stderr[-1500:]}"
        )
    return None


def judged(command, folder):
    try:
        return run(command, folder)
    except RenderError as error:
        return str(error)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("programs", type=pathlib.Path, help="where they are built")
    parser.add_argument("pages", nargs="*", help="default: all")
    args = parser.parse_args()
    programs, wanted = args.programs.resolve(), args.pages
    commands = [
        c
        for page in marks.pages()
        if not wanted or page in wanted
        for c in checks.commands_of(page, (ROOT / page).read_text())
    ]
    once = {(*c.words, c.exit_code, c.gpu, c.not_run): c for c in commands}.values()
    with tempfile.TemporaryDirectory(prefix="stagecraft-pages-") as place:
        folder = playground(pathlib.Path(place).resolve() / "repository", programs)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            problems = [problem for problem in pool.map(lambda c: judged(c, folder), once) if problem]
    for problem in problems:
        print(f"error: {problem}")
    ran = [c for c in commands if not c.not_run]
    print(
        f"{len(ran)} commands of {len({c.page for c in commands})} pages, {len(commands) - len(ran)} marked "
        f"as not run, {len(problems)} failed"
    )
    sys.exit(1 if problems or not ran else 0)


if __name__ == "__main__":
    main()
