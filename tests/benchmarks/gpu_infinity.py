#!/usr/bin/env python3
"""Lesson 06 on one GPU: its step at growing numbers of tokens, next to the raw rate of the same disk:
docs/results/gpu_infinity.json.

  python3 tests/benchmarks/gpu_infinity.py --bin build/cuda/bin --commit COMMIT --disk DIR \\
    --out gpu_infinity.json

It goes on where an earlier call of the same commit stopped. With --deepspeed --out gpu_infinity_turns.json
instead: lesson 06 and DeepSpeed's ZeRO-Infinity with states on that disk take turns, twice (libaio and its
header: CPATH, LIBRARY_PATH, LD_LIBRARY_PATH, CFLAGS=-I..., LDFLAGS=-L...).

Needs the programs 05_offload and 06_infinity of the cuda preset, and block_io_benchmark of either. The raw
rate is measured before, between and after the runs (with --deepspeed before each pair): reads and writes in
turns, 1 MiB each, 16 in flight, in a file of 8 GB.
"""
import argparse
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

from gpu_programs import Peer
from harness import (
    HERE,
    ROOT,
    arguments_of_runs,
    benchmark_program,
    kept,
    lesson_program,
    out,
    record_in,
    said_by,
    write,
)

WORKLOADS = {
    "355M": "--workload configs/gpt2_355m.json --set batch.micro=16",
    "1558M": "--workload configs/gpt2_1558m.json --set batch.micro=8",
}
DELAYED = "--set update=delayed --set grads_at=host"
HOST, DISK = ("--set parameters=sharded --set params_at=" + place for place in ("host", "disk"))
# Runs: (lesson, model, name, rows a step, other flags, steps). None stands for the disk's raw rate.
RUNS = [
    None,
    # Runs without a disk show how long the GPU's part of a step takes.
    *(
        ("05_offload", "355M", "delayed", rows, "--set update=delayed", steps)
        for rows, steps in ((16, 30), (128, 9), (512, 9))
    ),
    # The second of these runs has ten steps more, so their difference is what the kernel counts for ten
    # steps.
    ("06_infinity", "355M", "exact, few steps", 16, "", 4),
    ("06_infinity", "355M", "exact", 16, "", 14),
    ("06_infinity", "355M", "exact", 128, "", 12),
    ("06_infinity", "355M", "delayed", 128, DELAYED, 12),
    None,
    ("06_infinity", "355M", "exact", 512, "", 8),
    ("06_infinity", "355M", "delayed", 512, DELAYED, 8),
    ("06_infinity", "355M", "params_host", 16, HOST, 8),
    ("06_infinity", "355M", "params_disk", 16, DISK, 8),
    ("06_infinity", "1558M", "exact", 64, "", 6),
    None,
]
PAIR = [("06_infinity", "355M", "exact", 16, "", 7), ("deepspeed", "355M", "states", 16, "", 7)]
TURNS = [None, *PAIR, None, *PAIR]  # with --deepspeed
SKIPPED = 3  # steps that are no measurement
PARTS = ("raw", "offload", "runs")  # of the result


def run(program, flags, folder):
    """A run's record, and what the system says of its process: bytes over the disk, most memory at a time."""
    words = ["--strategy", f"lessons/{program.name}/config.json", "--device", "cuda", *flags.split()]
    command, said = [str(program), *words, "--out", str(folder)], folder.with_suffix(".txt")
    with said.open("w") as file:
        process = subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(
            f"error: {' '.join(command)}: exit "
            f"{os.waitstatus_to_exitcode(status)}\n{said.read_text()[-4000:]}"
        )
    return record_in(folder), {
        "read": used.ru_inblock * 512,
        "written": used.ru_oublock * 512,
        "peak_host": used.ru_maxrss * 1024,
    }


def raw(program, disk):
    """Bytes a second: the kernel's ring alone, and a BlockFile on it, with its sums."""
    said = said_by([program, disk, "8", "6", "mixed"])
    ring = float(re.search(r"mixed, io_uring.*: ([\d.]+) GB/s", said)[1])
    file = float(re.search(r"BlockFile io_uring .*mixed ([\d.]+) GB/s", said)[1])
    print("raw", ring, file, flush=True)
    return {"ring": ring * 1e9, "block_file": file * 1e9}


