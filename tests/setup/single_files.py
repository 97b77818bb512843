#!/usr/bin/env python3
"""Source files compiled alone, for their errors only (-fsyntax-only): the presets compile a room's files
together, where one finds what another included. By default the files that build/cpu compiles together and
clang-tidy, which reads each alone, does not: those that differ from what the last soak saw, with --all every
one.

  python3 tests/setup/single_files.py [--all | --cuda | --list | FILE ...]
           after `cmake --preset cpu` and `cmake --preset single`
    --cuda   what the cuda preset alone compiles of tests/, and the benchmarks, after `cmake --preset cuda`
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

import tiers

ROOT = pathlib.Path(__file__).resolve().parents[2]


def commands(preset):
    """{file: its entry} of the preset's compile_commands.json, files of the build folder left out."""
    entries = json.loads((ROOT / "build" / preset / "compile_commands.json").read_text(encoding="utf-8"))
    named = {os.path.relpath(entry["file"], ROOT): entry for entry in entries}
    return {name: entry for name, entry in named.items() if not name.startswith("build/")}


def alone(command):
    """The compiler's words without its launcher, its output and its list of headers."""
    words, kept, skip = shlex.split(command), [], False
    for word in words[1:] if os.path.basename(words[0]) == "ccache" else words:
        if skip:
            skip = False
        elif word in ("-o", "-MT", "-MF"):
            skip = True
        elif word not in ("-c", "-MD"):
            kept.append(word)
    return [*kept, "-fsyntax-only"]


def main(wanted):
    if wanted == ["--list"]:
        print("\n".join(sorted(commands("single"))))
        return 0
    cuda, every = wanted == ["--cuda"], wanted in (["--all"], ["--cuda"])
    entries = commands("cuda" if cuda else "single")
    if cuda:
        known = commands("single").keys()
        wanted = [
            name
            for name in sorted(entries)
            if re.match(r"tests/.*\.cpp$", name) and (name not in known or "/benchmarks/" in name)
        ]
    elif every or not wanted:
        tidied = subprocess.run(
            [ROOT / "common/setup/tidy.sh", "--list"], stdout=subprocess.PIPE, text=True, check=True
        ).stdout.split()
        wanted = sorted(entries.keys() - commands("cpu").keys() - set(tidied))
        wanted = wanted if every else tiers.changed("file", wanted)
    for name in wanted:
        if name not in entries:
            sys.exit(
                f"error: {name}: no target builds it\n  fix: name it in its room's CMakeLists.txt, or run "
                "cmake again"
            )

    def check(name):
        entry = entries[name]
        return subprocess.run(
            alone(entry["command"]), cwd=entry["directory"], stderr=subprocess.PIPE, text=True, check=False
        )

    failed = 0
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for name, done in zip(wanted, pool.map(check, wanted)):
            print(done.stderr, end="")
            if done.returncode:
                failed += 1
                print(f"error: {name} does not compile alone\n  fix: include what it uses")
    print(f"{len(wanted) - failed} of {len(wanted)} files compile alone")
    return 1 if failed or (every and not wanted) else 0


if __name__ == "__main__":
    if "--help" in sys.argv:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
