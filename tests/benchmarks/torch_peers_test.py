#!/usr/bin/env python3
"""The peers of several ranks on the CPU learn what torch_gpt2.py learns on one, from the same weights and
rows: stages of a pipeline, cut matrices, shared rows, and DeepSpeed, for which a module stands that does in
PyTorch what it is asked for; and what is asked of it: settings.

Needs PyTorch for Python (common/setup/setup.sh --oracle): without it the test is skipped (77). usage:
torch_peers_test.py pipeline|tensor|context|deepspeed"""
import functools
import json
import os
import pathlib
import sys
import tempfile

from torch_gpt2_test import TINY, apart, check, losses, main, run, workload_in

# For each peer: its flags, and how far its losses may be from torch_gpt2.py's, as a share of what is learned;
# less than 1e-5 is always accepted. Sums in another order differ by a few units of 2^-24 in losses of about
# 5; in bf16 everything is rounded, and in a pipeline every gradient for each micro-batch. Without CUDA, async
# TP is sp with its products in another form.
PEERS = {
    "pipeline": (
        "--rows 2 --micro-batches 4",
        ("--variant fp32 --ranks 2 --schedule 1f1b --split 2,1", 0),
        ("--variant fp32 --ranks 3 --schedule gpipe --split 1,1,1", 0),
        ("--variant autocast --ranks 2 --schedule 1f1b --split 1,2", 0.01),
    ),
    "tensor": (
        "--rows 8 --ranks 2",
        ("--variant fp32 --cut tp", 0),
        ("--variant fp32 --cut sp", 0),
        ("--variant autocast --cut async", 0.05),
        ("--variant fp32 --cut sp --ranks 4 --replicas 2 --rows 4", 0),
    ),
    "context": (
        "--rows 8 --ranks 2",
        ("--variant fp32 --rotate allgather", 0),
        ("--variant fp32 --rotate alltoall", 0),
    ),
}
REFUSED = {
    "pipeline": (
        ("--micro-batches 4 --split 3", "3 blocks in all"),
        ("--micro-batches 4 --ranks 2 --split 1,1", "3 blocks in all"),
        ("--micro-batches 4 --ranks 2 --split 3,0", "3 blocks in all"),
    ),
    "tensor": (
        ("--ranks 3 --cut sp", "divide heads, width, sequence"),
        ("--ranks 4 --replicas 3", "they divide --ranks"),
    ),
    "context": (("--ranks 3", "twice as many divide a row"),),
    "deepspeed": (("--rows 8 --variant bf16", "DeepSpeed has an fp32 master"),),
}

DEEPSPEED = """
import torch, types
__version__ = "pretended"
leaves, gathered = [], []
zero = types.SimpleNamespace(register_external_parameter=lambda model, weight: gathered.append(weight))
utils = types.SimpleNamespace(set_z3_leaf_modules=lambda model, kinds: leaves.append(kinds))

class Engine:
    def __init__(self, model, groups, config):
        adamw = dict(config["optimizer"]["params"])
        adamw.pop("torch_adam", None)
        self.model, self.clip = model, config["gradient_clipping"]
        self.basic_optimizer = torch.optim.AdamW(groups, **adamw)

    def __call__(self, tokens, targets):
        return self.model(tokens, targets)

    def backward(self, loss):
        loss.backward()

    def step(self):
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.basic_optimizer.step()
        self.basic_optimizer.zero_grad()

def initialize(model, model_parameters, config):
    of_stage = {1: (0, 0), 2: (0, 0), 3: (4, "defaults" not in __import__("sys").argv)}
    assert (len(gathered), len(leaves)) == of_stage[config["zero_optimization"]["stage"]]
    model = model.to(torch.bfloat16) if "bf16" in config else model
    return Engine(model, model_parameters, config), None, None, None
"""


