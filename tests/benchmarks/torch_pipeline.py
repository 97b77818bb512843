#!/usr/bin/env python3
"""torch_gpt2.py's model as the stages of torch.distributed.pipelining: the peer of lesson 07, and a server as
torch_gpt2.py is.

A rank computes the blocks that --split gives it, compiled; the first one also embeds, the last one has the
head and the loss, in one graph with its blocks. Both ends hold the tied matrix; its two gradients are summed
once a step. The gradient's norm is that of the whole model, the tied matrix counted once. Run by
tests/benchmarks/gpu.py; by hand:
  echo '{"warm_up": 10, "steps": 25}' | python3 tests/benchmarks/torch_pipeline.py \\
    --workload configs/gpt2_355m.json --rows 4 --micro-batches 8 --ranks 2 --split 14,10
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch_gpt2 import Trainer, clip_grads, optimizer_of, read_arguments, serve, squares_of

SCHEDULES = {"1f1b": Schedule1F1B, "gpipe": ScheduleGPipe}


class Stage(nn.Module):
    """Some blocks of a Gpt2, whose other parts it drops."""

    def __init__(self, model, blocks, first, last, autocast):
        super().__init__()
        self.first, self.last, self.autocast = first, last, autocast
        model.blocks = model.blocks[blocks]
        if not first:
            model.wpe = None
        if not last:
            model.ln_f = None
        if not first and not last:
            model.wte = None
        self.model = model

    def forward(self, x, targets=None):
        with self.autocast():  # here, as round the whole step it would hold for backward, too
            if self.first:
                x = self.model.embed(x)
            for block in self.model.blocks:
                x = block(x)
            return self.model.loss(x, targets) if self.last else x


class PipelineTrainer(Trainer):
    def prepare(self, rank):
        args, self.batches_a_step = self.args, 1  # that of all ranks
        self.first, self.last = rank == 0, rank == args.ranks - 1
        begin = sum(args.split[:rank])
        stage = Stage(
            self.model, slice(begin, begin + args.split[rank]), self.first, self.last, self.autocast
        )
        self.parameters = list(stage.parameters())
        self.tied, self.ends = None, dist.new_group([0, args.ranks - 1])
        if self.first or self.last:
            self.tied = stage.model.wte.weight
            dist.broadcast(self.tied.data, 0, group=self.ends)
        self.optim = optimizer_of(stage, args.optim, split=False)
        tokens = torch.zeros(args.rows, args.sequence, dtype=torch.int64, device=self.device)
        x = torch.zeros(*tokens.shape, args.width, dtype=self.model.dtype, device=self.device)
        compiled = self.compiled(stage)
        self.compile_now(compiled, tokens, x.clone().requires_grad_())
        self.schedule_stage(compiled, rank, tokens.to("meta"), x.to("meta"))
        self.batches = self.endless_batches(0, args.rows * args.micro_batches)

    def compile_now(self, stage, tokens, x):
        """All ranks at once: within a schedule each would wait for the compiler of the one before."""
        y = stage(tokens if self.first else x, **({"targets": tokens} if self.last else {}))
        y.backward(torch.zeros_like(y))
        self.optim.zero_grad(set_to_none=True)

    def schedule_stage(self, stage, rank, tokens, x):
        """Shapes are said, so that nothing runs to find them out. The loss is divided, and not each gradient
        behind backward."""
        args, loss = self.args, torch.empty((), device="meta")
        shapes = {"input_args": tokens if self.first else x, "output_args": loss if self.last else x}
        piped = PipelineStage(stage, rank, args.ranks, self.device, **shapes)
        mean = {"loss_fn": lambda loss, _: loss / args.micro_batches, "scale_grads": False}
        self.schedule = SCHEDULES[args.schedule](piped, args.micro_batches, **mean)

    def step(self):
        """Returns the loss: the host waits for the whole step."""
        self.static.copy_(next(self.batches), non_blocking=True)
        tokens, targets = self.static
        losses, first = [], [tokens] if self.first else []
        last = {"target": targets, "targets": targets, "losses": losses} if self.last else {}
        self.schedule.step(*first, **last, return_outputs=False)
        loss = self.clip(losses)
        self.optim.step()
        self.optim.zero_grad(set_to_none=True)
        return loss.item()

    @torch.no_grad()
    def clip(self, losses):
        """Clips by the norm over all stages. Returns the step's loss; both travel together."""
        if self.tied is not None:
            dist.all_reduce(self.tied.grad, group=self.ends)
        counted = [p.grad for p in self.parameters if self.first or p is not self.tied]
        squares = squares_of(counted)
        sums = torch.stack([squares, torch.stack(losses).sum() if losses else torch.zeros_like(squares)])
        dist.all_reduce(sums)
        clip_grads([p.grad for p in self.parameters], sums[0], self.args.optim["clip"])
        return sums[1]

    def peaks(self):
        """The highest of all ranks, and each one's."""
        mine = super().peaks()
        if self.device.type == "cpu":
            return mine
        of_ranks = torch.zeros(self.args.ranks, 2, dtype=torch.int64, device=self.device)
        dist.all_gather_into_tensor(of_ranks, torch.tensor(list(mine.values()), device=self.device))
        allocated, reserved = of_ranks.T.tolist()
        return {
            "peak_allocated": max(allocated),
            "peak_reserved": max(reserved),
            "peak_allocated_of_ranks": allocated,
        }

    def about_ranks(self):
        return {
            "schedule": self.args.schedule,
            "micro_batches": self.args.micro_batches,
            "split": ",".join(map(str, self.args.split)),
        }


OWN = {
    "--micro-batches": {"type": int, "required": True, "help": "a step, of --rows rows each"},
    "--split": {
        "type": lambda text: [int(blocks) for blocks in text.split(",")],
        "required": True,
        "help": "blocks of each rank: 14,10",
    },
    "--schedule": {"choices": sorted(SCHEDULES), "default": "1f1b"},
}


def refusal(args):
    if (
        args.ranks < 2
        or len(args.split) != args.ranks
        or min(args.split) < 1
        or sum(args.split) != args.layers
    ):
        return (
            f"--split: at least two ranks, each with a block, {args.layers} blocks in all (--ranks 2 "
            "--split 14,10)"
        )
    if args.mode == "reduce-overhead":
        return "--mode: graphs that use memory again do not keep several micro-batches"
    return None


if __name__ == "__main__":
    serve(read_arguments(__doc__, OWN, refusal), PipelineTrainer)
