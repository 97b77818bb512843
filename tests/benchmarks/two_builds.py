#!/usr/bin/env python3
"""Two builds of the lessons in turns on one machine: is the newer one as fast, does it hold what it plans, are its bits the older one's?

  python3 tests/benchmarks/two_builds.py --old build/before/bin --bin build/cuda/bin --commit COMMIT --out FILE [--rounds 3] [-k WORD]

--old: programs of the commit to compare with, in a checkout of their own (git worktree add, and the same preset): each build reads
its own tree's configs. A rate is the older build's seconds a step over the newer one's: the median over rounds of turns next to each
other. Bits: --ops deterministic, the file of --save and all losses. With --device cpu on a machine without GPUs, on the tests' small
model: of bits alone it says much there.
"""
import hashlib
import json
import pathlib
import statistics
import sys
import tempfile

import whole_runs

WORKLOADS = {"cuda": "configs/gpt2_124m.json", "cpu": "tests/workloads/four_blocks.json"}  # by device
# name: (program, ranks, micro-batch, rows of a step, own settings)
CASES = {
    "00": ("00_one_device", 1, 16, 16, ""),
    "01": ("01_data_parallel", 2, 16, 32, ""),
    "04": ("04_zero3", 2, 16, 32, ""),
    "05 exact": ("05_offload", 2, 16, 32, "--set update=exact"),
    "05 delayed": ("05_offload", 2, 16, 32, "--set update=delayed"),
    "06": ("06_infinity", 2, 16, 32, ""),
    "07": ("07_pipeline", 2, 4, 32, "--set schedule=1f1b --set model.tied=off"),
    "08 none": ("08_weight_versions", 2, 4, 32, "--set versions=none --set model.tied=off"),
    "08 stash": ("08_weight_versions", 2, 4, 32, "--set versions=stash --set model.tied=off"),
}


class Builds:
    def __init__(self, args, folder):
        self.args, self.folder, self.runs = args, folder, 0
        self.programs = {"old": args.old, "new": args.bin}

    def run(self, case, build, *flags):
        program, ranks, micro, rows, own = CASES[case]
        self.runs += 1
        bin_folder = self.programs[build]
        tree = bin_folder.parents[2]  # of TREE/build/PRESET/bin
        sizes = f"--set batch.micro={micro} --set batch.global={rows} {own}"
        return whole_runs.record_of(
            [
                bin_folder / program,
                "--strategy",
                tree / f"lessons/{program}/config.json",
                "--workload",
                tree / WORKLOADS[self.args.device],
                *sizes.split(),
                "--device",
                self.args.device,
                *flags,
            ],
            self.folder / f"run_{self.runs}",
            ranks,
        )

    def seconds(self, case, build):
        record = self.run(case, build, "--steps", self.args.steps)
        # A step of lesson 08 ends when its results arrive: single ones say little.
        return statistics.mean(record["steps"]["seconds"][self.args.warm_up :]), record

    def bits(self, case, build):
        weights = self.folder / "weights.safetensors"
        ops = ["--ops", "deterministic"] if self.args.device == "cuda" else []  # on the CPU all are
        record = self.run(case, build, *ops, "--steps", 6, "--save", weights)
        digest = hashlib.sha256(json.dumps([record["steps"]["loss"], record["steps"]["grad_norm"]]).encode())
        digest.update(weights.read_bytes())
        return digest.hexdigest()

    def compare(self, case):
        turns = {"old": [], "new": []}
        for turn in range(self.args.rounds):
            for build in (("old", "new"), ("new", "old"))[turn % 2]:
                seconds, record = self.seconds(case, build)
                turns[build].append(seconds)
                if build == "new":
                    as_planned = record["as_predicted"]
        rates = [old / new for old, new in zip(turns["old"], turns["new"])]
        return {
            "rate": statistics.median(rates),
            "rates": rates,
            "seconds": turns,
            "as_predicted": as_planned,
            "equal_bits": self.bits(case, "old") == self.bits(case, "new"),
        }


def main():
    parser = whole_runs.parser_of(__doc__)
    parser.add_argument("--old", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--device", choices=sorted(WORKLOADS), default="cuda")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--warm-up", type=int, default=30)
    parser.add_argument("-k", metavar="WORD", default="", help="only cases whose name contains it")
    args = whole_runs.read_arguments(parser)
    args.old = args.old.resolve()
    result = {}
    with tempfile.TemporaryDirectory() as name:
        builds = Builds(args, pathlib.Path(name))
        for case in CASES:
            if args.k in case:
                result[case] = builds.compare(case)
                args.out.write_text(json.dumps(result, indent=1) + "\n")
    for case, found in result.items():
        print(
            f"{case:12} {found['rate']:.3f} of the older build's rate, as planned {found['as_predicted']}, equal bits {found['equal_bits']}"
        )
    return 0 if all(found["as_predicted"] and found["equal_bits"] for found in result.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
