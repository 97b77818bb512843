"""Tables of lesson 11: what goes along each axis of a mesh, predicted next to measured, and what eight GPUs hold and send by how they are laid out (docs/results/lesson_11.json, plans.json)."""
from .lesson_tables import tail
from .machine_tables import gpu_table
from .plans import plan_of
from .registry import RenderError, has, record, renders, table, times_text
from .workloads import settings_in

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
    """mesh -> its run, which held and sent what was planned, and ended in the bits of lesson 00 in the same order."""
    found = record("lesson_11")["meshes"]
    for mesh, pair in found.items():
        run, parts = pair["run"], pair["parts"]
        if any(run[f"predicted_{key}"] != run[key] for key in ("bytes", "operations", "bytes_sent")) or any(
            rank["predicted"] != rank["measured"] for rank in run["ranks"]
        ):
            raise RenderError(f"{run['command']}: not as predicted")
        if any(run[key] != parts[key] for key in ("loss", "weights_sha256")):
            raise RenderError(f"{run['command']}: its losses or weights are not those of {parts['command']}")
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
    """Bytes by purpose and messages of rank 0, as predicted and as measured: mesh_runs() stops where these differ."""
    found, rows = mesh_runs(), []
    runs = [found[mesh]["run"] for mesh in meshes]
    for purpose in (
        "parameters",
        "gradients",
        "momentum",
        "variance",
        "activations",
        "workspace",
        "communication",
        "total",
    ):
        rows.append(
            [{"total": "all purposes"}.get(purpose, purpose), *(f"{run['bytes'][purpose]:,}" for run in runs)]
        )
    rows.append(["operations a step", *(f"{sum(op['count'] for op in run['operations']):,}" for run in runs)])
    rows.append(["bytes sent a step", *(f"{run['bytes_sent']:,}" for run in runs)])
    return table(["rank 0, predicted = measured", *map(in_words, meshes)], rows) + tail(
        page, "lesson_11", more="`configs/tiny_rows.json`"
    )


@renders
def mesh_bits(page):
    """Each mesh, and lesson 00 that adds in its order."""
    rows = []
    for mesh, pair in mesh_runs().items():
        flags = [word for word in pair["parts"]["command"].split(" --workload")[0].split()[1:]]
        micro = pair["run"]["command"].split("batch.micro=")[1].split()[0]
        rows.append(
            [
                in_words(mesh),
                micro,
                f"`{' '.join(flags)}`",
                f"{pair['run']['loss'][-1]:.10f}",
                f"`{pair['run']['weights_sha256'][:12]}`",
            ]
        )
    return table(
        [
            "stages x data x tensor",
            "`batch.micro`",
            "lesson 00 with",
            "loss of step 20, both",
            "weights, SHA-256, both",
        ],
        rows,
        left=3,
    ) + tail(page, "lesson_11", more="`configs/tiny_rows.json`, all 20 losses equal")


@renders
def mesh_gpu(page, gpus):
    """So many GPUs laid out in several ways, in turns on the same rows: rates, what the fullest GPU holds, the most that one sends along each
    axis, and the step that choose predicted before."""
    if not has("gpu_combined") or (row := record("gpu_combined")["rows"].get(f"mesh_{gpus} x{gpus}")) is None:
        return ""
    of, rows, together = gpu_table(), [], row["rows_a_rank"] * row["micro_batches"]
    ahead = {
        (one["lesson"], *one["settings"]): one["predicted"]
        for one in record("choosing_ahead")["rows"]
        if (one["gpus"], one["rows"]) == (int(gpus), together)
    }
    for name, program in row["programs"].items():
        said = [one for one in settings_in(program["command"]) if not one.startswith(("data.", "steps="))]
        lesson, settings = program["command"].split("/bin/")[1].split()[0], [
            one for one in said if not one.startswith("batch.")
        ]
        plan = plan_of(lesson, MODEL, int(gpus), *said)
        held = max(one[2] for one in plan.mesh)
        if (
            program["bytes_planned"] != program["bytes_measured"]
            or program["bytes_planned"] != plan.mesh[0][2]
        ):
            raise RenderError(f"gpu_combined.json, {name}: holds other bytes than plans.json says")
        before, seconds = ahead[lesson, *settings], of.median_of(row, name, "median_seconds")
        ratio = row["ratios"].get(f"{name}_over_ours", {}).get("median")
        by_axis = [
            max(one[3].get(axis, [0, 0])[1] for one in plan.mesh) for axis in ("tensor", "data", "stages")
        ]
        rows.append(
            [
                f"{lesson[:2]} {' '.join(f'`{setting}`' for setting in settings)}".strip(),
                f"{of.median_of(row, name, 'tokens_per_second') / 1e3:.1f}",
                "" if ratio is None else f"{ratio:.3f}",
                f"{held / 1e9:.1f}",
                *(f"{sent / 1e9:.2f}" if sent else "" for sent in by_axis),
                f"{1e3 * before:.1f}",
                f"{1e3 * seconds:.1f}",
            ]
        )
    commits = dict.fromkeys(turn["commit"] for turn in row["rounds"])
    heads = [
        "lesson",
        "k tok/s",
        "over lesson 01",
        "GB held",
        "GB sent: tensor group",
        "data group",
        "neighbours",
        "predicted ms",
        "measured ms",
    ]
    more = (
        f"{gpus} x {row['gpu']}, GPT-2 774M, {together} rows of {row['sequence']} tokens a step, {row['rows_a_rank']} at a time; {times_text(len(row['rounds']), 'round')} in turns, commit {', '.join(commits)}; "
        "predicted before any such run; bytes as planned, of the GPU that holds or sends most"
    )
    return table(heads, rows) + tail(page, "gpu_combined", "choosing_ahead", more=more)


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
