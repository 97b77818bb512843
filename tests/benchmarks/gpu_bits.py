#!/usr/bin/env python3
"""Which runs on GPUs end in the same bits: losses of every step, and the file of weights that --save writes.

On one GPU lesson 00 twice with --ops deterministic and twice with --ops fused; on two lessons 01 to 04 with --ops
deterministic, one micro-batch a rank, so that all add up gradients in the same order: two terms have no other.

  python3 tests/benchmarks/gpu_bits.py [--world 2] [--bin build/cuda/bin] [--out docs/results/gpu_bits.json]
"""
import argparse
import hashlib
import json
import pathlib
import sys
import tempfile
import time

import gpu
from gpu_programs import Failed, Lesson

WORKLOADS = {1: ("gpt2_124m", 16), 2: ("gpt2_355m", 16)}  # rows a rank
LESSONS = ("01_data_parallel", "02_zero1", "03_zero2", "04_zero3")


def runs_of(world):
    """Name: (program, operations). Those of a group are compared."""
    if world == 1:
        return {f"{ops} {k}": ("00_one_device", ops) for ops in ("deterministic", "fused") for k in (1, 2)}
    return {lesson: (lesson, "deterministic") for lesson in LESSONS}


def sha256(path):
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def measure(args, program, ops, folder):
    workload, rows = WORKLOADS[args.world]
    weights = folder / "weights.safetensors"
    settings = ["--workload", f"configs/{workload}.json", "--set", f"batch.global={rows * args.world}", "--set", f"batch.micro={rows}",
                "--set", f"data.validation_rows={rows}", "--device", "cuda", "--ops", ops, "--save", weights]
    environment = {"STAGECRAFT_COMMIT": args.commit} if args.commit else {}
    lesson = Lesson(args.bin / program, settings, args.world, folder / "run", False, 1, environment)
    lesson.measure(0, args.steps, time.monotonic() + args.limit)
    losses = [(line["loss"], line["grad_norm"]) for line in lesson.lines]
    return {"weights_sha256": sha256(weights), "losses_sha256": hashlib.sha256(json.dumps(losses).encode()).hexdigest(),
            "last_loss": losses[-1][0], **{key: lesson.about[key] for key in ("commit", "versions", "workload", "strategy")},
            "command": gpu.command_text(lesson.command)}


def equal(runs, names, key):
    return len({runs[name][key] for name in names}) == 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world", type=int, default=1, choices=sorted(WORKLOADS), help="GPUs, one rank each")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--limit", type=float, default=120, help="seconds of a run")
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/cuda/bin"), help="where the lessons' programs are")
    parser.add_argument("--commit", help="of the sources, where this is no git checkout")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("docs/results/gpu_bits.json"), help="the result, which is added to")
    args = parser.parse_args()
    args.bin = args.bin.resolve()
    runs = {}
    for name, (program, ops) in runs_of(args.world).items():
        with tempfile.TemporaryDirectory(prefix="stagecraft_bits_") as folder:
            try:
                runs[name] = measure(args, program, ops, pathlib.Path(folder))
            except Failed as error:
                sys.exit(f"error: {name}: {error}")
        print(f"{name}: last loss {runs[name]['last_loss']!r}, weights {runs[name]['weights_sha256'][:12]}", flush=True)
    groups = {"": list(runs)} if args.world > 1 else {ops: [name for name in runs if name.startswith(ops)] for ops in ("deterministic", "fused")}
    result = json.loads(args.out.read_text()) if args.out.exists() else {}
    said = {ops or "all": {"runs": names, "equal_weights": equal(runs, names, "weights_sha256"), "equal_losses": equal(runs, names, "losses_sha256")}
            for ops, names in groups.items()}
    result[f"world {args.world}"] = {"started": gpu.now(), "steps": args.steps, "groups": said, "runs": runs}
    gpu.write(args.out, result)
    print(json.dumps(said, indent=1))
    expected = said["deterministic" if args.world == 1 else "all"]
    return 0 if expected["equal_weights"] and expected["equal_losses"] else 1


if __name__ == "__main__":
    sys.exit(main())
