"""docs/memory.md: bytes by formula, as planned and as runs held them, from docs/results/memory.json and the
GPU records."""
import functools
import re

from .machine_tables import beside_copies
from .plans import STATES, stored, symbols, workload
from .registry import RenderError, bytes_text, record, renders, source, table, table_of


IN_EVERY_RUN = " --workload tests/workloads/four_blocks.json --steps 2", " --threads 1"


@renders
def memory_by_formula(page):
    """Every run of the record: the plan's bytes and what the ledger counted. Stops where one purpose
    differs."""
    for run in record("memory")["runs"]:
        if run["predicted_bytes"] != run["measured_bytes"]:
            raise RenderError(f"{run['command']}: not as predicted")
        if any(words not in run["command"] for words in IN_EVERY_RUN):
            raise RenderError(f"{run['command']}: without {' or '.join(IN_EVERY_RUN)}, as the page says")

    def settings(run):
        told = ("lessons/", "/run.sh", "--set ", *IN_EVERY_RUN)
        return (
            f"`{functools.reduce(lambda command, words: command.replace(words, ''), told, run['command'])}`"
        )

    def held(*purposes):
        return lambda run: f"{sum(run['measured_bytes'].get(purpose, 0) for purpose in purposes):,}"

    return (
        table_of(
            record("memory")["runs"],
            {
                "lesson, settings": settings,
                "states, 16 P": held(*STATES),
                "activations": held("activations"),
                "workspace": held("workspace"),
                "communication": held("communication"),
                "sum": held("total"),
            },
        )
        + f"\n\nFrom {source(page, 'memory')}; planned and measured are equal in every purpose. Each run "
        f"has `{''.join(IN_EVERY_RUN).strip()}`."
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
    """One GPU workload line by line: the page's formulas, and the buffers that its plan lists. Stops where
    they differ."""
    plan = record("memory")["plans"][name]
    used = {**symbols(f"{name}@1"), "chunk": workload(name)["head_chunk"]}
    counts = {what: sum(plan["buffers"][buffer] for buffer in buffers) for what, _, buffers in WORKED}
    for what, formula, _ in WORKED:
        if worked(formula, used) != counts[what]:
            raise RenderError(
                f"{name}, {what}: {formula} is {worked(formula, used)}, the plan has {counts[what]}"
            )
    rows = [
        [what, formula, f"{counts[what]:,}", f"{100 * counts[what] / plan['total']:.1f} %"]
        for what, formula, _ in WORKED
    ]
    rest = plan["total"] - sum(counts.values())
    rows.append(["total", f"and {rest} bytes of scalars", f"{plan['total']:,}", ""])
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

    def P(name):
        return stored(workload(name)["model"])

    def activations(plan):
        return plan["buffers"]["x"] + plan["buffers"]["saved"]

    return (
        table_of(
            record("memory")["plans"].items(),
            {
                "workload": lambda name, _: f"`{name}`",
                "P as stored": lambda name, _: f"{P(name):,}",
                "rows x tokens": lambda name, _: "{micro} x {sequence}".format(**workload(name)["batch"]),
                "states, 16 P": lambda name, _: bytes_text(16 * P(name)),
                "activations": lambda _, plan: bytes_text(activations(plan)),
                "workspace": lambda name, plan: bytes_text(plan["total"] - 16 * P(name) - activations(plan)),
                "plan": lambda _, plan: bytes_text(plan["total"]),
            },
        )
        + f"\n\nFrom {source(page, 'memory')}."
    )


def gpu_runs():
    """(run, program's facts, record) of every lesson's run on GPUs that says what was allocated."""
    for name, facts in record("gpu_dtype_only")["programs"].items():
        yield f"seed_355m in {name}", facts, "gpu_dtype_only"
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
        f"{heading} Measured on GPUs\n\nRuns are those of the [record of "
        f"GPUs]({page.link('docs/records/gpu_peers.md')}#side-by-side); `seed_355m`, or `seed`, is "
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
        + "\n\nEvery ledger is as planned to the byte. LibTorch's allocator rounds every block of a peak up "
        "to 512 bytes; of lessons 02 to 04 on several GPUs a peak contains windows, "
        "which NCCL allocates. Runs whose attention is written out have an upper bound for a plan and are "
        "left out. Peaks of each lesson in GiB: the record of GPUs.\n\nFrom "
        + ", ".join(dict.fromkeys(names))
        + "."
    )
