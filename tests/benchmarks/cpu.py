#!/usr/bin/env python3
"""A model of four blocks on this machine's CPU, side by side: ours and eager PyTorch on one thread, lessons 01 to 04 on
one rank and two.

Rounds alternate between the programs, so that all see the same machine; what is compared is the ratio within a round.
Needs build/cpu (tests/run.sh), and the oracle packages for PyTorch (common/setup/setup.sh --oracle).

  .deps/oracle/bin/python tests/benchmarks/cpu.py [--rounds 5] [--steps 25] [--out docs/results/cpu_tiny.json]
"""
import argparse
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tempfile

from records import busy_cores

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORKLOAD = "tests/workloads/four_blocks.json"
DISTRIBUTED = {
    "": "01_data_parallel",
    "zero1_": "02_zero1",
    "zero2_": "03_zero2",
    "zero3_": "04_zero3",
}  # before one_rank and two_ranks
RANKS = {"one_rank": 1, "two_ranks": 2}
WARM_UP = 5  # steps that a record's timing leaves out
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def ours(lesson, ranks, steps):
    """Tokens a second of the median step, from the run's own record; and the record."""
    with tempfile.TemporaryDirectory() as out:
        subprocess.run(
            [
                ROOT / "lessons" / lesson / "run.sh",
                "--no-build",
                "-n",
                str(ranks),
                "--workload",
                ROOT / WORKLOAD,
                "--threads",
                "1",
                "--steps",
                str(WARM_UP + steps),
                "--out",
                out,
            ],
            env=ENVIRONMENT,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        record = json.loads((pathlib.Path(out) / "record.json").read_text())
    return record["timing"]["tokens_per_second"], record


def pytorch(steps):
    command = [
        sys.executable,
        ROOT / "tests/benchmarks/torch_tiny.py",
        "--workload",
        ROOT / WORKLOAD,
        "--threads",
        "1",
        "--steps",
        str(steps),
    ]
    said = subprocess.run(command, env=ENVIRONMENT, check=True, capture_output=True, text=True).stdout
    return float(re.search(r"(\d+) tok/s", said)[1])


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--steps", type=int, default=25, help="timed steps of a program in a round, at least 20"
    )
    parser.add_argument("--out", help="a JSON file for the result")
    args = parser.parse_args()
    rounds, loads = [], []
    for _ in range(args.rounds):
        loads.append({"load_before": busy_cores()})
        one, record = ours("00_one_device", 1, args.steps)
        rounds.append(
            {
                "one_device": one,
                "pytorch": pytorch(args.steps),
                **{
                    name + key: ours(lesson, ranks, args.steps)[0]
                    for name, lesson in DISTRIBUTED.items()
                    for key, ranks in RANKS.items()
                },
            }
        )
        print("  ".join(f"{name} {rate / 1e3:.2f}k tok/s" for name, rate in rounds[-1].items()), flush=True)
    ratios = {}
    pairs = [
        ("one_device_over_pytorch", "one_device", "pytorch"),
        ("two_ranks_over_one", "two_ranks", "one_rank"),
    ]
    pairs += [(f"{name}{key}_over_01", name + key, key) for name in DISTRIBUTED if name for key in RANKS]
    for name, above, below in pairs:
        values = sorted(r[above] / r[below] for r in rounds)
        ratios[name] = {
            "median": round(statistics.median(values), 3),
            "lowest": round(values[0], 3),
            "highest": round(values[-1], 3),
        }
        print(f"{name}: {ratios[name]['median']} ({ratios[name]['lowest']} to {ratios[name]['highest']})")
    if args.out:
        result = {
            "workload": WORKLOAD,
            "workload_hash": record["workload_hash"],
            "threads": 1,
            "timed_steps": args.steps,
            "cpu": record["ranks"][0]["cpu"],
            "cores": record["ranks"][0]["cores"],
            "versions": record["versions"],
            "python": platform.python_version(),
            "commit": record["commit"],
            "loads": loads,
            "tokens_per_second": rounds,
            "ratios": ratios,
        }
        pathlib.Path(args.out).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
