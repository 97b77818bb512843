"""Drawings of lessons 02 to 04: who holds what, bytes by purpose side by side, what travels when."""
import functools

from . import plots
from .lesson_figures import COMPUTED, lanes_of, steps_text, took
from .lesson_tables import bytes_text, is_busy, load_text
from .palette import (
    COMMUNICATION,
    COMPUTE,
    EDGE,
    GRADIENTS,
    OPTIMIZER,
    PARAMETERS,
    WAITING,
    held_in,
    parts_of,
)
from .registry import FIGURES, RenderError, figure, record
from .svg import PALE, Drawing
from .zero_tables import LESSONS, states_of

RANKS, BLOCKS = 4, 4
UNITS = ("E", *(str(block) for block in range(1, BLOCKS + 1)), "H")
# Moments that are drawn, and the unit at work in each.
MOMENTS = {"forward, block 2": 2, "backward, block 3": 3, "update": None}
VECTORS = (("parameters", PARAMETERS), ("gradients", GRADIENTS), ("optimizer", OPTIMIZER))
CELL_WIDE, CELL_HIGH = 36, 24
# Height of a vector in pixels.
HIGH = RANKS * CELL_HIGH + 22


def draw_cells(drawing, x, y, fill, rank, whole, gathered):
    """One vector of one rank: a cell a unit, of a slice for each rank. Its own slice is kept; of `whole` all,
    and of the units `gathered` the others for a moment."""
    wide = (CELL_WIDE - 4) / RANKS
    for unit in range(len(UNITS)):
        for piece in range(RANKS):
            held = whole or piece == rank
            moment = not held and unit in gathered
            drawing.box(
                x + unit * CELL_WIDE + piece * wide,
                y,
                wide,
                CELL_HIGH - 2,
                fill if held or moment else "none",
                kind_of_box="box" if held or moment else "bare",
                share=PALE if moment else 1,
            )


def draw_holders(drawing, vectors, draw, *notes):
    """Moments side by side, vectors below each other, each of all ranks: draw(x, y, vector, its fill, rank,
    moment) draws what a rank has."""
    for column, (moment, at_work) in enumerate(MOMENTS.items()):
        x = 150 + 276 * column
        drawing.text(x + len(UNITS) * CELL_WIDE / 2, 62, moment, "mid")
        for unit, name in enumerate(UNITS):
            drawing.text(x + (unit + 0.5) * CELL_WIDE - 2, 82, name, "small mid")
        for row, (vector, fill) in enumerate(vectors):
            y, high = 90 + HIGH * row, RANKS * CELL_HIGH
            for rank in range(RANKS):
                draw(x, y + CELL_HIGH * rank, vector, fill, rank, moment)
                drawing.text(x - 8, y + CELL_HIGH * rank + 15, str(rank), "small end")
            if at_work is not None:
                drawing.box(
                    x + at_work * CELL_WIDE - 3, y - 3, CELL_WIDE + 2, high + 4, "none", kind_of_box="got"
                )
    for row, (vector, _) in enumerate(vectors):
        drawing.text(16, 90 + HIGH * row + 2 * CELL_HIGH, vector)
        drawing.text(16, 90 + HIGH * row + 2 * CELL_HIGH + 16, f"ranks 0 to {RANKS - 1}", "small")
    drawing.lines(16, 98 + HIGH * len(vectors), 17, *notes)


def holds(lesson, whole, gathered, title, note):
    """`whole`: vectors kept in full; `gathered`: by vector and moment the units that are whole for that
    moment."""
    kept = ", ".join(name for name, _ in VECTORS if name in whole) or "nothing"
    said = "; ".join(
        f"{name} in {moment}: {', '.join(UNITS[unit] for unit in units)}"
        for (name, moment), units in gathered.items()
    )
    alt = f"What {RANKS} ranks hold in {LESSONS[lesson]}. Whole: {kept}. Of the rest, one slice." + (
        f" Whole for a moment: {said}." if said else ""
    )
    words = f"full: held; pale: for a moment; {RANKS} slices a unit"
    drawing = Drawing(112 + HIGH * len(VECTORS), title, alt, words)

    def draw(x, y, vector, fill, rank, moment):
        draw_cells(drawing, x, y, fill, rank, vector in whole, gathered.get((vector, moment), ()))

    draw_holders(drawing, VECTORS, draw, note)
    return drawing.done(f"{COMPUTED}: {BLOCKS} blocks on {RANKS} ranks. Outlined: the unit at work.")


