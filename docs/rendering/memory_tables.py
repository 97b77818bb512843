"""docs/memory.md: bytes by formula, as planned and as runs held them, from docs/results/memory.json and the GPU records."""
import functools
import re

from .machine_tables import beside_copies
from .plans import STATES, stored
from .registry import RenderError, bytes_text, has, record, renders, source, table
from .symbols import symbols
from .workloads import workload


IN_EVERY_RUN = " --workload tests/workloads/four_blocks.json --steps 2", " --threads 1"


@renders
def memory_by_formula(page):
    """Every run of the record: the plan's bytes and what the ledger counted. Stops where one purpose differs."""
    rows = []
    for run in record("memory")["runs"]:
        planned, measured = run["predicted_bytes"], run["measured_bytes"]
        if planned != measured:
            raise RenderError(f"{run['command']}: not as predicted")
        counts = (
            sum(planned.get(purpose, 0) for purpose in STATES),
            planned["activations"],
            planned["workspace"],
            planned.get("communication", 0),
            planned["total"],
        )
        if any(words not in run["command"] for words in IN_EVERY_RUN):
            raise RenderError(f"{run['command']}: without {' or '.join(IN_EVERY_RUN)}, as the page says")
        rows.append(
            [
                f"`{functools.reduce(lambda command, words: command.replace(words, ''), ('lessons/', '/run.sh', '--set ', *IN_EVERY_RUN), run['command'])}`",
                *(f"{count:,}" for count in counts),
            ]
        )
    return (
        table(["lesson, settings", "states, 16 P", "activations", "workspace", "communication", "sum"], rows)
        + f"\n\nFrom {source(page, 'memory')}; planned and measured are equal in every purpose. Each run has `{''.join(IN_EVERY_RUN).strip()}`."
    )


WORKED = (
    ("parameters", "2 P", ("params_full",)),
    ("gradients", "2 P", ("grads_full",)),
    ("master", "4 P", ("master_full",)),
    ("momentum", "4 P", ("momentum_full",)),
    ("variance", "4 P", ("variance_full",)),
    ("activations: x", "(L + 1) 2 B T d", ("x",)),
    ("activations: saved", "L B T (30 d + 16 + 4 H)", ("saved",)),
    ("workspace: blocks and head", "20 B T d + 8 B T + 52 d + 2 chunk V", ("workspace",)),
    ("workspace: grad_x", "4 B T d", ("grad_x",)),
    ("workspace: tokens, targets", "16 M B T", ("tokens", "targets")),
)


def worked(formula, symbols):
    """What a formula as the pages write it comes to: "2 (L + 1)" is 2 * (L + 1)."""
    return eval(re.sub(r"(?<=[\w)]) (?=[\w(])", "*", formula), {"__builtins__": {}}, symbols)


@renders
def memory_worked(page, name):
    """One GPU workload line by line: the page's formulas, and the buffers that its plan lists. Stops where they differ."""
    plan, used = record("memory")["plans"][name], {
        **symbols(f"{name}@1"),
        "chunk": workload(name)["head_chunk"],
    }
    rows, total = [], 0
    for what, formula, buffers in WORKED:
        count = sum(plan["buffers"][buffer] for buffer in buffers)
        if worked(formula, used) != count:
            raise RenderError(f"{name}, {what}: {formula} is {worked(formula, used)}, the plan has {count}")
        rows.append([what, formula, f"{count:,}", f"{100 * count / plan['total']:.1f} %"])
        total += count
    rows.append(["total", f"and {plan['total'] - total} bytes of scalars", f"{plan['total']:,}", ""])
    values = ", ".join(
        f"{symbol} = {used[symbol]:,}" for symbol in ("P", "L", "B", "T", "d", "H", "V", "M", "chunk")
    )
    return (
        table(["what", "formula", "bytes", "of all"], rows, left=2)
        + f"\n\n{values}. From {source(page, 'memory')}; the same numbers: `{plan['command']}`."
    )


@renders
def memory_of_models(page):
    """What the models need on one GPU, in halves: states and the rest."""
    rows = []
    for name, plan in record("memory")["plans"].items():
        batch, P = workload(name)["batch"], stored(workload(name)["model"])
        activations = plan["buffers"]["x"] + plan["buffers"]["saved"]
        rows.append(
            [
                f"`{name}`",
                f"{P:,}",
                f"{batch['micro']} x {batch['sequence']}",
                bytes_text(16 * P),
                bytes_text(activations),
                bytes_text(plan["total"] - 16 * P - activations),
                bytes_text(plan["total"]),
            ]
        )
    return (
        table(
            ["workload", "P as stored", "rows x tokens", "states, 16 P", "activations", "workspace", "plan"],
            rows,
        )
        + f"\n\nFrom {source(page, 'memory')}."
    )


def gpu_runs():
    """(run, program's facts, record) of every lesson's run on GPUs that says what was allocated."""
    if has("gpu_dtype_only"):
        for name, facts in record("gpu_dtype_only")["programs"].items():
            yield f"seed_355m in {name}", facts, "gpu_dtype_only"
    if has("gpu_peers"):
        for key, row in record("gpu_peers")["rows"].items():
            if beside_copies(row):
                continue  # the same bytes once more
            for facts in row["programs"].values():
                if "bytes_planned" in facts:
                    yield key, facts, "gpu_peers"


@renders
def gpu_peaks(page, heading="##"):
    """The ledger, the allocator's peak as planned, and as LibTorch counted it."""
    runs, names = {}, []
    for what, facts, name in gpu_runs():
        if facts.get("peak_allocated") and facts.get("peak_planned"):
            if facts["bytes_planned"] != facts["bytes_measured"]:
                raise RenderError(f"{name}, {what}: the ledger is not as planned")
            names.append(source(page, name))
            runs.setdefault(what, []).append(
                (facts["bytes_measured"], facts["peak_planned"], facts["peak_allocated"])
            )
    if not runs:
        return ""
    rows = [
        [
            f"`{what}`",
            len(of),
            *(f"{count:,}" for count in max(of)),
            f"{max(abs(peak - planned) for _, planned, peak in of):,}",
        ]
        for what, of in runs.items()
    ]
    return (
        f"{heading} Measured on GPUs\n\nRuns are those of the [record of GPUs]({page.link('docs/records/gpu_peers.md')}#side-by-side); `seed_355m`, or `seed`, is "
        f"[configs/seed_355m.json]({page.link('configs/seed_355m.json')}).\n\n"
        + table(
            [
                "run",
                "lessons",
                "largest ledger",
                "its peak, planned",
                "its peak, measured",
                "largest difference of a peak",
            ],
            rows,
        )
        + "\n\nEvery ledger is as planned to the byte. LibTorch's allocator rounds every block of a peak up to 512 bytes; of lessons 02 to 04 on several GPUs a peak contains windows, "
        "which NCCL allocates. Runs whose attention is written out have an upper bound for a plan and are left out. Peaks of each lesson in GiB: the record of GPUs.\n\nFrom "
        + ", ".join(dict.fromkeys(names))
        + "."
    )
