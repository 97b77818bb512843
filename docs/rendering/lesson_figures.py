"""Drawings of lessons 00 and 01."""
import re
from xml.sax.saxutils import quoteattr

from . import plots
from .lesson_tables import bytes_text, file_text
from .plans import plan_of
from .palette import BACKWARD, COMPUTE, GRADIENTS, LINES, OPTIMIZER, PARAMETERS, WAITING
from .registry import FIGURES, RENDERERS, RenderError, figure, record
from .svg import Drawing

COMPUTED = "Computed, not measured"


def shown_figure(page, name, narrow=""):
    """The figure with its alternative text, and a caption that names its record; on narrow screens another in
    its place."""
    if name not in FIGURES:
        raise RenderError(f"nothing draws '{name}'; there are {', '.join(sorted(FIGURES))}")
    drawn = FIGURES[name]()
    if narrow:
        source, shown = (page.link(f"docs/figures/{one}.svg") for one in (narrow, name))
        return (
            f'<picture>\n<source media="(max-width: 860px)" srcset="{source}">\n<img '
            f'alt={quoteattr(drawn.alt)} src="{shown}">\n</picture>\n\n*{drawn.caption}*'
        )
    return f"![{drawn.alt}]({page.link(f'docs/figures/{name}.svg')})\n\n*{drawn.caption}*"


RENDERERS["figure"] = shown_figure


@figure
def one_device_step():
    """What a step does, in order, and which vectors it touches."""
    planned = plan_of("00_one_device", "tiny", 1)
    units, blocks, p = planned.units, planned.L, planned.P
    alt = (
        f"{blocks + 2} units: the embeddings, {blocks} blocks, the last norm. Forward visits them from "
        "first to last, backward from last to first and writes gradients; "
        "the update then rewrites momentum, variance and parameters."
    )
    drawing = Drawing(
        438, "One training step: what is visited, and in which order", alt, "numbers: order in time"
    )
    wide, last = 650 / len(units), 2 * len(units)
    places = [150 + i * wide for i in range(len(units))]
    for i, x in enumerate(places):
        drawing.text(x + wide / 2, 64, f"{i}", "mid")
        drawing.text(x + wide / 2, 79, {0: "wte, wpe", len(units) - 1: "ln_f"}.get(i, ""), "small mid")
    drawing.text(16, 64, "unit")
    for y, name, fill, order in (
        (92, "forward", COMPUTE, range(1, last)),
        (152, "backward", BACKWARD, range(last - 1, 0, -1)),
    ):
        drawing.text(16, y + 24, name)
        for x, count in zip(places, order):
            drawing.box(x + 3, y, wide - 6, 38, fill, f"{count}", "in small")
        ends = (places[0], places[-1] + wide)
        begin, end = ends if fill == COMPUTE else ends[::-1]
        drawing.line(begin, y + 46, end, y + 46, "arrow", tip=True)
    drawing.lines(810, 116, 14, "reads parameters,", "keeps activations")
    drawing.lines(810, 170, 14, "reads both, writes", "gradients")
    y = 222
    for name, fill, note in (
        ("parameters", PARAMETERS, f"read; written in {last}"),
        ("gradients", GRADIENTS, "written by backward"),
        ("momentum", OPTIMIZER, f"read, written in {last}"),
        ("variance", OPTIMIZER, f"read, written in {last}"),
    ):
        drawing.text(16, y + 18, name)
        for x, size in zip(places, units):
            shown = f"{size:,}" if size < 1000 else f"{size / 1e3:.1f}k"
            drawing.box(x + 1, y, wide - 2, 28, fill, shown, "in small")
        drawing.lines(810, y + 12, 13, f"{bytes_text(4 * p)} = 4 P", note)
        y += 40
    drawing.lines(
        16,
        y + 18,
        16,
        f"{last}: AdamW goes through the units and writes momentum, variance and parameters from the "
        f"gradients. Elements as stored: P = {p:,}.",
        f"The head uses unit 0's wte (tied), so wte's gradient is opened in {len(units)} and completed in "
        f"{last - 1}.",
    )
    return drawing.done(f"{COMPUTED}: the layout of configs/tiny.json.")


def ring_states(ranks):
    """Which ranks' terms each rank holds of each piece: at the start, and after each of the 2 (N-1) steps."""
    held = [[{r} for _ in range(ranks)] for r in range(ranks)]
    states = [([[set(c) for c in row] for row in held], [])]
    for step in range(2 * (ranks - 1)):
        moves = []
        for r in range(ranks):
            piece = (r - step) % ranks if step < ranks - 1 else (r + 1 - (step - ranks + 1)) % ranks
            moves.append((r, (r + 1) % ranks, piece, set(held[r][piece])))
        for _, to, piece, terms in moves:
            held[to][piece] = held[to][piece] | terms if step < ranks - 1 else terms
        states.append(([[set(c) for c in row] for row in held], moves))
    return states


