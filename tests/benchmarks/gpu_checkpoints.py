#!/usr/bin/env python3
"""What checkpoints cost a run on a GPU, and whether a resumed one ends in the same bits: docs/results/gpu_checkpoints.json.

  python3 tests/benchmarks/gpu_checkpoints.py --bin build/cuda/bin --disk DIR

Per model, lesson and number of GPUs: a run that saves nothing, one that writes from a copy while it trains, and one that waits
for the disk. Then, with deterministic operations, one that saves twice and one that resumes from the first: `checkpoint diff`
of their last; only bits count there, so --quick-disk may lie in memory. What --out has of an earlier call stays.
"""
import json
import pathlib
import shutil
import statistics
import subprocess
import tempfile

import whole_runs
from gpu_programs import ROOT
from gpu_watch import machine

# model, lesson, ranks (a GPU each), rows a step, steps, save every
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


class Lessons:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder

    def run(self, model, lesson, ranks, rows, *flags):
        out = self.folder / "out"
        shutil.rmtree(out, ignore_errors=True)
        command = [
            self.args.bin / lesson,
            "--workload",
            f"configs/gpt2_{model}.json",
            "--strategy",
            f"lessons/{lesson}/config.json",
            "--device",
            "cuda",
            "--watchdog",
            "120",
        ]
        for setting in (
            f"batch.global={rows}",
            f"batch.micro={rows // ranks}",
            f"data.validation_rows={rows // ranks}",
        ):
            command += ["--set", setting]
        return whole_runs.record_of([*command, *flags], out, ranks)

    def files(self, name):
        return self.folder / name


def cost(lessons, model, lesson, ranks, rows, steps, every):
    found = {
        "model": model,
        "lesson": lesson,
        "ranks": ranks,
        "rows": rows,
        "steps": steps,
        "save_every": every,
    }
    for mode in ("none", "on", "off"):
        at = lessons.files("cost")
        more = (
            []
            if mode == "none"
            else ["--save-every", every, "--save-async", mode, "--keep", 1, "--checkpoints", at]
        )
        record = lessons.run(model, lesson, ranks, rows, "--steps", steps, *more)
        seconds = record["steps"]["seconds"][WARM_UP:]
        one = {"step_seconds": statistics.median(seconds), "as_predicted": record["as_predicted"]}
        if mode != "none":
            saves = record["saves"]
            one["saves"] = saves
            one["bytes"] = sum(path.stat().st_size for path in at.glob("step-*/*"))
            # Steps that began while the first file was being written.
            after = record["steps"]["seconds"][every:]
            left, beside = saves[0]["seconds"] - saves[0]["blocked"], []
            for step in after:
                if left < step:
                    break
                left -= step
                beside.append(step)
            one["steps_beside"] = len(beside)
            one["step_seconds_beside"] = statistics.median(beside) if beside else None
            shutil.rmtree(at)
        found[mode] = one
        found.update({key: record[key] for key in ("commit", "versions", "started")})
    return found


def resumed(lessons, model, lesson, ranks, rows):
    whole, again = (
        pathlib.Path(lessons.args.quick_disk or lessons.folder) / name for name in ("whole", "again")
    )
    both = ["--ops", "deterministic", "--steps", 12, "--save-every", 6]
    lessons.run(model, lesson, ranks, rows, *both, "--checkpoints", whole)
    record = lessons.run(
        model, lesson, ranks, rows, *both, "--resume", whole / "step-000006", "--checkpoints", again
    )
    last = [str(of / "step-000012") for of in (whole, again)]
    done = subprocess.run(
        [lessons.args.bin / "checkpoint", "diff", *last], text=True, capture_output=True, check=False
    )
    for of in (whole, again):
        shutil.rmtree(of)
    said = [line for line in done.stdout.splitlines() if "equal" in line]
    return {
        "model": model,
        "lesson": lesson,
        "ranks": ranks,
        "exit": done.returncode,
        "said": said,
        "commit": record["commit"],
    }


def missing(wanted, found, gpus):
    """Those for as many GPUs that the result lacks."""
    there = {(run["model"], run["lesson"], run.get("ranks", 1)) for run in found}
    return [run for run in wanted if run[2] == gpus and run[:3] not in there]


def main():
    parser = whole_runs.parser_of(__doc__)
    parser.add_argument(
        "--disk", help="where checkpoints are written (default: the system's temporary folder)"
    )
    parser.add_argument(
        "--quick-disk", help="where those are written of which only bits count (default: as --disk)"
    )
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs/results/gpu_checkpoints.json")
    args = whole_runs.read_arguments(parser)
    here = machine()
    result = {"about": __doc__.split("\n", maxsplit=1)[0], "machine": here["gpu"], "runs": [], "resumed": []}
    if args.out.exists():
        result = json.loads(args.out.read_text())
    with tempfile.TemporaryDirectory(prefix="stagecraft_checkpoints_", dir=args.disk) as name:
        lessons = Lessons(args, pathlib.Path(name))
        for run in missing(RUNS, result["runs"], here["gpus"]):
            result["runs"].append(cost(lessons, *run))
            args.out.write_text(json.dumps(result, indent=1) + "\n")
        for run in missing(RESUMED, result["resumed"], here["gpus"]):
            result["resumed"].append(resumed(lessons, *run))
            args.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
