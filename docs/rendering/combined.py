"""Lesson 11: the groups of a mesh, what goes along each axis, predicted next to measured, what eight GPUs
hold and send by how they are laid out, and what it plans for published runs (docs/results/lesson_11.json,
plans.json, meshes.json)."""
from . import plots
from .lesson_figures import COMPUTED
from .lesson_tables import tail
from .machine_tables import gpu_table
from .palette import COMPUTE, LINES, held_in
from .plans import plan_of, settings_in
from .registry import (
    RenderError,
    as_predicted,
    bytes_text,
    figure,
    record,
    renders,
    same_bits,
    source,
    table,
    table_of,
    times_text,
)
from .svg import Drawing
from .tensor_figures import purposes_of

LESSON = "11_combined"
MODEL, GPUS, MICRO = "gpt2_774m", 8, 4
AXES = {
    "tensor": "tensor group",
    "data": "data group",
    "stages": "neighbours of the pipeline",
    "ends": "the other tied end",
    "world": "all ranks",
}


def mesh_runs():
    """mesh -> its run, which held and sent what was planned, and ended in the bits of lesson 00 in the same
    order."""
    found = record("lesson_11")["meshes"]
    for pair in found.values():
        run, parts = pair["run"], pair["parts"]
        same_bits(as_predicted(run), parts, parts["command"])
        if any(rank["predicted"] != rank["measured"] for rank in run["ranks"]):
            raise RenderError(f"{run['command']}: not as predicted")
    return found


def shape_of(mesh):
    """Stages, data ranks, tensor ranks."""
    return tuple(map(int, mesh.split("x")))


def in_words(mesh):
    return " x ".join(mesh.split("x"))


@renders
def mesh_axes(page, mesh):
    """What rank 0 sends along each axis in a step."""
    rank = mesh_runs()[mesh]["run"]["ranks"][0]["measured"]
    rows = [[AXES[axis], f"{rank[axis][0]:,}", f"{rank[axis][1]:,}"] for axis in AXES if axis in rank]
    rows.append(["together", *(f"{sum(one[i] for one in rank.values()):,}" for i in (0, 1))])
    return table(["with", "messages", "bytes sent"], rows) + tail(
        page, "lesson_11", more=f"rank 0 of {in_words(mesh)}, `configs/tiny_rows.json`, as predicted"
    )


@renders
def mesh_predicted(page, *meshes):
    """Bytes by purpose and messages of rank 0, as predicted and as measured: mesh_runs() stops where these
    differ."""
    states = ("parameters", "gradients", "momentum", "variance")
    rows = [
        (purpose.replace("total", "all purposes"), lambda run, purpose=purpose: run["bytes"][purpose])
        for purpose in (*states, "activations", "workspace", "communication", "total")
    ]
    rows += [
        ("operations a step", lambda run: sum(op["count"] for op in run["operations"])),
        ("bytes sent a step", lambda run: run["bytes_sent"]),
    ]
    columns = {
        in_words(mesh): lambda _, count, mesh=mesh: f"{count(mesh_runs()[mesh]['run']):,}" for mesh in meshes
    }
    return table_of(rows, {"rank 0, predicted = measured": lambda name, _: name, **columns}) + tail(
        page, "lesson_11", more="`configs/tiny_rows.json`"
    )


@renders
def mesh_bits(page):
    """Each mesh, and lesson 00 that adds in its order."""
    return table_of(
        mesh_runs().items(),
        {
            "stages x data x tensor": lambda mesh, _: in_words(mesh),
            "`batch.micro`": lambda _, pair: pair["run"]["command"].split("batch.micro=")[1].split()[0],
            "lesson 00 with": lambda _, pair: (
                f"`{pair['parts']['command'].split(' --workload')[0].split(' ', 1)[1]}`"
            ),
            "loss of step 20, both": lambda _, pair: f"{pair['run']['loss'][-1]:.10f}",
            "weights, SHA-256, both": lambda _, pair: f"`{pair['run']['weights_sha256'][:12]}`",
        },
        left=3,
    ) + tail(page, "lesson_11", more="`configs/tiny_rows.json`, all 20 losses equal")


