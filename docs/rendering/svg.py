"""A small writer of SVG for schematics: the same input gives the same bytes. Figures carry their own ground
in light and dark, and a title and a description for readers who do not see them. Plots are matplotlib's
(plots.py)."""
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
.bare, .got, .arrow, .line {{ fill: none; }}
.line {{ stroke-width: 1.8; }}
.got {{ stroke-width: 2; }}
.arrow {{ stroke-width: 1.5; }}
.small {{ font-size: 12.6px; }}
.head {{ font-size: 16px; font-weight: bold; }}
.mid, .in {{ text-anchor: middle; }}
.end {{ text-anchor: end; }}
{colours(lambda light: light)}
@media (prefers-color-scheme: dark) {{
{colours(DARK.get)}
{dark_rules()}
}}
"""


# The opacity of a fill for something that exists only for a moment.
PALE = 0.35


@dataclasses.dataclass
class Figure:
    svg: str
    alt: str  # the alternative text
    caption: str  # one line below the figure; names the record, or says that it is computed


def number(value):
    """Two decimals at most."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


class Drawing:
    """Small letters have 11 pixels where a README is 840 wide and the figure as wide as it; those of a narrow
    figure on a screen of 420. What is wider than a README is for paper."""

    def __init__(self, height, title, description, note="", width=WIDTH):
        self.description, self.narrow = description, width < WIDTH
        style = STYLE if width <= WIDTH else STYLE.replace("12.6px", "12px")
        if self.narrow:
            style = STYLE.replace("font-size: 13px", "font-size: 15px").replace("12.6px", "14px")
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{number(height)}" viewBox="0 '
            f'0 {width} {number(height)}" role="img" aria-labelledby="title desc">',
            f'<title id="title">{escape(title)}</title>',
            f'<desc id="desc">{escape(description)}</desc>',
            f"<style>{style}</style>",
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            'orient="auto-start-reverse"><path class="tip" d="M0 0 L8 4 L0 8 z"/></marker></defs>',
            f'<rect class="ground" x="0.5" y="0.5" width="{width - 1}" height="{number(height - 1)}" '
            'rx="8"/>',
        ]
        self.text(16, 28, title, "head")
        if note:
            self.text(width - 16, 28, note, "small end")

    def text(self, x, y, text, kind=""):
        self.parts.append(f'<text class="{kind}" x="{number(x)}" y="{number(y)}">{escape(text)}</text>')

    def lines(self, x, y, step, *texts, kind="small"):
        for i, text in enumerate(texts):
            self.text(x, y + step * i, text, kind)

    def box(self, x, y, width, height, fill, label="", kind="in", kind_of_box="box", share=1):
        """share: of the fill over its ground."""
        self.parts.append(
            f'<rect class="{kind_of_box}" x="{number(x)}" y="{number(y)}" width="{number(width)}" '
            f'height="{number(height)}"'
            + f' fill="{fill}"'
            + (f' fill-opacity="{number(share)}"' if share < 1 else "")
            + "/>"
        )
        if label:
            self.text(x + width / 2, y + height / 2 + 4, label, kind)

    def line(self, x1, y1, x2, y2, kind="axis", tip=False):
        more = ' marker-end="url(#tip)"' if tip else ""
        self.parts.append(
            f'<line class="{kind}" x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" '
            f'y2="{number(y2)}"{more}/>'
        )

    def polyline(self, points, colour, turn=0, of=1, thick=0):
        """A line through the points. If `of` lines lie on each other, each shows its dashes in turn."""
        more = f' stroke-dasharray="10 {10 * (of - 1)}" stroke-dashoffset="{-10 * turn}"' if of > 1 else ""
        more += f' style="stroke-width: {thick}"' if thick else ""
        self.parts.append(
            f'<polyline class="line" stroke="{colour}"{more} points="'
            + " ".join(f"{number(x)},{number(y)}" for x, y in points)
            + '"/>'
        )

    def legend(self, x, y, entries):
        """entries: (fill, name)."""
        for fill, name in entries:
            self.box(x, y - 12, 16, 16, fill)
            self.text(x + 22, y, name, "small")
            x += 38 + (8 if self.narrow else 7.2) * len(name)

    def done(self, caption):
        return Figure("\n".join(self.parts) + "\n</svg>\n", self.description, caption)
