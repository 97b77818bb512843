#!/usr/bin/env python3
"""Damages source files on purpose and counts how much of the damage the tests notice.

usage: tests/mutate/mutate.py --build COMMAND --test COMMAND [options] FILES...   (from the repository's root)
       tests/mutate/mutate.py --build COMMAND --patches 'tests/faults/pipedream_*.patch' [options]

Mutants: every binary + - * / % < <= > >= (and += -= ) of the files, exchanged for its neighbour, and every
index `rank`, `unit` or `stage` that is used as a value, moved by one. Comments, texts, preprocessor lines and
template brackets are left alone. For each mutant a copy of the repository is changed, built and tested: the
mutant is killed if the test command fails or runs too long, it survives if the test passes, and does not
count if it does not compile.

Patches: each is applied to the copy alone; its line `Test: FILTER` names the tests that must fail, which
replace {filter} in --test. A patch that does not apply or compile, or whose test passes, fails the run. With
--sample N all must apply, and N, drawn anew when one of the files changes, are tried.

  --work DIR        where the copy lives, default build/mutate (kept between runs, so that only what
                    changed is compiled)
  --copy PATHS      what is copied, default: everything that git knows or would add
  --names A,B       index names, default rank,unit,stage
  --sample N        only N mutants, evenly spread over all (a fixed choice), or N patches
  --only FILE:LINE  only mutants of that line
  --least SHARE     exit 1 if fewer are killed, default 0.9
  --timeout S       of one test, default 120
  --accept FILE     lines `path:text of the line -> text of the mutant   reason`: equivalent mutants, not
                    counted; with `survives ` before it, a mutant that counts as a survivor, and why it is
                    left
  --changed         only patches, or mutants of files, that differ from what the last soak saw, or whose tests
                    do (tests/setup/soaked.txt)
  --record          notes there what was noticed: patches, and files of whose mutants --least died; not with
                    --sample or --only
  --minutes N       begins no further mutant after that
  --jobs N          so many mutants at once, each in a copy of its own; default 1

The commands run in the copy's root. The last line is "N mutants: K killed, S survived, D did not compile".
exit: 0, 1 too many survive (or a patch does), 64 usage, 70 the unchanged copy fails its own tests
"""
import argparse
import concurrent.futures
import glob
import json
import os
import pathlib
import queue
import random
import re
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "setup"))
import tiers  # noqa: E402  what the last soak saw

SWAPS = {
    "+": "-",
    "-": "+",
    "*": "/",
    "/": "*",
    "%": "*",
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "+=": "-=",
    "-=": "+=",
}
# clang-format puts blanks around binary operators and not around template brackets, so blanks tell them
# apart.
OPERATOR = re.compile(r"(?<= )(?:\+=|-=|<=|>=|[-+*/%<>])(?= )")


class Mutant:
    def __init__(self, path, line, column, old, new):
        self.path, self.line, self.column, self.old, self.new = path, line, column, old, new

    def name(self):
        return f"{self.path}:{self.line + 1}:{self.column + 1}"


def blanked(source):
    """The source with comments, texts and preprocessor lines replaced by blanks of the same length."""

    def blank(match):
        return re.sub(r"[^\n]", "~", match.group(0))

    pattern = (
        r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|^[ \t]*#[^\n]*|\btemplate <[^\n]*'
    )
    return re.sub(pattern, blank, source, flags=re.S | re.M)


def joins_text(line, match):
    """A + that joins texts cannot become a -: next to a text, or to a call that returns one."""
    before, after = line[: match.start()].rstrip(), line[match.end() :].lstrip()
    return match.group(0) in ("+", "+=") and (
        before.endswith(("~", "_text)"))
        or after.startswith(("~", "std::to_string", "std::string", "to_text", "name_of"))
    )


def find_mutants(path, source, names):
    index = re.compile(r"(?<=[\[( ])(?:" + "|".join(names) + r")(?=[\]), ;])")
    found = []
    for number, line in enumerate(blanked(source).split("\n")):
        for match in OPERATOR.finditer(line):
            if not joins_text(line, match):
                found.append(Mutant(path, number, match.start(), match.group(0), SWAPS[match.group(0)]))
        for match in index.finditer(line):
            # Declarations ("int stage"), parameters, names of members and targets of assignments are not
            # mutated.
            declared = re.search(r"[\w>&*]\s+$", line[: match.start()]) and not re.search(
                r"\breturn\s+$", line[: match.start()]
            )
            if declared or re.match(r"\s*(?:=(?!=)|\+\+|--|\+=|-=)", line[match.end() :]):
                continue
            found.append(Mutant(path, number, match.start(), match.group(0), f"({match.group(0)} + 1)"))
    return found


def mutated(source, mutant):
    lines = source.split("\n")
    line = lines[mutant.line]
    lines[mutant.line] = line[: mutant.column] + mutant.new + line[mutant.column + len(mutant.old) :]
    return "\n".join(lines)