@renders
def mesh_gpu(page, gpus):
    """`gpus` GPUs laid out in several ways, in turns on the same rows: rates, what the fullest GPU holds, the
    most that one sends along each axis, and the step that choose predicted before."""
    row = record("gpu_combined")["rows"][f"mesh_{gpus} x{gpus}"]
    together = row["rows_a_rank"] * row["micro_batches"]
    ahead = {
        (one["lesson"], *one["settings"]): one["predicted"]
        for one in record("choosing_ahead")["rows"]
        if (one["gpus"], one["rows"]) == (int(gpus), together)
    }
    runs = []
    for name, program in row["programs"].items():
        said = [one for one in settings_in(program["command"]) if not one.startswith(("data.", "steps="))]
        lesson = program["command"].split("/bin/")[1].split()[0]
        plan = plan_of(lesson, MODEL, int(gpus), *said)
        if not program["bytes_planned"] == program["bytes_measured"] == plan.mesh[0][2]:
            raise RenderError(f"gpu_combined.json, {name}: holds other bytes than plans.json says")
        runs.append((name, plan.mesh, (lesson, *(one for one in said if not one.startswith("batch.")))))

    def over(name, *_):
        ratio = row["ratios"].get(f"{name}_over_ours")
        return f"{ratio['median']:.3f}" if ratio else ""

    def sent(mesh, axis):
        most = max(one[3].get(axis, [0, 0])[1] for one in mesh)
        return f"{most / 1e9:.2f}" if most else ""

    commits = dict.fromkeys(turn["commit"] for turn in row["rounds"])
    more = (
        f"{gpus} x {row['gpu']}, GPT-2 774M, {together} rows of {row['sequence']} tokens a step, "
        f"{row['rows_a_rank']} at a time; {times_text(len(row['rounds']), 'round')} in turns, commit "
        f"{', '.join(commits)}; predicted before any such run; bytes as planned, of the GPU that holds or "
        "sends most"
    )
    return table_of(
        runs,
        {
            "lesson": lambda _, __, key: " ".join([key[0][:2], *(f"`{setting}`" for setting in key[1:])]),
            "k tok/s": lambda name, *_: f"{gpu_table.median_of(row, name, 'tokens_per_second') / 1e3:.1f}",
            "over lesson 01": over,
            "GB held": lambda _, mesh, __: f"{max(one[2] for one in mesh) / 1e9:.1f}",
            "GB sent: tensor group": lambda _, mesh, __: sent(mesh, "tensor"),
            "data group": lambda _, mesh, __: sent(mesh, "data"),
            "neighbours": lambda _, mesh, __: sent(mesh, "stages"),
            "predicted ms": lambda *run: f"{1e3 * ahead[run[-1]]:.1f}",
            "measured ms": lambda name, *_: f"{1e3 * gpu_table.median_of(row, name, 'median_seconds'):.1f}",
        },
    ) + tail(page, "gpu_combined", "choosing_ahead", more=more)


class Laid:
    """GPUs laid out as a mesh: its fullest rank, and along each axis the rank that sends most."""

    def __init__(self, mesh):
        plan = plan_of(LESSON, MODEL, GPUS, f"batch.micro={MICRO}", f"mesh={mesh}")
        self.mesh, self.plan = mesh, plan
        self.held = max(bytes_held for _, _, bytes_held, _ in plan.mesh)
        self.most = max(
            sum(sent for _, sent in axes.values()) for *_, axes in plan.mesh
        )  # that a rank sends in all
        self.sent = {axis: max(axes.get(axis, [0, 0])[1] for *_, axes in plan.mesh) for axis in AXES}


def all_laid():
    """Every factoring, few tensor ranks first."""
    meshes = [f"{s}x{d}x{GPUS // s // d}" for s in (8, 4, 2, 1) for d in (1, 2, 4, 8) if GPUS % (s * d) == 0]
    return [Laid(mesh) for mesh in sorted(meshes, key=lambda mesh: (shape_of(mesh)[2], shape_of(mesh)[1]))]


STAGES, DATA, TENSOR = 2, 2, 2
COLOURS = {"tensor": LINES[4], "data": LINES[1], "stages": LINES[5], "ends": LINES[0]}
# Width and height of a rank, in pixels.
WIDE, HIGH = 58, 30


