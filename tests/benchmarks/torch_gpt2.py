#!/usr/bin/env python3
"""GPT-2 in PyTorch at PyTorch's best: the peer of the lessons on GPUs, as a server that times steps when it
is asked to.

It compiles and warms up once, says {"ready": true, ...}, and then answers every line {"warm_up": 10, "steps":
25} on stdin with one line of JSON: seconds of each step, peak memory, when it began and ended. Between two
lines it leaves the GPU alone. The work of a step is that of a lesson: tokens from pinned memory, forward,
backward, clip, AdamW, and the loss read at its end.

Variants. `autocast`: fp32 parameters, bf16 compute, as the lessons' fp32 master. `bf16`: parameters and both
of AdamW's states in bf16 and no fp32 copy, so that small updates are lost: less work than the lessons do.
`fp32`: nothing in bf16, for tests.

Several ranks (--ranks): one process a GPU, DistributedDataParallel; its optimizer split among the ranks by
ZeroRedundancyOptimizer (--shard optimizer); or everything split by FSDP2 (--shard all; --shard gradients:
parameters stay whole from forward to the end of backward). The same model as stages of a pipeline:
torch_pipeline.py. Run by tests/benchmarks/gpu.py; by hand:
  echo '{"warm_up": 10, "steps": 25}' | python3 tests/benchmarks/torch_gpt2.py \\
    --workload configs/gpt2_355m.json --rows 16
"""
import contextlib
import datetime
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from harness import parser_of
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor
from torch.nn.attention import SDPBackend, sdpa_kernel

BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
START_STEPS = 4  # of which the first compiles
BATCHES = 64  # different ones
REPLAYED = ("reduce-overhead", "max-autotune")  # modes of torch.compile whose steps are CUDA graphs
HOUR = datetime.timedelta(hours=1)
FSDP = ("gradients", "all")  # of --shard


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn, self.attn_out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp, self.mlp_out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        rows, length, width = x.shape
        qkv = self.attn(self.ln_1(x)).view(rows, length, 3, self.heads, width // self.heads)
        q, k, v = (part.transpose(1, 2) for part in qkv.unbind(2))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn_out(mixed.transpose(1, 2).reshape(rows, length, width))
        return x + self.mlp_out(F.gelu(self.mlp(self.ln_2(x)), approximate="tanh"))


def read_tokens(path):
    """A file of 16-bit tokens behind a header of 256 numbers, as common/data/token_file.h describes it."""
    return torch.from_numpy(np.fromfile(path, dtype=np.uint16, offset=1024).astype(np.int64))


def loss_of(x, weight, bias, matrix, targets):
    logits = F.linear(F.layer_norm(x, x.shape[-1:], weight, bias), matrix)
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


class Gpt2(nn.Module):
    """Model and loss in one forward, so that both are one graph. The head is the token embedding's matrix."""

    loss_of = staticmethod(loss_of)

    def __init__(self, shape, dtype):
        super().__init__()
        self.dtype = dtype  # of the residual stream
        padded = (shape.vocab + 127) // 128 * 128
        self.wte, self.wpe = nn.Embedding(padded, shape.width), nn.Embedding(shape.context, shape.width)
        self.blocks = nn.ModuleList(Block(shape.width, shape.heads) for _ in range(shape.layers))
        self.ln_f = nn.LayerNorm(shape.width)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)

    def embed(self, tokens):
        return (self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]).to(self.dtype)

    def loss(self, x, targets):
        return self.loss_of(x, self.ln_f.weight, self.ln_f.bias, self.wte.weight, targets)

    def forward(self, tokens, targets):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.loss(x, targets)


def groups_of(model, optim):
    """Matrices decay, vectors do not."""
    return [
        {"params": [p for p in model.parameters() if p.dim() == 2], "weight_decay": optim["weight_decay"]},
        {"params": [p for p in model.parameters() if p.dim() != 2], "weight_decay": 0.0},
    ]