def sample(mutants, count):
    if not count or count >= len(mutants):
        return mutants
    return [mutants[i * len(mutants) // count] for i in range(count)]


class Copy:
    """A copy of the work tree in which one thing at a time is changed."""

    def __init__(self, work, paths, timeout):
        self.root = pathlib.Path(work).resolve()
        self.timeout = timeout
        listed = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard", "-z", "--", *paths],
            capture_output=True,
            check=True,
        )
        for name in filter(None, listed.stdout.decode().split("\0")):
            source, target = pathlib.Path(name), self.root / name
            if not source.is_file():
                continue
            # Unchanged files keep their time, so that the build does not compile them again.
            if target.exists() and target.read_bytes() == source.read_bytes():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
            os.utime(target)

    def run(self, command):
        """True if the command ends with 0 in time; what it starts is ended with it."""
        process = subprocess.Popen(
            ["bash", "-c", command],
            cwd=self.root,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return process.wait(self.timeout) == 0
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return False

    def write(self, name, text):
        (self.root / name).write_text(text)


def try_mutants(options, copies, mutants):
    """Yields the mutants' verdicts, in order; as many are tried at once as there are copies. None: no time
    was left."""
    accepted, left = read_reasons(options.accept)
    free = queue.SimpleQueue()
    for copy in copies:
        free.put(copy)
    end = time.monotonic() + 60 * options.minutes

    def verdict_of(mutant):
        if time.monotonic() > end:
            return None
        source = pathlib.Path(mutant.path).read_text()
        damaged = mutated(source, mutant)
        lines = [text.split("\n")[mutant.line].strip() for text in (source, damaged)]
        change = f"{lines[0]} -> {lines[1]}"
        if f"{mutant.path}:{change}" in accepted:
            verdict = "equivalent"
        else:
            copy = free.get()
            try:
                copy.write(mutant.path, damaged)
                verdict = (
                    "does not compile"
                    if not copy.run(options.build)
                    else "survived"
                    if copy.run(options.test)
                    else "killed"
                )
                copy.write(mutant.path, source)
            finally:
                free.put(copy)  # an error ends the run; without its copy the others would wait for ever
        print(f"{verdict}: {mutant.name()}: {change}", flush=True)
        reason = left.get(f"{mutant.path}:{change}", "")
        return {"place": mutant.name(), "change": change, "verdict": verdict, "reason": reason}

    with concurrent.futures.ThreadPoolExecutor(len(copies)) as pool:
        yield from pool.map(verdict_of, mutants)


def read_reasons(path):
    """({"path:change": reason} of equivalent mutants, the same of survivors)."""
    equivalent, survivors = {}, {}
    for line in pathlib.Path(path).read_text().splitlines() if path else []:
        if line.strip() and not line.startswith("#"):
            change, reason = re.split(r"\s{3,}", line.strip(), maxsplit=1)
            (survivors if change.startswith("survives ") else equivalent)[
                change.removeprefix("survives ")
            ] = reason
    return equivalent, survivors


def count(verdicts):
    return {
        name: sum(v["verdict"] == name for v in verdicts)
        for name in ("killed", "survived", "does not compile", "equivalent")
    }


def share_killed(counts):
    """1 where all are equivalent, 0 where none compiles."""
    judged = counts["killed"] + counts["survived"]
    return counts["killed"] / judged if judged else float(counts["equivalent"] > 0)


def test_of(text):
    return re.search(r"^Test: (.+)$", text, re.M)


def files_of(text):
    return re.findall(r"^\+\+\+ b/(\S+)", text, re.M)


def drawn(patches, count):
    """The patches that are tried: all, or `count` of them, which change with the patches' files."""
    if not count or count >= len(patches):
        return patches
    texts = [pathlib.Path(patch).read_text() for patch in patches]
    sources = [
        pathlib.Path(name).read_text() for name in sorted({name for text in texts for name in files_of(text)})
    ]
    return sorted(random.Random("".join(texts + sources)).sample(patches, count))


def named_tests(patches):
    """What the unchanged copy must pass: the tests that the patches name, or all."""
    found = [test_of(pathlib.Path(patch).read_text()) for patch in patches]
    return ":".join(sorted({match.group(1) for match in found if match})) or "*"


def patched(root, text):
    """{file: its text after a unified diff}; nothing is written. None if a file or a hunk's lines are not
    there; where they stand more than once, those nearest to the hunk's line number are taken."""
    found = {}
    for part in re.split(r"^--- a/.*\n\+\+\+ b/", text, flags=re.M)[1:]:
        name, *hunks = re.split(r"^@@ -(\d+).*\n", part, flags=re.M)
        name = name.split()[0]
        if not (root / name).is_file():
            return None
        now = (root / name).read_text()
        for line, hunk in zip(hunks[::2], hunks[1::2]):
            lines = hunk.splitlines(keepends=True)
            before, after = ("".join(one[1:] for one in lines if one[0] in kept) for kept in (" -", " +"))
            places = [match.end() for match in re.finditer(f"^(?={re.escape(before)})", now, re.M)]
            if not places:
                return None
            at = min(places, key=lambda place: abs(now.count("\n", 0, place) + 1 - int(line)))
            now = now[:at] + after + now[at + len(before) :]
        found[name] = now
    return found


def patch(root, text):
    """Changes the files as a unified diff says; False, and nothing is changed, if it does not apply."""
    texts = patched(root, text)
    for name, now in (texts or {}).items():
        (root / name).write_text(now)
    return texts is not None


def try_patches(options, copy, patches, chosen):
    failures = 0
    for path in patches:
        text = pathlib.Path(path).read_text()
        test = test_of(text)
        if path not in chosen:
            if patched(copy.root, text) is None:
                failures += 1
                print(f"does not apply: {path}", flush=True)
            continue
        applied = patch(copy.root, text)
        if not test:
            verdict = "no line 'Test: FILTER'"
        elif not applied:
            verdict = "does not apply"
        elif not copy.run(options.build):
            verdict = "does not compile"
        else:
            verdict = (
                "NOT NOTICED" if copy.run(options.test.replace("{filter}", test.group(1))) else "noticed"
            )
        for name in files_of(text) if applied else ():
            copy.write(name, pathlib.Path(name).read_text())
        failures += verdict != "noticed"
        if verdict == "noticed" and options.record:
            tiers.record("fault", [path])
        print(f"{verdict}: {path}" + (f" by {test.group(1)}" if test else ""), flush=True)
    tried = f", {len(chosen)} of them tried" if len(chosen) < len(patches) else ""
    print(f"{len(patches)} patches{tried}: {len(chosen) - failures} noticed, {failures} not")
    return 1 if failures or not patches else 0


def summary(verdicts, least):
    counts = count(verdicts)
    for verdict in verdicts:
        if verdict["verdict"] == "survived":
            print(f"survived: {verdict['place']}: {verdict['change']}   {verdict['reason']}".rstrip())
    print(f"{100 * share_killed(counts):.1f} % killed; {counts['equivalent']} accepted as equivalent")
    print(
        f"{len(verdicts)} mutants: {counts['killed']} killed, {counts['survived']} survived, "
        f"{counts['does not compile']} did not compile"
    )
    return int(share_killed(counts) < least)


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*")
    parser.add_argument("--build", required=True)
    parser.add_argument("--test", required=True)
    parser.add_argument("--patches")
    parser.add_argument("--work", default="build/mutate")
    parser.add_argument("--copy", nargs="+", default=["."])
    parser.add_argument("--names", default="rank,unit,stage")
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--only")
    parser.add_argument("--least", type=float, default=0.9)
    parser.add_argument("--timeout", type=float, default=120)
    parser.add_argument("--accept")
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--changed", action="store_true")
    parser.add_argument("--record", action="store_true")
    return parser.parse_args()


def passes(options, copy, tests):
    """Whether the unchanged copy compiles and passes its tests."""
    copy.timeout = max(1800.0, options.timeout)  # the first build compiles everything
    good = copy.run(options.build) and copy.run(options.test.replace("{filter}", tests))
    copy.timeout = options.timeout
    return good


def main():
    options = parse()
    begin = time.monotonic()
    patches = sorted(glob.glob(options.patches)) if options.patches else []
    tried = patches
    if options.changed:
        tried, options.files = tiers.changed("fault", patches), tiers.changed("mutants", options.files)
        if not tried and not options.files:
            print("nothing changed since the last soak (tests/setup/soaked.txt)")
            return 0
    chosen = drawn(tried, options.sample)
    works = [options.work] + [f"{options.work}_{job}" for job in range(2, options.jobs + 1)]
    copies = [Copy(work, options.copy, options.timeout) for work in works]
    if not passes(options, copies[0], named_tests(chosen)):
        print(
            "error: the unchanged copy fails: mutants would prove nothing\n  fix: run --build and --test in "
            + str(copies[0].root),
            file=sys.stderr,
        )
        return 70
    if options.patches:
        return try_patches(options, copies[0], patches, chosen)
    mutants = [
        m
        for name in options.files
        for m in find_mutants(name, pathlib.Path(name).read_text(), options.names.split(","))
    ]
    if options.only:
        mutants = [m for m in mutants if f"{m.path}:{m.line + 1}" == options.only]
    mutants = sample(mutants, options.sample)
    verdicts, following = [], try_mutants(options, copies, mutants)
    for name in options.files:
        found = [next(following) for m in mutants if m.path == name]
        verdicts += found
        if (
            options.record
            and not (options.sample or options.only or None in found)
            and (not found or share_killed(count(found)) >= options.least)
        ):
            tiers.record("mutants", [name])
    judged = [verdict for verdict in verdicts if verdict]
    if len(judged) < len(verdicts):
        print(f"{len(verdicts) - len(judged)} mutants are left: run it again")
    print(f"{time.monotonic() - begin:.0f} s")
    return summary(judged, options.least)


if __name__ == "__main__":
    sys.exit(main())