@figure
def ring_all_reduce():
    ranks = 4
    states = ring_states(ranks)
    if any(len(cell) != ranks for row in states[-1][0] for cell in row):
        raise RenderError("the ring does not end with every sum on every rank")
    alt = (
        f"A ring all-reduce of {ranks} ranks. Each rank's vector is cut into {ranks} pieces. In {ranks - 1} "
        "steps every rank passes one piece on and adds what it receives: then each rank holds one complete "
        f"piece. In {ranks - 1} more steps the complete pieces go round, and every rank has them all."
    )
    drawing = Drawing(
        356,
        f"Ring all-reduce, {ranks} ranks: reduce-scatter, then all-gather",
        alt,
        "number: ranks summed in that piece; outlined: just arrived",
    )
    panel, cell = 132, 25
    for i, (state, moves) in enumerate(states):
        x0 = 16 + i * panel
        name = "start" if i == 0 else f"step {i}"
        drawing.text(x0 + 2 * cell, 68, name, "mid")
        arrived = {(to, piece) for _, to, piece, _ in moves}
        for piece in range(ranks):
            drawing.text(x0 + piece * cell + cell / 2, 88, "abcd"[piece], "small mid")
        for r in range(ranks):
            y = 96 + r * 34
            for piece in range(ranks):
                count = len(state[r][piece])
                drawing.box(
                    x0 + piece * cell, y, cell, cell, GRADIENTS, str(count), "in small", share=count / ranks
                )  # the fuller the more ranks are in the sum
                if (r, piece) in arrived:
                    drawing.box(x0 + piece * cell + 2, y + 2, cell - 4, cell - 4, "none", kind_of_box="got")
    for r in range(ranks):
        drawing.text(16 + 4 * cell + 4, 96 + r * 34 + 17, f"r{r}", "small")
    y = 96 + ranks * 34 + 14
    for name, begin in (("reduce-scatter", 1), ("all-gather", ranks)):
        first, last = 16 + begin * panel, 16 + (begin + ranks - 1) * panel - 34
        drawing.line(first, y, last, y, "arrow", tip=True)
        drawing.text((first + last) / 2, y + 18, f"{name}: {ranks - 1} steps, a piece each", "small mid")
    drawing.lines(
        16,
        y + 50,
        16,
        f"Per step each rank sends one piece of 1/{ranks} to its right neighbour (the next row; the last "
        f"sends to the first): {2 * (ranks - 1)} pieces in all, which is",
        f"2 (N-1)/N = {2 * (ranks - 1)}/{ranks} = {2 * (ranks - 1) / ranks:g} times the vector, and less "
        "than twice it for any number of ranks.",
    )
    return drawing.done(
        f"{COMPUTED}: the steps are played by docs/render.py, which checks that every rank ends with every "
        "sum."
    )


def lanes_of(spans):
    """Spans with the first lane that is free; operations that are under way at once stand below each
    other."""
    lanes, found = [], []
    for span in sorted(spans, key=lambda s: s[2]):
        lane = next((i for i, ends in enumerate(lanes) if ends <= span[2]), len(lanes))
        lanes[lane : lane + 1] = [span[3]]
        found.append((lane, span))
    return found, max(1, len(lanes))


def took(run, row, kind=""):
    """Milliseconds in one row of a traced step, of operations of a kind."""
    return (
        sum(end - begin for of, name, begin, end in run["spans"] if of == row and name.startswith(kind)) / 1e3
    )


def steps_text(run):
    """How long the steps were of which one is drawn, and how much of that they waited."""

    def spread(key, form):
        return "{median:{form}} ms, {lowest:{form}} to {highest:{form}}".format(
            form=form, **{name: us / 1e3 for name, us in run[key].items()}
        )

    return (
        f"a usual one of {run['runs']} runs, whose steps take {spread('steps_microseconds', '.0f')}, and "
        f"wait {spread('waited_microseconds', '.1f')}"
    )


