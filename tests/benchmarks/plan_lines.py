"""The plans in the stored runs of docs/results/lesson_00.json to lesson_08.json, as the programs print them today.

usage: python3 -B tests/benchmarks/plan_lines.py [--bin DIR]     DIR: built programs (default build/cpu/bin)

What a run printed before its first step is its plan. Where names or formulas of buffers have changed since, the plan is printed
again by `--plan` and takes the place of the stored one. Its numbers must be those that were stored: everything else is another
plan, which needs another run. What was measured stays.
"""
import json
import pathlib
import re
import sys

from harness import CPU_BIN, RESULTS, ROOT, arguments, said_by


def plan_of(lines):
    """Where the plan begins and ends."""
    begin = next(
        i for i, line in enumerate(lines) if line.startswith(("memory of a rank", "memory of the ranks"))
    )
    end = next(i for i, line in enumerate(lines) if i > begin and (line.startswith("step ") or not line))
    return begin, end


def numbers_of(lines):
    """All numbers but those of formulas and of names."""
    return [re.findall(r"[\d.,]*\d", re.sub(r"\bunit \d+", "", line.split("  = ")[0])) for line in lines]


def main():
    options = arguments(__doc__, {"--bin": {"type": pathlib.Path, "default": CPU_BIN}})
    for path in sorted(RESULTS.glob("lesson_0[0-8].json")):
        text = path.read_text(encoding="utf-8")
        run = json.loads(text)["default"]
        lesson = run["command"].split("/")[1]
        script = (ROOT / f"lessons/{lesson}/run.sh").read_text(encoding="utf-8")
        found = re.search(r"default-workload (\S+)", script)
        words = ["--plan", "--device", "cpu", "--workload", found[1] if found else "configs/tiny.json"]
        said = said_by([options.bin.resolve() / lesson, *words, "--world", run["world"]])
        new = [*said.splitlines(), ""]
        (a, b), (c, d) = plan_of(run["said"]), plan_of(new)
        before, after = run["said"][a:b], new[c:d]
        if [row for row in numbers_of(before) if row] != [row for row in numbers_of(after) if row]:
            sys.exit(f"{path.name}: the plan's numbers have changed: run tests/benchmarks/records.py again")
        old_text, new_text = (json.dumps(lines, separators=(",", ":"))[1:-1] for lines in (before, after))
        if text.count(old_text) != 1:
            sys.exit(f"{path.name}: the stored plan was not found")
        path.write_text(text.replace(old_text, new_text), encoding="utf-8")
        print(f"{path.name}: {sum(x != y for x, y in zip(before, after))} of {len(after)} lines are new")


if __name__ == "__main__":
    main()
