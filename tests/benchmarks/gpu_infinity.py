#!/usr/bin/env python3
"""Lesson 06 on one GPU: its step at growing numbers of tokens, next to the raw rate of the same disk: docs/results/gpu_infinity.json.

  python3 tests/benchmarks/gpu_infinity.py --bin build/cuda/bin --commit COMMIT --disk DIR --out gpu_infinity.json

Needs the programs 05_offload and 06_infinity of the cuda preset, and block_io_benchmark of either. The raw rate is measured before,
between and after the runs: reads and writes in turns, 1 MiB each, 16 in flight, in a file of 8 GB.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEEPSPEED = 5_020  # tokens a second of ZeRO-Infinity with states on a disk, 355M, 16 rows of 1024, one H200's host
WORKLOAD = "--workload configs/gpt2_355m.json --set batch.micro=16"
DELAYED = "--set update=delayed --set grads_at=host"
HOST, DISK = ("--set parameters=sharded --set params_at=" + place for place in ("host", "disk"))
# name, rows a step, what else, steps
RUNS = [
    ("exact", 16, "", 14),
    ("exact", 128, "", 12),
    ("delayed", 128, DELAYED, 12),
    ("exact", 512, "", 8),
    ("delayed", 512, DELAYED, 8),
    ("params_host", 16, HOST, 8),
    ("params_disk", 16, DISK, 8),
]
SKIPPED = 3  # steps that are no measurement


def run(bin_folder, lesson, flags, folder):
    command = [str(bin_folder / lesson), "--strategy", f"lessons/{lesson}/config.json", "--device", "cuda", *flags.split(), "--out", str(folder)]
    done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, check=False)
    if done.returncode != 0:
        sys.exit(f"error: {' '.join(command)}: exit {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return json.loads((folder / "record.json").read_text())


def raw(bin_folder, disk):
    """Bytes a second: the kernel's ring alone, and a BlockFile on it, with its sums."""
    said = subprocess.run([bin_folder / "block_io_benchmark", disk, "8", "6", "mixed"], text=True, capture_output=True, check=True).stdout
    ring = float(re.search(r"mixed, io_uring.*: ([\d.]+) GB/s", said)[1])
    file = float(re.search(r"BlockFile io_uring .*mixed ([\d.]+) GB/s", said)[1])
    print("raw", ring, file, flush=True)
    return {"ring": ring * 1e9, "block_file": file * 1e9}


def of_run(record, rows):
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
        "shares": {share["name"]: share["seconds"][0] for share in record.get("timetable", {}).get("shares", [])},
        "bytes": record["ranks"][0]["measured_bytes"],
        "as_predicted": record["as_predicted"],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--commit", required=True)
    parser.add_argument("--disk", required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args()
    bin_folder = args.bin.resolve()
    os.environ["STAGECRAFT_COMMIT"] = args.commit
    result = {"about": "Lesson 06 on one GPU by tokens of a step, next to the raw rate of its disk.", "commit": args.commit, "deepspeed": DEEPSPEED}
    with tempfile.TemporaryDirectory() as scratch:

        def save():
            args.out.write_text(json.dumps(result, indent=1) + "\n")

        result["raw"] = [raw(bin_folder, args.disk)]
        # Without a disk: what the GPU's part of a step takes.
        result["offload"], result["runs"] = [], []
        for rows in (16, 128, 512):
            flags = f"{WORKLOAD} --set batch.global={rows} --set update=delayed --steps {30 if rows == 16 else 9}"
            record = run(bin_folder, "05_offload", flags, pathlib.Path(scratch) / f"offload-{rows}")
            result["offload"].append(of_run(record, rows))
            print("05 delayed", rows, result["offload"][-1]["seconds"], flush=True)
        result["versions"], result["cores"], result["started"] = record["versions"], os.cpu_count(), record["started"]
        for number, (name, rows, more, steps) in enumerate(RUNS):
            flags = f"{WORKLOAD} --set batch.global={rows} --steps {steps} --disk {args.disk} {more}"
            record = run(bin_folder, "06_infinity", flags, pathlib.Path(scratch) / f"{name}-{rows}")
            result["runs"].append({"name": name, **of_run(record, rows)})
            print(name, rows, {k: v for k, v in result["runs"][-1].items() if k != "bytes"}, flush=True)
            save()
            if number in (2, len(RUNS) - 1):
                result["raw"].append(raw(bin_folder, args.disk))
        save()


if __name__ == "__main__":
    main()
