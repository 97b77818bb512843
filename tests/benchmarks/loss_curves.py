#!/usr/bin/env python3
"""Loss curves of runs of one workload, which may differ in precision.* alone, beside each other.

Losses are averaged over windows of ten steps. The first run is the reference; the result says how far the
others go from it, and fails where that is more than --limit.

  python3 tests/benchmarks/loss_curves.py
          GPT-2 124M by lesson 00 on one GPU in four precisions, one after the other, with clocks and power:
          docs/results/gpu_precision_124m.json
  python3 tests/benchmarks/loss_curves.py runs/a/record.json runs/b/record.json [--out x.json]
          runs that were made before
"""
import json
import pathlib
import shlex
import sys
import tempfile
import time

from gpu_programs import Failed, Lesson
from gpu_watch import Watch, machine
from harness import (
    BIN,
    COMMIT,
    arguments,
    command_text,
    lesson_program,
    name_of,
    own_command,
    record_in,
    sets,
    sources,
    write,
)

WINDOW = 10
SETTINGS = ("--workload", "configs/gpt2_124m.json", "--set", "batch.global=8", "--set", "batch.micro=8")
PRECISIONS = (("fp32", "same"), ("bf16", "same"), ("fp16", "same"), ("bf16", "fp32"))  # dtype, grad_dtype


def windows(losses):
    return [sum(losses[i : i + WINDOW]) / WINDOW for i in range(0, len(losses) - WINDOW + 1, WINDOW)]


def precision_of(record):
    kept = {
        key.split(".")[1]: value for key, value in record["workload"].items() if key.startswith("precision.")
    }
    return f"{kept['dtype']}, gradients {kept['grad_dtype']}"


def made(args, folder):
    """(record, power) of each precision: clocks and watts are of the steps alone."""
    program, commit, watch = lesson_program(args.bin, "00_one_device"), args.commit or sources(), Watch()
    try:
        for dtype, gradients in PRECISIONS:
            own = sets((f"precision.dtype={dtype}", f"precision.grad_dtype={gradients}"))
            settings = [*SETTINGS, *own, "--device", "cuda"]
            lesson = Lesson(program, settings, 1, folder / "run", False, 1, {"STAGECRAFT_COMMIT": commit})
            turn = lesson.measure(0, args.steps, time.monotonic() + args.seconds)
            power = watch.between(turn["began"], turn["ended"], 1)
            yield {**record_in(lesson.folder), "command": command_text(lesson.command)}, power
    finally:
        watch.stop()


def read(paths):
    for path in paths:
        record = json.loads(pathlib.Path(path).read_text())
        yield {**record, "command": command_text(shlex.split(record["command"]))}, None


def common(records):
    """What all have in common; ends where they are of different workloads or sources, or one of them
    failed."""
    work = [
        {key: name_of(value) for key, value in r["workload"].items() if not key.startswith("precision.")}
        for r in records
    ]
    for wrong, why in (
        (
            any(other != work[0] for other in work),
            "the records are of different workloads\n  fix: compare runs that differ in precision.* alone",
        ),
        (
            len({r["commit"] for r in records}) > 1,
            "the records are of different commits\n  fix: make them again with one build",
        ),
        (
            any(r["exit_code"] != 0 or not r["as_predicted"] for r in records),
            "a run failed, or did not hold what was predicted\n  fix: see its record.json",
        ),
    ):
        if wrong:
            sys.exit(f"error: {why}")
    return {
        "commit": records[0]["commit"],
        "workload": work[0],
        "window": WINDOW,
        **{key: records[0][key] for key in ("device", "world", "versions", "started")},
    }


def curve(record, power, reference):
    losses = windows(record["steps"]["loss"])
    largest = max(abs(a - b) / b for a, b in zip(losses, reference, strict=True))
    return {
        "precision": precision_of(record),
        "command": record["command"],
        "largest_difference": round(largest, 5),
        "validation_loss": round(record["validation_loss"], 4),
        "skipped_updates": record["skipped_updates"],
        "tokens_per_second": round(record["timing"]["tokens_per_second"]),
        "power": power,
        "loss": [round(x, 4) for x in losses],
    }


ASKED = {
    "records": {"nargs": "*", "help": "of runs that were made before; none: the runs are made here"},
    "--limit": {"type": float, "default": 0.02, "help": "largest relative difference of a window"},
    "--out": {"help": "the result (default, where runs are made: docs/results/gpu_precision_124m.json)"},
    **BIN,
    "--steps": {"type": int, "default": 300},
    "--seconds": {"type": float, "default": 300, "help": "limit of one run"},
    **COMMIT,
}


def main():
    args = arguments(__doc__, ASKED)
    out = args.out or (None if args.records else "docs/results/gpu_precision_124m.json")
    with tempfile.TemporaryDirectory(prefix="stagecraft_curves_") as folder:
        try:
            found = list(read(args.records) if args.records else made(args, pathlib.Path(folder)))
        except Failed as error:
            sys.exit(f"error: {error}")
    said = common([record for record, _ in found])
    reference = windows(found[0][0]["steps"]["loss"])
    runs = [curve(record, power, reference) for record, power in found]
    for run in runs:
        print(
            f"{run['precision']}: {100 * run['largest_difference']:.2f} % from the first, validation "
            f"{run['validation_loss']}, {run['tokens_per_second']} tok/s"
        )
    if out:
        origin = {
            "command": own_command("loss_curves.py"),
            **({} if args.records else {"machine": machine()}),
        }
        write(pathlib.Path(out), {**origin, **said, "runs": runs})
    if max(run["largest_difference"] for run in runs) > args.limit:
        sys.exit(f"error: a curve is more than {100 * args.limit} % away")


if __name__ == "__main__":
    main()
