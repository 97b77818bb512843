#!/usr/bin/env python3
"""torch_gpt2.py's model with every matrix cut among the ranks by DTensor: the peer of lesson 10, and a server
as torch_gpt2.py is.

--cut tp: what stands between the products, norms and sums, is computed by all ranks alike. sp: each rank
computes it for its part of every row's tokens. async: sp, with messages and products in pieces that run
beside each other (async TP). A block is one graph, messages included, or all blocks are (--one-graph), which
the host launches sooner; embedding, head and loss are DTensor's (loss_parallel: logits stay cut by
vocabulary). q, k and v are three matrices, since a cut is by heads. With --replicas ranks are a mesh of two
axes, and replicas' gradients are averaged as in lesson 11. Run by tests/benchmarks/gpu.py; by hand:
  echo '{"warm_up": 10, "steps": 25}' | python3 tests/benchmarks/torch_tensor.py \\
    --workload configs/gpt2_355m.json --rows 16 --ranks 2 --cut sp
"""
import contextlib
import functools

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed._symmetric_memory import enable_symm_mem_for_group
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch_gpt2 import LocalShards, Trainer, clip_grads, optimizer_of, read_arguments, serve, squares_of

CUTS = ("tp", "sp", "async")


class BareProduct(nn.Linear):
    """Async TP finds products without a bias alone."""

    def forward(self, x):
        y = F.linear(x, self.weight)
        return y + self.bias.to(y.dtype)


class Bias(nn.Module):
    """The bias of a product that is cut along the dimension it sums over: added once, after the sum."""

    def __init__(self, bias):
        super().__init__()
        self.bias = nn.Parameter(bias.detach())

    def forward(self, x):
        return x + self.bias.to(x.dtype)


def linear(weight, bias=None, kind=nn.Linear):
    made = kind(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    made.weight, made.bias = nn.Parameter(weight.detach()), None if bias is None else nn.Parameter(
        bias.detach()
    )
    return made


class Attention(nn.Module):
    def __init__(self, block, kind):
        super().__init__()
        self.size = block.attn_out.in_features // block.heads  # of a head
        self.q, self.k, self.v = (
            linear(*part, kind)
            for part in zip(block.attn.weight.chunk(3), block.attn.bias.chunk(3), strict=True)
        )
        self.out, self.out_bias = linear(block.attn_out.weight), Bias(block.attn_out.bias)

    def forward(self, x):
        heads = [part(x).unflatten(-1, (-1, self.size)).transpose(1, 2) for part in (self.q, self.k, self.v)]
        return self.out_bias(
            self.out(F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(2))
        )


class Mlp(nn.Module):
    def __init__(self, block, kind):
        super().__init__()
        self.up = linear(block.mlp.weight, block.mlp.bias, kind)
        self.down, self.down_bias = linear(block.mlp_out.weight), Bias(block.mlp_out.bias)

    def forward(self, x):
        return self.down_bias(self.down(F.gelu(self.up(x), approximate="tanh")))


class TensorBlock(nn.Module):
    """A block of torch_gpt2.py, in modules as parallelize_module takes them."""

    def __init__(self, block, kind):
        super().__init__()
        self.ln_1, self.ln_2 = block.ln_1, block.ln_2
        self.attention, self.mlp = Attention(block, kind), Mlp(block, kind)

    def forward(self, x):
        # Autocast keeps norms in fp32; in the residual stream's type they travel in half the bytes.
        x = x + self.attention(self.ln_1(x).to(x.dtype))
        return x + self.mlp(self.ln_2(x).to(x.dtype))


class TensorGpt2(nn.Module):
    """With the weights of `model`, a Gpt2; the head is the token embedding's matrix, and cut() sees to it
    that it stays so."""

    def __init__(self, model, kind):
        super().__init__()
        self.dtype, self.wte, self.wpe, self.ln_f = model.dtype, model.wte, model.wpe, model.ln_f
        self.blocks = nn.Sequential(*(TensorBlock(block, kind) for block in model.blocks))
        self.head = linear(model.wte.weight)

    def forward(self, tokens, targets):
        x = (self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))).to(self.dtype)
        x = self.blocks(x)
        logits = self.head(self.ln_f(x).to(x.dtype))
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten()).to_local()