LEAVING = {("gradients", "backward, block 3"): (0, 3, 4)}


@figure
def zero1_holds():
    return holds(
        "02_zero1",
        ("parameters", "gradients"),
        {},
        "ZeRO-1: the optimizer's state is cut, everything else is whole",
        "Gradients go to the slice's owner (reduce-scatter), updated parameters come back from it "
        "(all-gather).",
    )


@figure
def zero2_holds():
    return holds(
        "03_zero2",
        ("parameters",),
        LEAVING,
        "ZeRO-2: gradients are cut too",
        "Full gradients live in four buffers: E, two blocks in turn, H; with several micro-batches a slice "
        "of each comes on top (scratch).",
    )


@figure
def zero3_holds():
    return holds(
        "04_zero3",
        (),
        {
            ("parameters", "forward, block 2"): (0, 2, 3),
            ("parameters", "backward, block 3"): (0, 2, 3, 5),
            **LEAVING,
        },
        "ZeRO-3: parameters are cut too",
        "Gathered parameters live in four buffers: E, H, and a pool of prefetch + 1 = 2 for all blocks. "
        "The block after the one at work is already gathered.",
    )


@figure
def zero_bytes():
    """GPT-2 1.5B under four strategies: a panel for each N, in one scale."""
    plans = record("zero_plans")["models"]["gpt2_1558m"]
    panels = [
        (f"GPT-2 1.5B, N = {n}: planned", {lesson: plans[lesson][n]["bytes"] for lesson in LESSONS})
        for n in ("2", "4")
    ]
    totals = "; ".join(
        f"{name}: "
        + ", ".join(f"{LESSONS[lesson]} {bytes_text(bytes_['total'])}" for lesson, bytes_ in one.items())
        for name, one in panels
    )
    rests = [[bytes_["activations"] + bytes_["workspace"] for bytes_ in one.values()] for _, one in panels]
    apart = max(max(rest) - min(rest) for rest in rests)
    same = f"the same for all but for {apart} bytes at most" if apart else "the same for all"
    alt = f"Bytes of a rank by purpose under four strategies. {totals}. Activations and workspace are {same}."

    def draw(figure):
        bars = [[parts_of(bytes_) for bytes_ in one.values()] for _, one in panels]
        most = max(sum(count for _, count in bar) for several in bars for bar in several)
        for i, (name, one) in enumerate(panels):
            plotted = plots.axes(
                figure, 72, 210, left=64 + 460 * i, right=476 - 460 * i, names=("", f"{name}, GB")
            )
            plots.stacked(
                plotted,
                range(len(one)),
                plots.gigabytes(bars[i]),
                lambda _, i, held=list(one.values()): bytes_text(held[i]["total"]),
            )
            plotted.set(
                xlim=(-0.6, len(one) - 0.4),
                ylim=(0, 1.1 * most / 1e9),
                xticks=range(len(one)),
                xticklabels=[LESSONS[lesson].replace(" ", "\n", 1) for lesson in one],
            )
        plots.key(figure, 344, held_in(sum(bars, [])))

    return plots.plot(
        362,
        "Bytes of a rank of GPT-2 1.5B, lessons 01 to 04",
        alt,
        "Record docs/results/zero_plans.json (`--plan`, 8 or 16 rows a micro-batch, no run).",
        draw,
    )


