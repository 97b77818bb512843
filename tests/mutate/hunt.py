#!/usr/bin/env python3
"""Hunts: planted faults to find in a copy of the sources, for lessons/hunt.sh.

A hunt is a patch of tests/faults: its first line says what is wrong, and `Test: FILTER` names the test that
finds it. A story, the first hunt of a lesson, has more lines:

  Story: COMMAND   runs in the copy; several run in turn until one fails. `@run NN_name FLAGS` is run.sh of
                   that lesson with a small model. Programs of the hunt's lesson have the fault, others do not
  Symptom: REGEX   found in the output while the fault is there, and never without it
  Tools: TEXT      what helps to find it
  Hint: TEXT       three; never code

Only what differs from the repository is compiled; it is linked with the objects of an existing build.
"""
import argparse
import filecmp
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import mutate  # noqa: E402  what a patch says
import relink  # noqa: E402  compiling and linking what differs
from mutate import tiers  # noqa: E402  what the last soak saw

ROOT = relink.ROOT
INTO = ROOT / os.environ.get("STAGECRAFT_HUNTS", "build/hunt")
CODE = ["common", "lessons", "pipedream"]
RUN = r"lessons/\1/run.sh --no-build --preset cpu --watchdog 120 --set model.layers=2 --set batch.global=8"
USAGE, MISSING, FAILED = 64, 69, 70
SHOWN = 14  # lines of output: all that a hunt says fits on a screen of 20


def die(code, where, what, fix):
    print(f"error: {where}: {what}\n  fix: {fix}", file=sys.stderr)
    sys.exit(code)


class Hunt:
    def __init__(self, path):
        text = path.read_text()
        header, self.body = re.split(r"(?m)^(?=--- )", text, maxsplit=1)

        def said(name):
            return re.findall(rf"^{name}: (.+)$", header, re.M)

        self.path, self.what, self.lesson = path, header.split("\n", 1)[0], path.name.split("_")[0]
        self.patch = f"tests/faults/{path.name}"
        self.files, self.test, self.number = mutate.files_of(text), "".join(said("Test")), 0
        self.story = [re.sub(r"@run (\w+)", RUN, line) for line in said("Story")]
        self.symptom, self.tools, self.hints = "".join(said("Symptom")), "".join(said("Tools")), said("Hint")
        if not self.test or self.story and not (self.symptom and self.tools and len(self.hints) == 3):
            die(FAILED, path.name, "its header lacks lines", "see the first lines of tests/mutate/hunt.py")

    @property
    def name(self):
        return f"{self.lesson} {self.number}"

    @property
    def folder(self):
        return INTO / self.name.replace(" ", "_")

    def places(self):
        """Where the fault is, no closer than by folder."""
        own = [str(path.relative_to(ROOT)) for path in ROOT.glob(f"lessons/{self.lesson}_*")]
        return sorted({*own, *(os.path.dirname(name) for name in self.files)})

    def programs(self):
        """What the story runs, as names in build/cpu/bin."""
        named = re.findall(r"lessons/(\w+)/run\.sh|build/cpu/bin/(\w+)", "\n".join(self.story))
        return sorted({one or other for one, other in named})

    def three_hints(self):
        if self.hints:
            return self.hints
        name = re.search(r"\w+\.\w+", self.test)[0]
        begin = re.compile(rf"^\w*TEST\w*\({name.replace('.', ', ')}\)", re.M)
        sources = sorted((ROOT / "tests").rglob("*_test.cpp"))
        found = [str(path.relative_to(ROOT)) for path in sources if begin.search(path.read_text())]
        return [f"read what {name} asks for, in {' and '.join(found)}", f"look in {self.files[0]}", self.what]

    def mend(self):
        """The patch in the direction of the mend."""
        text = re.sub(r"(?m)^@@ -(\S+) \+(\S+) @@", r"@@ -\2 +\1 @@", self.body)
        text = re.sub(r"(?m)^[-+](?!-- |\+\+ )", lambda sign: "-+"[sign[0] == "-"], text)
        return re.sub(r"(?m)((?:^\+(?!\+\+ ).*\n)+)((?:^-(?!-- ).*\n)+)", r"\2\1", text)


def all_hunts():
    """{lesson: its hunts}; the story comes first."""
    lessons = {}
    hunts = [Hunt(path) for path in sorted((ROOT / "tests/faults").glob("*.patch"))]
    for hunt in sorted(hunts, key=lambda hunt: (hunt.lesson, not hunt.story)):
        lessons.setdefault(hunt.lesson, []).append(hunt)
        hunt.number = len(lessons[hunt.lesson])
    return lessons


def chosen(lessons, lesson, number):
    key = lesson.split("_")[0]
    key = key.zfill(2) if key.isdigit() else key
    if key not in lessons:
        die(USAGE, lesson, f"no lesson with hunts; there are {', '.join(lessons)}", "lessons/hunt.sh")
    if not re.fullmatch(r"[1-9]\d{0,3}", number) or int(number) > len(lessons[key]):
        die(USAGE, f"{lesson} {number}", f"its hunts are 1 to {len(lessons[key])}", f"lessons/hunt.sh {key}")
    return lessons[key][int(number) - 1]


