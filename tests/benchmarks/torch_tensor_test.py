#!/usr/bin/env python3
"""The peer of lesson 10 on the CPU: two ranks with cut matrices have the losses of torch_gpt2.py on one, from the same weights and rows.

Needs PyTorch for Python (common/setup/setup.sh --oracle): without it the test is skipped (77)."""
import tempfile

from torch_gpt2_test import TINY, apart, check, losses, main, run, workload_in


def learn_as_one_rank():
    """A wrong first loss, gradient or norm would show in every loss that follows."""
    with tempfile.TemporaryDirectory() as folder:
        same = [*workload_in(folder), "--rows", "8"]
        _, one = losses("torch_gpt2.py", *same, "--variant", "fp32")
        learned = one[0] - one[-1]
        check(learned > 0.1, f"{one}")
        # Sums in another order: a few units of 2^-24 in losses of about 5. In bf16 everything is rounded.
        # Without CUDA async TP is sp, in products of another form.
        for variant, cut, allowed in (
            ("fp32", "tp", 1e-5),
            ("fp32", "sp", 1e-5),
            ("autocast", "async", 0.05 * learned),
        ):
            ready, found = losses(
                "torch_tensor.py", *same, "--ranks", "2", "--cut", cut, "--variant", variant
            )
            check(ready["cut"] == cut, f"{ready}")
            far = apart(found, one)
            check(far < allowed, f"{variant}, {cut}: {far} apart: {found}, {one}")


def refuses():
    workload = ["--workload", TINY]
    said = run("torch_tensor.py", *workload, "--ranks", "3", "--cut", "sp")
    check(said.returncode == 2 and "divide heads, width, sequence" in said.stderr, f"{said}")


if __name__ == "__main__":
    main(learn_as_one_rank, refuses)
