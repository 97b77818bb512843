"""What may stand in a page's marks: functions that return Markdown or text, by name; and the records they read."""
import functools
import json
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs/results"
RENDERERS = {}  # the name in a mark -> function(page, *arguments) -> text, "" where nothing is to be shown
FIGURES = {}  # name -> function() -> Figure, or None where its record is not there


def renders(function):
    """`<!-- render: NAME ARGUMENTS -->` calls the function of that name, underscores written as hyphens."""
    RENDERERS[function.__name__.replace("_", "-")] = function
    return function


def figure(function):
    """`<!-- render: figure NAME -->` shows docs/figures/NAME.svg, which is what the function draws."""
    FIGURES[function.__name__] = functools.cache(function)  # a page shows it, too
    return function


class RenderError(Exception):
    """What is wrong with a page, and where."""


class Page:
    """A page, and what its marks need to know."""

    def __init__(self, path, program=None):
        self.path = path  # relative to the repository's root
        self.program = program  # the command `pipedream`
        self.omitted = []  # what is not shown, because its record is not there

    def link(self, target):
        """The way from this page to a file of the repository."""
        folder = pathlib.PurePosixPath(self.path).parent
        up = [".."] * len(folder.parts)
        return "/".join([*up, target]) if up else target


def has(name):
    return (RESULTS / f"{name}.json").exists()


def record(name):
    """docs/results/NAME.json."""
    path = RESULTS / f"{name}.json"
    if not path.exists():
        raise RenderError(f"docs/results/{name}.json is not there")
    return json.loads(path.read_text())


def table(heads, rows, left=1):
    """A Markdown table; columns behind the first `left` are numbers, and stand right."""
    lines = [heads, ["---" if i < left else "---:" for i in range(len(heads))], *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def without_repeats(rows):
    """The first cell is empty where it is that of the row above."""
    return [
        ["" if above and above[0] == row[0] else row[0], *row[1:]] for above, row in zip([None, *rows], rows)
    ]


def source(page, name):
    """The words that say where a table comes from."""
    return f"[{name}.json]({page.link(f'docs/results/{name}.json')})"


def times_text(count, what):
    """1 round, 3 rounds."""
    return f"{count} {what}" + ("" if count == 1 else "s")


def bytes_text(count):
    """As the programs write it: decimal units, two decimals."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count} B"
