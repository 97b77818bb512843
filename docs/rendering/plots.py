"""Plots by matplotlib, as SVG: the same input gives the same bytes. Places and sizes are points of the SVG.
Where matplotlib is not there a figure is still described, and is not drawn: missing() says why."""
import io
import re
from xml.sax.saxutils import escape

try:
    import matplotlib
    from matplotlib import pyplot, ticker
except ImportError:
    matplotlib = None

from .palette import EDGE, GRID, GROUND, INSIDE, LINES
from .svg import STYLE, WIDTH, Figure, number

# matplotlib's version in Debian 12 and Ubuntu 24.04; other versions may place things elsewhere.
WRITTEN_WITH = "3.6"
# Left and right margin, and the height of a line of text, in pixels.
LEFT, RIGHT, LINE = 64, 16, 16
SETTINGS = {
    "svg.fonttype": "none",
    "svg.hashsalt": "stagecraft",
    "path.simplify": False,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 12.6,
    "text.color": "#000000",
    "axes.labelcolor": "#000000",
    "xtick.color": "#000000",
    "ytick.color": "#000000",
    "axes.edgecolor": GRID,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 1,
    "xtick.bottom": False,
    "ytick.left": False,
    "xtick.minor.bottom": False,
    "ytick.minor.left": False,
    "axes.formatter.useoffset": False,
    "figure.facecolor": GROUND,
    "axes.facecolor": "none",
    "patch.edgecolor": EDGE,
    "patch.linewidth": 0.7,
    "patch.force_edgecolor": True,
    "legend.frameon": False,
    "legend.handlelength": 1.3,
    "legend.handleheight": 1.1,
    "legend.handletextpad": 0.5,
    "legend.columnspacing": 1.6,
    "lines.linewidth": 1.8,
}


def missing():
    """Why no plot can be drawn here; empty: nothing is."""
    if matplotlib is None:
        return "matplotlib is not there (apt-get install python3-matplotlib)"
    if not matplotlib.__version__.startswith(WRITTEN_WITH + "."):
        return (
            f"matplotlib is {matplotlib.__version__}, figures are written with {WRITTEN_WITH} (apt-get "
            "install python3-matplotlib)"
        )
    return ""


def plot(height, title, alt, caption, draw, note=""):
    """draw(figure) adds what is below the title; `figure` is matplotlib's, with 0, 0 at the top left in
    `axes`."""
    if missing():
        return Figure("", alt, caption)
    with matplotlib.rc_context(SETTINGS):
        figure = pyplot.figure(figsize=(WIDTH / 72, height / 72), dpi=72)
        words(figure, 16, 28, title, size=16, weight="bold")
        if note:
            words(figure, WIDTH - 16, 28, note, ha="right")
        draw(figure)
        written = io.StringIO()
        figure.savefig(
            written, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None}
        )
        pyplot.close(figure)
    return Figure(cleaned(written.getvalue(), height, title, alt), alt, caption)


def cleaned(text, height, title, alt):
    """matplotlib's SVG in points of the screen, with a title, a description and the style of all figures."""
    text = text[text.index("<svg") :]
    head = (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'width="{WIDTH}" height="{number(height)}" viewBox="0 0 {WIDTH} {number(height)}" '
        f'role="img" aria-labelledby="title desc">\n<title id="title">{escape(title)}</title>\n<desc '
        f'id="desc">{escape(alt)}</desc>\n<style>{STYLE}</style>'
    )
    text = re.sub(r"<svg .*?>", lambda match: head, text, count=1, flags=re.S)
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.S)
    text = re.sub(r"(font: [^;\"]*?px) [^;\"]*", r"\1 sans-serif", text)
    text = re.sub(r' transform="rotate\(-0 [^"]*"', "", text)
    text = re.sub(r' d="[^"]*"', lambda match: " ".join(match[0].split()).join((" ", "")), text)
    text = re.sub(r'<g id="bar[^"]*">', '<g class="bar">', text)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def words(figure, x, y, text, **more):
    """Text at a place of the SVG."""
    height = figure.get_figheight() * 72
    figure.text(x / WIDTH, 1 - y / height, text, **{"size": 12.6, "va": "baseline", **more})


def axes(figure, top, height, left=LEFT, right=RIGHT, names=("", ""), log="", forms=("", "")):
    """names: of x, below; of y, above its axis. log: "x", "y", "xy". forms: of numbers at either, "{:g} GB"
    or a function."""
    whole = figure.get_figheight() * 72
    found = figure.add_axes(
        [left / WIDTH, 1 - (top + height) / whole, (WIDTH - left - right) / WIDTH, height / whole]
    )
    for axis, which, form in zip((found.xaxis, found.yaxis), "xy", forms):
        if which in log:
            getattr(found, f"set_{which}scale")("log")
            axis.set_minor_locator(ticker.NullLocator())
        axis.set_tick_params(length=0, pad=6)
        if form:
            of = getattr(form, "format", form)
            axis.set_major_formatter(lambda value, _, of=of: of(value))
    if names[0]:
        words(figure, left + (WIDTH - left - right) / 2, top + height + 38, names[0], ha="center")
    if names[1]:
        words(figure, left, top - 10, names[1])
    return found


