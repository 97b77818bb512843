"""Drawings of lesson 10: a block with its cuts and messages, what four ranks hold, bytes over ranks, when
messages outweigh products."""
from . import plots
from .front_page import Step
from .lesson_figures import COMPUTED
from .palette import (
    ACTIVATIONS,
    BACKWARD,
    COMMUNICATION,
    EDGE,
    FORWARD,
    GRADIENTS,
    OPTIMIZER,
    PARAMETERS,
    WAITING,
    done,
    held,
    held_in,
    parts_of,
)
from .plans import plan_of, workload
from .registry import bytes_text, figure, record
from .svg import PALE, Drawing
from .tensor_tables import LESSON
from .zero_figures import BLOCKS, CELL_HIGH, CELL_WIDE, HIGH as ROW_HIGH, RANKS, UNITS, draw_holders

# The rank whose part is drawn.
MINE = 1
# Side and height of a matrix in pixels.
SIDE, HIGH = 72, 72
# The lengths of a norm and of a message; lengths of the schematic have no unit.
NORM, MESSAGE = 0.2, 0.55
FIRST, SECOND = {"attention": 1.25, "MLP": 1.25}, {"attention": 0.65, "MLP": 0.95}
NAMES = {"attention": ("q, k, v, heads", "c_proj"), "MLP": ("c_fc, GELU", "c_proj")}


def forward_half(step, half, sum_issued):
    """The steps of TensorParallel::forward_block: finish what came before and the norm, gather, two products,
    sum. Returns when the sum is there."""
    step.wait(sum_issued)
    step.compute("norm", -1, NORM)
    step.wait(step.send("norms", -1, MESSAGE))
    step.compute(NAMES[half][0], -1, FIRST[half])
    step.compute(NAMES[half][1], -1, SECOND[half])
    return step.send("sum", -1, MESSAGE)


def backward_half(step, half, gradient):
    """The steps of TensorLayers::backward_block: norms again, both matrices' inputs, the sum behind the
    second one's weights, the next gradient behind the first one's."""
    norms = step.send("norms", -1, MESSAGE)
    step.wait(gradient)
    step.compute("back through both", -1, FIRST[half] + SECOND[half])
    summed = step.send("sum", -1, MESSAGE)
    step.compute("weights 2", -1, SECOND[half])
    step.wait(summed)
    step.compute("norm", -1, NORM)
    gradient = step.send("gradient", -1, MESSAGE)
    step.wait(norms)
    step.compute("weights 1", -1, FIRST[half] * 0.8)
    return gradient


def block_steps():
    """Forward and backward of a block on a rank."""
    forward, backward = Step(), Step()
    arrives = 0.0
    for half in ("attention", "MLP"):
        arrives = forward_half(forward, half, arrives)
    forward.wait(arrives)
    gradient = 0.0
    for half in ("MLP", "attention"):
        gradient = backward_half(backward, half, gradient)
    return forward, backward


def matrix(drawing, x, y, fill, across=False, whole=False, pale=False):
    """Cut into a stripe for each rank: of the drawn rank alone, or whole. across: stripes stand side by
    side."""
    for rank in range(RANKS):
        wide, high = (SIDE / RANKS, HIGH) if across else (SIDE, HIGH / RANKS)
        held = whole or rank == MINE
        drawing.box(
            x + (rank * wide if across else 0),
            y + (0 if across else rank * high),
            wide,
            high,
            fill if held else "none",
            kind_of_box="box" if held else "bare",
            share=PALE if pale else 1,
        )


# For each box: (fill, stripes side by side, whole, pale), (what it is, its size), the operation to the next
# box.
FLOW = (
    ((ACTIVATIONS, False, False, False), ("norm of my", "tokens: n x d"), "all-gather"),
    ((ACTIVATIONS, False, True, False), ("of all", "tokens: BT x d"), "times"),
    ((PARAMETERS, False, False, False), ("first matrix, by", "rows (Megatron:", "column-parallel)"), "is"),
    ((ACTIVATIONS, True, False, False), ("my heads", "or columns"), "times"),
    ((PARAMETERS, True, False, False), ("second matrix, by", "columns (Megatron:", "row-parallel)"), "is"),
    ((ACTIVATIONS, False, True, True), ("a summand of", "all tokens"), "reduce-scatter"),
    ((ACTIVATIONS, False, False, False), ("the sum of my", "tokens: n x d"), ""),
)


def draw_flow(drawing, top):
    x, gaps = 24, {"all-gather": 84, "reduce-scatter": 108, "times": 44, "is": 46}
    for (fill, across, whole, pale), lines, then in FLOW:
        matrix(drawing, x, top, fill, across, whole, pale)
        for i, line in enumerate(lines):
            drawing.text(x + SIDE / 2, top + HIGH + 18 + 16 * i, line, "small mid")
        x += SIDE
        if then:
            gap = gaps[then]
            if "-" in then:
                drawing.line(x + 6, top + HIGH / 2, x + gap - 6, top + HIGH / 2, "arrow", tip=True)
                drawing.text(x + gap / 2, top + HIGH / 2 - 8, then, "small mid")
            else:
                drawing.text(x + gap / 2, top + HIGH / 2 + 5, "x" if then == "times" else "=", "mid")
            x += gap


