#!/usr/bin/env python3
"""Tokens a second of a small model in eager PyTorch: the peer of 00_one_device on one CPU thread.

The same GPT-2 (tied head, vocabulary padded to a multiple of 128, no dropout) and the same work a step (rows
in micro-batches, gradient accumulation, clip, fused AdamW), all read from the workload. Random tokens: speed
does not depend on their values. Needs the oracle packages (setup.sh --oracle).

  python3 tests/benchmarks/torch_tiny.py [--workload tests/workloads/four_blocks.json] [--threads 1]
          [--steps 20] [--forward-backward]
"""
import json
import pathlib
import statistics
import time
import types

import torch
import torch.nn.functional as F
from harness import ROOT, arguments
from torch import nn
from torch_gpt2 import Gpt2


class Gpt(Gpt2):
    """With the logits of the vocabulary alone, and a sum of losses, as lesson 00 has them."""

    def __init__(self, shape):
        super().__init__(shape, torch.float32)
        self.vocab = shape.vocab

    def loss(self, x, targets):
        logits = F.linear(self.ln_f(x), self.wte.weight)[..., : self.vocab]
        return F.cross_entropy(logits.reshape(-1, self.vocab), targets.reshape(-1), reduction="sum")


ASKED = {
    "--workload": {"type": pathlib.Path, "default": ROOT / "tests/workloads/four_blocks.json"},
    "--threads": {"type": int, "default": 1},
    "--steps": {"type": int, "default": 20},
    "--forward-backward": {"action": "store_true", "help": "no clip and no optimizer in the timed part"},
}


def main():
    args = arguments(__doc__, ASKED)
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    workload = json.loads(args.workload.read_text())
    shape, batch, optim_config = workload["model"], workload["batch"], workload["optim"]
    length, rows_a_step, micro = batch["sequence"], batch["global"], batch["micro"]
    model = Gpt(types.SimpleNamespace(**shape))
    optim = torch.optim.AdamW(
        model.parameters(),
        lr=optim_config["lr"],
        weight_decay=optim_config["weight_decay"],
        betas=(optim_config["beta1"], optim_config["beta2"]),
        fused=True,
    )
    data = torch.randint(0, shape["vocab"], (rows_a_step, length + 1))
    scale = 1.0 / (rows_a_step * length)
    times = []
    for step in range(args.steps + 5):
        begin = time.perf_counter()
        loss_sum = 0.0
        for row in range(0, rows_a_step, micro):
            rows = data[row : row + micro]
            loss = model(rows[:, :-1], rows[:, 1:]) * scale
            loss.backward()
            loss_sum += loss.item()
        if not args.forward_backward:
            nn.utils.clip_grad_norm_(model.parameters(), optim_config["clip"])
            optim.step()
        optim.zero_grad(set_to_none=True)
        if step >= 5:  # warm-up
            times.append(time.perf_counter() - begin)
    median = statistics.median(times)
    print(
        f"torch {torch.__version__} threads {args.threads} loss {loss_sum:.4f} "
        f"median {median * 1e3:.2f} ms/step spread {min(times) * 1e3:.2f}..{max(times) * 1e3:.2f} "
        f"{rows_a_step * length / median:.0f} tok/s"
    )


if __name__ == "__main__":
    main()