def cut(model, mesh, by_tokens):
    """by_tokens: a rank has its part of each row between the products; else all of them."""
    held = Shard(1) if by_tokens else Replicate()
    gathers = functools.partial(
        PrepareModuleInput, input_layouts=(held,), desired_input_layouts=(Replicate(),)
    )
    block = {
        "attention": gathers(),
        **{f"attention.{part}": ColwiseParallel() for part in "qkv"},
        "attention.out": RowwiseParallel(output_layouts=held),
        "mlp": gathers(),
        "mlp.up": ColwiseParallel(),
        "mlp.down": RowwiseParallel(output_layouts=held),
    }
    whole = {
        "wte": RowwiseParallel(input_layouts=Replicate(), output_layouts=held),
        "head": ColwiseParallel(input_layouts=held, use_local_output=False),
    }
    if by_tokens:
        block |= {"ln_1": SequenceParallel(), "ln_2": SequenceParallel()}
        block |= {
            name: SequenceParallel(use_local_output=True) for name in ("attention.out_bias", "mlp.down_bias")
        }
        whole |= {"wpe": ColwiseParallel(output_layouts=Shard(0)), "ln_f": SequenceParallel()}
    for one in model.blocks:
        parallelize_module(one, mesh, block)
    parallelize_module(model, mesh, whole)
    model.head.weight = model.wte.weight


def add_up(grads, group):
    """All in one message."""
    if grads:
        sums = torch.cat([grad.flatten() for grad in grads])
        dist.all_reduce(sums, group=group)
        torch._foreach_copy_(
            [grad.view(-1) for grad in grads], list(sums.split([grad.numel() for grad in grads]))
        )


class LocalParts(LocalShards):
    """Some of which all ranks of a tensor group have alike."""

    def __init__(self, model, mesh):
        super().__init__(model)
        self.mesh = mesh

    def clip(self, largest):
        """First the gradients of what all ranks have are summed where each saw its own tokens."""
        cut_grads, whole_grads, seen_in_part = [], [], []
        for own, p in zip(self.local, self.parts, strict=True):
            layout = p.grad.placements[0] if isinstance(p, DTensor) else Replicate()
            if own is not p:
                own.grad, p.grad = p.grad._local_tensor, None
            (cut_grads if layout.is_shard() else whole_grads).append(own.grad)
            seen_in_part += [own.grad] if layout.is_partial() else []
        grads, data, tensor = [*cut_grads, *whole_grads], self.mesh["data"], self.mesh["tensor"]
        add_up(seen_in_part, tensor.get_group())
        if data.size() > 1:
            add_up(grads, data.get_group())
            torch._foreach_div_(grads, data.size())
        squares = squares_of(cut_grads)
        dist.all_reduce(squares, group=tensor.get_group())
        clip_grads(grads, squares + squares_of(whole_grads), largest)


class TensorTrainer(Trainer):
    fused = None  # of async: how many calls of a step send and multiply at once

    def prepare(self, rank):
        args, self.steps = self.args, 0
        axes = {"data": args.replicas, "tensor": args.ranks // args.replicas}
        mesh = init_device_mesh(args.device, tuple(axes.values()), mesh_dim_names=tuple(axes))
        self.forward = TensorGpt2(self.model, BareProduct if args.cut == "async" else nn.Linear)
        self.model = None
        cut(self.forward, mesh["tensor"], args.cut != "tp")
        if args.cut == "async":
            torch._inductor.config._micro_pipeline_tp = True
            enable_symm_mem_for_group(mesh["tensor"].get_group().group_name)
        if args.mode != "eager":
            for block in [self.forward.blocks] if args.one_graph else self.forward.blocks:
                block.compile(**self.options())
        self.shards = LocalParts(self.forward, mesh)
        self.optim = optimizer_of(self.shards, args.optim, split=False)
        # A tensor group has the same rows.
        self.batches_a_step = args.replicas
        self.batches = self.endless_batches(mesh["data"].get_local_rank(), args.rows)

    def autocast(self):
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.args.variant == "autocast")

    def step(self):
        self.steps += 1
        counts = self.args.cut == "async" and self.steps == 2  # the first compiles
        with loss_parallel(), torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU]
        ) if counts else contextlib.nullcontext() as seen:
            loss = super().step()
        if counts:
            self.fused = sum(
                one.count for one in seen.key_averages() if one.key.startswith("symm_mem::fused_")
            )
        return loss

    def about_ranks(self):
        return {
            "cut": self.args.cut,
            "replicas": self.args.replicas,
            "one_graph": self.args.one_graph,
            **({} if self.fused is None else {"fused_calls": self.fused}),
        }


OWN = {
    "--cut": {"choices": CUTS, "default": "tp"},
    "--replicas": {"type": int, "default": 1, "help": "of a tensor group, which --ranks are divided into"},
    "--one-graph": {"action": "store_true", "help": "of all blocks, instead of one each"},
}


def refusal(args):
    if args.replicas < 1 or args.ranks % args.replicas:
        return "--replicas: at least one, and they divide --ranks (--ranks 4 --replicas 2)"
    ranks = args.ranks // args.replicas
    wrong = [
        name
        for name in ("heads", "width", *(("sequence",) if args.cut != "tp" else ()))
        if getattr(args, name) % ranks
    ]
    if ranks < 2 or wrong:
        return f"--ranks: at least two, which divide {', '.join(wrong or ['heads', 'width'])} (--ranks 2)"
    return None


if __name__ == "__main__":
    serve(read_arguments(__doc__, OWN, refusal), TensorTrainer)