def label_ends(plotted, curves):
    """A curve's name right of its end, none on another; a line leads to it."""
    plotted.autoscale_view()
    place = plotted.transData.transform
    right, least = plotted.bbox.x1, None
    for name, colour, (x, y) in sorted(
        ((name, colour, points[-1]) for name, colour, points in curves), key=lambda one: one[2][1]
    ):
        at = place((x, y))
        least = at[1] if least is None else max(at[1], least + LINE)
        plotted.annotate(
            name,
            (x, y),
            xytext=(right + 22, least),
            textcoords="figure points",
            va="center",
            arrowprops={
                "arrowstyle": "-",
                "color": colour,
                "linewidth": 1.2,
                "shrinkA": 2,
                "shrinkB": 0,
                "relpos": (0, 0.5),
            },
        )


def curves(plotted, drawn, label=True, **limits):
    """drawn: (name, colour, points); limits: of the axes, as matplotlib calls them, before names are placed
    by them."""
    for _, colour, points in drawn:
        plotted.plot(*zip(*points), color=colour)
    plotted.set(**limits)
    if label:
        label_ends(plotted, drawn)


def lines_of(named):
    """named: (name, points); the colours in their order."""
    return [(name, LINES[i % len(LINES)], points) for i, (name, points) in enumerate(named)]


def stacked(plotted, places, parts, label, across=False, thick=0.7, gap=5):
    """A bar at each place, of parts: (fill, [length by place]). label: of the bar's end and its number, the
    text there."""
    ends = [0] * len(places)
    plotted.grid(False, axis="y" if across else "x")
    for fill, lengths in parts:
        draw, ends_name = (plotted.barh, "left") if across else (plotted.bar, "bottom")
        draw(places, lengths, thick, color=fill, gid="bar", **{ends_name: ends})
        ends = [a + b for a, b in zip(ends, lengths)]
    for i, (place, end) in enumerate(zip(places, ends)):
        plotted.annotate(
            label(end, i),
            (end, place) if across else (place, end),
            xytext=(gap, 0) if across else (0, gap),
            textcoords="offset points",
            **({"va": "center"} if across else {"ha": "center"}),
        )


def gigabytes(columns):
    """Parts for stacked(), of the same fills in every column: [(fill, bytes)]."""
    return [(fill, [column[k][1] / 1e9 for column in columns]) for k, (fill, _) in enumerate(columns[0])]


def lanes(plotted, rows, end, begin=0):
    """A timeline in milliseconds: rows are (name, height, [(begin, end, fill, label)]), the first on top,
    none drawn thinner than a point; grid and round ticks lie behind. Returns where each row begins."""
    plotted.set(xlim=(begin, end), yticks=[])
    y, places = 0, []
    for name, high, spans in rows:
        places.append(y)
        for first, last, fill, label in spans:
            wide = (last - first) * plotted.bbox.width / (end - begin)
            plotted.barh(
                y,
                max(last - first, (end - begin) / plotted.bbox.width),
                high,
                first,
                align="edge",
                color=fill,
                gid="bar",
                linewidth=0.7 if wide > 3 else 0,
            )
            if label and wide > 7.5 * max(map(len, label.split("\n"))) + 2:
                plotted.text(
                    (first + last) / 2, y + high / 2, label, color=INSIDE, ha="center", va="center_baseline"
                )
        if name:
            plotted.annotate(
                name,
                (0, y + high / 2),
                xycoords=("axes fraction", "data"),
                xytext=(-8, 0),
                textcoords="offset points",
                ha="right",
                va="center_baseline",
            )
        y += high + 8
    plotted.set_ylim(y, -8)
    plotted.xaxis.set_major_formatter(lambda value, _: f"{value:g} ms")
    return places


def key(figure, y, entries, left=16):
    """A legend in one line: (fill, name)."""
    handles = [matplotlib.patches.Patch(facecolor=fill, edgecolor=EDGE, linewidth=0.7) for fill, _ in entries]
    figure.legend(
        handles,
        [name for _, name in entries],
        ncol=len(entries),
        loc="center left",
        borderaxespad=0,
        borderpad=0,
        bbox_to_anchor=(left / WIDTH, 1 - (y - 4) / (figure.get_figheight() * 72)),
    )
