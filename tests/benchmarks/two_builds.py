#!/usr/bin/env python3
"""Two builds of the lessons in turns on one machine: is the newer one as fast, does it hold what it plans,
are its bits the older one's?

  python3 tests/benchmarks/two_builds.py --old build/before/bin --bin build/cuda/bin --commit COMMIT
          --out FILE [--rounds 3] [-k WORD]

--old: programs of the commit to compare with, in a checkout of their own (git worktree add, and the same
preset): each build reads its own tree's configs. A rate is the older build's seconds a step over the newer
one's: the median over rounds of turns next to each other. Bits: --ops deterministic, the file of --save and
all losses. With --device cpu on a machine without GPUs, on the tests' small model: of bits alone it says much
there.
"""
import hashlib
import json
import pathlib
import statistics
import sys
import tempfile

from harness import arguments_of_runs, out, record_of, write

WORKLOADS = {"cuda": "configs/gpt2_124m.json", "cpu": "tests/workloads/four_blocks.json"}  # by device
# Programs by name: (program, ranks, micro-batch, rows of a step, its own settings).
CASES = {
    "00": ("00_one_device", 1, 16, 16, ""),
    "01": ("01_data_parallel", 2, 16, 32, ""),
    "04": ("04_zero3", 2, 16, 32, ""),
    "05 exact": ("05_offload", 2, 16, 32, "--set update=exact"),
    "05 early": ("05_offload", 2, 16, 32, "--set update=early"),
    "05 delayed": ("05_offload", 2, 16, 32, "--set update=delayed"),
    "06": ("06_infinity", 2, 16, 32, ""),
    "07": ("07_pipeline", 2, 4, 32, "--set schedule=1f1b --set model.tied=off"),
    "08 none": ("08_weight_versions", 2, 4, 32, "--set versions=none --set model.tied=off"),
    "08 stash": ("08_weight_versions", 2, 4, 32, "--set versions=stash --set model.tied=off"),
    "10": ("10_tensor_parallel", 2, 16, 16, ""),
    "11": ("11_combined", 2, 4, 32, "--set mesh=2x1x1 --set model.tied=off"),
}


class Builds:
    def __init__(self, args, folder):
        self.args, self.folder, self.runs = args, folder, 0

    def run(self, case, build, *flags):
        program, ranks, micro, rows, own = CASES[case]
        self.runs += 1
        tree = build.parents[2]  # of TREE/build/PRESET/bin
        words = ["--strategy", tree / f"lessons/{program}/config.json"]
        words += ["--workload", tree / WORKLOADS[self.args.device]]
        words += f"--set batch.micro={micro} --set batch.global={rows} {own}".split()
        words += ["--device", self.args.device, *flags]
        return record_of([build / program, *words], self.folder / f"run_{self.runs}", ranks)

    def bits(self, case, build):
        weights = self.folder / "weights.safetensors"
        ops = ["--ops", "deterministic"] if self.args.device == "cuda" else []  # on the CPU all are
        steps = self.run(case, build, *ops, "--steps", 6, "--save", weights)["steps"]
        digest = hashlib.sha256(json.dumps([steps["loss"], steps["grad_norm"]]).encode())
        file = weights.read_bytes()
        digest.update(
            file[8 + int.from_bytes(file[:8], "little") :]
        )  # the values: what a header says may grow
        return digest.hexdigest()

    def compare(self, case):
        args, turns = self.args, {"old": [], "new": []}
        builds = {"old": args.old, "new": args.bin}
        for turn in range(args.rounds):
            for build in (("old", "new"), ("new", "old"))[turn % 2]:
                record = self.run(case, builds[build], "--steps", args.steps)
                # A step of lesson 08 ends when its result arrives, so single times say little; the mean
                # counts.
                turns[build].append(statistics.mean(record["steps"]["seconds"][args.warm_up :]))
                if build == "new":
                    as_planned = record["as_predicted"]
        rates = [old / new for old, new in zip(turns["old"], turns["new"])]
        return {
            "rate": statistics.median(rates),
            "rates": rates,
            "seconds": turns,
            "as_predicted": as_planned,
            "equal_bits": self.bits(case, args.old) == self.bits(case, args.bin),
        }


ASKED = {
    "--old": {"type": lambda text: pathlib.Path(text).resolve(), "required": True},
    **out(),
    "--device": {"choices": sorted(WORKLOADS), "default": "cuda"},
    "--rounds": {"type": int, "default": 3},
    "--steps": {"type": int, "default": 80},
    "--warm-up": {"type": int, "default": 30},
    "-k": {"metavar": "WORD", "default": "", "help": "only cases whose name contains it"},
}


def main():
    args, result = arguments_of_runs(__doc__, ASKED), {}
    with tempfile.TemporaryDirectory() as name:
        builds = Builds(args, pathlib.Path(name))
        for case in CASES:
            if args.k in case:
                result[case] = builds.compare(case)
                write(args.out, result)
    for case, found in result.items():
        print(
            f"{case:12} {found['rate']:.3f} of the older build's rate, as planned {found['as_predicted']}, "
            f"equal bits {found['equal_bits']}"
        )
    return 0 if all(found["as_predicted"] and found["equal_bits"] for found in result.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
