#!/usr/bin/env python3
"""Do lessons 00 to 04 still compute the same bits, hold the same bytes and send the same messages as another build of them?

usage: tests/bits.py --store FILE [--bin DIR]      runs every case with the programs of DIR and writes what it ended in
       tests/bits.py --against FILE [--bin DIR]    runs them again and compares; exit 1 where anything differs
  --bin DIR   where the lessons' programs are (default: build/cpu/bin)
  -k WORD     only cases whose name contains it
  --workload  default: tests/workloads/four_blocks.json

A case is 20 steps: the SHA-256 of the file that --save writes, of losses and norms, and what was predicted. Bits depend on the processor,
so FILE belongs to one machine: store it from a build of the commit to compare with (git worktree add), under build/.
"""
import argparse
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
LESSONS = ("01_data_parallel", "02_zero1", "03_zero2", "04_zero3")
SETTINGS = {"default": (), "recompute": ("activations=recompute",), "micro 3": ("batch.micro=3",)}
OF_ONE_LESSON = {("03_zero2", "bucket"): ("bucket=50000",), ("04_zero3", "persist"): ("persist_below=1000",),
                 ("04_zero3", "prefetch"): ("prefetch=2",), ("04_zero3", "no reshard"): ("reshard_after_forward=false",)}


def cases():
    """(name, program, ranks, arguments)"""
    for world in (1, 2, 3, 4):
        for label, settings in SETTINGS.items():
            if label == "micro 3" and world == 3:
                continue  # 12 rows are not 3 ranks of whole micro-batches of 3
            for lesson in LESSONS:
                yield f"{lesson} x{world} {label}", lesson, world, sets(settings)
            for every in ("step", "micro_batch"):
                order = [f"--virtual-ranks={world}", f"--reduce-every={every}"]
                yield f"00_one_device as {world} {every} {label}", "00_one_device", 1, sets(settings) + order
        for (lesson, label), settings in OF_ONE_LESSON.items():
            yield f"{lesson} x{world} {label}", lesson, world, sets(settings)
    yield "00_one_device split", "00_one_device", 1, ["--tied-sum=split"]


def sets(settings):
    return [word for setting in settings for word in ("--set", setting)]


def run(program, ranks, arguments, workload):
    launcher = ["mpirun", "-q", "--oversubscribe", "--bind-to", "none", "-n", str(ranks)] if ranks > 1 else []
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "STAGECRAFT_TERMINAL": "0"}
    with tempfile.TemporaryDirectory() as folder:
        weights = pathlib.Path(folder, "weights.safetensors")
        command = [*launcher, program, "--workload", workload, "--steps", "20", "--threads", "1", "--set", "data.validation_batches=1",
                   "--save", weights, "--out", pathlib.Path(folder, "run"), *arguments]
        done = subprocess.run([str(word) for word in command], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return {"failed": f"exit {done.returncode}: {done.stderr[-500:]}"}
        record = json.loads(next(pathlib.Path(folder).rglob("record.json")).read_text())
        lines = [json.loads(line) for line in next(pathlib.Path(folder).rglob("steps.jsonl")).read_text().splitlines()]
        numbers = json.dumps([(line["loss"], line["grad_norm"]) for line in lines] + [record["validation_loss"]])
        return {"weights": hashlib.sha256(weights.read_bytes()).hexdigest(), "losses": hashlib.sha256(numbers.encode()).hexdigest(),
                "predicted": {key: record[key] for key in ("memory", "operations") if key in record}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--store", type=pathlib.Path)
    what.add_argument("--against", type=pathlib.Path)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/cpu/bin")
    parser.add_argument("--workload", type=pathlib.Path, default=ROOT / "tests/workloads/four_blocks.json")
    parser.add_argument("-k", default="")
    options = parser.parse_args()
    options.workload = options.workload.resolve()
    old = json.loads(options.against.read_text()) if options.against else {}
    new, different = {}, 0
    for name, program, ranks, arguments in cases():
        if options.k not in name:
            continue
        new[name] = run((options.bin / program).resolve(), ranks, arguments, options.workload)
        if options.against:
            same = "failed" not in new[name] and new[name] == old.get(name)
            different += not same
            if not same:
                parts = [part for part in {**new[name], **old.get(name, {})} if new[name].get(part) != old.get(name, {}).get(part)]
                print(f"differs: {name}: {', '.join(parts)} {new[name].get('failed', '')}", flush=True)
    if options.store:
        options.store.write_text(json.dumps(new, indent=1) + "\n")
    failed = [name for name, result in new.items() if "failed" in result]
    print(f"{len(new)} cases, {len(failed)} failed" + (f", {different} differ" if options.against else ", stored"))
    return 1 if failed or different else 0


if __name__ == "__main__":
    sys.exit(main())
