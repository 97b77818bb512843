#!/usr/bin/env python3
"""Lesson 08 against PyTorch: each rule of weight versions, computed by autograd in fp64 from the weights, the
tokens and the workload alone.

  .deps/oracle/bin/python tests/lessons/check_versions.py build/cpu/bin

Runs 08_weight_versions under each rule on random GPT-2 weights and compares what it saves with all four
computations. Prints a table of the largest differences of any weight, rules of the program down, rules of
PyTorch across; exit 1 unless every entry of the diagonal is 100 times smaller than the others of its row, and
losses and norms agree. Needs the oracle packages (setup.sh --oracle).
"""
import json
import math
import os
import pathlib
import sys
import tempfile

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "processes"))
import support  # noqa: E402

LESSON = "08_weight_versions"
RULES = ("none", "stash", "vertical_sync", "two_buffers")
# Cases: (stages, micro-batches, updates every, steps, split). 0 means every micro-batch; with two_buffers,
# once a step.
CASES = ((2, 2, 0, 3, (2, 2)), (3, 6, 3, 3, (1, 2, 1)))
LAYERS, HEADS, WIDTH, LENGTH, VOCAB, ROWS, SEED = 4, 2, 32, 16, 257, 2, 11
# eps is far above the rounding of a gradient, so that elements whose gradient is zero by construction (the
# bias of keys) do not move by noise.
OPTIM = {
    "lr": 0.02,
    "beta1": 0.9,
    "beta2": 0.95,
    "eps": 1e-4,
    "weight_decay": 0.1,
    "clip": 0.5,
    "schedule": "cosine",
    "warmup_steps": 2,
    "min_lr_fraction": 0.1,
}
CLEAR = 100


def random_weights():
    """Hugging Face's names and shapes: Conv1D matrices are [in, out]."""
    shapes = {
        "wte.weight": (VOCAB, WIDTH),
        "wpe.weight": (LENGTH, WIDTH),
        "ln_f.weight": (WIDTH,),
        "ln_f.bias": (WIDTH,),
    }
    for block in range(LAYERS):
        for name, out_of, into in (
            ("attn.c_attn", WIDTH, 3 * WIDTH),
            ("attn.c_proj", WIDTH, WIDTH),
            ("mlp.c_fc", WIDTH, 4 * WIDTH),
            ("mlp.c_proj", 4 * WIDTH, WIDTH),
        ):
            shapes[f"h.{block}.{name}.weight"], shapes[f"h.{block}.{name}.bias"] = (out_of, into), (into,)
        for norm in ("ln_1", "ln_2"):
            shapes[f"h.{block}.{norm}.weight"], shapes[f"h.{block}.{norm}.bias"] = (WIDTH,), (WIDTH,)
    weights = {
        "transformer." + name: torch.randn(shape) * 0.1 + (".ln_" in "." + name and "weight" in name)
        for name, shape in shapes.items()
    }
    return {**weights, "lm_head.weight": torch.randn(VOCAB, WIDTH) * 0.1}


def mean_loss(tokens, targets, read, again):
    """The value is that of the weights `read`. In the gradients stand `again`'s, which backward finds: with
    versions=none newer ones. Both are functions of a name; every layer is linear in its weights."""

    def layer(f, x, *names):
        y = f(x, *(again(name) for name in names))
        return y + (f(x, *(read(name) for name in names)) - y).detach()

    def linear(x, name):
        return layer(lambda x, w, b: x @ w + b, x, name + ".weight", name + ".bias")

    def norm(x, name):
        return layer(
            lambda x, w, b: x * w + b, F.layer_norm(x, (WIDTH,), eps=1e-5), name + ".weight", name + ".bias"
        )

    def heads(x):
        return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)

    x = layer(lambda at, wte, wpe: wte[at] + wpe, tokens, "transformer.wte.weight", "transformer.wpe.weight")
    for block in range(LAYERS):
        h = f"transformer.h.{block}."
        q, k, v = (heads(part) for part in linear(norm(x, h + "ln_1"), h + "attn.c_attn").split(WIDTH, -1))
        attention = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + linear(attention.transpose(1, 2).flatten(2), h + "attn.c_proj")
        x = x + linear(
            F.gelu(linear(norm(x, h + "ln_2"), h + "mlp.c_fc"), approximate="tanh"), h + "mlp.c_proj"
        )
    logits = layer(lambda x, w: x @ w.T, norm(x, "transformer.ln_f"), "lm_head.weight")
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def mix(x):
    """mix64 of common/base/counter_random.h."""
    mask = 2**64 - 1
    x = (x + 0x9E3779B97F4A7C15) & mask
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & mask
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & mask
    return x ^ (x >> 31)


