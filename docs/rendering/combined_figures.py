"""Drawings of lesson 11: the groups of a mesh, and what eight GPUs hold and send by how they are laid out."""
from . import plots
from .combined_tables import GPUS, MICRO, all_laid, in_words
from .lesson_figures import COMPUTED
from .palette import COMPUTE, FORWARD, GRADIENTS, LINES, OPTIMIZER, PARAMETERS
from .registry import bytes_text, figure
from .svg import Drawing
from .tensor_figures import purposes_of

STAGES, DATA, TENSOR = 2, 2, 2
COLOURS = {"tensor": LINES[4], "data": LINES[1], "stages": LINES[5], "ends": LINES[0]}
WIDE, HIGH = 58, 30  # of a rank


def number_of(stage, replica, tensor):
    """As combined_memory.cpp has it."""
    return (stage * DATA + replica) * TENSOR + tensor


RANKS = [
    (stage, replica, tensor) for stage in range(STAGES) for replica in range(DATA) for tensor in range(TENSOR)
]
# axis, its place in a rank's triple, how far apart, what it shares
PANELS = (
    ("tensor", 2, 1, ("parts of each matrix: tokens", "in every half of a block")),
    ("data", 1, TENSOR, ("the same part, other rows:", "gradients, once per step")),
    (
        "stages",
        0,
        DATA * TENSOR,
        ("other layers: outputs and gradients, per", "micro-batch; at the ends the tied matrix"),
    ),
)


def groups_of(axis):
    """Ranks that differ in this place alone, in triples."""
    found = {}
    for rank in RANKS:
        found.setdefault(rank[:axis] + rank[axis + 1 :], []).append(rank)
    return list(found.values())


def place_of(left, rank):
    """The middle of a rank's box: stages to the right, replicas down, tensor ranks behind one another."""
    stage, replica, tensor = rank
    return left + 50 + 128 * stage + 62 * tensor, 132 + 96 * replica - 44 * tensor


@figure
def mesh_cube():
    said = {
        name: "; ".join(" and ".join(str(number_of(*rank)) for rank in group) for group in groups_of(axis))
        for name, axis, *_ in PANELS
    }
    alt = f"Eight ranks as a cube, drawn three times. Tensor groups: {said['tensor']}. Data groups: {said['data']}. Neighbours in the pipeline, and tied ends: {said['stages']}."
    drawing = Drawing(
        356,
        "A mesh of eight ranks, and its groups along each axis",
        alt,
        "rank = (stage x data + replica) x tensor + tensor rank",
    )
    for column, (name, axis, apart, words) in enumerate(PANELS):
        left = 16 + 316 * column
        drawing.text(left, 62, f"{name}: {'neighbours' if apart == 1 else f'{apart} apart'}")
        for other in range(3):
            for group in groups_of(other):
                if other != axis:
                    drawing.line(*place_of(left, group[0]), *place_of(left, group[-1]))
        for group in groups_of(axis):
            drawing.polyline([place_of(left, rank) for rank in group], COLOURS[name], thick=5)
        for rank in sorted(RANKS, key=lambda rank: -rank[2]):
            x, y = place_of(left, rank)
            drawing.box(x - WIDE / 2, y - HIGH / 2, WIDE, HIGH, COMPUTE, f"rank {number_of(*rank)}")
        for stage in range(STAGES):
            drawing.text(place_of(left, (stage, 0, 0))[0], 270, f"stage {stage}", "small mid")
        for i, line in enumerate((said[name], *words)):
            drawing.text(left, 298 + 18 * i, line, "small")
    return drawing.done(
        f"{COMPUTED}: the numbers are those of `three-splits`; replicas stand below each other, tensor ranks behind each other."
    )


NAMES = {"tensor": "tensor groups", "data": "data groups", "stages": "stages", "ends": "tied ends"}


@figure
def mesh_bytes():
    """Of every factoring of eight GPUs: bytes held, and sent along each axis."""
    laid = all_laid()
    alt = (
        "GPT-2 774M on eight GPUs: what the fullest GPU holds, and the most that one sends in all. "
        + "; ".join(
            f"{in_words(one.mesh)}: {bytes_text(one.held)}, {bytes_text(one.most)}"
            for one in (laid[0], laid[3], laid[-1])
        )
        + "."
    )
    high = 28 * len(laid)

    def draw(figure):
        held = plots.axes(
            figure,
            62,
            high,
            left=96,
            right=540,
            names=("GB that the fullest GPU holds", "stages x data x tensor"),
        )
        places = range(len(laid))
        columns = [purposes_of(one.plan) for one in laid]
        ends = plots.stacked(
            held,
            places,
            [(fill, [column[k][1] / 1e9 for column in columns]) for k, (fill, _) in enumerate(columns[0])],
            across=True,
            thick=0.66,
        )
        for place, end in zip(places, ends):
            held.annotate(f"{end:.1f}", (end, place), xytext=(5, 0), textcoords="offset points", va="center")
        held.set(xlim=(0, 12.5), ylim=(len(laid) - 0.5, -0.5), yticks=list(places))
        held.set_yticklabels([in_words(one.mesh) for one in laid])
        held.grid(False, axis="y")
        sent = plots.axes(
            figure,
            62,
            high,
            left=470,
            right=52,
            names=("bytes that a GPU sends per step along each axis (logarithmic)", ""),
            log="x",
        )
        for axis, colour in COLOURS.items():
            points = [(one.sent[axis], place) for place, one in zip(places, laid) if one.sent[axis]]
            sent.plot(*zip(*points), "o", color=colour, markersize=8, label=NAMES[axis])
        sent.set(
            xlim=(1e7, 1e12),
            ylim=(len(laid) - 0.5, -0.5),
            yticks=list(places),
            xticks=[1e7, 1e8, 1e9, 1e10, 1e11, 1e12],
        )
        sent.set_yticklabels([])
        sent.xaxis.set_major_formatter(lambda value, _: bytes_text(int(value)).replace(".00", ""))
        plots.key(
            figure,
            62 + high + 66,
            [
                (PARAMETERS, "parameters"),
                (GRADIENTS, "gradients"),
                (OPTIMIZER, "optimizer"),
                (FORWARD, "rest"),
            ],
        )
        figure.legend(
            *sent.get_legend_handles_labels(),
            ncol=4,
            loc="center left",
            borderaxespad=0,
            borderpad=0,
            handletextpad=0.2,
            bbox_to_anchor=(470 / 960, 1 - (62 + high + 62) / (figure.get_figheight() * 72)),
        )

    return plots.plot(
        62 + high + 84,
        "Eight GPUs, GPT-2 774M: what each layout holds and sends",
        alt,
        f"{COMPUTED}: plans.json (`--plan --world {GPUS}`, 512 rows of 1024 tokens a step in micro-batches of {MICRO}, bf16, sharded states).",
        draw,
        "planned, not run",
    )