# --- building ---------------------------------------------------------------------------------------------


class Changed(relink.Linker):
    """Programs of a build in which a copy's sources replace those that differ from the repository's."""

    def __init__(self, build, copy):
        os.chdir(copy)
        os.environ["CCACHE_BASEDIR"] = str(copy)  # another copy finds the same objects
        super().__init__(ROOT, build)
        self.objects = []

    def compile_changed(self):
        """Empty, or what the compiler says."""
        names = {str(path.relative_to(ROOT)) for top in CODE for path in (ROOT / top).rglob("*.[ch]*")}
        changed = {name for name in names if not self.same(name)}
        units = {self.unit_of(name) for name in changed} & set(self.commands)
        if any(name.endswith(".h") for name in changed):
            units |= {unit for unit, read in self.reads().items() if changed & read}
        try:
            self.objects = [self.compile(unit) for unit in sorted(units) if not unit.endswith("/main.cpp")]
        except SystemExit as error:
            return str(error)
        return ""

    def same(self, name):
        return (self.here / name).is_file() and filecmp.cmp(self.here / name, ROOT / name, shallow=False)

    def reads(self):
        """{unit of a library: what it includes}."""
        said = subprocess.check_output(["ninja", "-C", str(self.build), "-t", "deps"], text=True)
        blocks = [block.split()[1:] for block in re.sub(r": #deps .*", "", said).split("\n\n")]
        found = [[os.path.normpath(self.build / name) for name in block] for block in blocks]
        libraries = [one for one in found if one and one[0] in self.commands and "/tests/" not in one[0]]
        return {one[0]: {os.path.relpath(file, ROOT) for file in one} for one in libraries}

    @staticmethod
    def tests(hunt):
        """The ctest entries that find damage to the hunt's files."""
        return sorted({test for file in hunt.files for test in relink.TESTS.get(file, ["pipedream_test"])})

    def run_tests(self, hunt):
        """Empty, or what the hunt's test says."""
        for name in self.tests(hunt):
            entry = self.entries[name]
            words = [self.link(word, self.objects) if self.built(word) else word for word in entry]
            line = shlex.join([*words, "--gtest_fail_fast", "--gtest_brief=1", f"--gtest_filter={hunt.test}"])
            code, said = shell(line, ROOT)
            if code != 0:
                return said or f"exit code {code}"
        return ""

    def built(self, word):
        return self.build in pathlib.Path(word).parents

    def tell_story(self, hunt):
        """(whether all commands ended with 0, their output)."""
        programs, output = self.here / "build/cpu/bin", ""
        for folder in (programs, self.here / "runs"):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        for name in hunt.programs():
            program, own = str(self.build / "bin" / name), name.startswith(hunt.lesson)
            (programs / name).symlink_to(self.link(program, self.objects) if own else program)
        for line in hunt.story:
            code, said = shell(line, self.here)
            output += f"$ {line}\n" + "".join(f"  {one}\n" for one in said.splitlines())
            if code != 0:
                return False, f"{output}  exit code {code}\n"
        return True, output

    def wrong(self, hunt):
        """(what is wrong with the copy, output), or two empty texts."""
        if said := self.compile_changed():
            return "it does not compile", said
        if said := self.run_tests(hunt):
            return f"the test {hunt.test} fails", said
        ended, said = self.tell_story(hunt)
        if not ended or hunt.story and re.search(hunt.symptom, said, re.M):
            return "the run is not right", said
        return "", ""


def shell(line, folder):
    """(exit code, output) of a command that takes seconds, but perhaps not on this machine today."""
    command, pipes = ["timeout", "-k5", "300", "bash", "-c", line], {"stdout": -1, "stderr": -2, "stdin": -3}
    done = subprocess.run(command, cwd=folder, text=True, errors="replace", check=False, **pipes)
    return done.returncode, done.stdout


def make(*words):
    line = 'source common/setup/lib.sh; common/setup/setup.sh --quiet; made cpu "$@"'
    if subprocess.run(["bash", "-ec", line, "bash", *words], cwd=ROOT, check=False).returncode != 0:
        sys.exit(MISSING)


def made(build, hunts):
    """The build folder, in which everything is up to date that the hunts need."""
    if build and not (build / "compile_commands.json").is_file():
        die(USAGE, build, "it is no build folder", "cmake --preset cpu, or leave out --build")
    if build:
        return build.resolve()
    folder = ROOT / "build/cpu"
    make("configuring", "build.ninja")
    linker = Changed(folder, ROOT)
    tests = {word for hunt in hunts for test in linker.tests(hunt) for word in linker.entries[test]}
    wanted = {os.path.relpath(word, folder) for word in tests if linker.built(word)}
    wanted |= {f"bin/{name}" for hunt in hunts for name in hunt.programs()}
    make("building what the hunt needs; the first time takes minutes", *sorted(wanted))
    return folder


# --- what a hunt does -------------------------------------------------------------------------------------


