#!/usr/bin/env python3
"""What the programs say when something is wrong: docs/results/refusals.json, most of which
docs/troubleshooting.md shows.

usage: tests/docs/refusals.py [--check] [--programs build/cpu/bin] [NAME ...]

Every command runs as it stands there, in a copy of the repository's start scripts whose build/cpu holds the
programs; those about setting up and building on a machine of stand-ins, whose PATH has the tools that the
case names and no others. --check writes nothing and exits 1 where a program says something else than the
record, or ends with another code (ctest runs that).
"""
import argparse
import dataclasses
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from commands_test import ROOT, clean_environment, playground  # noqa: E402

RECORD = ROOT / "docs/results/refusals.json"
ONE, TWO = "lessons/00_one_device/run.sh", "lessons/01_data_parallel/run.sh"


@dataclasses.dataclass
class Case:
    """A command that is refused, or that ends badly, on purpose."""

    command: str
    files: dict = dataclasses.field(default_factory=dict)  # made before it runs, in the folder it runs in
    environment: dict = dataclasses.field(default_factory=dict)
    tools: dict = None  # beside READY's: a stand-in's script, or None for a tool that is not there
    keep: str = ""  # the lines that are shown, where they are no error


# A fake machine on which everything is installed except LibTorch, whose wheel its Python "downloads".
SMALL_TOOLS = (
    "awk bash cat chmod cp cut df dirname env find flock grep head ln mkdir mktemp mv nproc printf rm sed "
    "setpriv sh sha256sum sleep sort tail timeout touch tr"
).split()
READY = {
    "uname": "echo x86_64",
    "id": "echo 0",
    "g++": "[[ $1 != -dumpfullversion ]] || echo 12.2.0",
    "cmake": "echo cmake version 3.25.1",
    "ninja": "exit 0",
    "mpirun": "exit 0",
    "ompi_info": "exit 0",
    "mpicc": "echo Open MPI",
    "ccache": "exit 0",
    "apt-get": "exit 0",
    "python3": "exit 0",
}
SETUP = "common/setup/setup.sh"
DISK = """printf 'Filesystem 1M-blocks Used Available Use Mounted\\ndisk 9999 9999 %s 0 /\\n'"""
BUILT = {"files": {"torch/lib/libtorch_cpu.so": ""}, "environment": {"LIBTORCH_ROOT": "torch"}}
ONE_GPU = "[[ $1 == -L ]] && echo 'GPU 0: a GPU'"
OLD_GPU = "if [[ $1 == -L ]]; then echo 'GPU 0: a GPU'; else echo '7.5, Tesla T4'; fi"

CASES = {
    "setup-root": Case(SETUP, tools={"id": "echo 1000", "mpirun": None, "mpicc": None}),
    "setup-no-apt": Case(SETUP, tools={"apt-get": None, "ninja": None}),
    "setup-download": Case(SETUP, tools={"python3": "[[ $1 != -m ]]"}),
    "configure": Case(
        f"{ONE} --steps 2", tools={"cmake": "[[ $1 == --version ]] && echo cmake version 3.25.1"}, **BUILT
    ),
    "build": Case(f"{ONE} --steps 2", tools={"ninja": "echo 'FAILED: gpt.cpp.o'; exit 1"}, **BUILT),
    "old-gpu": Case(f"{ONE} --preset cuda", tools={"nvidia-smi": OLD_GPU}, **BUILT),
    "gpu-without-setup": Case(
        f"{ONE} --steps 2", tools={"nvidia-smi": ONE_GPU, "ninja": "exit 1"}, keep="^a GPU is here", **BUILT
    ),
    "container": Case(
        "common/setup/doctor.sh",
        tools={"df": DISK % 64},
        keep=r"^  (disk|/dev/shm) |hint: (the first use|ranks on one)",
        **BUILT,
    ),
    "batch": Case(f"{TWO} -n 2 --set batch.micro=5"),
    "key": Case(f"{ONE} --set optim.learning_rate=0.001"),
    "section": Case(f"{ONE} --strategy mine.json", {"mine.json": '{\n  "optim": {"lr": 0.001}\n}\n'}),
    "world": Case(f"{TWO} --world 8"),
    "no-data": Case(f"{ONE} --data novel.txt"),
    "cap": Case(f"{ONE} --memory-cap 15MB"),
    "compare": Case(f"{ONE} --compare steps.json", {"steps.json": '{"loss": 2.5}\n'}),
    "nan": Case(f"{TWO} -n 2 --steps 6 --inject nan@1,3"),
    "hang": Case(f"{TWO} -n 2 --steps 6 --watchdog 2 --inject hang@1,3"),
    "kill": Case(f"{TWO} -n 2 --steps 6 --inject kill@1,3"),
    "restart": Case(
        f"{TWO} -n 2 --steps 6 --save-every 2 --save-async off --checkpoints mine --max-restarts 3 --inject "
        "kill@1,3",
        keep="^restart ",
    ),
}


