"""What may stand in a page's marks: functions that return Markdown or text, by name; and the records they
read."""
import functools
import json
import math
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs/results"
COURSE = {
    folder: {"page": f"lessons/{folder}/README.md", **one}
    for folder, one in json.loads((ROOT / "lessons/lessons.json").read_text()).items()
}  # the list of lessons, in the order in which they are read
# Records by name, as far as they have been read; tests put others in their place.
RECORDS = {}
# By the name in a mark: function(page, *arguments) -> text, which is "" if there is nothing to show.
RENDERERS = {}
# By name: function() -> Figure; it raises NoRecord if its record is not there.
FIGURES = {}


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


class NoRecord(RenderError):
    """A record is not there yet: a block or figure that is made of it is left out, and named."""


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

    def lesson(self, folder):
        """A lesson's name, which leads to its page."""
        return f"[{COURSE[folder]['name']}]({self.link(COURSE[folder]['page'])})"


def record(name):
    """docs/results/NAME.json, which several pages read and none changes."""
    if name not in RECORDS:
        path = RESULTS / f"{name}.json"
        if not path.exists():
            raise NoRecord(f"docs/results/{name}.json is not there")
        RECORDS[name] = json.loads(path.read_text())
    return RECORDS[name]


def as_predicted(run, *keys):
    """The run, if it held and sent what was planned."""
    if any(run[f"predicted_{key}"] != run[key] for key in keys or ("bytes", "operations", "bytes_sent")):
        raise RenderError(f"{run['command']}: not as predicted")
    return run


def same_bits(run, reference, of):
    """The run, if it ended in the losses and weights of another."""
    if any(run[key] != reference[key] for key in ("loss", "weights_sha256")):
        raise RenderError(f"{run['command']}: its losses or weights are not those of {of}")
    return run


def table(heads, rows, left=1, last=0):
    """A Markdown table; columns between the first `left` and the `last` ones are numbers, and stand right.
    One without rows is left out."""
    if not rows:
        raise NoRecord(f"no record has a row for the table of {', '.join(heads)}")
    lines = [heads, ["---:" if left <= i < len(heads) - last else "---" for i in range(len(heads))], *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def table_of(items, columns, left=1, repeats=True, last=0):
    """A table with a row for each item, which may be a tuple; columns: head -> the function that gives its
    cell of an item; see without_repeats()."""
    rows = [
        [cell(*item) if isinstance(item, tuple) else cell(item) for cell in columns.values()]
        for item in items
    ]
    return table(list(columns), rows if repeats else without_repeats(rows), left, last)


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


def two_digits(number):
    """A number that is predicted, as lessons/choose/report.cpp shows it."""
    shown = float(f"{number:.1e}")
    return f"{shown:,.{max(0, 1 - math.floor(math.log10(shown)))}f}"


def bytes_text(count):
    """Bytes as the programs write them: decimal units, two decimals."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count} B"