def draw_lane(drawing, step, name, y, scale, fill):
    drawing.text(16, y + 12, name)
    drawing.text(16, y + 28, "computes", "small")
    drawing.text(16, y + 58, "messages", "small")
    for span in step.spans:
        left, wide = 92 + span.begin * scale, (span.end - span.begin) * scale
        message = span.row == "communication"
        colour = COMMUNICATION if message else WAITING if span.row == "waiting" else fill
        label = "" if span.what in ("wait", "norm") else span.what
        drawing.box(
            left,
            y + (44 if message else 0),
            max(1.5, wide - 1),
            22 if message else 34,
            colour,
            label if wide > 6.6 * len(label) + 4 else "",
            "in small",
        )


@figure
def tensor_block():
    forward, backward = block_steps()
    alt = (
        f"Half a block on rank {MINE} of {RANKS}: norm of its own tokens, all-gather, its rows of the first "
        "matrix, its columns of the second, reduce-scatter. Below, a block in time: forward waits "
        "four times; in backward messages travel during products, and are waited for where they take longer."
    )
    drawing = Drawing(
        430, "Half a block on four ranks, and a block in time", alt, f"coloured: what rank {MINE} has"
    )
    draw_flow(drawing, 54)
    scale = 850 / max(forward.now, backward.now)
    draw_lane(drawing, forward, "forward", 204, scale, FORWARD)
    draw_lane(drawing, backward, "backward", 300, scale, BACKWARD)
    drawing.text(944, 226, "narrow: a norm", "small end")
    drawing.legend(
        16, 410, [*held(PARAMETERS, ACTIVATIONS), *done(FORWARD, BACKWARD, COMMUNICATION, WAITING)]
    )
    return drawing.done(
        f"{COMPUTED}: rank {MINE} of {RANKS}, `tokens=split`; the order is that of `forward_block` and "
        "`backward_block`, lengths are chosen."
    )


# At each moment: blocks whose activations are kept, and the block whose norm of all tokens is held.
KEPT = {"forward, block 2": ((0, 1, 2), 2), "backward, block 3": ((0, 1, 2, 3), 3), "update": ((), None)}
HELD = [(name, fill) for fill, name in held(PARAMETERS, GRADIENTS, OPTIMIZER, ACTIVATIONS)]


def draw_parts(drawing, x, y, fill, rank, units, whole):
    """A rank's part of each unit, above a strip for what every rank has; of the unit `whole` all tokens for a
    moment."""
    wide = (CELL_WIDE - 4) / RANKS
    strip = 0 if fill == ACTIVATIONS else 5
    for unit in range(len(UNITS)):
        ends_alone = strip and UNITS[unit] == "H"  # the last norm: nothing of it is cut
        for piece in range(RANKS):
            held, moment = unit in units and piece == rank and not ends_alone, unit == whole and piece != rank
            if not ends_alone:
                drawing.box(
                    x + unit * CELL_WIDE + piece * wide,
                    y,
                    wide,
                    CELL_HIGH - 3 - strip,
                    fill if held or moment else "none",
                    kind_of_box="box" if held or moment else "bare",
                    share=PALE if moment else 1,
                )
        if strip:
            drawing.box(x + unit * CELL_WIDE, y + CELL_HIGH - 2 - strip, 4 * wide, strip - 1, fill)


@figure
def tensor_holds():
    alt = (
        f"{RANKS} ranks in lesson 10, a model of {BLOCKS} blocks. A rank keeps its quarter of every unit's "
        "parameters, gradients and optimizer state, and whole only norms, biases and positions. "
        "Activations kept: "
        + "; ".join(
            f"{moment}: {', '.join(UNITS[unit] for unit in units) or 'none'}"
            for moment, (units, _) in KEPT.items()
        )
        + "."
    )
    drawing = Drawing(
        130 + ROW_HIGH * len(HELD),
        "Tensor parallelism: a part of every matrix, never a whole one",
        alt,
        f"full: held; pale: for a moment; {RANKS} parts a unit",
    )

    def draw(x, y, vector, fill, rank, moment):
        units, whole = KEPT[moment] if vector == "activations" else (range(len(UNITS)), None)
        draw_parts(drawing, x, y, fill, rank, units, whole)

    draw_holders(
        drawing,
        HELD,
        draw,
        "The strip below a unit's parts: norms, the second matrices' biases and positions, which every rank "
        "has.",
        "Activations: runs of tokens between the halves, heads and columns within them; of the block at "
        "work the norms of all tokens.",
    )
    return drawing.done(
        f"{COMPUTED}: {BLOCKS} blocks on {RANKS} ranks, `tokens=split`. Outlined: the unit at work."
    )


