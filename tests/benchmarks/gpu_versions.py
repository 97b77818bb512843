#!/usr/bin/env python3
"""Lesson 08's rules and lesson 07's 1F1B on two GPUs, in turns: docs/results/gpu_versions.json.

  python3 tests/benchmarks/gpu_versions.py --bin build/cuda/bin --commit COMMIT --out gpu_versions.json
          [--rounds 2]

First a traced run of lesson 07 writes what forward, backward, update and messages take there (costs.json),
and lesson 08's --plan says by them what a step of each rule will take. Only then is lesson 08 run.
"""
import json
import pathlib
import re
import statistics
import sys
import tempfile

from gpu_watch import machine
from harness import arguments_of_runs, first_paragraph, out, record_of, shown_and_said_by, write

WORKLOAD = (
    "--workload configs/gpt2_355m.json --set model.tied=false --set batch.micro=4 --set batch.global=32 "
    "--set data.validation_rows=4"
)
STEPS, WARM_UP = 50, 15
TOKENS = 32 * 1024  # a step's
PROGRAMS = {
    "1f1b": "07_pipeline --set schedule=1f1b",
    "1f1b_eager": "07_pipeline --set schedule=1f1b --graph off",
    "none": "08_weight_versions --set versions=none",
    "stash": "08_weight_versions --set versions=stash",
    "vertical_sync": "08_weight_versions --set versions=vertical_sync",
    "two_buffers": "08_weight_versions --set versions=two_buffers",
    "stash_8": "08_weight_versions --set versions=stash --set update_every=8",
}


class Programs:
    def __init__(self, bin_folder, folder):
        self.bin, self.folder = bin_folder, folder

    def command(self, program, *flags):
        name, *own = program.split()
        return [
            self.bin / name,
            "--strategy",
            f"lessons/{name}/config.json",
            *WORKLOAD.split(),
            *own,
            "--device",
            "cuda",
            *flags,
        ]

    def run(self, program, out, *flags):
        return record_of(self.command(program, *flags), self.folder / out, ranks=2)

    def predicted(self, program, costs):
        said = shown_and_said_by(
            self.command(program.removesuffix(" --graph off"), "--plan", "--world", 2, "--costs", costs)
        )
        seconds = re.search(r"([\d.,]+) ms, idle ([\d.]+) %, ([\d,]+) tokens a second", said)
        if seconds is None:
            sys.exit(f"error: --plan of {program} predicts no time:\n{said[-2000:]}")
        return {
            "seconds": float(seconds[1].replace(",", "")) / 1e3,
            "idle": float(seconds[2]) / 100,
            "tokens_per_second": float(seconds[3].replace(",", "")),
        }


def of_rounds(records):
    # A step of lesson 08 ends when its result arrives, so single times say little; their mean over all steps
    # counts.
    means = [statistics.mean(r["steps"]["seconds"][WARM_UP:]) for r in records]
    return {
        "rounds_seconds": means,
        "seconds": statistics.median(means),
        "median_seconds": [statistics.median(r["steps"]["seconds"][WARM_UP:]) for r in records],
        "ranks": [
            {"predicted": rank["predicted_bytes"], "measured": rank["measured_bytes"]}
            for rank in records[0]["ranks"]
        ],
        "as_predicted": all(r["as_predicted"] for r in records),
        "allocations": [r["allocator"]["allocations"] for r in records],
        "last_loss": records[0]["steps"]["loss"][-1],
    }


def main():
    args = arguments_of_runs(__doc__, {**out(), "--rounds": {"type": int, "default": 2}}, required=True)
    with tempfile.TemporaryDirectory() as name:
        programs, records = Programs(args.bin, pathlib.Path(name)), {}
        first = programs.run("07_pipeline --set schedule=1f1b --graph off", "costs", "--steps", 8, "--trace")
        costs = programs.folder / "costs" / "costs.json"
        result = {
            "about": first_paragraph(__doc__),
            "commit": first["commit"],
            "gpu": machine()["gpu"],
            "started": first["started"],
            "versions": first["versions"],
            "workload": WORKLOAD,
            "commands": PROGRAMS,
            "steps": STEPS,
            "warm_up": WARM_UP,
            "tokens_per_step": TOKENS,
            "costs": json.loads(costs.read_text()),
            "timetable": first["timetable"],
            "predicted": {key: programs.predicted(program, costs) for key, program in PROGRAMS.items()},
            "runs": {},
        }
        print(json.dumps(result["predicted"], indent=1), flush=True)
        for turn in range(args.rounds):
            for key, program in PROGRAMS.items():
                records.setdefault(key, []).append(programs.run(program, f"{key}-{turn}", "--steps", STEPS))
                result["runs"] = {run: of_rounds(several) for run, several in records.items()}
                print(
                    key,
                    [round(TOKENS / s) for s in result["runs"][key]["rounds_seconds"]],
                    "tokens a second",
                    flush=True,
                )
                write(args.out, result)


if __name__ == "__main__":
    main()
