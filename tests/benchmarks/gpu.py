#!/usr/bin/env python3
"""Lessons and their peers on this machine's GPUs, in turns within one run, so that all see the same chip at
the same power.

A round gives each program one turn (warm-up steps, then timed ones, each synchronised); what is compared is
the ratio within a round. The result is written after every round: a run that was stopped goes on where it was
when it is started again. All train on the same file of random tokens, or on --tokens: what numbers are
multiplied decides what power that takes, and a chip at its power limit what clock. Each round begins with
another program. One GPU: lesson 00, and in run "sharding", which has no peer, lessons 01-04 beside it.
Several: lesson 01 on all of them and on each alone (all at once; the slowest counts), lessons 02-04,
DistributedDataParallel, with ZeroRedundancyOptimizer, and FSDP2. Runs of ours alone: "accumulate" has four
micro-batches a step, "windows" lesson 04 also without copy engines, "links" what links between GPUs that are
awake cost a step on one GPU. Run "pipeline" is lesson 07 beside torch.distributed.pipelining, both cut into
the same stages, with 4, 8 and 16 micro-batches a step, with 8 by GPipe as well:
docs/results/gpu_pipeline.json. Run "tensor" is lesson 10 in its variants beside lesson 00 on one GPU, lessons
01 and 04 and DTensor, each step of the same rows: docs/results/gpu_tensor.json. Run "context" is lesson 12 in
its variants beside lessons 00 and 10 and PyTorch's context_parallel, each step of one long row, and "long",
on one GPU, lesson 00 beside PyTorch on that row: docs/results/gpu_context.json. Run "combined" is lesson 11
with one axis at a time beside the lesson that has that axis alone: docs/results/gpu_combined.json. "mesh_4"
and "mesh_8" are meshes of so many GPUs, and shard groups of lesson 04, beside lessons 01 and 04 on the same
rows. Run "offload" is lesson 05 beside DeepSpeed's ZeRO-Offload and lesson 00 on one GPU, "zero" lessons
01-04 beside its stages 1 to 3: docs/results/gpu_deepspeed.json.

  tests/benchmarks/gpu.sh [--world 2] [--rows 355m,seed] [--peers compile,bf16] [--seconds 540]
                          [--out docs/results/gpu_peers.json]
  tests/benchmarks/gpu.sh --world 2 --rows pipeline [--peers 1f1b,1f1b:13+11]
  tests/benchmarks/gpu.sh --world 2 --rows tensor [--peers tp,sp,async,sp:one-graph]
  tests/benchmarks/gpu.sh --world 2 --rows context [--peers alltoall,allgather]
  tests/benchmarks/gpu.sh --world 2 --rows combined
  tests/benchmarks/gpu.sh --world 4 --rows mesh_4
  tests/benchmarks/gpu.sh --world 1 --rows offload [--peers offload,offload:defaults]
  tests/benchmarks/gpu.sh --world 2 --rows zero [--peers stage2,stage2:defaults]
  tests/benchmarks/gpu.sh --render docs/results/gpu_peers.json
"""
import argparse
import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

import gpu_deepspeed
import gpu_table
from gpu_programs import WARM, Apart, BesideCopies, Failed, Lesson, LlmC, OutOfTime, Peer, random_tokens
from gpu_watch import EnergyCounter, Watch, machine
from harness import (
    BIN,
    COMMIT,
    HERE,
    ROOT,
    arguments,
    command_text,
    kept,
    lesson_program,
    name_of,
    now,
    own_command,
    result,
    sets,
    sources,
    write,
)

GIB = 2.0**30


@dataclasses.dataclass
class Row:
    """A workload as it is timed. Steps are more where they are short: a turn lasts a second at least."""

    name: str
    workload: str
    rows: int  # a micro-batch and rank
    steps: int = 25
    warm_up: int = 10
    peers: tuple = ("compile", "bf16")
    beside: tuple = ()  # what else of ours takes turns on one GPU
    # Programs of a row that are timed on several GPUs.
    lessons: tuple = ("ours", "ours_1", "zero1", "zero2", "zero3")
    ddp_peers: tuple = ("compile", "wire", "zero", "fsdp")
    micro_batches: int = 1  # a step and rank; peers have one, but for pipelines
    worlds: tuple = (1, 2)  # 2: of several
    gpus: int = 0  # on so many alone
    split: tuple = ()  # blocks of each GPU, a stage of one pipeline
    sequence: int = 0  # instead of the workload's
    set: tuple = ()  # what else lessons are told
    paused: bool = (
        True  # on one GPU a lesson stands still between its turns, where all of them fit in its memory
    )
    ours: str = ""  # which of LESSONS `ours` is, where all GPUs work on the same micro-batches
    record: str = "gpu_peers"

    def config(self):
        config = json.loads((ROOT / "configs" / f"{self.workload}.json").read_text())
        config["batch"]["sequence"] = self.sequence or config["batch"]["sequence"]
        return config

    def runs_on(self, world):
        return min(2, world) in self.worlds and len(self.split) in (0, world) and self.gpus in (0, world)

    def step_rows(self, world):
        return self.rows * self.micro_batches * (1 if self.ours else world)

    def rows_of(self, name, world):
        """The rows of one micro-batch on one rank. From a step of the same rows data parallelism gives each
        rank a share, two lanes have half of them each, and a pipeline cuts them into four micro-batches."""
        shares = {
            TENSOR[0]: {"dp": world, "zero3": world, "ours_lanes": 2, "ours_lanes_kept": 2},
            COMBINED[0]: {"ours": 4, "pipeline": 4, "ours_1x2x1": world, "dp": world},
        }
        return self.rows // shares.get(self.ours, {}).get(name, 1)