def optimizer_of(model, optim, split):
    groups = groups_of(model, optim)
    settings = {
        "lr": optim["lr"],
        "betas": (optim["beta1"], optim["beta2"]),
        "eps": optim["eps"],
        "fused": True,
    }
    if split:
        # Each rank updates a part of the parameters and broadcasts it. parameters_as_bucket_view would be
        # slower.
        return ZeroRedundancyOptimizer(groups, optimizer_class=torch.optim.AdamW, **settings)
    return torch.optim.AdamW(groups, **settings)


def squares_of(grads):
    return torch.stack(torch._foreach_norm(grads)).square().sum()


def clip_grads(grads, squares, largest):
    """Clips by the norm whose square is given."""
    torch._foreach_mul_(grads, torch.clamp(largest / (squares.sqrt() + 1e-6), max=1.0))


class LocalShards:
    """A rank's own parts of FSDP2's parameters as plain tensors: through DTensor the host takes longer to
    launch the clip and AdamW than the GPUs take to do them."""

    def __init__(self, model):
        self.parts = list(model.parameters())
        self.local = [
            nn.Parameter(p._local_tensor.detach()) if isinstance(p, DTensor) else p for p in self.parts
        ]  # the same memory

    def parameters(self):
        return self.local

    def clip(self, largest):
        for own, p in zip(self.local, self.parts, strict=True):
            own.grad, p.grad = p.grad._local_tensor, None
        grads = [own.grad for own in self.local]
        squares = squares_of(grads)
        dist.all_reduce(squares)
        clip_grads(grads, squares, largest)