def of_run(record, rows, system):
    operations = record["ranks"][0]["measured_operations"]
    seconds = record["steps"]["seconds"][SKIPPED:]
    median, tokens = statistics.median(seconds), record["steps"]["tokens"][0]
    disk = sum(4 * op["count"] * op["elements"] for op in operations if op["kind"].startswith("disk_"))
    return {
        "rows": rows,
        "tokens": tokens,
        "seconds": median,
        "tokens_per_second": tokens / median,
        "disk_bytes": disk,
        "disk_rate": disk / median,
        "shares": {
            share["name"]: share["seconds"][0] for share in record.get("timetable", {}).get("shares", [])
        },
        "bytes": record["ranks"][0]["measured_bytes"],
        "as_predicted": record["as_predicted"],
        "system": system,
    }


def of_deepspeed(program, model, rows, steps, disk):
    """States on the disk; so are, with DeepSpeed, fp32 gradients between backward and update."""
    workload = WORKLOADS[model].split()[1]
    peer = Peer(
        program,
        ["--workload", ROOT / workload, "--rows", rows, "--stage", 3, "--nvme", disk, "--attention", "cudnn"],
    )
    try:
        peer.start()
        while not peer.poll():
            time.sleep(0.05)
        turn = peer.measure(SKIPPED, steps - SKIPPED, time.monotonic() + 300.0)
    finally:
        about = peer.close(0.0)
    about["config"]["zero_optimization"]["offload_optimizer"].pop("nvme_path")  # of this machine
    median = statistics.median(turn["seconds"])
    return {
        "rows": rows,
        "tokens": turn["tokens"],
        "seconds": median,
        "tokens_per_second": turn["tokens"] / median,
        "about": about,
    }


def measured(what, args, disk_benchmark, programs, folder):
    """For a line of RUNS: the part of the result that it belongs to, what was found, and facts of the
    machine."""
    if what is None:
        return "raw", raw(disk_benchmark, args.disk), {}
    lesson, model, name, rows, more, steps = what
    said = {"name": name, "model": model, "workload": WORKLOADS[model]}
    if lesson == "deepspeed":
        found = of_deepspeed(args.deepspeed_peer, model, rows, steps, args.disk)
        print(*what, found["tokens_per_second"], flush=True)
        return "runs", {**said, "name": lesson, **found}, {}
    disk = "" if lesson == "05_offload" else f"--disk {args.disk}"
    flags = f"{WORKLOADS[model]} --set batch.global={rows} --steps {steps} {disk} {more}"
    record, system = run(programs[lesson], flags, folder)
    found = of_run(record, rows, system)
    print(*what, {k: v for k, v in found.items() if k != "bytes"}, flush=True)
    machine = {"versions": record["versions"], "cores": os.cpu_count(), "started": record["started"]}
    return ("offload", found, machine) if lesson == "05_offload" else ("runs", {**said, **found}, machine)


ASKED = {
    "--disk": {"required": True},
    **out(),
    "--deepspeed": {"action": "store_true", "help": "lesson 06 and DeepSpeed in turns"},
    "--deepspeed-peer": {"default": HERE / "torch_deepspeed.py", "help": argparse.SUPPRESS},  # for tests
}


def main():
    args = arguments_of_runs(__doc__, ASKED, required=True)
    disk_benchmark = benchmark_program(args.bin, "block_io_benchmark")
    lessons = ("06_infinity",) if args.deepspeed else ("05_offload", "06_infinity")
    programs = {lesson: lesson_program(args.bin, lesson) for lesson in lessons}  # before minutes of any
    new = {
        "about": "Lesson 06 on one GPU by tokens of a step, next to the raw rate of its disk.",
        "commit": args.commit,
        **{part: [] for part in PARTS},
    }
    result = kept(args.out, new)
    if result["commit"] != args.commit:
        sys.exit(f"error: {args.out} is of commit {result['commit']}: move it away")
    done = sum(len(result[part]) for part in PARTS)
    with tempfile.TemporaryDirectory() as scratch:
        for number, what in enumerate((TURNS if args.deepspeed else RUNS)[done:]):
            folder = pathlib.Path(scratch) / str(number)
            part, found, facts = measured(what, args, disk_benchmark, programs, folder)
            result |= facts
            result[part].append(found)
            write(args.out, result)


if __name__ == "__main__":
    main()
