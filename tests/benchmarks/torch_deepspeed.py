#!/usr/bin/env python3
"""torch_gpt2.py's model trained by DeepSpeed: the peer of lessons 02 to 05, and a server as torch_gpt2.py is.

bf16 parameters and gradients, fp32 master and states, AdamW and the clip by DeepSpeed. --stage: of ZeRO;
--offload: states and AdamW on the host, pinned. --settings best: blocks, and the head with the loss, are
compiled (--mode), sums of gradients overlap with backward in buckets of --bucket numbers, no check for
overflow; by stage 3 a block is gathered as one. defaults: what DeepSpeed does unasked, nothing compiled.
DeepSpeed compiles its operations when it is first started (nvcc, ninja; TORCH_EXTENSIONS_DIR keeps them). Run
by tests/benchmarks/gpu.py; by hand:
  echo '{"warm_up": 10, "steps": 25}' | python3 tests/benchmarks/torch_deepspeed.py \\
    --workload configs/gpt2_355m.json --rows 16 --stage 2 --offload
"""
import os

os.environ.pop(
    "TORCH_CUDA_ARCH_LIST", None
)  # DeepSpeed cannot read the "9.0a" of some images; without it, it compiles for the GPU that is there
import deepspeed
import torch
import torch.distributed as dist
from torch_gpt2 import Block, Trainer, groups_of, loss_of, read_arguments, serve

DEFAULT_BUCKET = 50_000_000


def config_of(args):
    """DeepSpeed's, of a step with one micro-batch."""
    optim, best = args.optim, args.settings == "best"
    zero = {"stage": args.stage}
    if best:
        zero |= {"overlap_comm": True, "contiguous_gradients": True, "reduce_bucket_size": args.bucket}
    if best and args.stage == 3:
        zero |= {
            "stage3_prefetch_bucket_size": args.bucket,
            "stage3_param_persistence_threshold": 100_000,
            "memory_efficient_linear": False,
        }
    if args.nvme:  # read, updated and written in groups, three of them at a time: four buffers each
        zero |= {
            "sub_group_size": args.bucket,
            "offload_optimizer": {
                "device": "nvme",
                "nvme_path": args.nvme,
                "pin_memory": args.device == "cuda",
                "buffer_count": 12,
                "pipeline_read": True,
                "pipeline_write": True,
            },
        }
    if args.offload:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": args.device == "cuda"}
    adamw = {
        "lr": optim["lr"],
        "betas": [optim["beta1"], optim["beta2"]],
        "eps": optim["eps"],
        "weight_decay": optim["weight_decay"],
        **({"torch_adam": True} if args.device == "cpu" and not (args.offload or args.nvme) else {}),
    }  # its own AdamW is for GPUs, or with --offload
    half = (
        {}
        if args.variant == "fp32"
        else {"bf16": {"enabled": True, **({"check_grad_overflow": False} if best else {})}}
    )
    disk = (
        {
            "aio": {
                "block_size": 1 << 20,
                "queue_depth": 32,
                "single_submit": False,
                "overlap_events": True,
                "intra_op_parallelism": 4,
            }
        }
        if args.nvme
        else {}
    )
    return {
        "train_micro_batch_size_per_gpu": args.rows,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": optim["clip"],
        "steps_per_print": 10**9,
        "optimizer": {"type": "AdamW", "params": adamw},
        "zero_optimization": zero,
        **disk,
        **half,
    }


class DeepSpeedTrainer(Trainer):
    def prepare(self, rank):
        args, self.batches_a_step = self.args, self.args.ranks
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(args.ranks)}
        if not dist.is_initialized():
            device = {"device_id": self.device} if args.device == "cuda" else {}
            dist.init_process_group(
                "nccl" if args.device == "cuda" else "gloo",
                store=dist.HashStore(),
                rank=0,
                world_size=1,
                **device,
            )
        if args.settings == "best":
            self.compile_blocks()
        if args.stage == 3:  # read outside of the modules that own them: gathered with the model
            for weight in (
                self.model.wte.weight,
                self.model.wpe.weight,
                self.model.ln_f.weight,
                self.model.ln_f.bias,
            ):
                deepspeed.zero.register_external_parameter(self.model, weight)
        groups = groups_of(self.model, args.optim)
        self.engine, *_ = deepspeed.initialize(
            model=self.model, model_parameters=groups, config=config_of(args)
        )
        self.batches = self.endless_batches(rank, args.rows)

    def compile_blocks(self):
        """Each by itself: what backward finds, block by block, is summed and copied meanwhile. Stage 3
        gathers where a block begins, outside of its graph."""
        if self.args.stage == 3:
            deepspeed.utils.set_z3_leaf_modules(self.model, [Block])
        self.model.loss_of = self.compiled(loss_of)
        for block in self.model.blocks:
            block.forward = self.compiled(block.forward)

    def step(self):
        self.static.copy_(next(self.batches), non_blocking=True)
        loss = self.engine(self.static[0], self.static[1])
        self.engine.backward(loss)
        self.engine.step()
        return loss.item()

    def about(self):
        return {**super().about(), "fp32_master": True}

    def about_ranks(self):
        args = self.args
        return {
            "stage": args.stage,
            "offload": args.offload,
            "nvme": bool(args.nvme),
            "settings": args.settings,
            "deepspeed": deepspeed.__version__,
            "config": config_of(args),
            "optimizer": type(self.engine.basic_optimizer).__name__,
            "host_threads": torch.get_num_threads(),
        }


OWN = {
    "--stage": {"type": int, "choices": (1, 2, 3), "default": 2, "help": "of ZeRO"},
    "--offload": {"action": "store_true", "help": "states and AdamW on the host"},
    "--nvme": {
        "metavar": "DIR",
        "help": "states on a disk (ZeRO-Infinity): stage 3, best; needs libaio and its header",
    },
    "--settings": {"choices": ("best", "defaults"), "default": "best"},
    "--bucket": {
        "type": int,
        "default": DEFAULT_BUCKET,
        "help": "numbers that are summed, or gathered ahead, at once (best)",
    },
}


def refusal(args):
    if args.variant == "bf16":
        return "--variant: DeepSpeed has an fp32 master (autocast)"
    if args.nvme and (args.stage != 3 or args.offload or args.settings != "best"):
        return "--nvme: with --stage 3, without --offload, --settings best"
    return None


if __name__ == "__main__":
    serve(read_arguments(__doc__, OWN, refusal), DeepSpeedTrainer)