def attention_milliseconds(backend, args, device):
    """Forward and backward of one layer's attention. The strides are those of the packed q, k, v. The GPU
    sleeps first, so that the host is ahead of it: at small shapes launching takes longer than computing, and
    a replayed graph launches nothing.
    """
    shape = (args.rows, args.sequence, 3, args.heads, args.width // args.heads)
    qkv = torch.randn(shape, device=device, dtype=torch.bfloat16, requires_grad=True)
    grad = torch.randn(shape[0], shape[3], shape[1], shape[4], device=device, dtype=torch.bfloat16)

    def layer():
        q, k, v = (part.transpose(1, 2) for part in qkv.unbind(2))
        F.scaled_dot_product_attention(q, k, v, is_causal=True).backward(grad)

    times, calls = [], 20
    with sdpa_kernel(backend):
        for _ in range(5):
            began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            layer()
            torch.cuda._sleep(100_000_000)  # cycles: 50 ms
            began.record()
            for _ in range(calls):
                layer()
            ended.record()
            torch.cuda.synchronize()
            times.append(began.elapsed_time(ended) / calls)
    return min(times)


def choose_attention(args, device):
    """Leaves one backend switched on: the asked one, or the faster. Returns its name and what was
    measured."""
    measured = {}
    if device.type == "cpu":
        return "cpu", measured
    if args.attention == "auto":
        for name, backend in BACKENDS.items():
            try:
                measured[name] = attention_milliseconds(backend, args, device)
            except RuntimeError as error:
                print(f"attention by {name}: {error}", file=sys.stderr)
        torch.cuda.empty_cache()
        if not measured:
            sys.exit("error: neither cuDNN nor flash attention works here")
    name = min(measured, key=measured.get) if measured else args.attention
    for other, switch in (
        ("cudnn", torch.backends.cuda.enable_cudnn_sdp),
        ("flash", torch.backends.cuda.enable_flash_sdp),
        ("", torch.backends.cuda.enable_mem_efficient_sdp),
        ("", torch.backends.cuda.enable_math_sdp),
    ):
        switch(other == name)
    return name, measured


class Trainer:
    shards = None  # of FSDP2

    def __init__(self, args, rank):
        self.args = args
        self.device = torch.device("cuda", rank) if args.device == "cuda" else torch.device("cpu")
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        torch.set_float32_matmul_precision("high")
        torch.manual_seed(1)  # every rank starts alike
        self.attention, self.attention_ms = choose_attention(args, self.device)
        with self.device:
            self.model = Gpt2(args, torch.float32 if args.variant == "fp32" else torch.bfloat16)
        if args.variant == "bf16":
            self.model.to(torch.bfloat16)
        self.count = sum(p.numel() for p in self.model.parameters())
        self.prepare(rank)

    def prepare(self, rank):
        """What ranks have of the model, and their batches."""
        args, self.batches_a_step = self.args, self.args.ranks  # each rank has its own
        self.forward = (
            self.sharded(self.model)
            if args.shard in FSDP
            else self.distributed(self.compiled(self.model), rank)
        )
        self.parameters = list(self.model.parameters())
        self.shards = LocalShards(self.model) if args.shard in FSDP else None
        self.optim = optimizer_of(self.shards or self.model, args.optim, args.shard == "optimizer")
        self.batches = self.endless_batches(rank, args.rows)

    def compiled(self, model):
        """One graph, of a model and its loss, or of a part of it."""
        if self.args.mode == "eager":
            return model
        return torch.compile(model, **self.options())

    def options(self):
        """The options of torch.compile."""
        mode = None if self.args.mode == "default" else self.args.mode
        return {"fullgraph": True, "dynamic": False, "mode": mode}

    def distributed(self, model, rank):
        """The graph is cut at the buckets' edges (not with --one-graph), so that gradients are summed behind
        backward."""
        if self.args.ranks == 1:
            return model
        torch._dynamo.config.optimize_ddp = not self.args.one_graph
        ddp = nn.parallel.DistributedDataParallel(
            model,
            device_ids=[rank] if self.device.type == "cuda" else None,
            gradient_as_bucket_view=True,
            static_graph=True,
            bucket_cap_mb=self.args.bucket_mb,
        )
        if self.args.wire == "bf16":
            ddp.register_comm_hook(None, default_hooks.bf16_compress_hook)
        return ddp

    def sharded(self, model):
        """FSDP2: fp32 parameters and states, a slice a rank; gathered, computed with and summed in bf16. What
        is compiled is a block, and the head with the loss: gathering stands between them."""
        asked = {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)}
        if self.args.shard == "gradients":
            asked["reshard_after_forward"] = False
        model.loss_of = self.compiled(loss_of)
        for block in model.blocks:
            if self.args.mode != "eager":
                block.compile(**self.options())
            fully_shard(block, **asked)
        return fully_shard(model, **asked)

    def endless_batches(self, rank, rows_a_step):
        """Pinned, as a loader's would be. Rows of --tokens, for which the lessons train too: what they hold
        decides how many bits a multiplier turns over, and so what power a step takes."""
        args, cuda = self.args, self.device.type == "cuda"
        generator = torch.Generator().manual_seed(2 + rank)
        self.static = torch.empty(2, rows_a_step, args.sequence, dtype=torch.int64, device=self.device)
        tokens = (
            torch.randint(0, args.vocab, (2**20,), generator=generator)
            if args.tokens is None
            else read_tokens(args.tokens)
        )
        ready = []  # before any step is timed
        for _ in range(BATCHES):
            starts = torch.randint(
                0, len(tokens) - args.sequence, (rows_a_step,), generator=generator
            ).tolist()
            rows = torch.stack([tokens[begin : begin + args.sequence + 1] for begin in starts])
            batch = torch.stack([rows[:, :-1], rows[:, 1:]])
            ready.append(batch.pin_memory() if cuda else batch)
        return itertools.cycle(ready)

    def autocast(self):
        if self.args.variant != "autocast" or self.shards:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    def step(self):
        """Returns the loss: the host waits for the whole step."""
        self.static.copy_(next(self.batches), non_blocking=True)
        if self.args.mode in REPLAYED:
            torch.compiler.cudagraph_mark_step_begin()
        with self.autocast():
            loss = self.forward(self.static[0], self.static[1])
        loss.backward()
        if self.shards:
            self.shards.clip(self.args.optim["clip"])
        else:
            nn.utils.clip_grad_norm_(self.parameters, self.args.optim["clip"], foreach=True)
        self.optim.step()
        self.optim.zero_grad(set_to_none=True)
        return loss.item()

    def timed(self, warm_up, steps):
        cuda = self.device.type == "cuda"
        for _ in range(warm_up):
            self.step()
        if cuda:
            torch.cuda.reset_peak_memory_stats()
        seconds, losses, began = [], [], time.time()
        for _ in range(steps):
            before = time.perf_counter()
            losses.append(self.step())
            seconds.append(time.perf_counter() - before)
        ended = time.time()
        answer = {
            "seconds": seconds,
            "losses": losses,
            "tokens": self.static[0].numel() * self.batches_a_step,
            "began": began,
            "ended": ended,
            **self.peaks(),
        }
        self.release()
        return answer

    def peaks(self):
        if self.device.type == "cpu":
            return {"peak_allocated": None, "peak_reserved": None}
        return {
            "peak_allocated": torch.cuda.max_memory_allocated(),
            "peak_reserved": torch.cuda.max_memory_reserved(),
        }

    def release(self):
        """Gives back what an idle peer does not need: other programs run beside it."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def about(self):
        cuda = self.device.type == "cuda"
        nccl = ".".join(map(str, torch.cuda.nccl.version())) if cuda else None
        cudnn = torch.backends.cudnn.version() if cuda else None
        return {
            "parameters": self.count,
            "variant": self.args.variant,
            "mode": self.args.mode,
            "ranks": self.args.ranks,
            "attention": self.attention,
            "attention_milliseconds": self.attention_ms,
            "fp32_master": self.args.variant == "autocast",
            **self.about_ranks(),
            "versions": {
                "PyTorch": torch.__version__,
                "CUDA": torch.version.cuda,
                "cuDNN": cudnn,
                "NCCL": nccl,
            },
        }

    def about_ranks(self):
        several, whole = self.args.ranks > 1, self.args.shard in FSDP
        return {
            "bucket_mb": self.args.bucket_mb if several and not whole else None,
            "wire": ("bf16" if whole else self.args.wire) if several else None,
            "shard": self.args.shard,
        }


ASKED = {  # of every peer; read_arguments() fills in what the workload says
    "--workload": {"default": "configs/gpt2_355m.json", "help": "model, sequence and optimizer"},
    "--rows": {"type": int, "help": "rows a step and rank (default: batch.micro)"},
    **{
        f"--{key}": {"type": int, "help": "instead of the workload's"}
        for key in ("layers", "heads", "width", "vocab", "context", "sequence")
    },
    "--variant": {"choices": ("autocast", "bf16", "fp32"), "default": "autocast"},
    "--mode": {
        "default": "default",
        "choices": ("eager", "default", *REPLAYED, "max-autotune-no-cudagraphs"),
        "help": "of torch.compile",
    },
    "--attention": {"choices": ("auto", "cudnn", "flash"), "default": "auto"},
    "--attention-only": {"action": "store_true", "help": "print which backend is the faster, and exit"},
    "--ranks": {"type": int, "default": 1},
    "--tokens": {"metavar": "FILE", "help": "token file that is trained on (default: random tokens)"},
    "--device": {"choices": ("cuda", "cpu"), "default": "cuda"},
}


def read_arguments(about, own, refusal):
    """Reads the arguments that all peers have, and a peer's own; refusal(args) says what is wrong with them,
    or None."""
    parser = parser_of(about, {**ASKED, **own})
    args = parser.parse_args()
    workload = json.loads(pathlib.Path(args.workload).read_text())
    for key in ("layers", "heads", "width", "vocab", "context"):
        setattr(args, key, getattr(args, key) or workload["model"][key])
    args.sequence = args.sequence or workload["batch"]["sequence"]
    args.rows = args.rows or workload["batch"]["micro"]
    args.optim = workload["optim"]
    if said := refusal(args):
        parser.error(said)
    return args


OWN = {
    "--bucket-mb": {"type": int, "default": 25, "help": "of DistributedDataParallel"},
    "--wire": {
        "choices": ("same", "bf16"),
        "default": "same",
        "help": "numbers in which ranks sum gradients",
    },
    "--shard": {
        "choices": ("none", "optimizer", *FSDP),
        "default": "none",
        "help": "optimizer: ZeroRedundancyOptimizer; all, gradients (parameters are whole until backward has "
        "used them): FSDP2, which has its own bf16 instead of autocast",
    },
    "--one-graph": {
        "action": "store_true",
        "help": "of several ranks too: gradients are summed after backward",
    },
}


def refusal(args):
    if args.shard != "none" and (
        args.ranks == 1 or args.variant != "autocast" or (args.shard in FSDP and args.wire != "same")
    ):
        return (
            "--shard: of several ranks with fp32 parameters (--ranks 2, --variant autocast); FSDP2 without "
            "--wire"
        )
    return None


class Ranks:
    """This process is rank 0; the others are its children, and take its commands from a file that they
    share."""

    def __init__(self, args):
        self.rank, self.folder = int(os.environ.get("STAGECRAFT_PEER_RANK", "0")), os.environ.get(
            "STAGECRAFT_PEER_FOLDER"
        )
        self.sent, self.children, self.made = 0, [], None
        if args.ranks == 1:
            return
        if self.rank == 0:
            self.made = tempfile.TemporaryDirectory(prefix="torch_gpt2_")
            self.folder = self.made.name
            self.children = [self.start(rank) for rank in range(1, args.ranks)]
        device = torch.device("cuda", self.rank) if args.device == "cuda" else None
        place = {"init_method": f"file://{self.folder}/group", "rank": self.rank, "world_size": args.ranks}
        dist.init_process_group("nccl" if device else "gloo", device_id=device, **place)
        self.commands = dist.FileStore(f"{self.folder}/commands", args.ranks)
        self.commands.set_timeout(HOUR)

    def start(self, rank):
        environment = {**os.environ, "STAGECRAFT_PEER_RANK": str(rank), "STAGECRAFT_PEER_FOLDER": self.folder}
        guard = (
            ["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []
        )  # it ends with rank 0
        return subprocess.Popen(
            [*guard, sys.executable, *sys.argv], env=environment, stdin=subprocess.DEVNULL
        )

    def next_command(self, lines):
        """The next command from rank 0's stdin; None at its end. Waiting for it uses no GPU."""
        if self.rank == 0:
            text = lines.readline()
            if self.children:
                self.commands.set(f"command {self.sent}", text or "{}")
        else:
            text = self.commands.get(f"command {self.sent}").decode()
        self.sent += 1
        return json.loads(text) if text.strip() else None

    def close(self):
        for child in self.children:
            child.wait()
        if dist.is_initialized():
            dist.destroy_process_group()
        if self.made:
            self.made.cleanup()


def serve(args, trainer_of):
    """Answers on stdout until stdin ends. `trainer_of`(args, rank): the trainer."""
    # stdout carries only answers, so the prints of libraries go to stderr.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    began = time.perf_counter()
    if args.attention_only:
        name, measured = choose_attention(args, torch.device(args.device))
        answers.write(json.dumps({"attention": name, "attention_milliseconds": measured}) + "\n")
        return
    ranks = Ranks(args)
    trainer = trainer_of(args, ranks.rank)
    for _ in range(START_STEPS):
        loss = trainer.step()
    trainer.release()
    if ranks.rank == 0:
        ready = {"ready": True, "start_seconds": time.perf_counter() - began, "loss": loss, **trainer.about()}
        answers.write(json.dumps(ready) + "\n")
    while command := ranks.next_command(sys.stdin):
        answer = trainer.timed(command["warm_up"], command["steps"])
        if ranks.rank == 0:
            answers.write(json.dumps(answer) + "\n")
    ranks.close()


if __name__ == "__main__":
    serve(read_arguments(__doc__, OWN, refusal), Trainer)
