"""Drawings of lesson 08: which weights each computation of a paced run read, and losses by rule (docs/results/lesson_08*.json)."""
import re

from .lesson_figures import smooth
from .palette import FILLS, LINES
from .registry import figure, has, record
from .svg import Drawing, Plot, label_ends
from .version_tables import NAMES, ONCE, losses, rate_text

PACE = "lessons/07_pipeline/pace.json"
# name of a run in lesson_08_losses.json: its name in the figure, the line's colour, whether it is dashed
CURVES = {
    "none": ("none", LINES[0], False),
    "stash": ("stash", LINES[1], False),
    "vertical_sync": ("vertical_sync", LINES[2], False),
    "two_buffers": ("two_buffers", LINES[3], False),
    ONCE: ("stash, every 12", LINES[5], False),
    "1f1b": ("1F1B = lesson 00", LINES[4], False),
    "small_steps": ("lesson 00, one row", LINES[1], True),
}
WINDOW = 10  # steps over which a drawn loss is averaged
HIGHEST = 3.6  # of the drawn losses


def best_rate(found, name):
    return min(found["rates"], key=lambda rate: found["rates"][rate][name]["validation_loss"])


def step_seconds():
    """By a run's name: how long its steps take on four stages, paced."""
    found = record("lesson_08")
    return {"1f1b": found["flush"]["rows"]["measured"]["seconds"], **{rule: found["rules"][rule]["rows"]["measured"]["seconds"] for rule in NAMES}}


def version_of(name):
    """(kind, micro-batch, version) of "F24@21"; of "step@22" the version that it makes."""
    kind, microbatch, version = re.fullmatch(r"(F|B|step)(\d*)(?:@(\d+))?", name).groups()
    return kind, int(microbatch or -1), int(version or 0)


@figure
def versions_run():
    """Two steps of a paced run, every computation in the colour of the weights that it read."""
    if not has("lesson_08"):
        return None
    drawn = record("lesson_08")["drawn"]
    ranks = [[(*version_of(name), begin, end) for name, begin, end, *_ in spans] for spans in drawn["ranks"]]
    end = max(stop for spans in ranks for *_, stop in spans)
    oldest = min(version for spans in ranks for kind, _, version, *_ in spans if kind != "step")
    m = min(k for kind, k, *_ in ranks[0] if kind == "F")
    read = ", ".join(f"stage {s} version {next(v for kind, k, v, *_ in spans if (kind, k) == ('F', m))}" for s, spans in enumerate(ranks))
    left, right, row = 76, 944, 62
    drawing = Drawing(
        118 + row * len(ranks),
        "Weight stashing on four real ranks: which version of its weights each computation reads",
        f"Timelines of {len(ranks)} stages without a gap: each stage alternates a forward, a backward and an update. A backward has the colour of its forward: it reads the "
        f"same version. The forward of micro-batch {m} reads, on {read}.",
        "measured",
    )

    def x(seconds):
        return left + (right - left) * seconds / end

    bottom = 52 + row * len(ranks)
    for tick in range(0, int(1e3 * end) + 1, 200):
        drawing.line(x(tick / 1e3), 46, x(tick / 1e3), bottom)
        drawing.text(x(tick / 1e3), bottom + 14, f"{tick} ms", "small mid")
    for s, spans in enumerate(ranks):
        y = 52 + row * s
        drawing.text(16, y + 24, f"stage {s}")
        for kind, microbatch, version, begin, stop in spans:
            drawing.box(x(begin), y, x(stop) - x(begin), 40, FILLS[(version - oldest) % len(FILLS)])
            if kind == "step":
                drawing.box(x(begin), y, x(stop) - x(begin), 40, "none", kind_of_box="got")
                continue
            middle = (x(begin) + x(stop)) / 2
            drawing.text(middle, y + 17, f"{kind}{microbatch}", "in small")
            drawing.text(middle, y + 33, f"v{version}", "in small")
    drawing.box(left, bottom + 32, 12, 18, FILLS[0])
    drawing.box(left, bottom + 32, 12, 18, "none", kind_of_box="got")
    drawing.text(left + 20, bottom + 46, "an update, in the colour of the version that it makes. F, B: forward and backward of a micro-batch; v: the version that it reads.", "small")
    return drawing.done(
        f"Two steps of {drawn['microbatches']} micro-batches with versions=stash on two cores, from a run whose actions take what {PACE} says (lesson_08.json)."
    )


def draw_curves(drawing, plot, curves):
    """curves: (colour, dashed, name, [(x, loss)]); of each only what is below HIGHEST."""
    ends = []
    for colour, dashed, name, points in curves:
        shown = [point for point in points if point[1] <= HIGHEST]
        plot.curve(shown, colour, dashed)
        ends.append((plot.y(shown[-1][1]), colour, dashed, name))
    label_ends(drawing, plot.left + plot.width + 6, ends, plot.top)


@figure
def versions_losses():
    """Loss over micro-batches at one learning rate; over a paced run's time, each at the better of two."""
    if not (has("lesson_08") and has("lesson_08_losses")):
        return None
    found, seconds = losses(), step_seconds()
    low_rate = min(found["rates"], key=float)

    def curve(name, rate, scale, text):
        _, colour, dashed = CURVES[name]
        means = smooth(found["rates"][rate][name]["loss"], WINDOW)
        return colour, dashed, text, [(scale * (i + 1), loss) for i, loss in enumerate(means)][WINDOW - 1 :]

    def ended(name, rate):
        return f"{CURVES[name][0]} {found['rates'][rate][name]['validation_loss']:.2f}"

    best = {name: best_rate(found, name) for name in CURVES if name in seconds}
    left = [curve(name, low_rate, found["micro_batches"], text) for name, (text, *_) in CURVES.items()]
    right = [curve(name, rate, seconds[name], f"{CURVES[name][0].split(' =')[0]}: {rate_text(rate)}") for name, rate in best.items()]
    alt = (
        f"Two plots of the loss. Over micro-batches, all at learning rate {rate_text(low_rate)}; validation losses at the end: "
        + ", ".join(ended(name, low_rate) for name in CURVES)
        + ". Over time, each rule at the better of two rates: "
        + ", ".join(f"{ended(name, rate)} after {seconds[name] * found['steps']:.0f} s" for name, rate in best.items())
        + "."
    )
    drawing = Drawing(356, "Four rules of weight versions, and runs without staleness", alt, f"measured; means of {WINDOW} steps")
    lowest = 2.3
    ticks = [(lowest + 0.2 * i, f"{lowest + 0.2 * i:.1f}") for i in range(7)]
    most, longest = found["steps"] * found["micro_batches"], max(seconds.values()) * found["steps"]
    one = Plot(drawing, 44, 76, 268, 226, (0, most), (lowest, HIGHEST))
    one.axes([(most * i / 4, f"{most * i // 4}") for i in range(5)], ticks, "micro-batches", f"loss, nats per token; all at learning rate {rate_text(low_rate)}")
    draw_curves(drawing, one, left)
    two = Plot(drawing, 506, 76, 276, 226, (0, longest), (lowest, HIGHEST))
    two.axes([(t, f"{t}") for t in range(0, int(longest) + 1, 100)], ticks, "seconds", f"each at the better rate of {' and '.join(map(rate_text, found['rates']))}")
    draw_curves(drawing, two, right)
    return drawing.done(
        f"{found['steps']} steps of {found['micro_batches']} micro-batches of configs/tiny_untied.json (lesson_08_losses.json). Seconds: steps of four stages that take what {PACE} says (lesson_08.json)."
    )
