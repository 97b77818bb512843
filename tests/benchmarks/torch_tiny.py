#!/usr/bin/env python3
"""Tokens a second of a small model in eager PyTorch: the peer of 00_one_device on one CPU thread.

The same GPT-2 (tied head, vocabulary padded to a multiple of 128, no dropout) and the same work a step (rows in
micro-batches, gradient accumulation, clip, fused AdamW), all read from the workload. Random tokens: speed does not
depend on their values. Needs the oracle packages (setup.sh --oracle).

  python3 tests/benchmarks/torch_tiny.py [--workload tests/workloads/four_blocks.json] [--threads 1] [--steps 20] [--forward-backward]
"""
import argparse
import json
import pathlib
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.attn_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.mlp_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        rows, length, width = x.shape
        qkv = self.c_attn(self.ln_1(x)).view(rows, length, 3, self.heads, width // self.heads)
        q, k, v = (qkv.select(2, i).transpose(1, 2) for i in range(3))
        att = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn_proj(att.transpose(1, 2).reshape(rows, length, width))
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, vocab, padded, context, width, heads, layers):
        super().__init__()
        self.vocab = vocab
        self.wte, self.wpe = nn.Embedding(padded, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)[..., : self.vocab]
        return F.cross_entropy(logits.reshape(-1, self.vocab), targets.reshape(-1), reduction="sum")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--workload",
        type=pathlib.Path,
        default=pathlib.Path(__file__).parents[1] / "workloads/four_blocks.json",
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument(
        "--forward-backward", action="store_true", help="no clip and no optimizer in the timed part"
    )
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    workload = json.loads(args.workload.read_text())
    shape, batch, optim_config = workload["model"], workload["batch"], workload["optim"]
    length, vocab, rows_a_step, micro = batch["sequence"], shape["vocab"], batch["global"], batch["micro"]
    model = Gpt(
        vocab, (vocab + 127) // 128 * 128, shape["context"], shape["width"], shape["heads"], shape["layers"]
    )
    optim = torch.optim.AdamW(
        model.parameters(),
        lr=optim_config["lr"],
        weight_decay=optim_config["weight_decay"],
        betas=(optim_config["beta1"], optim_config["beta2"]),
        fused=True,
    )
    data = torch.randint(0, vocab, (rows_a_step, length + 1))
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
