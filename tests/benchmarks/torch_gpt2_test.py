#!/usr/bin/env python3
"""The peer on the CPU: its loss and a gradient against GPT-2 written out in plain operations, and what it
answers.

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
SHAPE = {"layers": 3, "heads": 2, "width": 16, "vocab": 130, "context": 12}
PARAMETERS = 2 * 16 + 3 * (12 * 16**2 + 13 * 16) + 256 * 16 + 12 * 16  # ln_f; three blocks; wte, once; wpe
FLAGS = [word for key, value in {**SHAPE, "sequence": 8}.items() for word in (f"--{key}", str(value))]
TINY = HERE.parents[1] / "configs/tiny.json"


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
    # The logits are rounded to fp32 before the loss: 2^-24 of values below 10, times a few operations.
    check(abs(losses[0] - losses[1]) < 1e-5, f"losses are {losses}")
    for a, b in zip(*gradients, strict=True):
        check((a - b).abs().max() < 1e-5 * b.abs().max(), "gradients differ")


def token_file(folder, tokens):
    path = pathlib.Path(folder) / "tokens.bin"
    path.write_bytes(bytes(1024) + struct.pack(f"<{len(tokens)}H", *tokens))
    return path


def run(script, *flags, asks=({"warm_up": 1, "steps": 8},)):
    command = [sys.executable, HERE / script, *FLAGS, "--device", "cpu", "--mode", "eager", *flags]
    text = "".join(json.dumps(ask) + "\n" for ask in asks)
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False)


def answers_of(script, *flags, **asks):
    said = run(script, *flags, **asks)
    check(said.returncode == 0, said.stderr)
    ready, *answers = map(json.loads, said.stdout.splitlines())
    check(ready["ready"] and ready["parameters"] == PARAMETERS, f"{ready}")
    return ready, answers


def losses(script, *flags):
    """The losses of steps of 8 rows that all ranks share."""
    ready, (answer,) = answers_of(script, *flags)
    check(answer["tokens"] == 8 * 8, f"the ranks share 8 rows: {answer}")
    return ready, answer["losses"]


def workload_in(folder):
    """eps is so large that an update is as long as the clipped gradient, which AdamW would hide otherwise;
    every gradient is clipped."""
    workload = json.loads(TINY.read_text())
    workload["optim"].update({"eps": 1.0, "lr": 4.0, "clip": 0.05, "weight_decay": 0.0})
    path = pathlib.Path(folder) / "workload.json"
    path.write_text(json.dumps(workload))
    tokens = token_file(folder, [i % 10 for i in range(4096)])  # that 9 steps can learn from
    return ["--workload", path, "--tokens", tokens]


def apart(a, b):
    return max(abs(x - y) for x, y in zip(a, b, strict=True))


def answers():
    same = ("torch_gpt2.py", "--workload", TINY, "--rows", "2")
    _, (first, second) = answers_of(*same, asks=[{"warm_up": 1, "steps": 3}] * 2)
    for a in (first, second):
        good = len(a["seconds"]) == 3 and a["began"] + sum(a["seconds"]) <= a["ended"] + 1e-3
        check(good, f"{first} {second}")
    check(first["losses"] != second["losses"], "it learns on")
    with tempfile.TemporaryDirectory() as folder:
        tokens = token_file(folder, [7] * 4096)
        _, (one,) = answers_of(*same, "--tokens", tokens, asks=[{"warm_up": 60, "steps": 3}])
        learned = one["losses"][-1] < first["losses"][-1] - 1
        check(learned, f"a file of one token is soon learned: {one}, {first['losses']}")


def splits():
    """Two ranks learn the same whatever they split; FSDP2's bf16 is rounded elsewhere than autocast's."""
    with tempfile.TemporaryDirectory() as folder:
        same, found = ["--ranks", "2", "--rows", "4", *workload_in(folder)], {}
        for shard in ("none", "optimizer", "gradients", "all"):
            ready, found[shard] = losses("torch_gpt2.py", *same, "--shard", shard)
            check(ready["shard"] == shard, f"{ready}")
    none = found["none"]
    check(found["optimizer"] == none, f"who holds AdamW's states changes nothing: {found}")
    check(found["gradients"] == found["all"], f"nor when parameters are cut again: {found}")
    check(0.1 < none[0] - none[-1] and apart(found["all"], none) < 0.05 * (none[0] - none[-1]), f"{found}")


def main(*tests):
    """With the Python that has PyTorch."""
    if not PYTHON.exists():
        print("skipped: .deps/oracle is not installed (common/setup/setup.sh --oracle)")
        sys.exit(77)
    if pathlib.Path(sys.prefix).resolve() != PYTHON.parents[1].resolve():
        os.execv(PYTHON, [PYTHON, *sys.argv])
    for test in tests:
        test()
    print("passed")


if __name__ == "__main__":
    main(is_gpt2, answers, splits)
