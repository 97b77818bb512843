#!/usr/bin/env python3
"""What the number format alone changes: lesson 00 on the small 355M run (batch 4 x 512, one GPU) in fp32,
fp16 and bf16, in turns.

The workloads differ in precision.dtype, and by what follows from it: 16-bit runs keep an fp32 master, fp16
scales its loss. fp32 products are computed without TF32: neither --ops fused (CUBLAS_COMPUTE_32F) nor
LibTorch's default uses it, and here NVIDIA_TF32_OVERRIDE=0 forbids it to the libraries.

  tests/benchmarks/gpu.sh --dtype-only [--rounds 3] [--out docs/results/gpu_dtype_only.json]
"""
import dataclasses
import json
import pathlib
import sys
import tempfile

import gpu_table
from gpu import ROWS, Bench
from gpu_programs import Failed, Lesson, OutOfTime
from harness import (
    BIN,
    COMMIT,
    arguments,
    command_text,
    lesson_program,
    now,
    out,
    own_command,
    sets,
    sources,
    write,
)

DTYPES = ("fp32", "fp16", "bf16")
EPOCH = 250  # steps, as the workload has it
WHAT = (
    "one program, one workload, precision.dtype alone differs (16-bit runs keep an fp32 master, fp16 scales "
    "its loss); fp32 without TF32 (CUBLAS_COMPUTE_32F, NVIDIA_TF32_OVERRIDE=0); epoch_seconds is the median "
    "step x 250, not a run of an epoch; ratios are of steps within a round"
)


def lesson(args, row, dtype, folder):
    settings = sets((f"precision.dtype={dtype}", f"data.validation_rows={row.rows}"))
    return Lesson(
        lesson_program(args.bin, "00_one_device"),
        ["--workload", f"configs/{row.workload}.json", *settings, "--device", "cuda"],
        1,
        folder / dtype,
        True,
        args.rounds,
        {"NVIDIA_TF32_OVERRIDE": "0"},
    )


def same_work(programs):
    """The workload that all have in common; an error where more differs than precision, or where one did not
    end."""
    if not all("workload" in program for program in programs.values()):
        raise OutOfTime()
    work = [{k: v for k, v in p["workload"].items() if k != "precision.dtype"} for p in programs.values()]
    if any(other != work[0] for other in work):
        sys.exit("error: the runs differ in more than precision.dtype")
    return work[0]


def evaluate(rounds, programs):
    """Seconds a step and an epoch of each dtype, and fp32 over the others within a round."""
    for name, program in programs.items():
        median = gpu_table.median_of({"rounds": rounds}, name, "median_seconds")
        program.update({"median_seconds": median, "epoch_seconds": median * EPOCH})
    pairs = [r["programs"] for r in rounds]
    return {
        f"fp32_over_{name}": gpu_table.spread(
            [p["fp32"]["median_seconds"] / p[name]["median_seconds"] for p in pairs]
        )
        for name in DTYPES[1:]
    }


def measure(args, folder):
    row = ROWS["seed"]
    warm_up = row.warm_up if args.warm_up is None else args.warm_up
    row = dataclasses.replace(row, steps=args.steps or row.steps, warm_up=warm_up)
    bench = Bench(args.seconds, folder)
    lessons = {dtype: lesson(args, row, dtype, bench.folder) for dtype in DTYPES}
    rounds, programs = [], {}
    try:
        while len(rounds) < args.rounds:
            if not bench.fits(rounds):
                raise OutOfTime()
            cells, failures = bench.round(
                lessons, list(DTYPES), row, row.config()["batch"]["sequence"], dict.fromkeys(DTYPES, 1)
            )
            if failures:
                raise Failed("\n".join(f"{name}: {text}" for name, text in failures.items()))
            rounds.append(cells)
            print(
                "  ".join(
                    f"{name} {1e3 * c['median_seconds']:.2f} ms" for name, c in cells["programs"].items()
                ),
                flush=True,
            )
        for name, program in lessons.items():
            command = command_text(program.command)
            programs[name] = {**program.close(bench.deadline), "command": command}
    finally:
        for program in lessons.values():
            program.close(0.0)
        bench.watch.stop()
    workload, ratios = same_work(programs), evaluate(rounds, programs)
    return {
        "about": WHAT,
        "started": now(),
        "commit": args.commit or sources(),
        "command": own_command("dtype_only.py"),
        "machine": bench.machine,
        "workload": workload,
        "timed_steps": row.steps,
        "warm_up": row.warm_up,
        "epoch_steps": EPOCH,
        "programs": programs,
        "ratios": ratios,
        "rounds": rounds,
    }


ASKED = {
    **out(pathlib.Path("docs/results/gpu_dtype_only.json")),
    **BIN,
    "--rounds": {"type": int, "default": 3},
    "--steps": {"type": int, "help": "timed steps of a turn"},
    "--warm-up": {"type": int, "help": "steps before them"},
    "--seconds": {"type": float, "help": "no round is started that would end later"},
    **COMMIT,
}


def main():
    args = arguments(__doc__, ASKED)
    with tempfile.TemporaryDirectory(prefix="stagecraft_bench_") as folder:
        try:
            result = measure(args, folder)
        except Failed as error:
            sys.exit(f"error: {error}")
        except OutOfTime:
            sys.exit("error: the time limit was reached\n  fix: more --seconds, or fewer --rounds")
    write(args.out, result)
    for name, program in result["programs"].items():
        print(
            f"{name}: {1e3 * program['median_seconds']:.2f} ms a step, {program['epoch_seconds']:.1f} s an "
            f"epoch of {EPOCH} steps, peak {program['bytes_measured'] / 2**30:.2f} GiB"
        )
    print(json.dumps(result["ratios"]))


if __name__ == "__main__":
    main()
