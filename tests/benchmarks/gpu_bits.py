#!/usr/bin/env python3
"""Which runs on GPUs end in the same bits: losses of every step, and the file of weights that --save writes.

On one GPU lesson 00 twice with --ops deterministic and twice with --ops fused; on two lessons 01 to 04 with
--ops deterministic, one micro-batch a rank, so that all add up gradients in the same order: two terms have no
other. With --tensor lessons 10 and 12 on two GPUs in their modes beside lesson 00 that computes on one in as
many parts; asked for by name, groups of four and eight GPUs, of lesson 11's meshes too. A group of runs,
which must be equal, is written when it is measured, and skipped when this commit's is there.

  python3 tests/benchmarks/gpu_bits.py [--world 2] [--bin build/cuda/bin] [--out docs/results/gpu_bits.json]
  python3 tests/benchmarks/gpu_bits.py --tensor ["124M split,1558M split"] [--seconds 540]
          [--out docs/results/gpu_tensor_bits.json]
"""
import hashlib
import json
import math
import pathlib
import sys
import tempfile
import time

import records
from gpu_programs import Failed, Lesson
from harness import COMMIT, arguments, command_text, kept, now, sets, sources, write

WORKLOADS = {1: ("gpt2_124m", 16), 2: ("gpt2_355m", 16)}  # rows a rank
# Models: (workload, rows of a step, of a micro-batch, settings, steps). Models with 25 or 5 heads cannot be
# halved.
ODD = ["model.width=320", "model.heads=5", "model.layers=4"]
MODELS = {
    "124M": ("gpt2_124m", 8, 2, [], 6),
    "355M": ("gpt2_355m", 16, 2, [], 4),
    "1558M": ("gpt2_1558m", 4, 2, [], 3),
    **{
        f"5 heads {dtype}": ("gpt2_124m", 12, 4, [*ODD, f"precision.dtype={dtype}"], 6)
        for dtype in ("bf16", "fp16", "fp32")
    },
}
# Orders of sums: the lesson, the flags of lesson 00 for one, and all modes that add in that order.
GRAPH_OFF = ["--graph", "off"]
TENSOR, CONTEXT = "10_tensor_parallel", "12_context_parallel"
RANKS_OF_00 = {TENSOR: "--tensor-ranks", CONTEXT: "--context-ranks"}
ORDERS = {
    "split": (
        TENSOR,
        [],
        {
            "": [],
            "kept": ["--set", "gathered=kept"],
            "recompute": ["--set", "activations=recompute"],
            "graph off": GRAPH_OFF,
        },
    ),
    "whole": (TENSOR, ["--tokens", "whole"], {"": ["--set", "tokens=whole"]}),
    "ring": (CONTEXT, [], {"": [], "nccl": ["--transport", "nccl"], "graph off": GRAPH_OFF}),
    "gather": (CONTEXT, ["--exchange", "gather"], {"": ["--set", "exchange=gather"]}),
    "lanes": (
        TENSOR,
        ["--lanes", "2"],
        {"": ["--set", "lanes=2"], "graph off": ["--set", "lanes=2", *GRAPH_OFF]},
    ),
}
# Runs by name: (model, order, GPUs), or for lesson 11 (model, mesh, GPUs).
TWO = {
    f"{model} {order}": (model, order, 2)
    for model, (_, rows, micro, *_) in MODELS.items()
    for order in ORDERS
    if order != "lanes" or rows // micro % 2 == 0
}  # lanes go in pairs
GROUPS = {
    **TWO,
    **{f"355M {order} x4": ("355M", order, 4) for order in ORDERS if ORDERS[order][0] == TENSOR},
    "1558M split x8": ("1558M", "split", 8),
    **{
        f"355M {mesh}": ("355M", mesh, math.prod(map(int, mesh.split("x"))))
        for mesh in ("2x1x2", "1x2x2", "2x2x1", "2x2x2")
    },
}


def runs_of(world):
    """Name: (program, operations). Those of a group are compared."""
    if world == 1:
        return {f"{ops} {k}": ("00_one_device", ops) for ops in ("deterministic", "fused") for k in (1, 2)}
    return {lesson: (lesson, "deterministic") for lesson in records.ZERO}


def measured(args, name, program, ranks, settings, steps):
    with tempfile.TemporaryDirectory(prefix="stagecraft_bits_") as folder:
        weights, run = (pathlib.Path(folder) / of for of in ("weights.safetensors", "run"))
        own = {"STAGECRAFT_COMMIT": args.commit} if args.commit else {}
        words = [*settings, "--device", "cuda", "--save", weights]
        lesson = Lesson(args.bin / program, words, ranks, run, False, 1, own)
        lesson.measure(0, steps, time.monotonic() + args.limit)
        with weights.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    losses = [(line["loss"], line["grad_norm"]) for line in lesson.lines]
    print(f"{name}: last loss {losses[-1][0]!r}, weights {digest[:12]}", flush=True)
    return {
        "weights_sha256": digest,
        "losses_sha256": hashlib.sha256(json.dumps(losses).encode()).hexdigest(),
        "last_loss": losses[-1][0],
        **{
            key: lesson.about[key]
            for key in ("commit", "versions", "workload", "strategy", "world", "as_predicted")
        },
        "command": command_text(lesson.command),
    }