COUNTS = (1, 2, 4, 8, 16)
SPLIT, WHOLE = (), ("tokens=whole",)


def purposes_of(plan):
    return parts_of({purpose: plan.bytes(purpose) for purpose in plan.buffers})


@figure
def tensor_memory():
    """Bytes of GPT-2 1.5B over ranks."""
    plans = {
        (t, tokens): plan_of(LESSON, "gpt2_1558m", t, *setting)
        for t in COUNTS
        for tokens, setting in (("split", SPLIT), ("whole", WHOLE))
        if t > 1 or tokens == "split"
    }
    totals = {key: sum(count for _, count in purposes_of(plan)) for key, plan in plans.items()}
    most = COUNTS[-1]
    alt = (
        "Bytes that a rank holds of GPT-2 1.5B, planned, by purpose: one rank "
        f"{bytes_text(totals[1, 'split'])}, {most} ranks {bytes_text(totals[most, 'split'])} with tokens "
        f"split and {bytes_text(totals[most, 'whole'])} with tokens whole."
    )

    def draw(figure):
        plotted = plots.axes(figure, 72, 250, names=("", "GB of the rank that holds most"))
        places = [
            COUNTS.index(t) + (0 if t == 1 else -0.2 if tokens == "split" else 0.2) for t, tokens in plans
        ]
        columns = [purposes_of(plan) for plan in plans.values()]
        names = ["" if t == 1 else f"\n{tokens}" for t, tokens in plans]
        plots.stacked(
            plotted, places, plots.gigabytes(columns), lambda end, i: f"{end:.1f}{names[i]}", thick=0.34
        )
        plotted.set(
            xlim=(-0.6, len(COUNTS) - 0.4),
            ylim=(0, 52),
            xticks=range(len(COUNTS)),
            xticklabels=["one device" if t == 1 else f"t = {t}" for t in COUNTS],
        )
        plots.key(figure, 366, held_in(columns))

    work = workload("gpt2_1558m")["batch"]
    return plots.plot(
        384,
        "GPT-2 1.5B: bytes of a rank, tokens split and whole",
        alt,
        f"{COMPUTED}: plans.json (`--plan --world t`, {work['micro']} rows of {work['sequence']} tokens in "
        "a micro-batch, bf16).",
        draw,
        "planned, not run",
    )


WIDTHS = (768, 1024, 1280, 1600, 2048, 4096, 8192, 12288)
# The dense bf16 peak of an H200, in operations a second, from its data sheet (lessons/choose/gpus.cpp).
DENSE_PEAK = 989e12


def rates():
    """FLOPs a second of products, bytes a second of a gather on two H200s."""
    link = next(
        one["fit"]["bytes_per_s"]
        for one in record("collectives_nvlink_2")["operations"]
        if one["kind"] == "all_gather"
    )
    return record("choosing")["check"]["share_of_peak"] * DENSE_PEAK, link


@figure
def tensor_rule():
    """10 e (t - 1) F / (72 d W)."""
    flops, link = rates()
    share = {t: [(d, 10 * 2 * (t - 1) * flops / (72 * d * link)) for d in WIDTHS] for t in (2, 4, 8)}
    at = {t: dict(points) for t, points in share.items()}
    alt = (
        "Time of a block's messages over the time of its products by width, both axes logarithmic, for "
        f"products at {flops / 1e12:.0f} TFLOP/s and messages at {link / 1e9:.0f} GB/s. "
        + "; ".join(
            f"{t} ranks: {at[t][1024]:.2f} at width 1024, {at[t][4096]:.2f} at 4096, {at[t][12288]:.2f} at "
            "12288"
            for t in share
        )
        + "."
    )

    def draw(figure):
        plotted = plots.axes(
            figure,
            72,
            250,
            right=90,
            names=("width d", "time of messages / time of products"),
            log="xy",
            forms=("{:g}", "{:g}"),
        )
        plotted.axhline(1, color=EDGE, linewidth=1, linestyle="--")
        plotted.annotate(
            "as long as the products", (12288, 1), xytext=(-8, 6), textcoords="offset points", ha="right"
        )
        plots.curves(
            plotted,
            plots.lines_of([(f"t = {t}", points) for t, points in share.items()]),
            xlim=(768, 12288),
            ylim=(0.02, 5),
            xticks=[1024, 1600, 2048, 4096, 8192, 12288],
            yticks=[0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5],
        )

    caption = (
        f"{COMPUTED}: 10 e (t - 1) F / (72 d W) with e = 2, F = {flops / 1e12:.0f} TFLOP/s (choosing.json: "
        f"what lesson 00's products reach on an H200) and W = {link / 1e9:.0f} GB/s "
        "(collectives_nvlink_2.json: an all-gather of two H200s), taken for every t."
    )
    return plots.plot(
        380,
        "Messages over products, by width and tensor ranks",
        alt,
        caption,
        draw,
        "nothing hidden, no latency",
    )
