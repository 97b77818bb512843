#!/usr/bin/env python3
"""The peer of lesson 07 on the CPU: stages on several ranks learn what torch_gpt2.py learns on one, from the same rows.

Needs PyTorch for Python (common/setup/setup.sh --oracle): without it the test is skipped (77)."""
import tempfile

from torch_gpt2_test import TINY, apart, check, losses, main, run, workload_in


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
            far = apart(found, one[variant])
            check(far < allowed, f"{variant}, {schedule}, {split}: {far} apart: {found}, {one[variant]}")


def refuses():
    workload = ["--workload", TINY, "--micro-batches", "4"]
    for flags in (["--split", "3"], ["--ranks", "2", "--split", "1,1"], ["--ranks", "2", "--split", "3,0"]):
        said = run("torch_pipeline.py", *workload, *flags)
        check(said.returncode == 2 and "3 blocks in all" in said.stderr, f"{flags}: {said}")


if __name__ == "__main__":
    main(learn_as_one_rank, refuses)
