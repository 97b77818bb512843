"""Lesson 09: its story as run.sh prints it, and what saving costs a run (docs/results/lesson_09.json)."""
import statistics

from .plans import plan_of
from .registry import record, renders, source, table
from .workloads import workload_of

ROWS = {"off": "`--save-async off`", "on": "`--save-async on`"}


def middle(run, key):
    """The median over all saves, in ms."""
    return f"{1000 * statistics.median(value for one in run['rounds'] for value in one[key]):.0f} ms"


@renders
def checkpoint_story(page):
    """What lessons/09_checkpoint_and_faults/run.sh prints, but for the paths and settings that `checkpoint diff` names."""
    said = [
        line.rstrip()
        for line in record("lesson_09")["said"]
        if not line.strip().startswith(("A: ", "B: ", "strategy."))
    ]
    return "```text\n" + "\n".join(said) + "\n```"


@renders
def checkpoint_cost(page):
    """What a save blocks and takes."""
    found = record("lesson_09")
    rows = [
        [name, middle(run, "blocked"), middle(run, "durable")]
        for key, name in ROWS.items()
        for run in [found["runs"][key]]
    ]
    return table(["", "a save blocks the run for", "durable after"], rows) + (
        f"\n\nFrom {source(page, 'lesson_09')} (medians of three runs with 6 saves each, two ranks, default workload)."
    )


def named(run):
    return f"{run['model'].upper()}, lesson {run['lesson'][:2]}" + (
        ", two GPUs" if run.get("ranks", 1) == 2 else ""
    )


@renders
def checkpoint_gpu(page):
    """What a save blocks and takes of a run on GPUs."""
    found, rows = record("gpu_checkpoints"), []
    for run in found["runs"]:
        off, on = (run[mode]["saves"][0] for mode in ("off", "on"))
        slower = 100 * (run["on"]["step_seconds_beside"] / run["none"]["step_seconds"] - 1)
        rows.append(
            [
                named(run),
                f"{run['on']['bytes'] / 1e9:.1f}",
                f"{off['blocked']:.1f} s",
                f"{on['blocked']:.1f} s",
                f"{on['seconds']:.1f} s",
                f"{slower:+.1f} %",
            ]
        )
    equal = "; ".join(named(run) for run in found["resumed"] if run["exit"] == 0)
    cards = {
        count: " and ".join(
            sorted({run["versions"]["GPU"] for run in found["runs"] if run.get("ranks", 1) == count})
        )
        for count in (1, 2)
    }
    heads = [
        "first save of a run",
        "GB",
        "`off` blocks for",
        "`on` blocks for",
        "durable after",
        "steps meanwhile",
    ]
    return table(heads, rows) + (
        f"\n\nFrom {source(page, 'gpu_checkpoints')} (one {cards[1]}, or two {cards[2]}; each on its host's disk; single runs, next to one that saves "
        f"nothing). Equal to the bit after a resume, with `--ops deterministic`: {equal}."
    )


@renders
def checkpoint_bytes(page):
    """By formula and on the disk."""
    run = record("lesson_09")["runs"]["on"]
    P = plan_of("04_zero3", workload_of(run), run["world"]).P
    shards = [size for name, size in run["files"].items() if name.startswith("rank-")]
    predicted, measured = 12 * P, sum(shards)
    copy = run["bytes"]["host"]["checkpoint"]
    rows = [
        ["all shards", "12 P, and names", f"{predicted:,}", f"{measured:,}"],
        ["the copy of a rank", "12 P / N", f"{predicted // run['world']:,}", f"{copy:,}"],
    ]
    return (
        table(["", "formula", "bytes by it", "measured"], rows, left=2)
        + f"\n\nFrom {source(page, 'lesson_09')} (two ranks; P = {P:,} as padded for them)."
    )
