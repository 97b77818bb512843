"""Tables of lesson 06: where a step's time goes by buffers of the window, and what its formulas say
(docs/results/lesson_06_*.json)."""
import statistics

from .lesson_tables import is_busy, tail
from .offload_tables import after_forward, forward_share, thousands
from .registry import record, renders, table, table_of
from .plans import workload

# The time table's row for when the disk reads, or writes, or both.
EITHER = "disk does either"


def median_of(run, name=None):
    """The median over a run's rounds of a step's seconds, or of one part of them."""
    return statistics.median(turn["shares"][name] if name else turn["seconds"] for turn in run["rounds"])


def efficiencies():
    """For each number of micro-batches per step: its tokens, T_gpu, and the share of the speed without a disk
    that exact and delayed updates reach, by the page's formula and measured."""
    found = record("lesson_06_tokens")
    disk = statistics.median(
        turn["shares"][EITHER] for run in found["runs"] for turn in run["exact"]["rounds"]
    )
    forward = found["forward_seconds"]
    rows = []
    for run in found["runs"]:
        gpu = median_of(run["no_disk"])
        by_formula = by_formulas(gpu, disk, forward, workload("four_blocks"))
        measured = {kind: gpu / median_of(run[kind]) for kind in by_formula}
        rows.append(
            (
                run["micro_batches"] * found["tokens_per_micro_batch"],
                gpu,
                {kind: (by_formula[kind], measured[kind]) for kind in by_formula},
            )
        )
    return disk, forward, rows


def by_formulas(gpu, disk, forward, work):
    return {"exact": gpu / (gpu + after_forward(disk, forward, work)), "delayed": gpu / max(gpu, disk)}


@renders
def infinity_window(page):
    """Milliseconds of a step by buffers of the window."""
    names = (EITHER, "forward waits")
    found = record("lesson_06_window")
    rows = [
        [run["buffers"], *(f"{1e3 * median_of(run, name):.0f} ms" for name in (None, *names))]
        for run in found["runs"]
    ]
    busy = "; other work ran on the machine" if is_busy("lesson_06_window") else ""
    return table(["buffers", "step", *names], rows) + tail(
        page,
        "lesson_06_window",
        more=f"one rank, the median of three runs; a disk of {found['disk_mbps']} MB/s{busy}",
    )


@renders
def infinity_gpu(page):
    """355M on one GPU by tokens of a step: lesson 05; exact and delayed updates over a disk, as a share of
    that, next to the formulas."""
    found = record("gpu_infinity")
    runs = {(run["name"], run["rows"]): run for run in found["runs"] if run["model"] == "355M"}
    work = workload("gpt2_355m")
    forward = forward_share(work) * found["offload"][0]["seconds"]  # of the only micro-batch

    def cells(without, kind):
        if not (run := runs.get((kind, without["rows"]))):
            return ["", ""]
        share = run["tokens_per_second"] / without["tokens_per_second"]
        formula = by_formulas(without["seconds"], run["shares"][EITHER], forward, work)[kind]
        return [thousands(run["tokens_per_second"]), f"{100 * share:.0f} % ({100 * formula:.0f} %)"]

    rows = [
        [
            f"{without['tokens']:,}",
            thousands(without["tokens_per_second"]),
            *cells(without, "exact"),
            *cells(without, "delayed"),
        ]
        for without in found["offload"]
    ]
    heads = ["tokens per step", "without a disk", "exact", "of that", "delayed", "of that"]
    return table(heads, rows, left=0) + tail(
        page,
        "gpu_infinity",
        more="one NVIDIA H200, thousands of tokens per second; without a disk: lesson 05, delayed; in "
        "brackets: by the formulas, with the disk's time of each run",
    )


def of_ten_steps(way):
    """Bytes that the kernel counts for ten steps, over ten times those planned: two runs whose lengths differ
    by ten steps."""
    found = {
        run["name"]: run
        for run in reversed(record("gpu_infinity")["runs"])
        if (run["model"], run["rows"]) == ("355M", 16)
    }
    few, many = found["exact, few steps"], found["exact"]
    return (many["system"][way] - few["system"][way]) / (5 * many["disk_bytes"])


@renders
def infinity_host(page):
    """Exact updates on one GPU by model: what lies on the disk and in memory, and the rate over the disk next
    to the disk's own."""
    found = record("gpu_infinity")
    raw = statistics.median(turn["block_file"] for turn in found["raw"])
    exact = [run for run in found["runs"] if run["name"] == "exact"]
    fewest = [
        min((run for run in exact if run["model"] == model), key=lambda run: run["rows"])
        for model in ("355M", "1558M")
    ]
    rows = table_of(
        fewest,
        {
            "model": lambda run: run["model"],
            "states on the disk": lambda run: "{:.2f} GB".format(
                1e-9 * sum(run["bytes"]["disk"][name] for name in ("master", "momentum", "variance"))
            ),
            "window": lambda run: f"{1e-6 * run['bytes']['host']['workspace']:.0f} MB",
            "all host memory": lambda run: f"{1e-9 * run['system']['peak_host']:.2f} GB",
            "moved per step": lambda run: f"{1e-9 * run['disk_bytes']:.2f} GB",
            "step": lambda run: f"{run['seconds']:.1f} s",
            "rate (of the disk's own)": lambda run: f"{1e-9 * run['disk_rate']:.2f} GB/s "
            f"({100 * run['disk_rate'] / raw:.0f} %)",
        },
    )
    off = 100 * max(abs(of_ten_steps(way) - 1) for way in ("read", "written"))
    more = (
        "one NVIDIA H200; all host memory: the process's most at a time, its pinned buffers and libraries "
        "included"
    )
    return (
        f"{rows}{tail(page, 'gpu_infinity', more=more)}\n\nThe kernel counted the bytes of ten steps over "
        f"this disk: they differ from the plan by {off:.4f} %."
    )


@renders
def infinity_turns(page):
    """Lesson 06 and ZeRO-Infinity with states on the same disk, in turns; the disk alone, measured before
    each pair."""
    found = record("gpu_infinity_turns")
    runs = [(run, found["raw"][number // 2]["block_file"] / 1e9) for number, run in enumerate(found["runs"])]
    theirs = next(run for run in found["runs"] if run["name"] == "deepspeed")
    more = (
        f"one {found['versions']['GPU']}; from top to bottom as it was measured; ZeRO-Infinity: DeepSpeed "
        f"{theirs['about']['deepspeed']}, blocks compiled"
    )
    return table_of(
        runs,
        {
            "program": lambda run, _: "ZeRO-Infinity" if run["name"] == "deepspeed" else "lesson 06",
            "step": lambda run, _: f"{run['seconds']:.1f} s",
            "tokens per second": lambda run, _: f"{run['tokens_per_second']:,.0f}",
            "over the disk in the run": lambda run, _: f"{run['disk_rate'] / 1e9:.2f} GB/s"
            if "disk_rate" in run
            else "not counted",
            "the disk alone before the pair": lambda _, disk: f"{disk:.2f} GB/s",
            "tokens per second by GB/s alone": lambda run, disk: f"{run['tokens_per_second'] / disk:,.0f}",
        },
    ) + tail(page, "gpu_infinity_turns", more=more)
