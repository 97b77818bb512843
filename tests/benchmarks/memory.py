#!/usr/bin/env python3
"""Bytes by purpose of runs on the CPU, predicted and measured, and plans of runs on GPUs: docs/results/memory.json.

Nothing here depends on the machine's speed: made again, the file is the same but for commit and versions. Needs build/cpu
(tests/run.sh), or --bin.

  tests/benchmarks/memory.py [--bin build/cpu/bin] [--out docs/results/memory.json]
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORKLOAD = "tests/workloads/four_blocks.json"
STEPS = 2  # the second is the one that is checked
RUNS = (("00_one_device", 1, []),
        ("00_one_device", 1, ["activations=recompute_gelu"]),
        ("00_one_device", 1, ["activations=recompute"]),
        ("00_one_device", 1, ["batch.micro=6"]),
        ("00_one_device", 1, ["batch.micro=6", "head_chunk=128"]),
        ("00_one_device", 1, ["model.tied=off"]),
        ("01_data_parallel", 1, []),
        ("01_data_parallel", 2, []),
        ("01_data_parallel", 4, []))
PLANS = ("gpt2_124m", "gpt2_355m", "gpt2_774m", "gpt2_1558m")
BUFFER = re.compile(r"^(?:  [a-z]+ +[\d.]+ [kMG]?B|\s+) +(\S.*?) {2,}([\d,]+) {1,}= (.+)$", re.M)


def command_of(lesson, ranks, settings):
    sets = "".join(f" --set {one}" for one in settings)
    return f"lessons/{lesson}/run.sh{f' -n {ranks}' if ranks > 1 else ''} --workload {WORKLOAD} --steps {STEPS}{sets}"


def words_of(program, lesson, settings):
    return [str(program / lesson), "--workload", WORKLOAD, "--strategy", f"lessons/{lesson}/config.json",
            *(word for one in settings for word in ("--set", one))]


def run(words, ranks=1):
    mpirun = ["mpirun", "-q", "-n", str(ranks), "--oversubscribe", "--bind-to", "none"] if ranks > 1 else []
    done = subprocess.run([*mpirun, *words], cwd=ROOT, text=True, capture_output=True, check=False,
                          env={**os.environ, "OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
    if done.returncode != 0:
        sys.exit(f"error: {' '.join(words)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def measured(program, lesson, ranks, settings):
    with tempfile.TemporaryDirectory() as out:
        run([*words_of(program, lesson, settings), "--steps", str(STEPS), "--threads", "1", "--out", out], ranks)
        record = json.loads((pathlib.Path(out) / "record.json").read_text())
    rank = record["ranks"][0]
    return record, {"command": command_of(lesson, ranks, settings), "lesson": lesson, "world": ranks, "settings": settings,
                    "predicted_bytes": rank["predicted_bytes"], "measured_bytes": rank["measured_bytes"], "as_predicted": record["as_predicted"]}


def planned(program, workload):
    """The buffers of lesson 00's plan on a GPU, as --plan prints them."""
    said = run([str(program / "00_one_device"), "--plan", "--world", "1", "--device", "cuda", "--workload", f"configs/{workload}.json",
                "--strategy", "lessons/00_one_device/config.json"])
    buffers = {name: int(count.replace(",", "")) for name, count, _ in BUFFER.findall(said)}
    total = int(re.search(r"^  total .* ([\d,]+)$", said, re.M)[1].replace(",", ""))
    if sum(buffers.values()) - buffers["tokens_staging"] != total:
        sys.exit(f"error: the buffers of {workload} do not add up to its total\n{said}")
    return {"command": f"lessons/00_one_device/run.sh --plan --device cuda --workload configs/{workload}.json", "buffers": buffers, "total": total}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/cpu/bin")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs/results/memory.json")
    args = parser.parse_args()
    program = args.bin.resolve()
    runs = []
    for one in RUNS:
        record, row = measured(program, *one)
        runs.append(row)
        print(f"{row['command']}: {row['measured_bytes']['total']:,} bytes, as predicted: {row['as_predicted']}")
    result = {"about": __doc__.split("\n", maxsplit=1)[0], "commit": record["commit"], "versions": record["versions"], "threads": 1,
              "runs": runs, "plans": {workload: planned(program, workload) for workload in PLANS}}
    args.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