def row_at(position, count):
    """The permutation of common/data/sampler.h."""
    key, bits = mix(SEED) ^ mix(2**64 - 1 - position // count), 1
    while 4**bits < count:
        bits += 1
    x, mask = position % count, 2**bits - 1
    while True:
        left, right = x >> bits, x & mask
        for number in range(8):
            left, right = right, left ^ mix(mix(key + number & 2**64 - 1) ^ right) & mask
        x = left << bits | right
        if x < count:
            return x


def micro_batch(text, k):
    rows = [row_at(k * ROWS + i, (len(text) - 1) // LENGTH) * LENGTH for i in range(ROWS)]
    both = torch.stack([text[row : row + LENGTH + 1] for row in rows])
    return both[:, :-1], both[:, 1:]


def learning_rate(update, updates):
    if update < OPTIM["warmup_steps"]:
        return OPTIM["lr"] * (update + 1) / OPTIM["warmup_steps"]
    falling, least = updates - 1 - OPTIM["warmup_steps"], OPTIM["min_lr_fraction"]
    done = (
        (update - OPTIM["warmup_steps"]) / falling if falling > 0 else 1
    )  # the last one is at the end of the way
    return OPTIM["lr"] * (least + (1 - least) * (1 + math.cos(math.pi * done)) / 2)


def compute(rule, weights, text, case):
    """(weights, [(loss, norm) of every step]) by the rule's formula: which version micro-batch k reads on
    stage s."""
    stages, micro_batches, every, steps, split = case
    every = every or (micro_batches if rule == "two_buffers" else 1)
    updates, lag = steps * micro_batches // every, -(-(stages - 1) // every)

    def stage_of(name):
        if ".h." not in name:
            return 0 if "wte" in name or "wpe" in name else stages - 1
        block = int(name.split(".")[2])
        return next(s for s in range(stages) if block < sum(split[: s + 1]))

    def forward_version(k, s):
        if rule == "two_buffers":
            return max(0, k // every - 1)
        return max(0, k - (stages - 1 if rule == "vertical_sync" else stages - 1 - s)) // every

    def backward_version(k, s):
        return k // every if rule == "none" else forward_version(k, s)

    versions = [{name: w.double().requires_grad_() for name, w in weights.items()}]
    m, v = ({name: torch.zeros_like(w) for name, w in versions[0].items()} for _ in range(2))
    losses, norms = [], []
    for update in range(updates):
        grads = {name: torch.zeros_like(w) for name, w in versions[0].items()}
        for k in range(update * every, (update + 1) * every):
            again = {name: versions[backward_version(k, stage_of(name))][name] for name in weights}
            loss = mean_loss(
                *micro_batch(text, k),
                lambda name: versions[forward_version(k, stage_of(name))][name],
                again.get,
            )
            losses.append(loss.item())
            for name, grad in zip(again, torch.autograd.grad(loss / every, again.values())):
                grads[name] += grad
        norms.append(math.sqrt(sum(grad.square().sum().item() for grad in grads.values())))
        clip = min(1, OPTIM["clip"] / norms[update - lag]) if update >= lag else 1
        rate, b1, b2, after = learning_rate(update, updates), OPTIM["beta1"], OPTIM["beta2"], {}
        for name, w in versions[-1].items():
            grad = clip * grads[name]
            m[name] = b1 * m[name] + (1 - b1) * grad
            v[name] = b2 * v[name] + (1 - b2) * grad * grad
            direction = (
                m[name]
                / (1 - b1 ** (update + 1))
                / ((v[name] / (1 - b2 ** (update + 1))).sqrt() + OPTIM["eps"])
            )
            decay = OPTIM["weight_decay"] if w.dim() == 2 else 0
            after[name] = (w * (1 - rate * decay) - rate * direction).detach().requires_grad_()
        versions.append(after)
    of_step = [
        sum(losses[i : i + micro_batches]) / micro_batches for i in range(0, len(losses), micro_batches)
    ]
    return versions[-1], list(zip(of_step, norms[updates // steps - 1 :: updates // steps]))


def run(rule, case, folder):
    stages, micro_batches, every, steps, split = case
    workload = {
        "model": {
            "layers": LAYERS,
            "heads": HEADS,
            "width": WIDTH,
            "context": LENGTH,
            "vocab": VOCAB,
            "tied": False,
        },
        "data": {"source": "tokens.bin", "validation_fraction": 0.05, "validation_rows": 1},
        "batch": {"sequence": LENGTH, "global": ROWS * micro_batches, "micro": ROWS},
        "optim": OPTIM,
        "steps": steps,
        "seed": SEED,
    }
    paths = {name: f"{folder}/{rule}-{stages}.{name}" for name in ("json", "out", "safetensors")}
    pathlib.Path(paths["json"]).write_text(json.dumps(workload), encoding="utf-8")
    settings = {"versions": rule, "update_every": every or "auto", "split": ",".join(map(str, split))}
    command = [
        support.program(LESSON),
        "--workload",
        paths["json"],
        *(f"--set={key}={value}" for key, value in settings.items()),
    ]
    ended = support.execute(
        support.mpirun(stages)
        + command
        + ["--init", f"{folder}/init.safetensors", "--save", paths["safetensors"], "--out", paths["out"]]
    )
    if ended.code != 0:
        sys.exit(f"{rule}: {ended}")
    steps = [
        json.loads(line)
        for line in pathlib.Path(paths["out"], "steps.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    return load_file(paths["safetensors"]), [(step["loss"], step["grad_norm"]) for step in steps]


def check(case, weights, text, folder):
    computed = {rule: compute(rule, weights, text, case) for rule in RULES}
    print(
        f"{case[0]} stages, {case[1]} micro-batches, an update every {case[2] or 'auto'}, {case[3]} "
        f"steps\n{'':14}",
        *(f"{rule:>13}" for rule in RULES),
    )
    good = True
    for rule in RULES:
        ours, numbers = run(rule, case, folder)
        assert set(ours) == set(weights), set(ours) ^ set(weights)
        far = {
            other: max((ours[name] - theirs[name]).abs().max().item() for name in ours)
            for other, (theirs, _) in computed.items()
        }
        apart = max(
            abs(a / b - 1) for pair in zip(numbers, computed[rule][1], strict=True) for a, b in zip(*pair)
        )
        holds = all(CLEAR * far[rule] <= far[other] for other in RULES if other != rule) and apart < 1e-5
        print(
            f"{rule:14}",
            *(f"{far[other]:13.1e}" for other in RULES),
            f"  losses and norms within {apart:.0e}",
            "" if holds else "  WRONG",
        )
        good = good and holds
    return good


def main():
    torch.manual_seed(8)
    support.programs = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        support.scratch = folder
        weights, text = random_weights(), torch.randint(0, VOCAB, (2000,))
        save_file(weights, f"{folder}/init.safetensors", metadata={"format": "pt"})
        support.write_tokens(f"{folder}/tokens.bin", text.tolist())
        train = text[: len(text) - len(text) // 20]  # the rest is for validation
        sys.exit(0 if all([check(case, weights, train, folder) for case in CASES]) else 1)


main()