def pipeline(micro_batches, *schedules):
    """Lesson 07 and its peer, by 1F1B and by `schedules`, and lesson 00 on the same step. The split is what
    split=balanced makes of 24 blocks and the head."""
    return Row(
        f"pipeline_{micro_batches}",
        "gpt2_355m",
        4,
        lessons=("ours", "ours_warmup", *(f"ours_{name}" for name in schedules), gpu_table.ONE),
        ddp_peers=("1f1b", *schedules),
        micro_batches=micro_batches,
        worlds=(2,),
        split=(14, 10),
        ours=PIPELINES[0],
        record="gpu_pipeline",
    )


def tensor(workload, *peers):
    return Row(
        f"tensor_{workload}",
        f"gpt2_{workload}",
        16,
        lessons=("ours", *TENSOR[1:]),
        ddp_peers=peers,
        worlds=(2,),
        ours=TENSOR[0],
        record="gpu_tensor",
    )


def long_rows(thousands, **more):
    """A step of one row, which is longer than the workload's positions."""
    return Row(
        f"{'context' if more.get('ours') else 'long'}_{thousands}k",
        "gpt2_355m",
        1,
        steps=10,
        warm_up=4,
        sequence=1024 * thousands,
        set=(f"model.context={1024 * thousands}",),
        record="gpu_context",
        **more,
    )


def context(thousands):
    several = {"lessons": ("ours", *CONTEXT[1:]), "ddp_peers": tuple(ROTATES), "ours": CONTEXT[0]}
    return long_rows(thousands, worlds=(2,), **several)


def meshes(gpus, *names):
    """64 rows a step, eight at a time wherever a rank has as many."""
    return Row(
        f"mesh_{gpus}",
        "gpt2_774m",
        8,
        lessons=("ours", "zero3", *names),
        ddp_peers=(),
        micro_batches=8,
        worlds=(2,),
        gpus=gpus,
        ours=MESHES[0],
        record="gpu_combined",
    )


def offload(workload, rows, **more):
    return Row(
        f"offload_{workload}",
        f"gpt2_{workload}",
        rows,
        peers=("offload", "offload:defaults"),
        beside=OFFLOAD[1:],
        ours=OFFLOAD[0],
        worlds=(1,),
        paused=False,
        record="gpu_deepspeed",
        **more,
    )


PIPELINES = ("ours_1f1b", "ours_warmup", "ours_gpipe", gpu_table.ONE)  # the first is `ours`, as below
VARIANTS_OF_TENSOR = ("ours_split", "ours_whole", "ours_kept", "ours_lanes", "ours_lanes_kept", "ours_nccl")
TENSOR = (*VARIANTS_OF_TENSOR, "one_device", "dp", "zero3")
CONTEXT = ("ours_ring", "ours_gather", "ours_contiguous", "tensor", gpu_table.ONE)
ROTATES = {"alltoall": "keys passed round", "allgather": "keys gathered"}
COMBINED = (
    "ours_2x1x1",
    "ours_1x2x1",
    "ours_1x1x2",
    "pipeline",
    "dp",
    "tensor",
)  # lesson 11 along each axis, and the lesson that has it alone
MESHES = ("dp", "zero3", *gpu_table.MESHES)
OFFLOAD = gpu_deepspeed.OFFLOAD