@figure
def zero_states_over_ranks():
    """States of GPT-2 1.5B over N."""
    planned = record("zero_plans")["models"]["gpt2_1558m"]
    at = {lesson: {n: states_of(plan) for n, plan in one.items()} for lesson, one in planned.items()}
    alt = (
        "Model states of GPT-2 1.5B a rank, planned, on 1 and on 1024 GPUs: "
        + "; ".join(
            f"{LESSONS[lesson]} {bytes_text(one['1'])} and {bytes_text(one['1024'])}"
            for lesson, one in at.items()
        )
        + "."
    )

    def draw(figure):
        plotted = plots.axes(
            figure,
            72,
            270,
            right=160,
            names=("ranks N", "states of a rank"),
            log="xy",
            forms=("{:g}", "{:g} GB"),
        )
        named = plots.lines_of(
            [
                (LESSONS[lesson], [(int(n), count / 1e9) for n, count in one.items()])
                for lesson, one in at.items()
            ]
        )
        plots.curves(plotted, named, xlim=(1, 1024), ylim=(0.3, 50), xticks=[2**i for i in range(11)])

    return plots.plot(
        400,
        "GPT-2 1.5B: states of a rank over the number of ranks",
        alt,
        "Record docs/results/zero_plans.json: `--plan --world N --device cuda --workload "
        "configs/gpt2_1558m.json`.",
        draw,
        "planned, not run",
    )


KINDS = {"all_gather": PARAMETERS, "reduce_scatter": GRADIENTS, "all_reduce": COMMUNICATION}


def units_of(spans, gathers):
    """The unit of each operation by its size and turn. Gathers: unit 0, blocks upwards, the last unit, in
    backward some blocks again, downwards. Reductions: the last unit, blocks downwards, among them unit 0. The
    all-reduce of four numbers has none.
    """
    sizes = [name.split(" ")[2] for _, name, *_ in spans if not name.startswith("all_reduce")]
    block = max(set(sizes), key=sizes.count)
    blocks = (
        sizes.count(block)
        if not gathers
        else sizes.index(next(size for size in sizes[1:] if size != block)) - 1
    )
    ends = [0, blocks + 1] if gathers else [blocks + 1, 0]
    again = sizes.count(block) - blocks
    order = [*range(1, blocks + 1), *range(again, 0, -1)] if gathers else [*range(blocks, 0, -1)]
    units = [str(of.pop(0)) for size in sizes if (of := order if size == block else ends)]
    if order or ends or len(units) != len(sizes):
        raise RenderError("a trace's operations are not those of a step with one micro-batch")
    return units + [""] * (len(spans) - len(sizes))


def operations_of(run, gathers):
    """Lanes of operations, each with its unit: several that are under way at once stand below each other."""
    several = [
        s for s in run["spans"] if s[0] == "communication" and s[1].startswith("all_gather") == gathers
    ]
    placed, count = lanes_of([[unit, *span[1:]] for span, unit in zip(several, units_of(several, gathers))])
    return [[span for lane, span in placed if lane == i] for i in range(count)]


def rows_of(run):
    """A traced step for plots.lanes, and the labels of every fourth unit: (row, milliseconds, unit)."""

    def spans(row, fill):
        return [(begin / 1e3, end / 1e3, fill, "") for of, _, begin, end in run["spans"] if of == row]

    rows, labels = [("compute", 26, spans("compute", COMPUTE))], []
    for name, gathers in (("gathers", True), ("reductions", False)):
        lanes = operations_of(run, gathers)
        rows.append(("", 8, []))  # for the labels
        for i, lane in enumerate(lanes):
            if lane:
                rows.append(
                    (
                        name if i == len(lanes) // 2 else "",
                        max(4, 26 / len(lanes)),
                        [
                            (begin / 1e3, end / 1e3, KINDS[what.split(" ")[0]], "")
                            for _, what, begin, end in lane
                        ],
                    )
                )
        labels += [
            (len(rows) - len(lanes), begin / 1e3, unit)
            for unit, _, begin, _ in sorted(sum(lanes, []), key=lambda s: s[2])
            if unit and int(unit) % 4 == 0
        ]
    return [*rows, ("waiting", 18, spans("waiting", WAITING))], labels


