#!/usr/bin/env python3
"""torch_gpt2.py's model, of whose rows each rank has its own tokens (PyTorch's context_parallel): the peer of
lesson 12, and a server as torch_gpt2.py is. context_parallel knows GPUs' attention alone: on the CPU
PyTorch's ring is called with the CPU's. By hand:
  echo '{"warm_up": 10, "steps": 25}' | python3 tests/benchmarks/torch_context.py --rows 1 --ranks 2
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
import torch_gpt2
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._context_parallel import _attention as ring

KERNEL = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


class RingOfCpus(torch.autograd.Function):
    @staticmethod
    def forward(ctx, *qkv):
        found = ring._templated_ring_attention(dist.group.WORLD, 2, KERNEL, *qkv, is_causal=True)
        ctx.save_for_backward(*qkv, *found)
        return found[0]

    @staticmethod
    def backward(ctx, grad):
        ranks = dist.group.WORLD, 2, BACKWARD, grad, "grad_out"
        return ring._templated_ring_attention_backward(
            *ranks, *ctx.saved_tensors, is_causal=True, dropout_p=0.0
        )


class PositionedGpt2(torch_gpt2.Gpt2):
    def forward(self, tokens, targets, positions):
        x = (self.wte(tokens) + self.wpe(positions)).to(self.dtype)
        for block in self.blocks:
            x = block(x)
        return self.loss(x, targets)


class ContextTrainer(torch_gpt2.Trainer):
    def prepare(self, rank):
        self.model.__class__ = PositionedGpt2
        super().prepare(rank)
        # All ranks have the same rows.
        self.batches_a_step, self.batches = 1, self.endless_batches(0, self.args.rows)
        self.mesh = init_device_mesh(self.args.device, (self.args.ranks,))
        ring.set_rotate_method(self.args.rotate)
        if self.args.device == "cpu":
            F.scaled_dot_product_attention = lambda q, k, v, is_causal: RingOfCpus.apply(q, k, v)

    def step(self):
        tokens, targets = next(self.batches).to(self.device, copy=True)
        shared = [tokens, targets, torch.arange(self.args.sequence, device=self.device)]  # of whole rows
        of_tokens = {"buffers": shared, "buffer_seq_dims": [1, 1, 0], "no_restore_buffers": set(shared)}
        # It cuts `shared` in place: of each row an early and a late chunk are left.
        with context_parallel(self.mesh, **of_tokens):
            with self.autocast():
                loss = self.forward(*shared)  # DistributedDataParallel(model): backward averages gradients
            loss.backward()  # here, too, keys and values travel
        torch.nn.utils.clip_grad_norm_(self.parameters, self.args.optim["clip"])
        self.optim.step()
        self.optim.zero_grad()
        dist.all_reduce(loss := loss.detach())
        return loss.item() / self.args.ranks

    def about_ranks(self):
        return {**super().about_ranks(), "rotate": self.args.rotate}


def refusal(args):
    if args.ranks < 2 or args.sequence % (2 * args.ranks):
        return "--ranks: at least two, and twice as many divide a row (--ranks 2)"
    return torch_gpt2.refusal(args)


if __name__ == "__main__":
    own = {**torch_gpt2.OWN, "--rotate": {"choices": ("allgather", "alltoall"), "default": "allgather"}}
    torch_gpt2.serve(torch_gpt2.read_arguments(__doc__, own, refusal), ContextTrainer)
