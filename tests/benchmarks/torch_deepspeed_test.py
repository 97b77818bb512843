#!/usr/bin/env python3
"""The peer that DeepSpeed trains: with a module that stands for DeepSpeed and does in PyTorch what it is asked for, losses are torch_gpt2.py's. What is asked for: settings.

Needs PyTorch for Python (common/setup/setup.sh --oracle): without it the test is skipped (77)."""
import json
import os
import pathlib
import tempfile

from torch_gpt2_test import apart, check, losses, main, run, workload_in

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
    assert (len(gathered), len(leaves)) == {1: (0, 0), 2: (0, 0), 3: (4, "defaults" not in __import__("sys").argv)}[config["zero_optimization"]["stage"]]
    return Engine(model.to(torch.bfloat16) if "bf16" in config else model, model_parameters, config), None, None, None
"""


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
    said = run("torch_deepspeed.py", *same, "--variant", "bf16")
    check(said.returncode == 2 and "DeepSpeed has an fp32 master" in said.stderr, f"{said}")


def with_the_stand_in():
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "deepspeed.py").write_text(DEEPSPEED)
        os.environ["PYTHONPATH"] = folder
        trains_as_asked(workload_in(folder))
        asks_for(workload_in(folder))


if __name__ == "__main__":
    main(with_the_stand_in)
