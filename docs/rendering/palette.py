"""The colours of every figure, plots (plots.py) and schematics (svg.py) alike: what a colour means, and what
it is on a dark ground. What the page of a run shows too has the page's colour and the page's name."""
import json
import re

from .registry import ROOT

PAGE = (ROOT / "common/records/page/template.html").read_text()
# Of the page's colours by name: the light one and the dark one.
OF_PAGE = {name: pair for name, *pair in re.findall(r"--(\w+): light-dark\((#\w+), (#\w+)\);", PAGE)}
WORDS = json.loads(re.search(r'<script id="words" type="application/json">(.*?)</script>', PAGE, re.S)[1])
INK, GROUND, EDGE, GRID, ARROW = "#1f2328", "#ffffff", "#24292f", "#d8dee4", "#6e7781"
# The colour of text in a box.
INSIDE = "#010101"
# Fills of boxes, by what a box means. Text in a box has a contrast of at least 4.5 : 1 in the light and dark
# palette.
FORWARD, BACKWARD, PARAMETERS, GRADIENTS, OPTIMIZER, ACTIVATIONS = (
    OF_PAGE[name][0]
    for name in ("forward", "backward", "parameters", "gradients", "optimizer", "activations")
)
COMMUNICATION, WAITING, READING, WRITING, WORKSPACE, STASH = (
    OF_PAGE[name][0] for name in ("communication", "waiting", "reading", "writing", "workspace", "stash")
)
COMPUTE = FORWARD
# Fills of things that are only told apart, such as versions of weights.
FILLS = (PARAMETERS, GRADIENTS, OPTIMIZER, STASH, COMMUNICATION, READING, WRITING, WORKSPACE)
# Fills of bars of one kind, from little to much.
TINTS = ("#d5f0f0", "#a3dcdc", "#67bcbc", "#2f9696")
# Colours of curves. Red is none of them: it means waiting.
LINES = ("#1f6feb", "#b35900", "#1a7f37", "#bf3989", "#8250df", "#0b7a7a")
DARK = {
    INK: "#e6edf3",
    GROUND: "#0d1117",
    EDGE: "#aab4be",
    GRID: "#30363d",
    ARROW: "#9198a1",
    INSIDE: "#ffffff",
    **{light: dark for name, (light, dark) in OF_PAGE.items() if name in WORDS["held"] | WORDS["done"]},
    **dict(zip(TINTS, ("#123c3e", "#19585b", "#23797d", "#3ba3a8"))),
    **dict(zip(LINES, ("#58a6ff", "#f0883e", "#3fb950", "#ff80c8", "#bc8cff", "#39c5cf"))),
}


def held(*fills):
    """Entries of a legend: what a rank holds."""
    return [
        (fill, WORDS["held"][name]) for fill in fills for name in WORDS["held"] if OF_PAGE[name][0] == fill
    ]


def done(*fills):
    """Entries of a legend: what a rank does."""
    return [
        (fill, WORDS["done"][name]) for fill in fills for name in WORDS["done"] if OF_PAGE[name][0] == fill
    ]


def parts_of(bytes_):
    """The parts of a bar of bytes by purpose: (fill, bytes)."""
    purposes = WORDS["tables"]["COLOUR"]
    return [
        (OF_PAGE[name][0], sum(count for purpose, count in bytes_.items() if purposes.get(purpose) == name))
        for name in WORDS["held"]
    ]


def held_in(bars):
    """A legend of the parts that any of the bars has."""
    return held(*(parts[0][0] for parts in zip(*bars) if any(count for _, count in parts)))


def dark_rules():
    """Style rules: a fill or a stroke of a light colour is its dark one, whether it stands in an attribute or
    in a style."""
    return "\n".join(
        f'[{what}="{light}"], [style*="{what}: {light}"] {{ {what}: {dark} !important; }}'
        for what in ("fill", "stroke")
        for light, dark in DARK.items()
    )