ROWS = {
    row.name: row
    for row in (
        Row(
            "seed",
            "seed_355m",
            4,
            steps=100,
            warm_up=40,
            peers=("compile", "bf16", "compile:reduce-overhead"),
        ),
        Row("124m", "gpt2_124m", 32, beside=("text",)),
        Row("355m", "gpt2_355m", 16),
        Row("774m", "gpt2_774m", 16),
        Row(
            "1558m",
            "gpt2_1558m",
            8,
            lessons=("ours", "ours_1", "zero1", "zero2", "zero3", "zero3_gelu"),
            ddp_peers=("compile", "fsdp"),
        ),
        # This project's lessons alone: what sharding saves on one GPU.
        Row("sharding", "gpt2_355m", 16, peers=(), beside=("dp", "zero1", "zero2", "zero3"), worlds=(1,)),
        # Lessons with several micro-batches a step, since 03 and 04 send more then. No peers.
        Row(
            "accumulate",
            "gpt2_355m",
            16,
            lessons=("ours", "zero1", "zero2", "zero3"),
            ddp_peers=(),
            micro_batches=4,
            worlds=(2,),
        ),
        # Lesson 04 with and without copy engines.
        Row("windows", "gpt2_355m", 16, lessons=("ours", "zero3", "zero3_plain"), ddp_peers=(), worlds=(2,)),
        # How lesson 03 scales, beside lesson 01.
        Row(
            "scaling",
            "gpt2_355m",
            16,
            lessons=("ours", "ours_1", "zero2", "zero2_1"),
            ddp_peers=(),
            worlds=(2,),
        ),
        Row(
            "links",
            "gpt2_355m",
            16,
            lessons=("ours", "ours_1", "ours_1_awake", "ours_1_within"),
            ddp_peers=(),
            worlds=(2,),
        ),
        pipeline(4),
        pipeline(8, "gpipe"),
        pipeline(16),
        tensor("355m", "tp", "sp", "async"),
        tensor("774m"),
        *(context(thousands) for thousands in (16, 32, 64)),
        *(long_rows(thousands, peers=("compile",), worlds=(1,)) for thousands in (16, 32, 64)),
        Row(
            "combined_355m",
            "gpt2_355m",
            16,
            lessons=("ours", *COMBINED[1:]),
            ddp_peers=(),
            worlds=(2,),
            ours=COMBINED[0],
            record="gpu_combined",
        ),
        meshes(4, "zero3_by_2", "replicas_2", "mesh_2x1x2", "mesh_1x2x2", "mesh_2x2x1"),
        meshes(8, "zero3_by_2", "zero3_by_4", "mesh_2x2x2", "mesh_1x4x2", "mesh_4x2x1", "mesh_2x1x4"),
        offload("355m", 16),
        offload("774m", 2, sequence=512, set=("activations=recompute",)),
        Row(
            "zero_355m",
            "gpt2_355m",
            16,
            lessons=("ours", "zero1", "zero2", "zero3"),
            ddp_peers=("stage1", "stage2", "stage3", "stage2:defaults"),
            worlds=(2,),
            record="gpu_deepspeed",
        ),
    )
}
GROUPS = {
    group: [name for name in ROWS if name.startswith(f"{group}_")]
    for group in ("pipeline", "tensor", "context", "long", "combined", "mesh", "offload", "zero")
}  # --rows asks for all of them at once
# Each lesson program by name: program, settings, label.
LESSONS = {
    "text": ("00_one_device", [], "Stagecraft, lesson 00 on the workload's text instead"),
    "ours": ("01_data_parallel", [], "Stagecraft, lesson 01 (data parallel)"),
    "dp": ("01_data_parallel", [], "Stagecraft, lesson 01 (data parallel)"),
    "ours_1": ("01_data_parallel", [], "Stagecraft, lesson 01 on one GPU"),
    "ours_1_awake": (
        "01_data_parallel",
        [],
        "Stagecraft, lesson 01 on one GPU, beside copies of 1 MiB into it, one every 20 ms",
    ),
    "ours_1_within": (
        "01_data_parallel",
        [],
        "Stagecraft, lesson 01 on one GPU, beside as many copies that use no link",
    ),
    "zero1": ("02_zero1", [], "Stagecraft, lesson 02 (ZeRO-1)"),
    "zero2": ("03_zero2", [], "Stagecraft, lesson 03 (ZeRO-2)"),
    "zero2_1": ("03_zero2", [], "Stagecraft, lesson 03 on one GPU"),
    "zero3": ("04_zero3", [], "Stagecraft, lesson 04 (ZeRO-3)"),
    "zero3_gelu": (
        "04_zero3",
        ["activations=recompute_gelu"],
        "Stagecraft, lesson 04 (ZeRO-3), GELU computed again",
    ),
    "zero3_plain": ("04_zero3", [], "Stagecraft, lesson 04 (ZeRO-3), NCCL_WIN_ENABLE=0"),
    "ours_1f1b": ("07_pipeline", ["schedule=1f1b"], "Stagecraft, lesson 07 (pipeline, 1F1B)"),
    "ours_warmup": ("07_pipeline", ["warmup=1"], "Stagecraft, lesson 07 (pipeline, 1F1B, warmup=1)"),
    "ours_gpipe": ("07_pipeline", ["schedule=gpipe"], "Stagecraft, lesson 07 (pipeline, GPipe)"),
    "one_device": ("00_one_device", [], "Stagecraft, lesson 00 on one GPU"),
    **gpu_deepspeed.LESSONS,
    "ours_split": ("10_tensor_parallel", ["tokens=split"], "Stagecraft, lesson 10 (tensor parallelism)"),
    "ours_whole": ("10_tensor_parallel", ["tokens=whole"], "Stagecraft, lesson 10, tokens=whole"),
    "ours_kept": ("10_tensor_parallel", ["gathered=kept"], "Stagecraft, lesson 10, gathered=kept"),
    "ours_lanes": ("10_tensor_parallel", ["lanes=2"], "Stagecraft, lesson 10, lanes=2 of half the rows"),
    "ours_lanes_kept": (
        "10_tensor_parallel",
        ["lanes=2", "gathered=kept"],
        "Stagecraft, lesson 10, lanes=2 of half the rows, gathered=kept",
    ),
    "ours_nccl": ("10_tensor_parallel", ["--transport=nccl"], "Stagecraft, lesson 10, all messages by NCCL"),
    "ours_ring": ("12_context_parallel", [], "Stagecraft, lesson 12 (context parallelism)"),
    "ours_gather": ("12_context_parallel", ["exchange=gather"], "Stagecraft, lesson 12, exchange=gather"),
    "ours_contiguous": (
        "12_context_parallel",
        ["parts=contiguous"],
        "Stagecraft, lesson 12, parts=contiguous",
    ),
    "pipeline": ("07_pipeline", [], "Stagecraft, lesson 07 (pipeline, 1F1B)"),
    "tensor": ("10_tensor_parallel", [], "Stagecraft, lesson 10 (tensor parallelism)"),
    **{
        f"ours_{mesh}": (
            "11_combined",
            [f"mesh={mesh}", "states=whole"],
            f"Stagecraft, lesson 11, mesh={mesh}",
        )
        for mesh in ("2x1x1", "1x2x1", "1x1x2")
    },
    "replicas_2": (
        "07_pipeline",
        ["replicas=2", "states=sharded"],
        "Stagecraft, lesson 07 (pipeline, 1F1B), replicas=2",
    ),
    **{
        f"zero3_by_{ranks}": (
            "04_zero3",
            [f"shard_ranks={ranks}"],
            f"Stagecraft, lesson 04 (ZeRO-3), shard_ranks={ranks}",
        )
        for ranks in (2, 4)
    },
    **{
        name: ("11_combined", [name.replace("_", "=")], f"Stagecraft, lesson 11, {name.replace('_', '=')}")
        for name in gpu_table.MESHES
        if name.startswith("mesh_")
    },
}
ENVIRONMENT_OF = {"zero3_plain": {"NCCL_WIN_ENABLE": "0"}}  # NCCL registers no window then
ALONE = (*gpu_table.SCALING, *gpu_table.BESIDE_COPIES, gpu_table.ONE)  # on each of several GPUs apart
# Variants of the peers, by the program that runs them: name -> label.
VARIANTS = {
    "compile": "torch.compile, fp32 parameters, bf16 autocast",
    "wire": "torch.compile, fp32 parameters, bf16 autocast, gradients summed in bf16 (bf16_compress_hook)",
    "bf16": "torch.compile, bf16 parameters and AdamW states, no fp32 master",
    "zero": "torch.compile, fp32 parameters, bf16 autocast, ZeroRedundancyOptimizer, fp32 between ranks",
    "fsdp": "FSDP2, blocks compiled, fp32 parameters, gathered, computed and summed in bf16",
}
SCHEDULES = {"1f1b": "Schedule1F1B", "gpipe": "ScheduleGPipe"}  # behind a colon another split, 1f1b:13+11
CUTS = {"tp": "", "sp": ", sequence parallel", "async": ", sequence parallel, async TP"}
SHARDS = {"zero": "optimizer", "fsdp": "all"}  # of several GPUs, as wire
STAGES = ("stage1", "stage2", "stage3")  # of DeepSpeed, on several GPUs, too
SEVERAL = ("wire", *SHARDS, *STAGES)