def batch(workload, rows, micro):
    settings = (f"batch.global={rows}", f"batch.micro={micro}", f"data.validation_rows={micro}")
    return ["--workload", f"configs/{workload}.json", *sets(settings)]


def equal(runs, names):
    return {
        f"equal_{what}": len({runs[name][f"{what}_sha256"] for name in names}) == 1
        for what in ("weights", "losses")
    }


def of_world(args, result):
    (workload, rows), steps = WORKLOADS[args.world], args.steps or 20
    settings, runs = [*batch(workload, rows * args.world, rows), "--ops"], {}
    for name, (program, ops) in runs_of(args.world).items():
        try:
            runs[name] = measured(args, name, program, args.world, [*settings, ops], steps)
        except Failed as error:
            sys.exit(f"error: {name}: {error}")
    groups = {"all": list(runs)}
    if args.world == 1:
        groups = {ops: [run for run in runs if run.startswith(ops)] for ops in ("deterministic", "fused")}
    said = {ops: {"runs": names, **equal(runs, names)} for ops, names in groups.items()}
    result[f"world {args.world}"] = {"started": now(), "steps": steps, "groups": said, "runs": runs}
    write(args.out, result)
    print(json.dumps(said, indent=1))
    expected = next(iter(said.values()))  # that of fused operations may differ
    return expected["equal_weights"] and expected["equal_losses"]


def tensor_runs(group):
    """Name: (program, ranks, settings, steps)."""
    model, order, gpus = GROUPS[group]
    workload, rows, micro, own, steps = MODELS[model]
    settings = [*batch(workload, rows, micro), *sets(own), "--ops", "deterministic"]
    if order in ORDERS:
        program, more, modes = ORDERS[order]
        of_00 = [RANKS_OF_00[program], str(gpus), *more]
    else:
        program, modes = "11_combined", {"": ["--set", f"mesh={order}"]}
        of_00 = records.order_of_mesh(order)
    return {
        "00_one_device": ("00_one_device", 1, [*settings, *of_00], steps),
        **{
            f"{program} {mode}".strip(): (program, gpus, [*settings, *more], steps)
            for mode, more in modes.items()
        },
    }


def of_tensor_ranks(args, result):
    """What fails, or no longer fits the time, leaves other groups alone."""
    asked, ends, longest, good = (
        list(TWO) if args.tensor == "all" else args.tensor.split(","),
        time.monotonic() + args.seconds,
        0.0,
        True,
    )
    if unknown := [name for name in asked if name not in GROUPS]:
        sys.exit(
            f"error: --tensor: '{unknown[0]}' is none of {', '.join(GROUPS)}\n  fix: --tensor '124M "
            "split,1558M split'"
        )
    commit = args.commit or sources()
    for group in asked:
        if group in result and all(run["commit"] == commit for run in result[group]["runs"].values()):
            print(f"{group}: is in {args.out}", flush=True)
            continue
        began = time.monotonic()
        if began + longest > ends:
            print("the time limit is reached: the same command goes on from here", flush=True)
            return False
        try:
            runs = {
                name: {
                    "lesson": program,
                    **measured(args, f"{group}, {name}", program, ranks, settings, args.steps or steps),
                }
                for name, (program, ranks, settings, steps) in tensor_runs(group).items()
            }
        except Failed as error:
            print(f"error: {group}: {error}", file=sys.stderr, flush=True)
            good = False
            continue
        said = equal(runs, runs)
        good &= all(said.values())
        result[group] = {"started": now(), **said, "runs": runs}
        write(args.out, result)
        longest = max(longest, time.monotonic() - began)
        print(f"{group}: {said}, {time.monotonic() - began:.0f} s", flush=True)
    return good


ASKED = {
    "--world": {"type": int, "default": 1, "choices": sorted(WORKLOADS), "help": "GPUs, one rank each"},
    "--tensor": {
        "nargs": "?",
        "const": "all",
        "metavar": "GROUPS",
        "help": f"lessons 10 to 12: of {', '.join(GROUPS)} (default: all of two GPUs)",
    },
    "--steps": {"type": int, "help": "default: 20; with --tensor 6, of 1558M 3"},
    "--limit": {"type": float, "default": 120, "help": "seconds of a run"},
    "--seconds": {
        "type": float,
        "default": 1e9,
        "help": "with --tensor: no group is begun that would end later",
    },
    "--bin": {
        "type": pathlib.Path,
        "default": pathlib.Path("build/cuda/bin"),
        "help": "where the lessons' programs are",
    },
    **COMMIT,
    "--out": {
        "type": pathlib.Path,
        "help": "the result, which is added to (default: docs/results/gpu_bits.json; with --tensor "
        "gpu_tensor_bits.json)",
    },
}


def main():
    args = arguments(__doc__, ASKED)
    args.bin, name = args.bin.resolve(), "gpu_tensor_bits" if args.tensor else "gpu_bits"
    args.out = args.out or pathlib.Path("docs/results") / f"{name}.json"
    result = kept(args.out, {})
    return 0 if (of_tensor_ranks if args.tensor else of_world)(args, result) else 1


if __name__ == "__main__":
    sys.exit(main())