def learns_as_one_rank(peer):
    """A wrong first loss, gradient or norm would show in every loss that follows."""
    with tempfile.TemporaryDirectory() as folder:
        same = workload_in(folder)

        @functools.cache
        def alone(variant, replicas):  # whose rows are their own
            words = f"--rows {8 // replicas} --ranks {replicas} --variant {variant}".split()
            return losses("torch_gpt2.py", *same, *words)[1]

        learned = alone("fp32", 1)[0] - alone("fp32", 1)[-1]
        check(learned > 0.1, f"{alone('fp32', 1)}")
        all_alike, *several = PEERS[peer]
        for flags, share in several:
            words = f"{all_alike} {flags}".split()
            told = dict(zip(words[::2], words[1::2]))
            ready, found = losses(f"torch_{peer}.py", *same, *words)
            for key in ("schedule", "micro_batches", "split", "cut"):
                check(f"{ready.get(key)}" == told.get(f"--{key.replace('_', '-')}", "None"), f"{ready}")
            one = alone(told["--variant"], int(told.get("--replicas", "1")))
            far = apart(found, one)
            check(far < max(1e-5, share * learned), f"{peer} {flags}: {far} apart: {found}, {one}")


def refuses(peer):
    for flags, why in REFUSED[peer]:
        said = run(f"torch_{peer}.py", "--workload", TINY, *flags.split())
        check(said.returncode == 2 and why in said.stderr, f"{flags}: {said}")


def trains_as_asked(workload):
    """Learning rate, clip, and which parameters decay: a wrong one shows in every loss that follows."""
    said = json.loads(pathlib.Path(workload[1]).read_text())
    said["optim"]["weight_decay"] = 0.05
    pathlib.Path(workload[1]).write_text(json.dumps(said))
    same = [*workload, "--rows", "8", "--variant", "fp32"]
    _, plain = losses("torch_gpt2.py", *same)
    check(plain[0] - plain[-1] > 0.1, f"{plain}")
    for flags in (("--stage", "2"), ("--stage", "3"), ("--stage", "3", "--settings", "defaults")):
        _, found = losses("torch_deepspeed.py", *same, *flags)
        check(apart(plain, found) < 1e-5, f"{flags}: {plain} {found}")


def asks_for(workload):
    same = [*workload, "--rows", "8"]
    best, _ = losses("torch_deepspeed.py", *same, "--stage", "3", "--bucket", "1000")
    config = best["config"]
    check(
        config["zero_optimization"]
        == {
            "stage": 3,
            "overlap_comm": True,
            "contiguous_gradients": True,
            "reduce_bucket_size": 1000,
            "stage3_prefetch_bucket_size": 1000,
            "stage3_param_persistence_threshold": 100000,
            "memory_efficient_linear": False,
        },
        f"{config}",
    )
    check(
        config["bf16"] == {"enabled": True, "check_grad_overflow": False}
        and best["fp32_master"]
        and best["deepspeed"] == "pretended",
        f"{best}",
    )
    plain, _ = losses("torch_deepspeed.py", *same, "--offload", "--settings", "defaults")
    check(
        plain["config"]["zero_optimization"]
        == {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": False}}
        and plain["config"]["bf16"] == {"enabled": True},
        f"{plain}",
    )
    check("torch_adam" not in plain["config"]["optimizer"]["params"], "on the host its own AdamW updates")
    disk, _ = losses("torch_deepspeed.py", *same, "--stage", "3", "--nvme", "/disk", "--bucket", "1000")
    states = disk["config"]["zero_optimization"]["offload_optimizer"]
    check(
        states["pipeline_read"] and states["pipeline_write"] and states["buffer_count"] == 3 * 4,
        "read, updated and written at once, each with weights, a gradient and two moments",
    )


def with_the_stand_in():
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "deepspeed.py").write_text(DEEPSPEED)
        os.environ["PYTHONPATH"] = folder
        trains_as_asked(workload_in(folder))
        asks_for(workload_in(folder))
        refuses("deepspeed")


def test():
    if (peer := sys.argv[1]) == "deepspeed":
        with_the_stand_in()
    else:
        learns_as_one_rank(peer)
        refuses(peer)


if __name__ == "__main__":
    main(test)
