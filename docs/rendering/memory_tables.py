"""docs/memory.md: bytes by formula beside what runs held, from docs/results/memory.json and the GPU records."""
from .lesson_tables import PURPOSES, stored
from .machine_tables import beside_copies
from .registry import RenderError, bytes_text, has, record, renders, source, table
from .workloads import with_settings, workload

MPI_PIECE, MPI_SLOTS = 256 * 1024, 4  # common/comm/scratch.h


class Sizes:
    """The symbols of docs/glossary.md for one workload and world."""

    def __init__(self, work, ranks=1):
        model, batch = work["model"], work["batch"]
        self.L, self.d, self.H = model["layers"], model["width"], model["heads"]
        self.V = -(-model["vocab"] // 128) * 128
        self.N = batch["micro"] * batch["sequence"]  # B T, tokens of a micro-batch
        self.P = stored(model, ranks)
        self.e = 4 if work["precision"]["dtype"] == "fp32" else 2
        self.chunk = min(work["head_chunk"], self.N)
        self.ranks = ranks
        evaluated = -(-work["data"]["validation_rows"] // batch["micro"])
        self.micro_batches = max(batch["global"] // (batch["micro"] * ranks), -(-evaluated // ranks))
        self.activations = work["activations"]

    def saved(self, mode=None):
        """One block's, beside its input."""
        slabs = {"keep": 15, "recompute_gelu": 11, "recompute": 0}[mode or self.activations]
        return (slabs * self.e * self.d + 4 * (4 + self.H)) * self.N if slabs else 0

    def kept(self):
        return (self.L + 1) * self.e * self.N * self.d + self.L * self.saved()

    def workspace(self):
        again = {"keep": 0, "recompute_gelu": 4 * self.e * self.N * self.d, "recompute": self.saved("keep")}[self.activations]
        return 10 * self.e * self.N * self.d + 8 * self.N + 52 * self.d + self.e * self.chunk * self.V + again


def formulas(lesson, work, ranks):
    """Bytes of a CPU run by purpose, as docs/memory.md derives them."""
    s = Sizes(work, ranks)
    own = 32 if lesson == "00_one_device" else 8 * (1 + ranks)
    found = {"parameters": 4 * s.P, "gradients": 4 * s.P, "momentum": 4 * s.P, "variance": 4 * s.P, "activations": s.kept(),
             "workspace": s.workspace() + 2 * s.e * s.N * s.d + 16 * s.micro_batches * s.N + 32 + 20 + 4 + own}
    if ranks > 1:
        found["communication"] = MPI_SLOTS * (ranks - 1) * MPI_PIECE
    return {**found, "total": sum(found.values())}


@renders
def memory_by_formula(page):
    """Every run of the record: the formulas of the page, worked by docs/render.py, beside what the ledger counted."""
    rows = []
    for run in record("memory")["runs"]:
        ours = formulas(run["lesson"], with_settings(workload("four_blocks"), run["settings"]), run["world"])
        wrong = [p for p in (*PURPOSES, "total") if ours.get(p, 0) != run["measured_bytes"].get(p, 0)]
        if wrong:
            raise RenderError(f"{run['command']}: the formulas give {ours}, the run held {run['measured_bytes']}: they differ in {', '.join(wrong)}")
        rows.append([f"`{run['command']}`", f"{ours['parameters'] * 4:,}", f"{ours['activations']:,}", f"{ours['workspace']:,}",
                     f"{ours.get('communication', 0):,}", f"{ours['total']:,}", f"{run['measured_bytes']['total']:,}"])
    return (table(["run", "states, 16 P", "activations", "workspace", "communication", "sum by these formulas", "measured"], rows)
            + f"\n\nFrom {source(page, 'memory')}. docs/render.py works the formulas out and stops where one purpose of one run differs by one byte.")


@renders
def memory_worked(page, name):
    """One GPU workload line by line, beside the buffers that its plan lists."""
    work, plan = workload(name), record("memory")["plans"][name]
    s, buffers = Sizes(work), plan["buffers"]
    lines = [("parameters", f"2 P = 2 x {s.P:,}", 2 * s.P, buffers["params_full"]), ("gradients", "2 P", 2 * s.P, buffers["grads_full"]),
             ("master", "4 P", 4 * s.P, buffers["master_full"]), ("momentum", "4 P", 4 * s.P, buffers["momentum_full"]),
             ("variance", "4 P", 4 * s.P, buffers["variance_full"]),
             ("activations: x", f"(L + 1) 2 B T d = {s.L + 1} x 2 x {s.N:,} x {s.d}", (s.L + 1) * 2 * s.N * s.d, buffers["x"]),
             ("activations: saved", f"L B T (30 d + 16 + 4 H) = {s.L} x {s.N:,} x ({30 * s.d} + 16 + {4 * s.H})", s.L * s.saved(), buffers["saved"]),
             ("workspace: blocks and head", f"20 B T d + 8 B T + 52 d + 2 chunk V = ... + 2 x {s.chunk:,} x {s.V:,}", s.workspace(), buffers["workspace"]),
             ("workspace: grad_x", "2 x 2 B T d", 4 * s.N * s.d, buffers["grad_x"]),
             ("workspace: tokens, targets", f"16 M B T = 16 x {s.micro_batches} x {s.N:,}", 16 * s.micro_batches * s.N, buffers["tokens"] + buffers["targets"])]
    if wrong := [what for what, _, ours, planned in lines if ours != planned]:
        raise RenderError(f"{name}: the formulas differ from the plan in {', '.join(wrong)}")
    total = sum(ours for _, _, ours, _ in lines)
    rows = [[what, text, f"{ours:,}", f"{100 * ours / plan['total']:.1f} %"] for what, text, ours, _ in lines]
    rows.append(["total", f"and {plan['total'] - total} bytes of scalars", f"{plan['total']:,}", ""])
    return (table(["what", "formula", "bytes", "of all"], rows, left=2)
            + f"\n\nFrom {source(page, 'memory')}; the same numbers: `{plan['command']}`.")


@renders
def memory_of_models(page):
    """What the models need on one GPU, in halves: states and the rest."""
    rows = []
    for name, plan in record("memory")["plans"].items():
        s = Sizes(workload(name))
        activations = plan["buffers"]["x"] + plan["buffers"]["saved"]
        if activations != s.kept():
            raise RenderError(f"{name}: the formula gives {s.kept()} bytes of activations, the plan {activations}")
        rows.append([f"`{name}`", f"{s.P:,}", f"{workload(name)['batch']['micro']} x {workload(name)['batch']['sequence']}", bytes_text(16 * s.P),
                     bytes_text(activations), bytes_text(plan["total"] - 16 * s.P - activations), bytes_text(plan["total"])])
    return (table(["workload", "P as stored", "rows x tokens", "states, 16 P", "activations", "workspace", "plan"], rows)
            + f"\n\nFrom {source(page, 'memory')}; `workspace` is the plan's purpose: blocks and head, grad_x, tokens and targets, scalars.")


def gpu_runs():
    """(what, program's facts, record) of every lesson's run on GPUs that says what was allocated."""
    if has("gpu_dtype_only"):
        for name, facts in record("gpu_dtype_only")["programs"].items():
            yield f"seed_355m in {name}", facts, "gpu_dtype_only"
    if has("gpu_peers"):
        for key, row in record("gpu_peers")["rows"].items():
            if beside_copies(row):
                continue  # the same bytes once more
            for facts in row["programs"].values():
                if "bytes_planned" in facts:
                    yield f"{key}, {facts['label'].replace('Stagecraft, ', '')}", facts, "gpu_peers"


@renders
def gpu_peaks(page, heading="##"):
    """The ledger, the allocator's peak as planned, and as LibTorch counted it."""
    rows, names, apart = [], [], 0
    for what, facts, name in gpu_runs():
        if facts.get("peak_allocated") and facts.get("peak_planned"):
            apart = max(apart, abs(facts["peak_allocated"] - facts["peak_planned"]))
            rows.append([what, f"{facts['bytes_planned']:,}", f"{facts['bytes_measured']:,}", f"{facts['peak_planned']:,}", f"{facts['peak_allocated']:,}",
                         f"{100 * (facts['peak_allocated'] / facts['peak_planned'] - 1):+.2f} %"])
            names.append(source(page, name))
    if not rows:
        return ""
    return (f"{heading} Measured on GPUs\n\nRuns are those of the [record of GPUs]({page.link('docs/records/gpu_peers.md')}#side-by-side); `seed_355m`, or `seed`, is "
            f"[configs/seed_355m.json]({page.link('configs/seed_355m.json')}), once in each number format and once beside its peers.\n\n"
            + table(["run", "ledger, planned", "ledger, measured", "peak, planned", "peak, measured", "difference"], rows)
            + f"\n\nThe ledger is as planned to the byte, and the peak of what was allocated is at most {apart:,} bytes off: LibTorch's allocator rounds every block up to 512 bytes. Lessons 02 to 04 on several GPUs hold some of it in windows, "
            "which NCCL allocates. Runs whose "
            "attention is written out have an upper bound for a plan and are left out.\n\nFrom " + ", ".join(dict.fromkeys(names)) + ".")
