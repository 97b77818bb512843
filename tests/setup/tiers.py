#!/usr/bin/env python3
"""Which check runs where: the one list. What is not named here runs in all three.

  tests/run.sh    what guards behaviour; a test of a tool only where what it reads differs from what the last
                  soak saw
  .ci/run         also what pages tell to type; format, clang-tidy, each file alone, planted faults, mutants
                  and exercises, as far as they changed; chosen sanitizers; the cuda preset's objects;
                  transformers
  tests/soak.sh   everything, in parts. It leaves sums of what it found in order: tests/setup/soaked.txt

usage: tiers.py left-out run|ci        of ctest's entries, as a regular expression for ctest -E
       tiers.py part PART              the ctest entries of a part of soak.sh, as an expression for ctest -R
       tiers.py changed KIND NAME ...  those names of which soaked.txt has no sum, or another
       tiers.py record KIND NAME ...   notes the sums of today
       tiers.py passed CTEST_XML       notes the tools that passed there
       tiers.py ran PART SECONDS TESTS notes in docs/records/soak.json that a part passed now
       tiers.py last PART ...          when each passed
       tiers.py check BUILD            every entry has a place, every name an entry, and soak has them all
Kinds: tool (a ctest entry of READS), file (alone and by clang-tidy), fault (a patch), hunt (one that is a
story), mutants (a source), aarch64 (code for one processor).
"""
import datetime
import functools
import hashlib
import json
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/mutate"))
import relink  # noqa: E402  which tests notice damage to a file

RECORD = ROOT / "tests/setup/soaked.txt"
RAN = ROOT / "docs/records/soak.json"

PLANS = [
    "docs/explore/sources.txt",
    "@docs/explore/sources.txt",
]  # all that a plan is made of; @: the files that a file names
# Tests of tools and records, with the files that they read. The first two tiers run one only if such a file
# changed.
TOOLS = {
    "benchmarks_(gpu|torch_.*|comm_sweep|padding)": [
        "tests/benchmarks/*.py",
        "tests/benchmarks/comm_sweep.cpp",
    ],
    "choose_records": [
        "tests/benchmarks/choosing.py",
        "tests/benchmarks/harness.py",
        "docs/results/*.json",
        *PLANS,
    ],
    "docs_(plans|meshes)": [
        "tests/benchmarks/plans.py",
        "common/records/curves/report.py",
        "tests/benchmarks/meshes.py",
        "tests/benchmarks/harness.py",
        "docs/results/plans.json",
        "docs/results/meshes.json",
        *PLANS,
    ],
    "explore_(equal|page)": ["docs/explore/index.html", "tests/explore/*", *PLANS],
    "pipedream_mutate": ["tests/mutate/*.py"],
    "setup_(hunt|outside|exit_code|restart|launch|setup)_test": [
        "CMake*.*",
        "common/cmake/*",
        "common/input/*",
        "common/setup/*",
        "lessons/*.*",
        "lessons/*/run.sh",
        "pipedream/*",
        "tests/*.sh",
        "tests/faults/*",
        "tests/mutate/*.py",
        "tests/pipedream/*",
        "tests/setup/*.sh",
    ],
    "processes_bits": ["tests/bits.py", "tests/processes/bits_test.py"],
    "records_report_runs": [
        "common/records/curves/*",
        "common/setup/lib.sh",
        "lessons/report.sh",
        "tests/records/*.py",
    ],
    "records_page": [
        "common/records/page/*",
        "common/records/page.cpp",
        "tests/records/page*",
        "docs/pages/*.html",
    ],
}
# Tests drawn by what changed run only in .ci/run. Soak runs all of them, in parts of their own.
CHANGED = "(lessons|pipedream)_(faults|mutants)|lessons_hunts"
# tests/run.sh leaves these out: commands that pages tell a reader to type, which other tests run in another
# form, and what must not compile.
PAGES = "docs_(commands|notebooks|refusals)|model_real_models_test|strategy_(compiles|does_not_compile)_.*"
# Exercises are built by their ctest label; .ci/run does it if one changed.
EXERCISE = "exercise_.*|exercises_score"
READS = {**TOOLS, EXERCISE: ["tests/exercises.sh", "tests/exercises/**/*", "lessons/*/exercise/**/*"]}
# Only soak runs these: new inputs under sanitizers (fuzz_replay has the kept ones), and a check that
# generated files are up to date.
SOAK = "fuzz|explore_built"
# Parts of soak.sh that are ctest entries; the part `tests` has all others.
PARTS = {
    "tools": "|".join([*TOOLS, "explore_built", "docs_.*", "records_.*"]),
    "processes": "processes_[a-m].*",
    "processes_more": "processes_[n-z].*",
    "exercises": EXERCISE,
    "faults": CHANGED,
    "fuzz": "fuzz",
}