@figure
def gpu_trace():
    found = record("gpu_trace")
    run = found["lessons"]["01_data_parallel"]
    configured = re.search(r"--workload (\S+)", run["command"])[1]
    sent, waited, whole = took(run, "communication"), took(run, "waiting"), run["microseconds"]
    alt = (
        f"One step on {found['world']} GPUs: {sent:.1f} ms of all-reduces while rank 0 computes backward; "
        f"it waits for {waited:.2f} ms of them, at the end."
    )
    sums, count = lanes_of([span for span in run["spans"] if span[0] == "communication"])
    rows = [
        (
            "compute",
            26,
            [
                (begin / 1e3, end / 1e3, COMPUTE, "")
                for row, _, begin, end in run["spans"]
                if row == "compute"
            ],
        )
    ]
    rows += [
        (
            "all-reduces" if lane == count // 2 else "",
            14,
            [(begin / 1e3, end / 1e3, GRADIENTS, "") for of, (_, _, begin, end) in sums if of == lane],
        )
        for lane in range(count)
    ]
    rows.append(
        (
            "waiting",
            18,
            [
                (begin / 1e3, end / 1e3, WAITING, "")
                for row, _, begin, end in run["spans"]
                if row == "waiting"
            ],
        )
    )

    def draw(figure):
        plots.lanes(plots.axes(figure, 52, 60 + 22 * count, left=110, right=24), rows, whole / 1e3)
        plots.key(
            figure,
            154 + 22 * count,
            [
                (COMPUTE, "forward, backward, update"),
                (GRADIENTS, "all-reduce of gradients"),
                (WAITING, "waiting"),
            ],
            left=110,
        )

    return plots.plot(
        172 + 22 * count,
        f"A step on {found['world']} GPUs: {sent:.1f} ms of all-reduces, {waited:.2f} ms of waiting",
        alt,
        f"docs/results/gpu_trace.json, rank 0, {found['versions'].get('GPU', 'GPU')}, {configured}.",
        draw,
        "measured by events",
    )


def smooth(values, window):
    return [
        sum(values[max(0, i - window + 1) : i + 1]) / len(values[max(0, i - window + 1) : i + 1])
        for i in range(len(values))
    ]


# Drawn learning rates: rows of a batch, factor, steps of warm-up.
DRAWN_RATES = ((12, 1, 40), (48, 1, 10), (48, 4, 10), (48, 16, 40))


@figure
def learning_rate_scaling():
    found = record("lesson_01_lr")
    named = "; ".join(f"{run['name']}: {run['validation_loss']:.2f}" for run in found["runs"])
    alt = (
        "Loss over tokens of runs that see the same tokens in steps of 12 or 48 rows. Validation loss at "
        f"the end: {named}."
    )
    drawn = []
    for run in found["runs"]:
        if (run["rows"], run["factor"], run["warmup_steps"]) in DRAWN_RATES:
            window = 48 // run["rows"]
            points = [
                ((i + 1) * run["rows"] * found["tokens_a_row"], loss)
                for i, loss in enumerate(smooth(run["loss"], window))
            ][window - 1 :: window]
            drawn.append((run["name"].split(", warm-up")[0], points))

    def draw(figure):
        plotted = plots.axes(
            figure,
            72,
            290,
            right=170,
            names=("tokens trained on", "loss, nats a token"),
            log="x",
            forms=("{:,.0f}", ""),
        )
        plots.curves(plotted, plots.lines_of(drawn))

    return plots.plot(
        420,
        "The same tokens in steps four times as large",
        alt,
        f"Record docs/results/lesson_01_lr.json, {file_text(found['runs'][0])}; of each rate the better "
        "warm-up.",
        draw,
        "measured; mean over 6,144 tokens",
    )


@figure
def precision_curves():
    found = record("gpu_precision_124m")
    first, *others = found["runs"]
    window = found["window"]
    alt = (
        f"Loss of GPT-2 124M over {window * len(first['loss'])} steps in {len(found['runs'])} precisions. "
        f"The curves lie on each other: at most {100 * max(r['largest_difference'] for r in others):.2f} % "
        f"from the first's, as means of {window} steps."
    )
    steps = [window * (i + 1) for i in range(len(first["loss"]))]

    def name(run):
        return run["precision"].replace(", gradients same", "")

    def draw(figure):
        loss = plots.axes(figure, 72, 240, right=610, names=("step", f"loss of {name(first)}, nats a token"))
        plots.curves(loss, plots.lines_of([(name(first), list(zip(steps, first["loss"])))]), label=False)
        apart = plots.axes(
            figure, 72, 240, left=420, right=180, names=("step", f"loss over {name(first)}'s, %")
        )
        plots.curves(
            apart,
            [
                (
                    name(run),
                    LINES[i],
                    [
                        (step, 100 * (loss / base - 1))
                        for step, loss, base in zip(steps, run["loss"], first["loss"])
                    ],
                )
                for i, run in enumerate(others, start=1)
            ],
        )

    return plots.plot(
        366,
        "GPT-2 124M in four precisions: less than a percent apart",
        alt,
        f"Record docs/results/gpu_precision_124m.json: {found['versions']['GPU']}, the same workload and "
        "tokens; only the dtypes differ.",
        draw,
        f"measured; mean of {window} steps",
    )