def take(folder, hunt=None):
    """A fresh copy, with the fault of a hunt."""
    shutil.rmtree(folder, ignore_errors=True)
    for top in [*CODE, "configs"]:
        # A lesson's page has the solutions.
        shutil.copytree(ROOT / top, folder / top, ignore=shutil.ignore_patterns("__pycache__", "README.md"))
    if hunt and not mutate.patch(folder, hunt.path.read_text()):
        die(FAILED, hunt.name, "the sources have changed where it belongs", "git checkout common lessons")


def shown(text, log):
    """Prints the first and the last lines, without those that say `equal`; all of them are in the log."""
    log.parent.mkdir(exist_ok=True)
    log.write_text(text)
    lines = [line[:200] for line in text.splitlines() if line.strip() and not line.endswith("  equal")]
    if len(lines) > SHOWN:
        lines[SHOWN // 2 : -(SHOWN // 2)] = [f"... all lines: {log.relative_to(ROOT)}"]
    print("\n".join(lines))


def show(hunt, build):
    copy, fresh = hunt.folder.relative_to(ROOT), not hunt.folder.exists()
    if fresh:
        take(hunt.folder, hunt)
    print(f"hunt {hunt.name}" + ("" if fresh else ", as you left it"))
    print(f"$ cd {copy}", flush=True)
    linker = Changed(build, hunt.folder)
    said = linker.compile_changed() or (linker.tell_story(hunt)[1] if hunt.story else linker.run_tests(hunt))
    shown(said or f"the test {hunt.test} passes", hunt.folder / "build/symptom.txt")
    print(f"look in  {', '.join(f'{copy}/{place}' for place in hunt.places())}")
    print(f"with     {hunt.tools or f'what the test {hunt.test} compares, and run.sh of the copy'}")
    print("then     edit the copy and add --check to the command, which builds it; --hint and --reveal help")


def check(hunt, build):
    what, said = Changed(build, hunt.folder).wrong(hunt)
    if what:
        print(f"not right yet: {hunt.name}: {what}")
        shown(said, hunt.folder / "build/check.txt")
        return 1
    print(f"right: {hunt.name}: {hunt.test} passes" + ", and the run is as it should be" * bool(hunt.story))
    return 0


def hint(hunt):
    given = hunt.folder / "build/hints"
    number = min(int(given.read_text()) + 1 if given.is_file() else 1, 3)
    print(f"hint {number} of 3: {hunt.three_hints()[number - 1]}")
    given.parent.mkdir(exist_ok=True)
    given.write_text(str(number))


def prove(hunts, build, record):
    """Each story shows its symptom; without its fault its copy is right."""
    folder, proven = INTO / "proof", []
    for hunt in hunts:
        take(folder)
        what, said = Changed(build, folder).wrong(hunt)
        if not what:
            take(folder, hunt)
            linker = Changed(build, folder)
            said = linker.compile_changed() or linker.tell_story(hunt)[1]
            what = "" if re.search(hunt.symptom, said, re.M) else "no symptom"
        print(f"{hunt.patch}: " + (f"NOT PROVEN: {what}\n{said}" if what else "proven"), flush=True)
        proven += [] if what else [hunt.patch]
        if record:
            tiers.record("hunt", proven)
    print(f"{len(hunts)} stories: {len(proven)} proven, {len(hunts) - len(proven)} not")
    return int(proven != [hunt.patch for hunt in hunts])


def main():
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("lesson", nargs="?")
    parser.add_argument("number", nargs="?", default="1")
    action = parser.add_mutually_exclusive_group()
    for name in ("check", "hint", "reveal", "prove"):
        action.add_argument(f"--{name}", action="store_const", dest="action", const=name)
    parser.add_argument("--build", type=pathlib.Path)
    parser.add_argument("--changed", action="store_true")
    parser.add_argument("--record", action="store_true")
    parser.error = lambda what: die(USAGE, "lessons/hunt.sh", what, "lessons/hunt.sh --help")
    options, lessons = parser.parse_args(), all_hunts()
    if options.action == "prove":
        stories = [chosen(lessons, key, "1") for key in ([options.lesson] if options.lesson else lessons)]
        changed = tiers.changed("hunt", [hunt.patch for hunt in stories])
        stories = [hunt for hunt in stories if hunt.patch in changed or not options.changed]
        return prove(stories, made(options.build, stories), options.record) if stories else 0
    if options.lesson is None:
        print("hunts of each lesson; 1 is a run that goes wrong, and the default: lessons/hunt.sh 12")
        return print("\n".join(f"  {lesson:9}  1 to {len(hunts)}" for lesson, hunts in lessons.items()))
    hunt = chosen(lessons, options.lesson, options.number)
    if options.action and not hunt.folder.exists():
        die(USAGE, hunt.name, "this hunt has not begun", f"lessons/hunt.sh {hunt.name}")
    if options.action == "hint":
        return hint(hunt)
    if options.action == "reveal":
        return print(f"{hunt.what}\n{hunt.mend()}", end="")
    build = made(options.build, [hunt])
    return check(hunt, build) if options.action == "check" else show(hunt, build)


if __name__ == "__main__":
    sys.exit(main())
