"""The colours of every figure, plots (plots.py) and schematics (svg.py) alike: what a colour means, and what
it is on a dark ground."""
INK, GROUND, EDGE, GRID, ARROW = "#1f2328", "#ffffff", "#24292f", "#d8dee4", "#6e7781"
# The colour of text in a box.
INSIDE = "#010101"
# Fills of boxes, by what a box means. Text in a box has a contrast of at least 4.5 : 1 in the light and dark
# palette.
FORWARD, BACKWARD = "#e1e4e8", "#b4bac1"
COMPUTE = FORWARD
PARAMETERS, GRADIENTS, OPTIMIZER, COMMUNICATION, WAITING = (
    "#9cc2f5",
    "#f7c486",
    "#a9dcb3",
    "#cdb7f0",
    "#f4a3ac",
)
READING, WRITING = "#8fd6d6", "#e3d98a"
# Fills of things that are only told apart, such as versions of weights.
FILLS = (PARAMETERS, GRADIENTS, OPTIMIZER, "#f2b8dc", COMMUNICATION, READING, WRITING, "#cfd4da")
# Fills of bars of one kind, from little to much.
TINTS = ("#d5f0f0", "#a3dcdc", "#67bcbc", "#2f9696")
# Colours of curves.
LINES = ("#1f6feb", "#b35900", "#1a7f37", "#cf222e", "#8250df", "#0b7a7a")
DARK = {
    INK: "#e6edf3",
    GROUND: "#0d1117",
    EDGE: "#aab4be",
    GRID: "#30363d",
    ARROW: "#9198a1",
    INSIDE: "#ffffff",
    FORWARD: "#6a727c",
    BACKWARD: "#434a53",
    PARAMETERS: "#1f5fae",
    GRADIENTS: "#955800",
    OPTIMIZER: "#23733f",
    COMMUNICATION: "#6b48b0",
    WAITING: "#b3263a",
    READING: "#17696e",
    WRITING: "#736800",
    FILLS[3]: "#9c3a78",
    FILLS[7]: "#565d66",
    **dict(zip(TINTS, ("#123c3e", "#19585b", "#23797d", "#3ba3a8"))),
    **dict(zip(LINES, ("#58a6ff", "#f0883e", "#3fb950", "#ff7b72", "#bc8cff", "#39c5cf"))),
}


def dark_rules():
    """Style rules: a fill or a stroke of a light colour is its dark one, whether it stands in an attribute or
    in a style."""
    return "\n".join(
        f'[{what}="{light}"], [style*="{what}: {light}"] {{ {what}: {dark} !important; }}'
        for what in ("fill", "stroke")
        for light, dark in DARK.items()
    )