@dataclasses.dataclass(frozen=True)
class Family:
    """What takes turns on the same rows: lessons, of which the first is `ours`, and their peers. Whoever asks
    for another peer is told what there is."""

    lessons: tuple = ()
    peers: tuple = ()
    refusal: str = "'{name}': {row} has lessons alone"
    fix: str = "leave --peers out, or none"


FAMILIES = {
    "": Family(
        (),
        (*VARIANTS, *STAGES),
        f"'{{name}}' is none of {', '.join((*VARIANTS, *STAGES))} ({', '.join(SEVERAL)}: on several GPUs)",
        "--peers compile,bf16:reduce-overhead, or none",
    ),
    PIPELINES[0]: Family(
        PIPELINES,
        tuple(SCHEDULES),
        f"'{{name}}' is none of {', '.join(SCHEDULES)}",
        "--peers 1f1b,1f1b:13+11, or none",
    ),
    TENSOR[0]: Family(
        TENSOR, tuple(CUTS), f"'{{name}}' is none of {', '.join(CUTS)}", "--peers sp,async, or none"
    ),
    CONTEXT[0]: Family(
        CONTEXT,
        tuple(ROTATES),
        f"'{{name}}' is none of {', '.join(ROTATES)}",
        "--peers alltoall,allgather, or none",
    ),
    COMBINED[0]: Family(COMBINED),
    MESHES[0]: Family(MESHES),
    OFFLOAD[0]: Family(
        OFFLOAD, ("offload",), "'{name}' is none of offload, offload:defaults", "--peers offload, or none"
    ),
}
OF_FAMILIES = {name for family in FAMILIES.values() for name in family.lessons} - {"dp", "zero3"}


def sizes(row):
    """Parameters, tokens of a micro-batch on one GPU, and the vocabulary as stored."""
    config = row.config()
    d, vocab = config["model"]["width"], (config["model"]["vocab"] + 127) // 128 * 128
    return (
        vocab * d + config["model"]["context"] * d + config["model"]["layers"] * (12 * d * d + 13 * d),
        row.rows * config["batch"]["sequence"],
        vocab,
    )


def expected_seconds(row, world, program):
    """About what a step takes on GPUs that make 400 TFLOP/s of it: before the first turn, to warm up for
    about as long as later ones. Lesson 05's host updates 5e9 parameters a second."""
    parameters, *_ = sizes(row)
    return (parameters / 5e9 if program.name == "05_offload" else 0.0) + 6 * parameters * row.step_rows(
        world
    ) * row.config()["batch"]["sequence"] / 400e12 / world


def peer_gib(row, name):
    """About what a peer (one of --peers) holds while it trains."""
    parameters, tokens, vocab = sizes(row)
    model = row.config()["model"]
    d, layers = model["width"], model["layers"]
    base = name.split(":")[0]
    tokens *= row.micro_batches if base == "gpipe" else 1
    return (
        1.0
        + (parameters * (10 if base == "bf16" else 18) + tokens * layers * 34 * d + tokens * vocab * 4) / GIB
    )


def tried(call, *words):
    """What it returns, and what failed."""
    try:
        return call(*words), None
    except Failed as error:
        return None, str(error)


class Bench:
    """Programs in turns, within a time limit. Also what dtype_only.py runs on."""

    def __init__(self, seconds, folder):
        self.deadline = time.monotonic() + (seconds or 1e9)
        self.folder, self.longest = pathlib.Path(folder), 0.0
        self.watch, self.energy, self.machine = Watch(), EnergyCounter(), machine()

    def round(self, programs, order, row, sequence, world_of):
        """One turn each. Returns the cells and who failed; raises OutOfTime."""
        began, cells, failures = time.monotonic(), {}, {}
        for name in order:
            tokens = row.step_rows(world_of[name]) * sequence
            turn, failure = tried(programs[name].measure, row.warm_up, row.steps, self.deadline)
            if failure is None and turn["tokens"] != tokens:
                failure = f"a step has {turn['tokens']} tokens, {tokens} were asked for"
            if failure is not None:
                failures[name] = failure
                continue
            gpus = max(world_of.values())
            power = self.watch.between(turn["began"], turn["ended"], gpus)
            joules = self.energy.between(turn["began"], turn["ended"], turn.get("gpus", range(gpus)))
            apart = {"medians_of_gpus": turn["medians"]} if "medians" in turn else {}
            cells[name] = {
                **gpu_table.cell(tokens, turn, power, joules),
                **apart,
                "began": turn["began"],
                "ended": turn["ended"],
            }
        took = time.monotonic() - began
        self.longest = max(self.longest, took)
        return {"started": now(), "seconds": took, "programs": cells}, failures

    def fits(self, rounds):
        """Whether there is time for another round, by what earlier ones took: this row's, or else any."""
        took = max((r["seconds"] for r in rounds), default=self.longest)
        return time.monotonic() + took <= self.deadline


