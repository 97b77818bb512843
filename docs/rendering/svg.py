"""A small writer of SVG for schematics: the same input gives the same bytes. Figures carry their own ground in light and dark, and a title
and a description for readers who do not see them. Plots are matplotlib's (plots.py)."""
import dataclasses
from xml.sax.saxutils import escape

from .palette import ARROW, DARK, EDGE, GRID, GROUND, INK, INSIDE, dark_rules

WIDTH = 960


def colours(of):
    """The rules of what stands in every figure; `of` gives a colour of the palette as it is on the ground."""
    return f"""text {{ fill: {of(INK)}; }}
.ground {{ fill: {of(GROUND)}; stroke: {of(GRID)}; }}
.axis {{ stroke: {of(GRID)}; }}
.box, .got {{ stroke: {of(EDGE)}; }}
.bare, .arrow {{ stroke: {of(ARROW)}; }}
.tip {{ fill: {of(ARROW)}; }}
.in {{ fill: {of(INSIDE)}; }}"""


STYLE = f"""
text {{ font-family: sans-serif; font-size: 13px; }}
.box {{ stroke-width: 0.7; }}
.bare, .got, .arrow {{ fill: none; }}
.pale {{ fill-opacity: 0.35; }}
.got {{ stroke-width: 2; }}
.arrow {{ stroke-width: 1.5; }}
.small {{ font-size: 12px; }}
.head {{ font-size: 16px; font-weight: bold; }}
.mid, .in {{ text-anchor: middle; }}
.end {{ text-anchor: end; }}
{colours(lambda light: light)}
@media (prefers-color-scheme: dark) {{
{colours(DARK.get)}
{dark_rules()}
}}
"""


@dataclasses.dataclass
class Figure:
    svg: str
    alt: str      # the alternative text
    caption: str  # one line below the figure; names the record, or says that it is computed


def number(value):
    """Two decimals at most."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


class Drawing:
    def __init__(self, height, title, description, note=""):
        self.height, self.description = height, description
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{number(height)}" viewBox="0 0 {WIDTH} {number(height)}" '
            'role="img" aria-labelledby="title desc">',
            f'<title id="title">{escape(title)}</title>', f'<desc id="desc">{escape(description)}</desc>', f"<style>{STYLE}</style>",
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse">'
            '<path class="tip" d="M0 0 L8 4 L0 8 z"/></marker></defs>',
            f'<rect class="ground" x="0.5" y="0.5" width="{WIDTH - 1}" height="{number(height - 1)}" rx="8"/>']
        self.text(16, 28, title, "head")
        if note:
            self.text(WIDTH - 16, 28, note, "small end")

    def text(self, x, y, text, kind=""):
        self.parts.append(f'<text class="{kind}" x="{number(x)}" y="{number(y)}">{escape(text)}</text>')

    def box(self, x, y, width, height, fill, label="", kind="in", kind_of_box="box"):
        self.parts.append(f'<rect class="{kind_of_box}" x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
                          + (f' fill="{fill}"' if fill else "") + "/>")
        if label:
            self.text(x + width / 2, y + height / 2 + 4, label, kind)

    def line(self, x1, y1, x2, y2, kind="axis", tip=False):
        more = ' marker-end="url(#tip)"' if tip else ""
        self.parts.append(f'<line class="{kind}" x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" y2="{number(y2)}"{more}/>')

    def polyline(self, points, colour, dashed=False):
        more = ' stroke-dasharray="6 4"' if dashed else ""
        self.parts.append(f'<polyline class="line" stroke="{colour}"{more} points="' + " ".join(f"{number(x)},{number(y)}" for x, y in points) + '"/>')

    def legend(self, x, y, entries):
        """entries: (fill, name)."""
        for fill, name in entries:
            self.box(x, y - 12, 16, 16, fill)
            self.text(x + 22, y, name, "small")
            x += 40 + 6.9 * len(name)

    def done(self, caption):
        return Figure("\n".join(self.parts) + "\n</svg>\n", self.description, caption)


class Plot:
    """Axes in a drawing: `x` and `y` map values to places."""

    def __init__(self, drawing, left, top, width, height, x_range, y_range, x_map=lambda v: v, y_map=lambda v: v):
        self.drawing, self.left, self.top, self.width, self.height = drawing, left, top, width, height
        self.x_map, self.y_map = x_map, y_map
        self.x_range, self.y_range = [x_map(v) for v in x_range], [y_map(v) for v in y_range]

    def x(self, value):
        return self.left + self.width * (self.x_map(value) - self.x_range[0]) / (self.x_range[1] - self.x_range[0])

    def y(self, value):
        return self.top + self.height * (1 - (self.y_map(value) - self.y_range[0]) / (self.y_range[1] - self.y_range[0]))

    def axes(self, x_ticks, y_ticks, x_name, y_name):
        """Ticks: (value, text)."""
        for value, text in y_ticks:
            self.drawing.line(self.left, self.y(value), self.left + self.width, self.y(value))
            self.drawing.text(self.left - 8, self.y(value) + 4, text, "small end")
        for value, text in x_ticks:
            self.drawing.line(self.x(value), self.top, self.x(value), self.top + self.height)
            self.drawing.text(self.x(value), self.top + self.height + 16, text, "small mid")
        self.drawing.text(self.left + self.width / 2, self.top + self.height + 36, x_name, "small mid")
        self.drawing.text(self.left, self.top - 10, y_name, "small")

    def curve(self, points, colour, dashed=False):
        self.drawing.polyline([(self.x(x), self.y(y)) for x, y in points], colour, dashed)


def label_ends(drawing, x, ends, top):
    """A name for each curve, right of it, none above another: (y, colour, dashed, text)."""
    least = top
    for y, colour, dashed, text in sorted(ends):
        y = max(y, least)
        drawing.polyline([(x, y), (x + 16, y)], colour, dashed)
        drawing.text(x + 21, y + 4, text, "small")
        least = y + 16