def matches(pattern, name):
    return re.fullmatch(pattern, name) is not None


# --- sums -------------------------------------------------------------------------------------------------


def without_layout(text):
    """C++ without comments, but for what clang-tidy is told, and with one blank where it had any; texts stay
    as they are."""
    token = r'R"(\w*)\((?:.|\n)*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|/\*(?:.|\n)*?\*/'
    pieces, end = [], 0
    for match in re.finditer(token, text):
        pieces += text[end : match.start()].split()
        if not match[0].startswith(("//", "/*")) or "NOLINT" in match[0]:
            pieces.append(match[0])
        end = match.end()
    return " ".join(pieces + text[end:].split())


@functools.cache
def digest(name):
    """The sum of a file, without layout if it is C++; a file that is gone counts as empty."""
    path = ROOT / name
    data = path.read_bytes() if path.is_file() else b""
    if path.suffix in (".h", ".cpp"):
        data = without_layout(data.decode()).encode()
    return hashlib.sha256(data).hexdigest()


def sum_of(names):
    lines = (f"{name} {digest(name)}\n" for name in sorted(set(names)))
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:16]


@functools.cache
def sources_of_tests():
    """{test: its sources} of sc_test and sc_mpi_test."""
    found = {}
    for path in (ROOT / "tests").glob("*/CMakeLists.txt"):
        for name, sources in re.findall(
            r"^sc_(?:mpi_)?test\((\w+)\b[^)]*?\bSOURCES((?:\s+[\w./]+\.cpp)+)", path.read_text(), re.M
        ):
            found[name] = [
                str((path.parent / source).resolve().relative_to(ROOT)) for source in sources.split()
            ]
    return found


def tests_of(source):
    """The test sources that notice damage to this one."""
    if source.startswith(("pipedream/", "common/input/")):
        return globbed(("tests/pipedream/*.cpp",))
    return [file for test in relink.TESTS[source] for file in sources_of_tests()[test]]


@functools.cache
def globbed(patterns):
    found = []
    for pattern in patterns:
        if pattern.startswith("@"):
            found += (ROOT / pattern[1:]).read_text().split()
        else:
            found += (
                str(path.relative_to(ROOT))
                for path in ROOT.glob(pattern)
                if path.is_file() and "__pycache__" not in path.parts
            )
    return found


def read_by(kind, name):
    """The files on which it depends what a check finds."""
    if kind == "tool":
        return globbed(next(tuple(files) for pattern, files in READS.items() if matches(pattern, name)))
    if kind in ("file", "aarch64"):
        return [name, re.sub(r"\.cpp$", ".h", name), *([".clang-tidy"] if kind == "file" else [])]
    damaged = [name] if kind == "mutants" else re.findall(r"^\+\+\+ b/(\S+)", (ROOT / name).read_text(), re.M)
    if kind in ("mutants", "fault", "hunt"):
        return [name, *damaged, *(test for source in damaged for test in tests_of(source))]
    raise SystemExit(f"{kind}: no kind of check")


def todays(kind, name):
    return sum_of(read_by(kind, name))


def recorded():
    return dict(line.rsplit(" ", 1) for line in RECORD.read_text().splitlines()) if RECORD.is_file() else {}


def changed(kind, names):
    before = recorded()
    return [name for name in names if before.get(f"{kind} {name}") != todays(kind, name)]