def number_of(stage, replica, tensor):
    """The rank's number, computed as in combined_memory.cpp."""
    return (stage * DATA + replica) * TENSOR + tensor


RANKS = [
    (stage, replica, tensor) for stage in range(STAGES) for replica in range(DATA) for tensor in range(TENSOR)
]
# For each axis: its place in a rank's triple, the distance of its ranks, and what they share.
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
    alt = (
        f"Eight ranks as a cube, drawn three times. Tensor groups: {said['tensor']}. Data groups: "
        f"{said['data']}. Neighbours in the pipeline, and tied ends: {said['stages']}."
    )
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
        f"{COMPUTED}: the numbers are ranks; replicas stand below each other, tensor ranks behind each other."
    )


NAMES = {"tensor": "tensor groups", "data": "data groups", "stages": "stages", "ends": "tied ends"}


@figure
def mesh_bytes():
    """Every factoring of eight GPUs: bytes held, and sent along each axis."""
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
        plots.stacked(
            held, places, plots.gigabytes(columns), lambda end, _: f"{end:.1f}", across=True, thick=0.66
        )
        held.set(
            xlim=(0, 12.5),
            ylim=(len(laid) - 0.5, -0.5),
            yticks=places,
            yticklabels=[in_words(one.mesh) for one in laid],
        )
        sent = plots.axes(
            figure,
            62,
            high,
            left=470,
            right=52,
            names=("bytes that a GPU sends per step along each axis (logarithmic)", ""),
            log="x",
            forms=(lambda value: bytes_text(int(value)).replace(".00", ""), ""),
        )
        for axis, colour in COLOURS.items():
            points = [(one.sent[axis], place) for place, one in zip(places, laid) if one.sent[axis]]
            sent.plot(*zip(*points), "o", color=colour, markersize=8, label=NAMES[axis])
        sent.set(
            xlim=(1e7, 1e12),
            ylim=(len(laid) - 0.5, -0.5),
            yticks=places,
            yticklabels=[],
            xticks=[1e7, 1e8, 1e9, 1e10, 1e11, 1e12],
        )
        plots.key(figure, 62 + high + 66, held_in(columns))
        figure.legend(
            *sent.get_legend_handles_labels(),
            ncol=4,
            loc="center left",
            borderaxespad=0,
            borderpad=0,
            handletextpad=0.2,
            bbox_to_anchor=(470 / 960, 1 - (62 + high + 84) / (figure.get_figheight() * 72)),
        )

    return plots.plot(
        62 + high + 106,
        "Eight GPUs, GPT-2 774M: what each layout holds and sends",
        alt,
        f"{COMPUTED}: plans.json (`--plan --world {GPUS}`, 512 rows of 1024 tokens a step in micro-batches "
        f"of {MICRO}, bf16, sharded states).",
        draw,
        "planned, not run",
    )


def schedule(settings):
    return f"interleaved, {settings['chunks']} chunks" if settings["schedule"] == "interleaved" else "1F1B"


@renders
def published_meshes(page):
    """Each run as it was, with sharded states and split tokens, and then without recomputation."""
    runs = record("meshes")["runs"]

    def mesh(run):
        stages = "" if run["mesh"][0] == 1 else f", {schedule(run['settings'])}"
        return f"{' x '.join(map(str, run['mesh']))}, {times_text(run['micro'], 'row')}{stages}"

    return (
        table_of(
            runs,
            {
                "run": lambda run: run["name"],
                f"{runs[0]['gpu']} GPUs": lambda run: f"{run['gpus']:,} of {run['gpu_gb']} GB",
                "stages x data x tensor, micro-batch": mesh,
                "GB as it was run": lambda run: f"{run['plans']['as_run']['gb']['total']:.1f}",
                "states sharded, tokens split": lambda run: f"{run['plans']['shared']['gb']['total']:.1f}",
                "and nothing recomputed": lambda run: f"{run['plans']['kept']['gb']['total']:.1f}",
            },
            left=3,
        )
        + f"\n\nPlanned, on the GPU that holds most, {runs[0]['sequence']:,} tokens per row; facts with "
        f"their sources, settings and plans: {source(page, 'meshes')}."
    )
