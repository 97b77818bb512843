#!/usr/bin/env python3
"""Bytes by purpose of runs on the CPU, predicted and measured, and plans of runs on GPUs:
docs/results/memory.json.

Nothing here depends on the machine's speed: made again, the file is the same but for commit and versions.
Each command on record is the one that ran, but for --no-build and --out. Needs build/cpu (tests/run.sh).

  tests/benchmarks/memory.py [--out docs/results/memory.json]
"""
import shlex
import tempfile

from harness import CPU_BIN, RESULTS, arguments, first_paragraph, out, record_in, said_by, write
from plans import printed

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


def measured(lesson, ranks, settings):
    """A run's record, and its row: the command as a reader would type it."""
    own = "".join(f" --set {one}" for one in settings)
    command = f"lessons/{lesson}/run.sh -n {ranks} --workload {WORKLOAD} --steps {STEPS}{own} --threads 1"
    with tempfile.TemporaryDirectory() as folder:
        words = [*shlex.split(command), "--no-build", "--out", folder]
        said_by(words, {"STAGECRAFT_PRESET": "cpu"})
        record = record_in(folder)
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
    file = f"configs/{workload}.json"
    rank = printed(CPU_BIN, "00_one_device", file, 1)["ranks"][0]
    return {
        "command": f"lessons/00_one_device/run.sh --plan --device cuda --workload {file}",
        "buffers": {one["name"]: one["bytes"] for one in rank["buffers"]},
        "total": rank["bytes"]["device"],
    }


def main():
    args, rows = arguments(__doc__, out(RESULTS / "memory.json")), []
    for one in RUNS:
        record, row = measured(*one)
        rows.append(row)
        print(
            f"{row['command']}: {row['measured_bytes']['total']:,} bytes, as predicted: {row['as_predicted']}"
        )
    found = {
        "about": first_paragraph(__doc__),
        "commit": record["commit"],
        "versions": record["versions"],
        "threads": 1,
        "runs": rows,
        "plans": {workload: planned(workload) for workload in PLANS},
    }
    write(args.out, found)


if __name__ == "__main__":
    main()