def draw_timeline(figure, run):
    rows, labels = rows_of(run)
    plotted = plots.axes(figure, 52, 188, left=110, right=24)
    places = plots.lanes(plotted, rows, run["microseconds"] / 1e3)
    last = {}
    for row, begin, unit in labels:
        at = plotted.transData.transform((begin, 0))[0]
        if at - last.get(row, -100) > 22:
            plotted.text(begin, places[row] - 2, unit, va="bottom")
            last[row] = at
    begins = min(s[2] for s in run["spans"] if s[1].startswith("reduce_scatter")) / 1e3
    plotted.axvline(begins, color=EDGE, linewidth=1, linestyle="--")
    plots.words(
        figure, plotted.transData.transform((begins, 0))[0], 46, "the first gradient is complete", ha="center"
    )
    plots.key(
        figure,
        282,
        [
            (COMPUTE, "forward, backward, update"),
            (PARAMETERS, "all-gather of parameters"),
            (GRADIENTS, "reduce-scatter of gradients"),
            (COMMUNICATION, "message of four numbers"),
            (WAITING, "waiting"),
        ],
        left=16,
    )


def timeline(lesson, title, what):
    run = record("zero_trace")["lessons"][lesson]
    alt = f"Rank 0 of 2 in one step of lesson {LESSONS[lesson]}, from a real trace. {what}"
    caption = (
        f"Record docs/results/zero_trace.json, rank 0 of 2, step {run['step']}: {steps_text(run)}; "
        f"`{run['command']}`; {load_text('zero_trace')}; operations last until the other rank has come. A "
        "number: the unit."
    )
    return plots.plot(
        300,
        title,
        alt,
        caption,
        lambda figure: draw_timeline(figure, run),
        "measured on a busy machine: order, no times" if is_busy("zero_trace") else "measured",
    )


def forward_begins(run):
    """Microseconds into a traced step: the end of its first wait for parameters, or where nothing is gathered
    compute's begin."""
    waits = [end for row, name, _, end in run["spans"] if row == "waiting" and "all_gather" in name]
    return min(waits or [begin for row, _, begin, _ in run["spans"] if row == "compute"])


def gpu_timeline(lesson):
    """A lesson's timeline on GPUs, where times are measured by events."""
    found = record("gpu_trace")
    run = found["lessons"][lesson]
    waited, waits, whole = (
        took(run, "waiting"),
        sum(row == "waiting" for row, *_ in run["spans"]),
        run["microseconds"] / 1e3,
    )
    alt = (
        f"One step of {LESSONS[lesson]} on {found['world']} GPUs: "
        f"{took(run, 'communication', 'all_gather'):.1f} ms of all-gathers and "
        f"{took(run, 'communication', 'reduce_scatter'):.1f} ms of reduce-scatters run while rank 0 "
        f"computes; it waits for {waited:.2f} ms of them."
    )
    title = (
        f"{LESSONS[lesson]} on {found['world']} GPUs: a step of {whole:.1f} ms, {waited:.2f} ms of it in "
        f"{waits} waits"
    )
    caption = (
        f"docs/results/gpu_trace.json, rank 0, {found['versions'].get('GPU', 'GPU')}. A number: the unit. "
        "An operation lasts until the other rank has come, too."
    )
    return plots.plot(
        300, title, alt, caption, lambda figure: draw_timeline(figure, run), "measured by events"
    )


@figure
def zero1_trace():
    return timeline(
        "02_zero1",
        "ZeRO-1: gathers under the step's own forward, reductions behind backward",
        "Gathers are issued two units ahead of forward; embedding waits for unit 0 alone. Reduce-scatters "
        "follow one another while backward computes.",
    )


@figure
def zero3_trace():
    return timeline(
        "04_zero3",
        "ZeRO-3: gathers all along, reductions behind backward",
        "Gathers come one unit ahead of compute in forward; in backward the blocks that are no longer in "
        "the pool are gathered again, while gradients leave.",
    )


for number, lesson in enumerate(("02_zero1", "03_zero2", "04_zero3"), start=1):
    FIGURES[f"zero{number}_gpu_trace"] = functools.partial(gpu_timeline, lesson)