class Comparison(Bench):
    def __init__(self, args, folder):
        super().__init__(args.seconds, folder)
        self.args, self.world = args, args.world or max(1, self.machine["gpus"])
        self.asked = self.wanted()
        self.path = pathlib.Path(args.out or f"docs/results/{self.record_of(self.asked)}.json")
        self.result = kept(self.path, {"rows": {}})
        self.result["about"] = (
            "medians of synchronised steps; the programs of a row took turns within each round, and ratios "
            "are within a round; an idle program keeps its memory and leaves the GPU alone"
        )
        # The origin of the numbers: commits of the lessons' programs and of this script, and the command.
        runner = sources()
        self.origin = {"commit": args.commit or runner, "runner": runner, "command": own_command("gpu.py")}
        self.peers, self.attentions, self.anew, self.bad = {}, {}, set(), False
        self.stored = result("peers_stored")

    def key(self, row):
        return row.name if self.world == 1 else f"{row.name} x{self.world}"

    def wanted(self):
        known = [name for name, row in ROWS.items() if row.runs_on(self.world)]
        asked = self.args.rows.split(",") if self.args.rows else known if self.world == 1 else ["355m"]
        names = [
            name
            for one in asked
            for name in (
                [name for name in GROUPS[one] if ROWS[name].gpus in (0, self.world)]
                if one in GROUPS
                else [one]
            )
        ]
        for name in names:
            if name not in known:
                groups = [group for group, members in GROUPS.items() if set(members) <= set(known)]
                sys.exit(f"error: --rows: {name} is none of {', '.join(known + groups)} (GPUs: {self.world})")
        return [self.timed(row) for row in ROWS.values() if row.name in names]

    @staticmethod
    def record_of(rows):
        """The one that a result without --out goes to."""
        records = list(dict.fromkeys(row.record for row in rows))
        if len(records) > 1:
            sys.exit(
                f"error: --rows: some are kept in {records[0]}.json, some in {records[1]}.json\n  fix: ask "
                "for them apart, or --out FILE"
            )
        return records[0]

    def timed(self, row):
        warm_up = row.warm_up if self.args.warm_up is None else self.args.warm_up
        return dataclasses.replace(row, steps=self.args.steps or row.steps, warm_up=warm_up)

    def peer_names(self, row):
        names = (
            self.args.peers.split(",") if self.args.peers else row.peers if self.world == 1 else row.ddp_peers
        )
        names, family = [] if list(names) == ["none"] else names, FAMILIES[row.ours]
        absent = SEVERAL if self.world == 1 else ()
        for name in names:
            if (base := name.split(":")[0]) not in family.peers or base in absent:
                refusal = family.refusal.format(name=name, row=row.name)
                sys.exit(f"error: --peers: {refusal}\n  fix: {family.fix}")
        return names

    def lesson_names(self, row):
        """Ours first: lesson 00 on one GPU, lesson 01 on several. On one GPU most others are there only if
        they are asked for."""
        names = (
            self.args.lessons.split(",")
            if self.args.lessons
            else row.lessons
            if self.world > 1
            else ("ours", *row.beside)
        )
        elsewhere = {*(("dp", "text") if self.world > 1 else ALONE), *OF_FAMILIES}
        known = ["ours", *FAMILIES[row.ours].lessons[1:]] if row.ours else [*LESSONS]
        known = [name for name in known if row.ours or name not in elsewhere]
        for name in names:
            if name not in known:
                sys.exit(
                    f"error: --lessons: '{name}' is none of {', '.join(known)}\n  fix: --lessons ours,zero3"
                )
        return ["ours", *(name for name in names if name != "ours")]

    def settings(self, row):
        """What rounds must have in common to stand in one row."""
        together = (
            {"lesson": LESSONS[row.ours][0][:2], **({"split": list(row.split)} if row.split else {})}
            if row.ours
            else {}
        )
        return {
            "workload": f"configs/{row.workload}.json",
            **together,
            "rows_a_rank": row.rows,
            **({"micro_batches": row.micro_batches} if row.micro_batches > 1 else {}),
            "sequence": row.config()["batch"]["sequence"],
            "tokens": name_of(self.args.tokens) if self.args.tokens else "random",
            "world": self.world,
            "warm_up": row.warm_up,
            "timed_steps": row.steps,
            "gpu": self.machine.get("gpu"),
        }

    def tokens(self, row):
        return self.args.tokens or random_tokens(row.config()["model"]["vocab"])

    def done(self, row):
        entry = self.result["rows"].get(self.key(row))
        same = entry is not None and all(entry.get(k) == v for k, v in self.settings(row).items())
        if entry is not None and (self.args.again or not same):
            why = "" if same else ", which was measured with other settings"
            print(f"{self.key(row)}: its first round replaces what {self.path} has{why}", flush=True)
            self.anew.add(self.key(row))
            return False
        done = same and len(entry["rounds"]) >= self.args.rounds
        if done:
            print(f"{self.key(row)}: is in {self.path} (--again for another run)", flush=True)
        return done

    # --- peers ----------------------------------------------------------------------------------------------

    def peer(self, row, name):
        base, _, more = name.partition(":")
        args, mode, last = self.args, ["--mode", more or "default"], []
        if base in SCHEDULES:
            split = more.replace("+", ",") or ",".join(map(str, row.split))
            own = ["--micro-batches", row.micro_batches, "--schedule", base, "--split", split]
            program = args.pipeline_peer
        elif base in CUTS:
            own = ["--cut", base, *(["--one-graph"] if more == "one-graph" else mode)]
            program = args.tensor_peer
        elif base in ROTATES:
            own, program = ["--rotate", base, *mode], args.context_peer
        elif base in VARIANTS:
            own = ["--variant", "bf16" if base == "bf16" else "autocast", *mode]
            last = ["--bucket-mb", args.bucket_mb, "--wire", "bf16" if base == "wire" else "same"]
            last += ["--shard", SHARDS.get(base, "none")]
            program = args.peer
        else:
            own, program = gpu_deepspeed.arguments(name), args.deepspeed_peer
        all_alike = ["--attention", self.attention(row), "--ranks", self.world, "--tokens", self.tokens(row)]
        # Autotuning compiles hundreds of kernels: of such peers only one may be timed in a call, or one's
        # compilation would disturb another's timing.
        threads = str(max(2, (os.cpu_count() or 2) // (2 if more.startswith("max-autotune") else 8)))
        return Peer(
            program,
            [*self.shape_of(row), *own, *all_alike, *last],
            args.start_limit,
            {"TORCHINDUCTOR_COMPILE_THREADS": threads},
        )

    @staticmethod
    def shape_of(row):
        return [
            "--workload",
            ROOT / f"configs/{row.workload}.json",
            "--rows",
            str(row.rows),
            *(["--sequence", str(row.sequence)] if row.sequence else []),
            *(["--context", str(row.sequence)] if row.record == "gpu_context" else []),
        ]

    def attention(self, row):
        """The backend of a row's peers: timed once a shape, before anything else uses the GPU."""
        if self.args.attention != "auto":
            return self.args.attention
        shape = row.workload, row.rows, row.sequence
        if shape not in self.attentions:
            command = [sys.executable, self.args.peer, *self.shape_of(row), "--attention-only"]
            said = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=self.args.start_limit
            )
            if said.returncode != 0:
                sys.exit(
                    f"error: {row.name}: which attention is the faster: exit "
                    f"{said.returncode}\n{said.stderr[-2000:]}\n  fix: --attention cudnn"
                )
            self.attentions[shape] = json.loads(said.stdout)
            print(f"{row.name}: attention {json.dumps(self.attentions[shape])}", flush=True)
        return self.attentions[shape]["attention"]

    def runs_llmc(self, row):
        return bool(self.args.llmc and self.world == 1 and row.peers and not row.ours)

    def batches(self, rows):
        """Rows whose programs fit a GPU's memory together: peers keep theirs from when they were compiled
        until their row is done."""
        capacity, batch, held = (self.machine.get("memory_mib") or 16384) / 1024 - 6, [], 0.0
        for row in rows:
            ours = len(self.lesson_names(row)) if self.world == 1 and self.paused(row) else 1
            need = (ours + self.runs_llmc(row)) * peer_gib(row, "compile") + sum(
                peer_gib(row, name) for name in self.peer_names(row)
            )
            if batch and held + need > capacity:
                yield batch
                batch, held = [], 0.0
            batch.append(row)
            held += need
        if batch:
            yield batch

    def start_peers(self, rows):
        """All of them at once, as cores allow: compiling takes a minute each, mostly of one core. Returns
        when none is compiling any more, so that nothing runs beside a turn."""
        waiting = [(row, name) for row in rows for name in self.peer_names(row)]
        for row, _ in waiting:
            self.attention(row)
        waiting.sort(key=lambda rn: -peer_gib(*rn))
        most, starting, began = max(1, (os.cpu_count() or 2) // (2 * self.world)), {}, time.monotonic()
        while waiting or starting:
            while waiting and len(starting) < most:
                row, name = waiting.pop(0)
                peer = self.peers[row.name, name] = self.peer(row, name)
                _, peer.failure = tried(peer.start)
                if peer.failure is None:
                    starting[f"{row.name} {name}"] = peer
            for name, peer in list(starting.items()):
                ready, peer.failure = tried(peer.poll)
                if ready or peer.failure:
                    del starting[name]
                    how = "failed to start" if peer.failure else "ready"
                    print(f"{name}: {how} after {time.monotonic() - began:.0f} s", flush=True)
            if time.monotonic() > self.deadline:
                raise OutOfTime()
            time.sleep(0.05)

    # --- a row ----------------------------------------------------------------------------------------------

    def lesson_of(self, row, name):
        """The folder, settings and label of a lesson; the row says which lesson `ours` is."""
        if name == "ours" and self.world == 1 and not row.ours:
            return "00_one_device", [], "Stagecraft, lesson 00"
        return LESSONS[row.ours if row.ours and name == "ours" else name]

    def paused(self, row):
        return row.paused and self.args.ours == "paused"

    def program(self, row, name):
        return lesson_program(self.args.bin, self.lesson_of(row, name)[0])

    def lesson(self, row, name, turns):
        world, apart = self.world_of(name), ALONE if self.world > 1 else ()
        sizes_of = (
            f"batch.global={row.step_rows(world)}",
            f"batch.micro={row.rows_of(name, self.world)}",
            f"data.validation_rows={row.rows}",
        )
        own = [
            *([] if name == "text" else [f"data.source={self.tokens(row)}"]),
            *self.lesson_of(row, name)[1],
            *row.set,
            *([f"batch.sequence={row.sequence}"] if row.sequence else []),
            *([f"split={','.join(map(str, row.split))}"] if row.split and name not in ALONE else []),
        ]
        settings = ["--workload", f"configs/{row.workload}.json", *sets(sizes_of), "--device", "cuda"]
        settings += [word for one in own for word in ([one] if one.startswith("--") else sets([one]))]
        environment = {
            **({"STAGECRAFT_COMMIT": self.args.commit} if self.args.commit else {}),
            **ENVIRONMENT_OF.get(name, {}),
        }
        folder, program = self.folder / f"{row.name}_{name}", self.program(row, name)
        seconds, paused = expected_seconds(row, world, program), self.paused(row) and name not in apart

        def lesson(behind="", where=None):
            there = {**environment, **(where or {})}
            return Lesson(program, settings, world, f"{folder}{behind}", paused, turns, there, seconds)

        if name not in apart:
            return lesson()
        each = Apart(lambda gpu, where: lesson(f"_{gpu}", where), self.world)
        if name not in gpu_table.BESIDE_COPIES:
            return each
        return BesideCopies(each, self.args.copies, self.world, name == "ours_1_within")

    def world_of(self, name):
        return 1 if name in ALONE else self.world

    def programs(self, row, turns):
        """In the order of their turns; ours first."""
        found = {name: self.lesson(row, name, turns) for name in self.lesson_names(row)}
        for name in self.peer_names(row):
            found[re.sub(r"\W", "_", name)] = self.peers[row.name, name]
        if self.runs_llmc(row):
            config = row.config()
            found["llmc"] = LlmC(
                self.args.llmc,
                config["model"]["layers"],
                row.rows,
                config["batch"]["sequence"],
                self.tokens(row),
            )
        return found

    def label(self, row, name):
        if name in LESSONS:
            return self.lesson_of(row, name)[2]
        base, _, mode = name.partition("_")
        behind = f" ({mode.replace('_', '-')})" if mode else ""
        if name == "llmc":
            return "llm.c"
        if base in SCHEDULES:
            other = f" ({mode.replace('_', ' + ')} blocks)" if mode else ""
            return (
                f"torch.distributed.pipelining, {SCHEDULES[base]}, stages compiled, fp32 parameters, bf16 "
                f"autocast{other}"
            )
        if base in CUTS:
            return (
                f"DTensor{CUTS[base]}, blocks compiled, loss_parallel, fp32 parameters, bf16 autocast{behind}"
            )
        if base in ROTATES:
            return f"PyTorch's context_parallel, compiled, {ROTATES[base]}, fp32 parameters, bf16 autocast"
        if base in VARIANTS:
            return ("DDP, " if self.world > 1 and base != "fsdp" else "") + VARIANTS[base] + behind
        return gpu_deepspeed.label(base, mode)

    def new_entry(self, row, programs):
        return {
            **self.settings(row),
            **(
                {"warm_seconds": WARM, "warm_from": "the first turn"}
                if self.world > 1 or "llmc" in programs
                else {}
            ),
            "started": now(),
            **self.origin,
            "programs": {name: {"label": self.label(row, name)} for name in programs},
            "rounds": [],
            "ratios": {},
        }

    def add_stored(self, entry, row, programs):
        """Rates that were measured elsewhere, where the program is not here, or where the host that it runs
        on may hold it back."""
        for name, label in (
            ("llmc", "llm.c"),
            ("fsdp_stored", "FSDP2 + compile"),
            ("fsdp_stored", "FSDP2"),
            ("zero_stored", "DDP + compile + ZeroRedundancyOptimizer"),
        ):
            found = self.stored[label]
            if name not in programs and self.key(row) in found["tokens_per_second"]:
                entry["programs"][name] = {
                    "label": f"{label} (stored)",
                    "stored": found["tokens_per_second"][self.key(row)],
                    "source": found["source"],
                }

    def run_row(self, row):
        entry = None if self.key(row) in self.anew else self.result["rows"].get(self.key(row))
        programs = self.programs(row, self.args.rounds - (len(entry["rounds"]) if entry else 0))
        entry = entry or self.new_entry(row, programs)
        entry["machine"] = self.machine
        if (shape := (row.workload, row.rows, row.sequence)) in self.attentions and self.peer_names(row):
            entry["attention"] = self.attentions[shape]
        self.add_stored(entry, row, programs)
        alive = []
        for name, program in programs.items():
            facts = entry["programs"].setdefault(name, {"label": self.label(row, name)})
            facts.pop("failure", None)
            if failure := getattr(program, "failure", None):
                facts["failure"] = failure
            else:
                alive.append(name)
        try:
            self.rounds(row, entry, programs, alive)
        finally:
            for name, program in programs.items():
                self.finish(entry["programs"][name], program)
            self.keep(row, entry)

    def keep(self, row, entry):
        """Once a round was measured, or a failure says why none was: what the result had so far stays until
        then."""
        if entry["rounds"]:
            entry["ratios"] = gpu_table.ratios_of(entry)
        before = self.result["rows"].get(self.key(row), {}).get("rounds")
        if entry["rounds"] or (
            not before and any("failure" in facts for facts in entry["programs"].values())
        ):
            self.result["rows"][self.key(row)] = entry
        write(self.path, self.result)

    def rounds(self, row, entry, programs, alive):
        while len(entry["rounds"]) < self.args.rounds and "ours" in alive:
            if not self.fits(entry["rounds"]):
                raise OutOfTime()
            world_of = {name: self.world_of(name) for name in programs}
            first = len(entry["rounds"]) % len(alive)  # a chip is coolest at the first turn
            cells, failures = self.round(
                programs, alive[first:] + alive[:first], row, entry["sequence"], world_of
            )
            for name, text in failures.items():
                entry["programs"][name]["failure"] = text
                alive.remove(name)
            if "ours" not in failures:
                entry["rounds"].append({**cells, **self.origin})
            self.keep(row, entry)
            if cells["programs"]:
                said = "  ".join(
                    f"{name} {value['tokens_per_second'] / 1e3:.1f}k"
                    for name, value in cells["programs"].items()
                )
                print(
                    f"{self.key(row)} round {len(entry['rounds'])}/{self.args.rounds}: {said}  "
                    f"({cells['seconds']:.0f} s)",
                    flush=True,
                )
            for name, text in failures.items():
                print(f"{self.key(row)} {name} failed: {text}", file=sys.stderr, flush=True)

    def finish(self, facts, program):
        if program.process is not None or isinstance(program, Peer):
            facts["command"] = command_text(program.command)
        about, failure = tried(program.close, self.deadline)
        if failure is not None:
            facts.setdefault("failure", failure)
        facts.update(about or {})
        self.bad |= "failure" in facts

    def run(self):
        todo = [row for row in self.asked if not self.done(row)]
        try:
            for row, name in [(row, name) for row in todo for name in self.lesson_names(row)]:
                self.program(row, name)  # before minutes of compiling
            for batch in self.batches(todo):
                self.start_peers(batch)
                for row in batch:
                    self.run_row(row)
        except OutOfTime:
            print("the time limit is reached: the same command goes on from here", flush=True)
            self.bad = True
        finally:
            for peer in self.peers.values():
                peer.close(self.deadline)
            self.watch.stop()
        print(gpu_table.markdown(self.result))
        return 1 if self.bad else 0


OF_LESSONS = [name for name in LESSONS if name not in FAMILIES]  # what --lessons may name
ASKED = {
    "--render": {"metavar": "FILE", "help": "print the table of a result, and exit"},
    "--out": {
        "help": "the result, which is added to (default: docs/results/gpu_peers.json; of pipelines: "
        "gpu_pipeline.json, of tensor: gpu_tensor.json, of context and long: gpu_context.json, of combined: "
        "gpu_combined.json, of offload and zero: gpu_deepspeed.json)"
    },
    **BIN,
    "--world": {"type": int, "help": "GPUs, one rank each (default: all of this machine)"},
    "--rows": {"help": f"of {','.join((*ROWS, *GROUPS))} (default: all; 355m on several GPUs)"},
    "--rounds": {"type": int, "default": 3},
    "--steps": {"type": int, "help": "timed steps of a turn (default 25; 100 of seed)"},
    "--warm-up": {"type": int, "help": "steps before them (default 10; 40 of seed)"},
    "--tokens": {
        "metavar": "FILE",
        "help": "token file that all train on, relative to the repository (default: random tokens)",
    },
    "--lessons": {
        "help": f"of {','.join(OF_LESSONS)} (default: most on several GPUs, ours on one; ours is always "
        "there)"
    },
    "--peers": {
        "help": "compile, bf16, on several GPUs wire, zero, fsdp, each also with a mode of torch.compile "
        "(bf16:reduce-overhead, compile:max-autotune); of pipelines 1f1b, gpipe, each also with another "
        "split (1f1b:13+11); of context alltoall, allgather; of tensor tp, sp, async, each also with all "
        "blocks in one graph (sp:one-graph); DeepSpeed's stage1, stage2, stage3, of offload offload, each "
        "also with its defaults (stage2:defaults); or none"
    },
    "--attention": {
        "choices": ("auto", "cudnn", "flash"),
        "default": "auto",
        "help": "of the peers; auto times both",
    },
    "--bucket-mb": {"type": int, "default": 25, "help": "of DistributedDataParallel"},
    "--llmc": {
        "metavar": "FILE[@COMMIT]",
        "help": "train_gpt2cu, and of which commit it is; without it llm.c's stored rates stand in the "
        "table, marked so",
    },
    "--ours": {
        "choices": ("paused", "process"),
        "default": "paused",
        "help": "on one GPU: one process that stands still between its turns, or a new one each turn",
    },
    "--seconds": {"type": float, "help": "no round is started that would end later"},
    "--start-limit": {"type": float, "default": 400.0, "help": "seconds until a peer must have compiled"},
    "--again": {"action": "store_true", "help": "also rows that are in the result"},
    **COMMIT,
    **{
        flag: {"default": HERE / program, "help": argparse.SUPPRESS}  # for tests
        for flag, program in (
            ("--peer", "torch_gpt2.py"),
            ("--pipeline-peer", "torch_pipeline.py"),
            ("--tensor-peer", "torch_tensor.py"),
            ("--context-peer", "torch_context.py"),
            ("--deepspeed-peer", "torch_deepspeed.py"),
            ("--copies", "gpu_copies.py"),
        )
    },
}


def main():
    args = arguments(__doc__, ASKED)
    if args.render:
        print(gpu_table.markdown(json.loads(pathlib.Path(args.render).read_text())))
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="stagecraft_bench_") as folder:
        try:
            return Comparison(args, folder).run()
        except KeyboardInterrupt:
            print("interrupted: the same command goes on from here", file=sys.stderr)
            return 130


if __name__ == "__main__":
    sys.exit(main())
