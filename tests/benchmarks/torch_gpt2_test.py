#!/usr/bin/env python3
"""The peer on the CPU: its loss and a gradient against GPT-2 written out in plain operations, and what it answers.

Needs PyTorch for Python (common/setup/setup.sh --oracle): without it the test is skipped (77)."""
import json
import math
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import types

HERE = pathlib.Path(__file__).resolve().parent
PYTHON = HERE.parents[1] / ".deps/oracle/bin/python"
SHAPE = {"layers": 2, "heads": 2, "width": 16, "vocab": 130, "context": 12}


def check(holds, what):
    if not holds:
        sys.exit(f"failed: {what}")


def normalized(torch, x, norm):
    centered = x - x.mean(-1, keepdim=True)
    return centered / torch.sqrt((centered**2).mean(-1, keepdim=True) + 1e-5) * norm.weight + norm.bias


def written_out(torch, model, tokens, targets):
    x = model.wte.weight[tokens] + model.wpe.weight[: tokens.shape[1]]
    length, width = x.shape[1:]
    size = width // SHAPE["heads"]
    mask = torch.full((length, length), -math.inf).triu(1)
    for block in model.blocks:
        qkv = normalized(torch, x, block.ln_1) @ block.attn.weight.T + block.attn.bias
        mixed = []
        for head in range(SHAPE["heads"]):
            q, k, v = (qkv[..., i * width + head * size : i * width + (head + 1) * size] for i in range(3))
            mixed.append(torch.softmax(q @ k.transpose(1, 2) / math.sqrt(size) + mask, -1) @ v)
        x = x + torch.cat(mixed, -1) @ block.attn_out.weight.T + block.attn_out.bias
        h = normalized(torch, x, block.ln_2) @ block.mlp.weight.T + block.mlp.bias
        h = 0.5 * h * (1 + torch.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * h**3)))
        x = x + h @ block.mlp_out.weight.T + block.mlp_out.bias
    logits = normalized(torch, x, model.ln_f) @ model.wte.weight.T
    picked = logits.gather(-1, targets[..., None])[..., 0]
    return (torch.logsumexp(logits, -1) - picked).mean()


def is_gpt2():
    import torch

    sys.path.insert(0, str(HERE))
    from torch_gpt2 import Gpt2

    torch.manual_seed(1)
    model = Gpt2(types.SimpleNamespace(**SHAPE), torch.float64).double()
    for p in model.parameters():  # so that no vector is 0 or 1
        p.data += 0.1 * torch.randn_like(p)
    check(model.wte.weight.shape == (256, 16), "the vocabulary is padded to a multiple of 128")
    tokens, targets = torch.randint(0, SHAPE["vocab"], (2, 3, 9))
    losses, gradients = [], []
    for loss_of in (model, lambda a, b: written_out(torch, model, a, b)):
        loss = loss_of(tokens, targets)
        losses.append(loss.item())
        gradients.append(torch.autograd.grad(loss, [model.wte.weight, model.blocks[0].attn.weight]))
    # logits are rounded to fp32 before the loss: 2^-24 of values below 10, times a few operations.
    check(abs(losses[0] - losses[1]) < 1e-5, f"losses are {losses}")
    for a, b in zip(*gradients, strict=True):
        check((a - b).abs().max() < 1e-5 * b.abs().max(), "gradients differ")


def token_file(folder, tokens):
    path = pathlib.Path(folder) / "tokens.bin"
    path.write_bytes(bytes(1024) + struct.pack(f"<{len(tokens)}H", *tokens))
    return path


def answers():
    shape = [x for key, value in SHAPE.items() for x in (f"--{key}", str(value))]
    command = [
        sys.executable,
        HERE / "torch_gpt2.py",
        "--workload",
        HERE.parents[1] / "configs/tiny.json",
        *shape,
        "--sequence",
        "8",
        "--rows",
        "2",
        "--device",
        "cpu",
        "--mode",
        "eager",
    ]
    said = subprocess.run(
        command, input='{"warm_up": 1, "steps": 3}\n' * 2, capture_output=True, text=True, check=False
    )
    check(said.returncode == 0, said.stderr)
    ready, first, second = map(json.loads, said.stdout.splitlines())
    check(
        ready["ready"] and ready["parameters"] == 256 * 16 + 12 * 16 + 2 * (12 * 16**2 + 13 * 16) + 2 * 16,
        f"{ready}",
    )
    check(
        all(
            len(a["seconds"]) == 3 and a["began"] + sum(a["seconds"]) <= a["ended"] + 1e-3
            for a in (first, second)
        ),
        f"{first} {second}",
    )
    check(first["losses"] != second["losses"], "it learns on")
    with tempfile.TemporaryDirectory() as folder:
        tokens = token_file(folder, [7] * 4096)
        said = subprocess.run(
            [*command, "--tokens", tokens],
            input='{"warm_up": 60, "steps": 3}\n',
            capture_output=True,
            text=True,
            check=False,
        )
        check(said.returncode == 0, said.stderr)
        same = json.loads(said.stdout.splitlines()[-1])["losses"]
        check(
            same[-1] < first["losses"][-1] - 1,
            f"a file of one token is soon learned: {same}, {first['losses']}",
        )


def splits():
    """Two ranks learn the same whatever they split; FSDP2's bf16 is rounded elsewhere than autocast's. eps is so large that an
    update is as long as the clipped gradient, which AdamW would hide otherwise."""
    workload = json.loads((HERE.parents[1] / "configs/tiny.json").read_text())
    workload["optim"].update({"eps": 1.0, "lr": 4.0, "clip": 0.05, "weight_decay": 0.0})
    shape = [x for key, value in SHAPE.items() for x in (f"--{key}", str(value))]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "workload.json"
        path.write_text(json.dumps(workload))
        tokens = token_file(folder, [i % 10 for i in range(4096)])  # that 8 steps can learn from
        command = [
            sys.executable,
            HERE / "torch_gpt2.py",
            "--workload",
            path,
            *shape,
            "--sequence",
            "8",
            "--rows",
            "2",
            "--device",
            "cpu",
            "--mode",
            "eager",
            "--ranks",
            "2",
            "--tokens",
            tokens,
        ]
        losses = {}
        for shard in ("none", "optimizer", "all"):
            said = subprocess.run(
                [*command, "--shard", shard],
                input='{"warm_up": 1, "steps": 8}\n',
                capture_output=True,
                text=True,
                check=False,
            )
            check(said.returncode == 0, said.stderr)
            ready, answer = map(json.loads, said.stdout.splitlines())
            check(ready["shard"] == shard and answer["tokens"] == 2 * 2 * 8, f"{ready} {answer}")
            losses[shard] = answer["losses"]
    check(losses["optimizer"] == losses["none"], f"who holds AdamW's states changes nothing: {losses}")
    learned = losses["none"][0] - losses["none"][-1]
    check(
        0.1 < learned
        and all(abs(a - b) < 0.05 * learned for a, b in zip(losses["all"], losses["none"], strict=True)),
        f"{losses}",
    )


if __name__ == "__main__":
    if not PYTHON.exists():
        print("skipped: .deps/oracle is not installed (common/setup/setup.sh --oracle)")
        sys.exit(77)
    if pathlib.Path(sys.prefix).resolve() != PYTHON.parents[1].resolve():
        os.execv(PYTHON, [PYTHON, *sys.argv])
    is_gpt2()
    answers()
    splits()
    print("passed")
