#!/usr/bin/env python3
"""Bytes by purpose of runs on the CPU, predicted and measured, and plans of runs on GPUs: docs/results/memory.json.

Nothing here depends on the machine's speed: made again, the file is the same but for commit and versions. Each command on record is
the one that ran, but for --no-build and --out. Needs build/cpu (tests/run.sh).

  tests/benchmarks/memory.py [--out docs/results/memory.json]
"""
import argparse
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

from plans import printed

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORKLOAD = "tests/workloads/four_blocks.json"
STEPS = 2  # the second is the one that is checked
RUNS = (
    ("00_one_device", 1, []),
    ("00_one_device", 1, ["activations=recompute_gelu"]),
    ("00_one_device", 1, ["activations=recompute"]),
    ("00_one_device", 1, ["batch.micro=6"]),
    ("00_one_device", 1, ["batch.micro=6", "head_chunk=128"]),
    ("00_one_device", 1, ["model.tied=off"]),
    ("01_data_parallel", 1, []),
    ("01_data_parallel", 2, []),
    ("01_data_parallel", 4, []),
)
PLANS = ("gpt2_124m", "gpt2_355m", "gpt2_774m", "gpt2_1558m")


def command_of(lesson, ranks, settings):
    sets = "".join(f" --set {one}" for one in settings)
    return f"lessons/{lesson}/run.sh -n {ranks} --workload {WORKLOAD} --steps {STEPS}{sets} --threads 1"


def run(command, *more):
    words = [*shlex.split(command), "--no-build", *more]
    done = subprocess.run(
        words,
        cwd=ROOT,
        text=True,
        capture_output=True,
        check=False,
        env={**os.environ, "STAGECRAFT_PRESET": "cpu"},
    )
    if done.returncode != 0:
        sys.exit(f"error: {' '.join(words)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def measured(lesson, ranks, settings):
    command = command_of(lesson, ranks, settings)
    with tempfile.TemporaryDirectory() as out:
        run(command, "--out", out)
        record = json.loads((pathlib.Path(out) / "record.json").read_text())
    rank = record["ranks"][0]
    return record, {
        "command": command,
        "lesson": lesson,
        "world": ranks,
        "settings": settings,
        "predicted_bytes": rank["predicted_bytes"],
        "measured_bytes": rank["measured_bytes"],
        "as_predicted": record["as_predicted"],
    }


def planned(workload):
    """The buffers of lesson 00's plan on a GPU."""
    file = f"configs/{workload}.json"
    rank = printed(ROOT / "build/cpu/bin", "00_one_device", file, 1)["ranks"][0]
    return {
        "command": f"lessons/00_one_device/run.sh --plan --device cuda --workload {file}",
        "buffers": {one["name"]: one["bytes"] for one in rank["buffers"]},
        "total": rank["bytes"]["device"],
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs/results/memory.json")
    args = parser.parse_args()
    runs = []
    for one in RUNS:
        record, row = measured(*one)
        runs.append(row)
        print(
            f"{row['command']}: {row['measured_bytes']['total']:,} bytes, as predicted: {row['as_predicted']}"
        )
    result = {
        "about": __doc__.split("\n", maxsplit=1)[0],
        "commit": record["commit"],
        "versions": record["versions"],
        "threads": 1,
        "runs": runs,
        "plans": {workload: planned(workload) for workload in PLANS},
    }
    args.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