def record(kind, names):
    sums = recorded()
    sums.update({f"{kind} {name}": todays(kind, name) for name in names})
    RECORD.write_text("".join(f"{key} {value}\n" for key, value in sorted(sums.items()) if kind_exists(key)))


def kind_exists(key):
    """A file that is gone leaves no sum behind."""
    kind, name = key.split(" ", 1)
    return kind == "tool" or (ROOT / name).is_file()


# --- ctest ------------------------------------------------------------------------------------------------


def entries(build):
    shown = subprocess.run(
        ["ctest", "--test-dir", build, "--show-only=json-v1"], stdout=subprocess.PIPE, check=True
    ).stdout
    return [test["name"] for test in json.loads(shown)["tests"]]


def left_out(tier, build):
    """The entries that the tier does not run."""
    away = [SOAK, CHANGED, EXERCISE, PAGES] if tier == "run" else [SOAK]
    names = entries(build)
    tools = tools_of(names)
    unchanged = set(tools) - set(changed("tool", tools))
    return [name for name in names if name in unchanged or any(matches(pattern, name) for pattern in away)]


def tools_of(names):
    return [name for name in names if any(matches(pattern, name) for pattern in READS)]


def of_part(part, build):
    names = entries(build)
    if part != "tests":
        return [name for name in names if matches(PARTS[part], name)]
    return [name for name in names if not any(matches(pattern, name) for pattern in PARTS.values())]


def expression(names):
    return "^(" + "|".join(re.escape(name) for name in names) + ")$"


def passed(report):
    cases = xml.etree.ElementTree.parse(report).getroot().iter("testcase")
    return tools_of([case.get("name") for case in cases if case.get("status") == "run"])


def check(build):
    names = entries(build)
    named = [
        one
        for pattern in [*READS, CHANGED, PAGES, SOAK, *PARTS.values()]
        for one in re.split(r"\|(?![^(]*\))", pattern)
    ]
    problems = [
        f"no ctest entry is called {one}" for one in named if not any(matches(one, name) for name in names)
    ]
    soaked = [name for part in [*PARTS, "tests"] for name in of_part(part, build)]
    problems += [f"{name}: no part of soak runs it" for name in names if name not in soaked]
    problems += [
        f"tests/soak.sh has no part {part}"
        for part in [*PARTS, "tests"]
        if not re.search(rf"^    {part}\)", (ROOT / "tests/soak.sh").read_text(), re.M)
    ]
    for tier in ("run", "ci"):
        print(f"{tier}: {len(names) - len(left_out(tier, build))} of {len(names)} entries now")
    return problems


def parts_that_ran():
    return json.loads(RAN.read_text()) if RAN.is_file() else {}


def ran(part, seconds, tests):
    head = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
    ).stdout.strip()
    parts = parts_that_ran()
    parts[part] = {
        "date": str(datetime.date.today()),
        "commit": head,
        "seconds": int(seconds),
        "tests": int(tests),
    }
    RAN.write_text(json.dumps(parts, indent=1, sort_keys=True) + "\n")


def last(part):
    found = parts_that_ran().get(part)
    return f"{part:18} " + (
        f"{found['date']}  {found['commit']}  {found['seconds']:5d} s"
        + f"  {found['tests']:3d} tests" * (found["tests"] > 0)
        if found
        else "never"
    )


COMMANDS = {
    "left-out": lambda tier, build: print(expression(left_out(tier, build))),
    "part": lambda part, build: print(expression(of_part(part, build))),
    "changed": lambda kind, *names: sys.stdout.writelines(f"{name}\n" for name in changed(kind, names)),
    "record": lambda kind, *names: record(kind, names),
    "passed": lambda report: record("tool", passed(report)),
    "ran": ran,
    "last": lambda *parts: print("\n".join(map(last, parts))),
    "check": lambda build: sys.exit("\n".join(check(build)) or None),
}


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in COMMANDS:
        sys.exit(__doc__)
    COMMANDS[sys.argv[1]](*sys.argv[2:])