def steady(text):
    """Without what differs between two runs: times, process ids, folders."""
    text = re.sub(r"runs/(\w+)/[\dT:-]+", r"runs/\1/<time>", text)
    text = re.sub(r"/\S*/repository/", "", text)
    text = re.sub(r"\bprocess \d+", "process <id>", text)
    text = re.sub(r"\b\d+\.\d s\b", "<seconds> s", text)
    text = re.sub(r"/\S*/repository\b", "<repository>", text)
    return re.sub(r"stagecraft-pages-\w+", "<folder>", text)


def machine(case, folder):
    """A repository of its own, on a machine that has READY's tools as the case changes them. Returns it, and
    its PATH."""
    home = pathlib.Path(tempfile.mkdtemp(prefix="machine-", dir=folder.parent))
    place, path = home / "repository", home / "stand-ins"
    path.mkdir()
    for tool in SMALL_TOOLS:
        (path / tool).symlink_to(shutil.which(tool))
    for tool, script in {**READY, **case.tools}.items():
        (path / tool).unlink(missing_ok=True)
        if script is not None:
            (path / tool).write_text(f"#!{shutil.which('bash')}\n{script}\n")
            (path / tool).chmod(0o755)
    for name in ("lessons/00_one_device", "common/setup"):
        shutil.copytree(ROOT / name, place / name)
    library = place / "common/setup/lib.sh"
    library.write_text(library.read_text().replace("/usr/local/cuda", str(place / "cuda")))
    return place, str(path)


def say(case, folder):
    """The lines from "error:" on, or those that the case keeps, and the exit code."""
    env = {**clean_environment("LIBTORCH_", "CUDA"), **case.environment}
    words = shlex.split(case.command)
    if case.tools is None:
        words += ["--preset", "cpu", "--no-build"]
    else:
        folder, env["PATH"] = machine(case, folder)
    for name, text in case.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    done = subprocess.run(
        words,
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if case.keep:
        code, said = None, [line for line in steady(done.stdout).splitlines() if re.search(case.keep, line)]
    else:
        _, error, behind = steady(done.stderr).partition("error: ")
        code, said = done.returncode, (error + behind).rstrip().splitlines()
    return {"command": case.command, "exit_code": code, "said": said}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT / "build/cpu/bin")
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_args()
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    problems = 0
    found = {} if not args.names else dict(record)
    with tempfile.TemporaryDirectory(prefix="stagecraft-pages-") as place:
        folder = playground(pathlib.Path(place).resolve() / "repository", args.programs.resolve())
        for name in args.names or CASES:
            found[name] = say(CASES[name], folder)
            good = found[name]["exit_code"] != 0 and found[name]["said"]
            if args.check and found[name] == record.get(name) and good:
                continue
            print(f"{name}: {json.dumps(found[name], indent=1)}")
            if not good:
                print(f"error: {name}: it is not refused with a message")
            elif args.check:
                print(
                    f"error: {name}: the record says {json.dumps(record.get(name), indent=1)}\n  fix: "
                    "tests/docs/refusals.py"
                )
            problems += args.check or not good
    if args.check and set(CASES) != set(record):
        sys.exit("error: docs/results/refusals.json has other cases\n  fix: tests/docs/refusals.py")
    if not args.check:
        RECORD.write_text(json.dumps({name: found[name] for name in CASES if name in found}, indent=1) + "\n")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
