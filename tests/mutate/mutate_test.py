#!/usr/bin/env python3
"""Tests of mutate.py: which mutants it finds, and that it tells killed from survived. Runs in a scratch
repository with a "program" in Python."""
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import mutate  # noqa: E402

SOURCE = """#include <vector>
// a + b in a comment
template <class T> T f(T a, int stage) {
  const char* text = "a + b" + std::string(x);
  std::vector<int> v(1 + 2, stage);
  for (int i = 0; i < a; ++i) v[stage] += i % 3;
  stage = 4;
  return a * v[0] - v[stage];
}
"""


def check(holds, what):
    if not holds:
        sys.exit(f"failed: {what}")


def finds():
    found = [(m.line + 1, m.old, m.new) for m in mutate.find_mutants("f.cpp", SOURCE, ["stage"])]
    expected = [
        (5, "+", "-"),
        (5, "stage", "(stage + 1)"),
        (6, "<", "<="),
        (6, "+=", "-="),
        (6, "%", "*"),
        (6, "stage", "(stage + 1)"),
        (8, "*", "/"),
        (8, "-", "+"),
        (8, "stage", "(stage + 1)"),
    ]
    check(found == expected, f"mutants are {found}")
    first = mutate.find_mutants("f.cpp", SOURCE, ["stage"])[0]
    check("v(1 - 2, stage)" in mutate.mutated(SOURCE, first), "the first mutant subtracts")
    check(mutate.sample(list(range(10)), 3) == [0, 3, 6], "a sample is spread evenly")


def run(folder, *arguments):
    tool = pathlib.Path(__file__).resolve().parent / "mutate.py"
    return subprocess.run(
        [sys.executable, str(tool), *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


def judges():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        subprocess.run(["git", "init", "-q", name], check=True)
        (folder / ".gitignore").write_text("/build/\n")
        (folder / "sum.py").write_text("def f(a, b):\n    c = a * 1\n    return c + b\n")
        (folder / "t.sh").write_text("python3 -c 'import sum; assert sum.f(2, 3) == 5'\n")
        commands = ["--build", "python3 -m py_compile sum.py", "--test", "sh t.sh"]
        result = run(folder, *commands, "sum.py")
        # The mutant a * 1 -> a / 1 is equivalent and survives, c + b -> c - b is killed: half of the mutants
        # is not enough.
        check(result.returncode == 1, result.stdout + result.stderr)
        check("2 mutants: 1 killed, 1 survived, 0 did not compile" in result.stdout, result.stdout)
        check("survived: sum.py:2:11: c = a * 1 -> c = a / 1" in result.stdout, result.stdout)
        check((folder / "sum.py").read_text().endswith("c + b\n"), "the original is untouched")
        (folder / "accept").write_text("# equal\nsum.py:c = a * 1 -> c = a / 1   division by one\n")
        accepted = run(folder, *commands, "--jobs", "2", "--accept", "accept", "sum.py")
        check(accepted.returncode == 0 and "1 accepted as equivalent" in accepted.stdout, accepted.stdout)
        alone = run(folder, *commands, "--accept", "accept", "--only", "sum.py:2", "sum.py")
        check(alone.returncode == 0 and "0 killed, 0 survived" in alone.stdout, "all may be equivalent")
        picky = ["--build", "grep -q 'a [*] 1' sum.py && grep -q 'c + b' sum.py", "--test", "sh t.sh"]
        check(run(folder, *picky, "sum.py").returncode == 1, "mutants that do not compile prove nothing")
        (folder / "left").write_text("survives sum.py:c = a * 1 -> c = a / 1   nobody divides\n")
        left = run(folder, *commands, "--accept", "left", "sum.py")
        check(
            left.returncode == 1 and "c = a / 1   nobody divides\n" in left.stdout,
            "a survivor counts, whatever its reason",
        )
        check("2 mutants are left" in run(folder, *commands, "--minutes", "0", "sum.py").stdout, "no time")
        check(
            run(folder, "--build", "true", "--test", "false", "sum.py").returncode == 70,
            "a broken baseline is an error",
        )
        patch = (
            "Test: any\n--- a/sum.py\n+++ b/sum.py\n@@ -1,3 +1,3 @@\n def f(a, b):\n     c = a * 1\n-    "
            "return c + b\n+    return c + {}\n"
        )
        for number, (text, code) in enumerate([("7", 1 - 1), ("b + 0", 1)]):
            (folder / f"p{number}.patch").write_text(patch.format(text))
            result = run(folder, *commands, "--patches", f"p{number}.patch")
            check(result.returncode == code, f"patch {number}: {result.stdout}{result.stderr}")
        # With a count, only some of many patches are tried, and others when the file changes; a patch that
        # does not apply is always reported.
        for number in range(10, 20):
            (folder / f"s{number}.patch").write_text(patch.format(number))

        def some():
            result = run(folder, *commands, "--patches", "s*.patch", "--sample", "2")
            return result, re.findall(r"^noticed: (\S+)", result.stdout, re.M)

        first, tried = some()
        check(
            first.returncode == 0 and "10 patches, 2 of them tried: 2 noticed, 0 not" in first.stdout,
            first.stdout + first.stderr,
        )
        check(some()[1] == tried, "nothing changed")
        sources = []
        for number in range(5):
            (folder / "sum.py").write_text(f"def f(a, b):\n    c = a * 1\n    return c + b\n\n\n# {number}\n")
            sources.append(some()[1])
        check(any(one != tried for one in sources), "the file changed")
        (folder / "s30.patch").write_text(patch.format(1).replace("c = a * 1", "c = a * 2"))
        check(
            run(folder, *commands, "--patches", "s*.patch", "--sample", "2").returncode == 1,
            "it does not apply",
        )
        (folder / "s30.patch").write_text(patch.format(1).replace("sum.py", "gone.py"))
        result = run(folder, *commands, "--patches", "s*.patch")
        check("does not apply: s30.patch" in result.stdout, "its file is gone: " + result.stderr)


if __name__ == "__main__":
    finds()
    judges()
    print("passed")
