#!/usr/bin/env python3
"""A model of four blocks on this machine's CPU, side by side: ours and eager PyTorch on one thread, lessons
01 to 04 on one rank and two.

Rounds alternate between the programs, so that all see the same machine; what is compared is the ratio within
a round. Needs build/cpu (tests/run.sh), and the oracle packages for PyTorch (common/setup/setup.sh --oracle).

  .deps/oracle/bin/python tests/benchmarks/cpu.py [--rounds 5] [--steps 25] [--out docs/results/cpu_tiny.json]
"""
import pathlib
import platform
import re
import sys
import tempfile

from gpu_table import spread
from harness import HERE, ONE_THREAD, ROOT, arguments, record_in, said_by, write
from records import busy_cores

WORKLOAD = "tests/workloads/four_blocks.json"
DISTRIBUTED = {
    "": "01_data_parallel",
    "zero1_": "02_zero1",
    "zero2_": "03_zero2",
    "zero3_": "04_zero3",
}  # before one_rank and two_ranks
RANKS = {"one_rank": 1, "two_ranks": 2}
WARM_UP = 5  # steps that a record's timing leaves out


def ours(lesson, ranks, steps):
    """Tokens a second of the median step, from the run's own record; and the record."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["--no-build", "-n", ranks, "--workload", ROOT / WORKLOAD, "--threads", "1"]
        words += ["--steps", WARM_UP + steps, "--out", folder]
        said_by([ROOT / "lessons" / lesson / "run.sh", *words], ONE_THREAD)
        record = record_in(folder)
    return record["timing"]["tokens_per_second"], record


def pytorch(steps):
    words = ["--workload", ROOT / WORKLOAD, "--threads", "1", "--steps", steps]
    said = said_by([sys.executable, HERE / "torch_tiny.py", *words], ONE_THREAD)
    return float(re.search(r"(\d+) tok/s", said)[1])


PAIRS = (
    ("one_device_over_pytorch", "one_device", "pytorch"),
    ("two_ranks_over_one", "two_ranks", "one_rank"),
    *((f"{name}{key}_over_01", name + key, key) for name in DISTRIBUTED if name for key in RANKS),
)


def main():
    asked = {
        "--rounds": {"type": int, "default": 5},
        "--steps": {"type": int, "default": 25, "help": "timed steps of a program in a round, at least 20"},
        "--out": {"type": pathlib.Path, "help": "a JSON file for the result"},
    }
    args, rounds, loads, ratios = arguments(__doc__, asked), [], [], {}
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
    for name, above, below in PAIRS:
        found = spread([r[above] / r[below] for r in rounds])
        ratios[name] = {key: round(found[key], 3) for key in ("median", "lowest", "highest")}
        print(f"{name}: {ratios[name]['median']} ({ratios[name]['lowest']} to {ratios[name]['highest']})")
    if args.out:
        rank = record["ranks"][0]
        found = {
            "workload": WORKLOAD,
            "workload_hash": record["workload_hash"],
            "threads": 1,
            "timed_steps": args.steps,
            "cpu": rank["cpu"],
            "cores": rank["cores"],
            "versions": record["versions"],
            "python": platform.python_version(),
            "commit": record["commit"],
            "loads": loads,
            "tokens_per_second": rounds,
            "ratios": ratios,
        }
        write(args.out, found)


if __name__ == "__main__":
    main()
