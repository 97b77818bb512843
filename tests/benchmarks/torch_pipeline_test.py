#!/usr/bin/env python3
"""The peer of lesson 07 on the CPU: stages on several ranks learn what torch_gpt2.py learns on one, from the same rows.

Needs PyTorch for Python (common/setup/setup.sh --oracle): without it the test is skipped (77)."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

from torch_gpt2_test import HERE, PYTHON, check, token_file

SHAPE = {"layers": 3, "heads": 2, "width": 16, "vocab": 130, "context": 12, "sequence": 8}
FLAGS = [word for key, value in SHAPE.items() for word in (f"--{key}", str(value))]
ASK = '{"warm_up": 1, "steps": 8}\n'


def run(script, *flags):
    command = [sys.executable, HERE / script, *FLAGS, "--device", "cpu", "--mode", "eager", *flags]
    return subprocess.run(command, input=ASK, capture_output=True, text=True, check=False)


def losses(script, *flags):
    said = run(script, *flags)
    check(said.returncode == 0, said.stderr)
    ready, answer = map(json.loads, said.stdout.splitlines())
    # ln_f; three blocks; wte, once; wpe.
    check(ready["parameters"] == 2 * 16 + 3 * (12 * 16**2 + 13 * 16) + 256 * 16 + 12 * 16, f"{ready}")
    check(answer["tokens"] == 8 * 8, f"the ranks share 8 rows: {answer}")
    return ready, answer["losses"]


def workload_in(folder):
    """eps is so large that an update is as long as the clipped gradient, which AdamW would hide otherwise; every gradient is clipped."""
    workload = json.loads((HERE.parents[1] / "configs/tiny.json").read_text())
    workload["optim"].update({"eps": 1.0, "lr": 4.0, "clip": 0.05, "weight_decay": 0.0})
    path = pathlib.Path(folder) / "workload.json"
    path.write_text(json.dumps(workload))
    tokens = token_file(folder, [i % 10 for i in range(4096)])  # that 9 steps can learn from
    return ["--workload", path, "--tokens", tokens]


def learn_as_one_rank():
    with tempfile.TemporaryDirectory() as folder:
        same = workload_in(folder)
        one = {
            v: losses("torch_gpt2.py", *same, "--rows", "8", "--variant", v)[1] for v in ("fp32", "autocast")
        }
        learned = one["fp32"][0] - one["fp32"][-1]
        check(learned > 0.1, f"{one}")
        # Sums in another order: a few units of 2^-24 in losses of about 5. In bf16 every gradient is rounded for each micro-batch.
        for variant, schedule, split, allowed in (
            ("fp32", "1f1b", "2,1", 1e-5),
            ("fp32", "gpipe", "1,1,1", 1e-5),
            ("autocast", "1f1b", "1,2", 0.01 * learned),
        ):
            ranks = str(len(split.split(",")))
            flags = ["--ranks", ranks, "--split", split, "--schedule", schedule, "--variant", variant]
            ready, found = losses("torch_pipeline.py", *same, "--rows", "2", "--micro-batches", "4", *flags)
            check(
                (ready["schedule"], ready["micro_batches"], ready["split"]) == (schedule, 4, split),
                f"{ready}",
            )
            apart = max(abs(a - b) for a, b in zip(found, one[variant], strict=True))
            check(apart < allowed, f"{variant}, {schedule}, {split}: {apart} apart: {found}, {one[variant]}")


def refuses():
    workload = ["--workload", HERE.parents[1] / "configs/tiny.json", "--micro-batches", "4"]
    for flags in (["--split", "3"], ["--ranks", "2", "--split", "1,1"], ["--ranks", "2", "--split", "3,0"]):
        said = run("torch_pipeline.py", *workload, *flags)
        check(said.returncode == 2 and "3 blocks in all" in said.stderr, f"{flags}: {said}")


if __name__ == "__main__":
    if not PYTHON.exists():
        print("skipped: .deps/oracle is not installed (common/setup/setup.sh --oracle)")
        sys.exit(77)
    if pathlib.Path(sys.prefix).resolve() != PYTHON.parents[1].resolve():
        os.execv(PYTHON, [PYTHON, *sys.argv])
    learn_as_one_rank()
    refuses()
    print("passed")
