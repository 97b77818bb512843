#!/usr/bin/env python3
"""What checkpoints cost a run on a GPU, and whether a resumed one ends in the same bits:
docs/results/gpu_checkpoints.json.

  python3 tests/benchmarks/gpu_checkpoints.py --bin build/cuda/bin --disk DIR

Per model, lesson and number of GPUs: a run that saves nothing, one that writes from a copy while it trains,
and one that waits for the disk. Then, with deterministic operations, one that saves twice and one that
resumes from the first: `checkpoint diff` of their last; only bits count there, so --quick-disk may lie in
memory. What --out has of an earlier call stays.
"""
import pathlib
import shutil
import statistics
import subprocess
import tempfile

from gpu_watch import machine
from harness import RESULTS, arguments_of_runs, first_paragraph, kept, out, record_of, sets, write

# Runs: (model, lesson, ranks with a GPU each, rows a step, steps, save every).
RUNS = [
    ("355m", "01_data_parallel", 1, 16, 120, 60),
    ("355m", "04_zero3", 1, 16, 120, 60),
    ("1558m", "04_zero3", 1, 8, 160, 80),
    ("355m", "01_data_parallel", 2, 32, 90, 50),
    ("355m", "03_zero2", 2, 32, 90, 50),
    ("355m", "04_zero3", 2, 32, 90, 50),
    ("1558m", "01_data_parallel", 2, 16, 110, 60),
    ("1558m", "03_zero2", 2, 16, 110, 60),
    ("1558m", "04_zero3", 2, 16, 110, 60),
]
RESUMED = [("355m", "04_zero3", 1, 16), ("1558m", "04_zero3", 1, 8)]
RESUMED += [
    (model, lesson, 2, rows)
    for model, rows in (("355m", 32), ("1558m", 16))
    for lesson in ("01_data_parallel", "03_zero2", "04_zero3")
]
WARM_UP = 5


def run(args, folder, model, lesson, ranks, rows, *flags):
    """The record of a run in a folder of its own."""
    at = folder / "out"
    shutil.rmtree(at, ignore_errors=True)
    settings = (
        f"batch.global={rows}",
        f"batch.micro={rows // ranks}",
        f"data.validation_rows={rows // ranks}",
    )
    words = ["--workload", f"configs/gpt2_{model}.json", "--strategy", f"lessons/{lesson}/config.json"]
    words += ["--device", "cuda", "--watchdog", "120", *sets(settings), *flags]
    return record_of([args.bin / lesson, *words], at, ranks)


def saved(record, every, at):
    """What saves cost: steps that began while the first file was being written are apart."""
    saves, beside = record["saves"], []
    left = saves[0]["seconds"] - saves[0]["blocked"]
    for step in record["steps"]["seconds"][every:]:
        if left < step:
            break
        left -= step
        beside.append(step)
    return {
        "saves": saves,
        "bytes": sum(path.stat().st_size for path in at.glob("step-*/*")),
        "steps_beside": len(beside),
        "step_seconds_beside": statistics.median(beside) if beside else None,
    }


def cost(args, folder, model, lesson, ranks, rows, steps, every):
    found = {
        "model": model,
        "lesson": lesson,
        "ranks": ranks,
        "rows": rows,
        "steps": steps,
        "save_every": every,
    }
    at = folder / "cost"
    for mode in ("none", "on", "off"):
        more = ["--save-every", every, "--save-async", mode, "--keep", 1, "--checkpoints", at]
        none = mode == "none"
        record = run(args, folder, model, lesson, ranks, rows, "--steps", steps, *([] if none else more))
        found[mode] = {
            "step_seconds": statistics.median(record["steps"]["seconds"][WARM_UP:]),
            "as_predicted": record["as_predicted"],
            **({} if none else saved(record, every, at)),
        }
        shutil.rmtree(at, ignore_errors=True)
        found.update({key: record[key] for key in ("commit", "versions", "started")})
    return found


def resumed(args, folder, model, lesson, ranks, rows):
    whole, again = (pathlib.Path(args.quick_disk or folder) / name for name in ("whole", "again"))
    both = [model, lesson, ranks, rows, "--ops", "deterministic", "--steps", 12, "--save-every", 6]
    run(args, folder, *both, "--checkpoints", whole)
    record = run(args, folder, *both, "--resume", whole / "step-000006", "--checkpoints", again)
    last = [of / "step-000012" for of in (whole, again)]
    done = subprocess.run(
        [args.bin / "checkpoint", "diff", *last], text=True, capture_output=True, check=False
    )
    for of in (whole, again):
        shutil.rmtree(of)
    return {
        "model": model,
        "lesson": lesson,
        "ranks": ranks,
        "exit": done.returncode,
        "said": [line for line in done.stdout.splitlines() if "equal" in line],
        "commit": record["commit"],
    }


ASKED = {
    "--disk": {"help": "where checkpoints are written (default: the system's temporary folder)"},
    "--quick-disk": {"help": "where those are written of which only bits count (default: as --disk)"},
    **out(RESULTS / "gpu_checkpoints.json"),
}


def main():
    args, here = arguments_of_runs(__doc__, ASKED), machine()
    new = {"about": first_paragraph(__doc__), "machine": here["gpu"], "runs": [], "resumed": []}
    found = kept(args.out, new)
    with tempfile.TemporaryDirectory(prefix="stagecraft_checkpoints_", dir=args.disk) as folder:
        for part, wanted, measure in (("runs", RUNS, cost), ("resumed", RESUMED, resumed)):
            there = {(one["model"], one["lesson"], one.get("ranks", 1)) for one in found[part]}
            for one in wanted:  # for as many GPUs as there are
                if one[2] == here["gpus"] and one[:3] not in there:
                    found[part].append(measure(args, pathlib.Path(folder), *one))
                    write(args.out, found)


if __name__ == "__main__":
    main()
