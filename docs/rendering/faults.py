"""Planted faults: tests/faults/*.patch, whose first line says what is broken and whose second names the test
that finds it."""
import re

from .registry import ROOT, RenderError, renders, table_of


def fault_of(path):
    """(what is broken, the test that finds it, the files that it changes)."""
    lines = path.read_text().splitlines()
    test = next((line.removeprefix("Test: ") for line in lines[:6] if line.startswith("Test: ")), None)
    if test is None:
        raise RenderError(f"{path.name}: none of the first lines says 'Test: NAME'")
    return lines[0], test, re.findall(r"^--- a/(\S+)", "\n".join(lines), re.M)


FAULT = re.compile(r"<!-- fault: (\S+) -->.*?<!-- /fault -->")


def fill_tests(text):
    """`<!-- fault: NAME -->...<!-- /fault -->`: the test that tests/faults/NAME.patch must turn red."""

    def fill(match):
        path = ROOT / f"tests/faults/{match[1]}.patch"
        if not path.exists():
            raise RenderError(f"tests/faults/{match[1]}.patch is not there")
        test = re.sub(r"/(\d+|\*)$", "", fault_of(path)[1]).rsplit(".", 1)[-1]
        return f"<!-- fault: {match[1]} -->`{test}`<!-- /fault -->"

    return FAULT.sub(fill, text)


def unlisted(page, text):
    """A lesson's README names every fault of its number."""
    lesson = page.path.split("/")[1].split("_")[0]
    return [
        path.name
        for path in sorted((ROOT / "tests/faults").glob(f"{lesson}_*.patch"))
        if path.name not in text
    ]


@renders
def faults(page, lesson):
    """The planted faults of a lesson: tests/faults/<lesson>_*.patch."""
    return table_of(
        [(path, *fault_of(path)) for path in sorted((ROOT / "tests/faults").glob(f"{lesson}_*.patch"))],
        {
            "patch": lambda path, *_: f"[{path.stem}]({page.link(f'tests/faults/{path.name}')})",
            "what it breaks": lambda _, what, *__: what.replace("|", "\\|"),
            "the test that finds it": lambda *fault: f"`{fault[2]}`",
        },
        left=3,
    )
