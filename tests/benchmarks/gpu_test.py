#!/usr/bin/env python3
"""Tests of gpu.py, gpu_bits.py, dtype_only.py and loss_curves.py with programs that only pretend
(pretended.py): turns, resuming, ratios, failures, the time limit. Those that are about processes run them; in
all others they share this process and a clock of its own."""
import contextlib
import dataclasses
import functools
import io
import json
import os
import pathlib
import queue
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import types
import unittest.mock

import choosing
import dtype_only
import gpu
import gpu_bits
import gpu_programs
import gpu_table
import gpu_watch
import harness
import loss_curves
import pretended
import records
from gpu_copies import sources_of
from harness import HERE, ROOT, kept, result as stored_result, sets

MODULES = {"gpu.py": gpu, "gpu_bits.py": gpu_bits, "dtype_only.py": dtype_only, "loss_curves.py": loss_curves}
sources = functools.cache(harness.sources)
LESSONS = [folder.name for folder in ROOT.glob("lessons/[0-9]*")]

MPIRUN = '#!/bin/sh\nwhile [ "${1#-}" != "$1" ] || [ ! -x "$1" ]; do shift; done\nexec "$@"\n'

# A fake NVML with energy counters: 100 W on the first GPU, 300 W on the second; with FAKE_NO_COUNTER no
# counters.
NVML = r"""
#include <stdlib.h>
#include <time.h>
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned* count) { *count = 4; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** gpu) { *gpu = (void*)(index + 1L); return 0; }
int nvmlDeviceGetTotalEnergyConsumption(void* gpu, unsigned long long* millijoules) {
  static const int watts[] = {100, 300, 100, 100};
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  *millijoules = (now.tv_sec * 1000ull + now.tv_nsec / 1000000) * watts[(long)gpu - 1];
  return getenv("FAKE_NO_COUNTER") ? 3 : 0;
}
"""


PEERS = {f"--{kind}peer": "peer.py" for kind in ("", "pipeline-", "tensor-", "context-", "deepspeed-")}
PEERS |= {"--copies": "copies.py"}


def check(holds, what):
    if not holds:
        sys.exit(f"failed: {what}")


def words(*these):
    """What a text must have."""
    return lambda text: all(word in text for word in these)


def has(found, expected):
    """Each value by its path: rounds/0/seconds. A float is met to nine digits, a function by being true."""
    for path, value in expected.items():
        there = found
        for key in path.split("/") if path else ():
            there = there[int(key)] if isinstance(there, list) else there[key]
        if callable(value):
            check(value(there), f"{path}: {there}")
        else:
            same = (
                abs(there - value) < 1e-9 * max(1, abs(value)) if isinstance(value, float) else there == value
            )
            check(same, f"{path} is {there}, not {value}")


def names(*these):
    return lambda programs: list(programs) == list(these)


def ratios(behind="", **expected):
    """Medians of all ratios, or of those whose names end so."""
    expected = {f"{name}{behind}": round(value, 9) for name, value in expected.items()}
    return (
        lambda found: {
            name: round(ratio["median"], 9) for name, ratio in found.items() if name.endswith(behind)
        }
        == expected
    )


def lacks(*keys):
    return lambda found: not set(keys) & set(found)


def row(key, commands=(), rates=(), **expected):
    """Paths of a row's: commands, and what each must have; tokens a second in the first round."""
    paths = {
        **expected,
        **{f"programs/{name}/command": words(*these) for name, these in dict(commands).items()},
        **{f"rounds/0/programs/{name}/tokens_per_second": rate for name, rate in dict(rates).items()},
    }
    return {f"rows/{key}/{path}".removesuffix("/"): value for path, value in paths.items()}


def watts(cell):
    return cell["joules"] / (cell["ended"] - cell["began"])


def joules_of(found, name):
    return found["rounds"][0]["programs"][name]["joules_per_token"]


def of_watts(power):
    return lambda cell: 0.85 < watts(cell) / power < 1.15


@dataclasses.dataclass(frozen=True)
class Call:
    """One call of a script: how it ends, what it says, and what its result has."""

    ask: str
    has: dict = dataclasses.field(default_factory=dict)
    code: int = 0
    out: tuple = ()
    err: tuple = ()
    env: dict = dataclasses.field(default_factory=dict)
    script: str = "gpu.py"
    once: str = ""  # said once
    never: str = ""  # neither said nor in the result
    before: tuple = ()  # said in this order
    files: dict = dataclasses.field(default_factory=dict)  # what a log has then, split at blanks

    def of(self, run):
        said, result = run(*shlex.split(self.ask.format(folder=run.folder)), script=self.script, **self.env)
        good = said.returncode == self.code and words(*self.out)(said.stdout)
        good &= not self.once or said.stdout.count(self.once) == 1
        good &= not self.never or self.never not in f"{said.stdout}{(result or {}).get('rows')}"
        at = [said.stdout.find(text) for text in self.before]
        good &= -1 not in at and at == sorted(at)
        check(good and words(*self.err)(said.stderr), f"{self}: {said.returncode} {said.stdout}{said.stderr}")
        has(result or {}, self.has)
        has({name: (run.folder / name).read_text().split() for name in self.files}, self.files)
        return said, result


def refused(ask, *err, **more):
    return Call(ask, code=1, err=err, **more)


def started(*words, environment=None, timeout=None):
    return subprocess.run(
        [str(word) for word in words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **(environment or {})},
        timeout=timeout,
    )


@contextlib.contextmanager
def machine():
    """A folder with the pretended programs, and how to run gpu.py among them, each a process."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        compiled = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", folder / "libnvidia-ml.so.1"]
        subprocess.run(compiled, input=NVML, text=True, check=True)
        programs = {
            **dict.fromkeys(LESSONS, "lesson"),
            "nvidia-smi": "smi",
            "peer.py": "peer",
            "copies.py": "copies",
        }
        for program, text in (
            *(
                (
                    name,
                    f"#!{sys.executable} -IS\nimport sys\nsys.path.insert(0, '{HERE}')\nimport "
                    f"pretended\npretended.main(pretended.{what})\n",
                )
                for name, what in programs.items()
            ),
            ("mpirun", MPIRUN),
        ):
            (folder / program).write_text(text)
            (folder / program).chmod(0o755)

        def run(*arguments, **environment):
            places = {"PATH": f"{folder}:{os.environ['PATH']}", "LD_LIBRARY_PATH": str(folder)}
            done = started(
                sys.executable,
                HERE / "gpu.py",
                *words_of(folder, "gpu.py", arguments),
                environment={**places, "FAKE_LOG": str(folder / "log"), **environment},
            )
            return done, kept(folder / "out.json", None)

        run.folder = folder
        yield folder, run


def words_of(folder, script, arguments):
    peers = [word for flag, name in PEERS.items() for word in (flag, folder / name)]
    own = ["--bin", folder, "--out", folder / "out.json", "--commit", "c", "--steps", "3"]
    warm_up = [] if script in ("gpu_bits.py", "loss_curves.py") else ["--warm-up", "2"]
    return [str(word) for word in (*(peers if script == "gpu.py" else []), *own, *warm_up, *arguments)]


@contextlib.contextmanager
def stage():
    """Runs the script in this process, where no time passes but a clock's."""
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as patches:
        folder, clock = pathlib.Path(name), pretended.Clock()
        for program in (*LESSONS, "llmc"):
            (folder / program).touch()

        def process(command, environment=None, pipes=False, ends_by="KILL", heard=None):
            del ends_by
            words = [str(word) for word in command]
            at = next(at for at, word in enumerate(words) if pathlib.Path(word).parent == folder)
            name = pathlib.Path(words[at]).stem
            program = pretended.lesson if name in LESSONS else getattr(pretended, name)
            return pretended.Running(clock, program, words[at:], {**os.environ, **(environment or {})}, heard)

        def start_peer(peer):
            peer.process, peer.began = (
                process(peer.command, peer.environment, heard=peer.answers.lines.append),
                clock.time(),
            )

        def repeated(look):
            def again(_):
                while True:
                    look()
                    yield 0.01

            return pretended.Running(clock, again)

        class Watch(gpu_watch.Watch):
            def begin(self, period_ms):
                look = repeated(
                    lambda: [self.keep(", ".join(row)) for row in pretended.rows_of(self.fields, os.environ)]
                )
                self.child = types.SimpleNamespace(terminate=look.end, wait=lambda: None)

        class EnergyCounter(gpu_watch.EnergyCounter):
            def begin(self, counters, period):
                self.looks = repeated(lambda: self.look(counters))

        def energy_counters():
            watts = (
                []
                if "FAKE_NO_COUNTER" in os.environ
                else [pretended.WATTS[gpu] for gpu in gpu_watch.visible(len(pretended.WATTS))]
            )
            return [lambda watts=watts: round(1e3 * clock.time()) * watts for watts in watts]

        own = types.SimpleNamespace(run=lambda command, **_: pretended.completed(process(command)))
        for module, changes in (
            (
                gpu_programs,
                {
                    "time": clock,
                    "Process": process,
                    "queue": types.SimpleNamespace(Queue=lambda: pretended.Answers(clock), Empty=queue.Empty),
                },
            ),
            (gpu_programs.Peer, {"start": start_peer}),
            (
                gpu_watch,
                {
                    "time": clock,
                    "query": lambda fields: pretended.rows_of(fields, os.environ),
                    "energy_counters": energy_counters,
                },
            ),
            (
                gpu,
                {
                    "time": clock,
                    "Watch": Watch,
                    "EnergyCounter": EnergyCounter,
                    "subprocess": own,
                    "sources": sources,
                },
            ),
            (gpu_bits, {"time": clock}),
            (loss_curves, {"time": clock, "Watch": Watch, "sources": sources}),
        ):
            for name, change in changes.items():
                patches.enter_context(unittest.mock.patch.object(module, name, change))

        def run(*arguments, script="gpu.py", **environment):
            module, out, err = MODULES[script], io.StringIO(), io.StringIO()
            with unittest.mock.patch.dict(
                os.environ, {"FAKE_LOG": str(folder / "log"), **environment}
            ), unittest.mock.patch.object(
                sys, "argv", [str(HERE / script), *words_of(folder, script, arguments)]
            ), contextlib.redirect_stdout(
                out
            ), contextlib.redirect_stderr(
                err
            ):
                code = ended_of(module)
                for one in list(clock.running):
                    one.end()
            done = subprocess.CompletedProcess((), code, out.getvalue(), err.getvalue())
            return done, kept(folder / "out.json", None)

        run.folder, run.clock, run.process = folder, clock, process
        yield folder, run


def ended_of(module):
    """The exit code of its main, as of a process of its own."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        asked = gpu_watch.asked()
        with unittest.mock.patch.object(gpu_watch, "ASKED", asked), unittest.mock.patch.object(
            gpu_programs, "ASKED", asked
        ):
            return module.main() or 0
    except SystemExit as error:
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
        return 1 if isinstance(error.code, str) else error.code or 0
    finally:
        signal.signal(signal.SIGTERM, before)


ALONE, TWO = "--rounds 1 --peers none", "--world 2 --rounds 1"
BOTH = "--rows 774m --peers compile,bf16 --rounds"


def failed(ask, name, text, rounds=0, out=(), **env):
    """A program's failure stays with it: the others go on."""
    others = row("774m", **{"programs/bf16/last_loss": 5.0}) if rounds else {}
    left = {
        "programs": lambda found: text in found[name]["failure"],
        "rounds": lambda found: [set(one["programs"]) for one in found] == [{"ours", "bf16"}] * rounds,
    }
    return Call(ask, {**others, **row("774m", **left)}, 1, out, env=env)


STORED = stored_result("peers_stored")["FSDP2 + compile"]["tokens_per_second"]["1558m x2"]
OVER_STORED = 2 * 8 * 1024 / 0.1 / STORED
OF_PIPELINES = ["ours", "ours_warmup"]
OF_TENSOR = ["ours", "ours_whole", "ours_kept", "ours_lanes", "ours_lanes_kept", "ours_nccl"]
OF_OFFLOAD = ["ours", *(f"ours_resident_{units}" for units in (1, 7, 13)), "ours_early", "ours_delayed"]
ROWS_16 = "batch.global=16"
LONG_ROW = "--set model.context=32768 --set batch.sequence=32768"
TEN = "10_tensor_parallel"
EQUAL, DIFFER = ({"equal_weights": yes, "equal_losses": yes} for yes in (True, False))


def pipeline(count, *programs):
    """Stages of one pipeline share a step's micro-batches, cut alike on both sides."""
    sizes = f"batch.global={4 * count} --set batch.micro=4"
    peer = f"--rows 4 --micro-batches {count} --schedule 1f1b --split 14,10 --attention cudnn --ranks 2"
    return row(
        f"pipeline_{count} x2",
        {
            "ours": ("07_pipeline", sizes, "schedule=1f1b --set split=14,10", "-n 2"),
            "ours_warmup": ("--set warmup=1 --set split=14,10",),
            "1f1b": (peer,),
        },
        {"ours": 4 * count * 1024 / 0.1},  # a step's tokens, not those of each rank
        **{
            "lesson": "07",
            "split": [14, 10],
            "micro_batches": count,
            "rows_a_rank": 4,
            "programs/ours/bytes_of_ranks": [1, 2],
            "programs/1f1b/peak_allocated_of_ranks": [2**30, 2**29],
            "programs/one_device/command": lambda text: words("00_one_device", sizes)(text)
            and "split" not in text,
            "ratios/ours_over_1f1b/median": 2.0,
            "programs": names(*programs),
        },
    )


def under(path, expected):
    return {f"{path}/{key}": value for key, value in expected.items()}


def axis(one, other, mesh, lesson, micro):
    """Lesson 11 along one axis, and the lesson that has that axis alone: the same rows a step, micro-batches
    of the same size."""
    both = (f"batch.micro={micro} ", "batch.global=16 ")
    asked = {one: ("11_combined", mesh, *both), other: (lesson, *both)}
    return row("combined_355m x2", asked, **{f"ratios/{one}_over_{other}/rounds": 1})


def predicted_meshes():
    """The meshes of four GPUs are those that choose predicts, no more and no less."""
    asked = [one for one in choosing.ahead() if one["gpus"] == 4 and one["set"]["batch.global"] == "64"]
    programs = ["ours", "zero3", "zero3_by_2", "replicas_2", "mesh_2x1x2", "mesh_1x2x2", "mesh_2x2x1"]
    commands = {
        name: (
            *(one["lesson"], "configs/gpt2_774m.json", *one["settings"]),
            *(f"{key}={value} " for key, value in one["set"].items()),
        )
        for name, one in zip(programs, asked, strict=True)
    }
    return row(
        "mesh_4 x4",
        commands,
        **{
            "programs": lambda found: names(*programs)(found) and "shard_ranks=4" not in f"{found}",
            "ratios/mesh_2x1x2_over_ours/rounds": 1,
            "ratios/zero3_over_ours/rounds": 1,
        },
    )


def seen(gpus, ask, key, name, more):
    """The facts of the GPU that is seen; of two GPUs, GPU 1 is the slower one."""
    env = {"FAKE_TURN": "0.4", "CUDA_VISIBLE_DEVICES": gpus, "FAKE_GPUS": "2"}
    cell = f"rounds/0/programs/{name}"
    return Call(f"{ask} --steps 20", row(key, **{cell: of_watts(300), **more}), env=env)


# Each case is a list of calls that follow one another in a folder of their own.
CASES = {
    "failures stay with their program": [
        failed(
            f"{BOTH} 1 --again",
            "compile",
            "no compiler found",
            1,
            ("| failed |", "autocast: failed: exit 1: no compiler found"),
            FAKE_BAD="autocast",
        ),
        failed(f"{BOTH} 2 --again", "compile", "exit 1\nlost the GPU", 2, FAKE_LOST="autocast"),
        failed(f"{BOTH} 1 --again", "compile", "a loss is not finite", 1, FAKE_NAN="autocast"),
    ],
    **{
        f"failures of ours: {ask} {env}": [failed(f"--rows 774m {ALONE}{ask}", "ours", text, rounds, **env)]
        for ask, text, rounds, env in (
            (" --ours paused", "4 steps", 0, {"FAKE_STEPS": "4"}),
            (" --ours process", "4 steps", 0, {"FAKE_STEPS": "4"}),
            ("", "16385 tokens", 0, {"FAKE_TOKENS": "1"}),
        )
    },
    "a run that did not hold its plan": [
        Call(
            f"--rows 774m {ALONE}",
            row("774m", **{"programs/ours/failure": words("as predicted: False")}),
            1,
            env={"FAKE_WRONG": "1"},
        )
    ],
    "what there is not": [
        refused(
            "--rows scaled",
            "scaled is none of seed, 124m, 355m, 774m, 1558m, sharding, long_16k, long_32k, long_64k, "
            "offload_355m, offload_774m, long, offload (GPUs: 1)",
        ),
        refused(
            "--world 2 --rows sharding",
            "1558m, accumulate, windows, scaling, links, pipeline_4, pipeline_8, pipeline_16, tensor_355m, "
            "tensor_774m, context_16k, context_32k, context_64k, combined_355m, zero_355m, pipeline, tensor, "
            "context, combined, zero (GPUs: 2)",
        ),
        refused("--rows 774m --peers fsdp", "on several GPUs"),
        refused("--rows 355m --peers stage2", "stage2, stage3: on several GPUs"),
        refused("--world 2 --rows pipeline --peers compile", "'compile' is none of 1f1b, gpipe"),
        refused(
            "--world 2 --rows pipeline --lessons zero1",
            "'zero1' is none of ours, ours_warmup, ours_gpipe, one_device",
        ),
        refused("--world 4 --rows pipeline", "pipeline_4 is none of"),  # the cut is of two
        refused("--world 1 --rows pipeline", "pipeline_4 is none of"),
        refused("--world 2 --rows 355m --peers 1f1b", "'1f1b' is none of compile"),
        refused("--world 2 --rows tensor_774m --peers compile", "'compile' is none of tp, sp, async"),
        refused("--world 2 --rows tensor_774m --lessons zero1", "'zero1' is none of ours, ours_whole"),
        refused("--world 2 --rows 355m --lessons ours_whole", "'ours_whole' is none of ours, ours_1"),
        refused("--world 2 --rows combined --peers sp", "combined_355m has lessons alone"),
        refused("--world 2 --rows mesh_4", "mesh_4 is none of"),
        refused("--rows offload_355m --peers compile", "'compile' is none of offload"),
        refused("--rows offload_355m --peers offload:eager", "its best, or defaults"),
        refused("--rows offload_355m --lessons dp", "'dp' is none of ours, ours_resident_1"),
        refused("--rows links", "links is none of"),  # one GPU has none
        refused("--world 2 --rows 355m,pipeline_4 --out ''", "fix: ask for them apart, or --out FILE"),
        refused(
            "--rows 355m",
            *("CUDA_VISIBLE_DEVICES=GPU-12", "fix: numbers"),
            env={"CUDA_VISIBLE_DEVICES": "GPU-12"},
        ),
        refused(
            "--tensor '5 heads fp16 lanes'",
            "'5 heads fp16 lanes' is none of 124M split",  # three micro-batches make no pairs
            script="gpu_bits.py",
        ),
    ],
    # Lessons that split states are compared with lesson 01 and with the peer that splits the same. The
    # stand-in for mpirun starts only one process.
    "what splits": [
        Call(
            f"{TWO} --rows 1558m --peers compile,zero,fsdp",
            row(
                "1558m x2",
                **{
                    "programs": names(
                        *("ours", "ours_1", "zero1", "zero2", "zero3", "zero3_gelu"),
                        *("compile", "zero", "fsdp", "fsdp_stored"),
                    ),
                    "ratios": ratios(
                        scaling=1.25,
                        ours_over_compile=2,
                        ours_over_zero=2,
                        ours_over_fsdp=2,
                        zero1_over_ours=0.8,
                        zero1_over_zero=1.6,
                        zero2_over_ours=1,
                        zero3_over_ours=0.5,
                        zero3_over_fsdp=1,
                        zero3_gelu_over_ours=1 / 3,
                        zero3_gelu_over_fsdp=2 / 3,
                        ours_over_fsdp_stored=OVER_STORED,
                        zero3_over_fsdp_stored=OVER_STORED / 2,
                        zero3_gelu_over_fsdp_stored=OVER_STORED / 3,
                    ),
                    "programs/compile/shard": "none",
                    "programs/zero/shard": "optimizer",
                    "programs/fsdp/shard": "all",
                    "programs/zero2/commit": "c",
                    "programs/zero2/wait_share": 0.125,
                },
            ),
            out=("0.800 (one round) of lesson 01", "lesson 04 1.000 ("),
        )
    ],
    # The table says what random tokens leave out. Runs with other tokens are other measurements; their folder
    # differs from machine to machine.
    "tokens": [
        Call(
            f"--rows 124m {ALONE}",
            row(
                "124m",
                {"ours": ("data.source",)},
                **{
                    "programs": names("ours", "text", "llmc"),
                    "programs/text/command": lambda text: "data.source" not in text,
                    "ratios/text_over_ours/median": 1.0,
                },
            ),
        ),
        Call(
            f"--rows 124m {ALONE} --tokens /elsewhere/some.bin",
            row(
                "124m",
                {"ours": (" data.source=some.bin ",)},
                **{
                    "tokens": "some.bin",
                    "programs/ours/workload": lambda found: found["data.source"] == "some.bin",
                },
            ),
            out=("first round replaces what",),
        ),
    ],
    "what splits on one GPU": [
        Call(
            f"--rows 774m {ALONE} --lessons dp,zero1,zero3",
            row(
                "774m",
                **{
                    "programs/zero1/wait_share": None,  # of a run that stood still between its turns
                    "ratios": ratios("r_ours", dp_ove=1, zero1_ove=0.8, zero3_ove=0.5),
                },
            ),
            out=("0.500 (one round) of lesson 00",),
        )
    ],
    # Modes of torch.compile are compared with each other; another call adds rounds with other modes.
    "modes": [
        Call("--rows 355m --rounds 1 --peers compile,compile:reduce-overhead"),
        Call(
            "--rows 355m --rounds 2 --peers compile,compile:max-autotune,compile:max-autotune-no-cudagraphs",
            row(
                "355m",
                {
                    f"compile_{mode.replace('-', '_')}": (f"--variant autocast --mode {mode} ",)
                    for mode in ("reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
                },
                **{
                    "ratios/ours_over_compile/rounds": 2,
                    "programs/compile_max_autotune/label": words("bf16 autocast (max-autotune)"),
                    "ratios/ours_over_compile_max_autotune/rounds": 1,
                    "ratios/ours_over_compile_reduce_overhead/rounds": 1,
                },
            ),
            out=("(reduce-overhead); 1 of 2 rounds",),
        ),
    ],
    "gradients summed in bf16": [
        Call(
            f"{TWO} --rows 355m --peers wire --lessons ours",
            row("355m x2", {"wire": ("--variant autocast", "--wire bf16 --shard none")}),
            out=("DDP, torch.compile, fp32 parameters, bf16 autocast, gradients summed in bf16",),
        )
    ],
    # Four micro-batches of 16 rows on each of two GPUs, for which no peer exists; and lesson 04 with another
    # environment beside itself.
    "lessons alone": [
        Call(
            f"{TWO} --rows accumulate,windows",
            {
                **row(
                    "accumulate x2",
                    {"zero1": ("batch.global=128 --set batch.micro=16",)},
                    {"ours": 128 * 1024 / 0.1},
                    programs=names("ours", "zero1", "zero2", "zero3"),
                    micro_batches=4,
                ),
                **row("windows x2", ratios=ratios(zero3_over_ours=0.5, zero3_plain_over_ours=0.25)),
            },
            out=("NCCL_WIN_ENABLE=0 | ", "0.250 (one round) of lesson 01"),
        )
    ],
    "pipelines": [
        Call(
            f"{TWO} --rows pipeline",
            {
                **pipeline(4, *OF_PIPELINES, "one_device", "1f1b"),
                **pipeline(8, *OF_PIPELINES, "ours_gpipe", "one_device", "1f1b", "gpipe"),
                **pipeline(16, *OF_PIPELINES, "one_device", "1f1b"),
                **row(
                    "pipeline_8 x2",
                    ratios=lambda found: ratios(
                        ours_over_1f1b=2,
                        ours_over_gpipe=2.5,
                        ours_gpipe_over_ours=0.8,
                        ours_gpipe_over_gpipe=2,
                        ours_warmup_over_ours=1,
                        ours_warmup_over_1f1b=2,
                    )({name: ratio for name, ratio in found.items() if "one_device" not in name}),
                ),
            },
            out=(" of one GPU; ours 2.000 (one round)",),
            once=": attention {",  # one shape, one choice
        ),
        Call(
            f"{TWO} --rows pipeline_4 --again --peers 1f1b,1f1b:13+11",
            row("pipeline_4 x2", {"1f1b_13_11": ("--split 13,11 ",)}),
            out=("(13 + 11 blocks)",),
        ),
    ],
    # With tensor parallelism all GPUs work on the same rows, and every program is compared with one GPU on
    # these rows; a peer that fails takes one line.
    "tensor parallelism": [
        Call(
            f"{TWO} --rows tensor",
            {
                **row("tensor_774m x2", programs=names(*OF_TENSOR, "one_device", "dp", "zero3")),
                **row(
                    "tensor_355m x2",
                    {
                        "ours": (ROWS_16, "-n 2", TEN, "batch.micro=16", "tokens=split"),
                        "ours_lanes": (ROWS_16, "batch.micro=8", "lanes=2"),
                        "ours_kept": (ROWS_16, "gathered=kept"),
                        "ours_lanes_kept": (ROWS_16, "batch.micro=8", "gathered=kept"),
                        "ours_nccl": (ROWS_16, "--transport=nccl"),
                        "dp": (ROWS_16, "-n 2", "01_data_parallel", "batch.micro=8"),
                        "zero3": (ROWS_16, "04_zero3", "batch.micro=8"),
                        "sp": ("--rows 16 --cut sp --mode default --attention cudnn --ranks 2",),
                    },
                    {"sp": 16 * 1024 / 0.2, "dp": 16 * 1024 / 0.1},  # a step's, not those of each rank
                    **{
                        "lesson": "10",
                        "rows_a_rank": 16,
                        "programs": names(*OF_TENSOR, "one_device", "dp", "zero3", "tp", "sp", "async"),
                        # Each GPU is also timed alone, and the slower one counts.
                        "rounds/0/programs/one_device/medians_of_gpus": [0.1, 0.125],
                        "programs/one_device/command": lambda text: "mpirun" not in text
                        and words(ROWS_16, "00_one_device", "batch.micro=16")(text),
                        "programs/async/failure": words("no compiler found"),
                        "ratios/ours_over_sp/median": 2.0,
                        "ratios": lambda found: lacks("scaling")(found)
                        and ratios(
                            "_over_one_device",
                            **{**dict.fromkeys([*OF_TENSOR, "dp"], 1.25), "ours_whole": 1.5625},
                            **dict.fromkeys(("zero3", "tp", "sp"), 0.625),
                        )(found),
                    },
                ),
                "rows/tensor_355m x2": lacks("split"),
            },
            1,
            (
                "1.250 (one round) of one GPU",
                "async TP, blocks compiled, loss_parallel, fp32 parameters, bf16 autocast: failed: exit 1",
            ),
            env={"FAKE_BAD": "async"},
        ),
        Call(
            f"{TWO} --rows tensor_355m --again --peers sp,sp:one-graph --lessons ours",
            row("tensor_355m x2", {"sp_one_graph": ("--cut sp --one-graph --attention",)}),
            out=("(one-graph)",),
        ),
    ],
    # One long row: context ranks share its tokens, tensor ranks its heads.
    "context parallelism": [
        Call(
            f"{TWO} --rows context_32k",
            row(
                "context_32k x2",
                {
                    "ours": (LONG_ROW, "-n 2", "12_context_parallel"),
                    "ours_gather": (LONG_ROW, "exchange=gather"),
                    "ours_contiguous": (LONG_ROW, "parts=contiguous"),
                    "tensor": (LONG_ROW, TEN),
                    "alltoall": ("--sequence 32768 --context 32768 --rotate alltoall --mode default ",),
                },
                {"alltoall": 32 * 1024 / 0.2},
                **{
                    "programs": names(
                        "ours",
                        "ours_gather",
                        "ours_contiguous",
                        "tensor",
                        "one_device",
                        "alltoall",
                        "allgather",
                    ),
                    "programs/one_device/command": lambda text: "mpirun" not in text
                    and words(LONG_ROW, "00_one_device")(text),
                    "ratios/ours_over_one_device/median": 1.25,
                },
            ),
        ),
        Call("--rows long_16k", row("long_16k", {"compile": ("--context 16384 --variant autocast",)})),
    ],
    "meshes": [
        Call(
            f"{TWO} --rows combined",
            {
                **axis("ours", "pipeline", "mesh=2x1x1", "07_pipeline", 4),
                **axis("ours_1x2x1", "dp", "mesh=1x2x1", "01_data_parallel", 8),
                **axis("ours_1x1x2", "tensor", "mesh=1x1x2", TEN, 16),
            },
            out=("lesson 11, 1x2x1, ", "lesson 11, 1x1x2, "),
        ),
        Call("--world 4 --rows mesh --rounds 1", predicted_meshes()),
    ],
    # Lesson 05 in its variants and lesson 00 beside ZeRO-Offload, each lesson in a new process for every
    # turn; lessons 02-04 beside DeepSpeed's stages.
    "DeepSpeed's offload": [
        Call(
            "--rows offload --rounds 1",
            {
                **row(
                    "offload_774m",
                    {
                        "ours": (
                            "05_offload",
                            "batch.global=2",
                            "activations=recompute",
                            "batch.sequence=512",
                        ),
                        "ours_resident_7": ("05_offload", "resident=7"),
                        "ours_early": ("update=early", "resident=1"),
                        "ours_delayed": ("05_offload", "update=delayed"),
                        "one_device": ("00_one_device", "batch.sequence=512", "activations=recompute"),
                        "offload": (
                            "--rows 2 --sequence 512 --stage 2 --offload --settings best --attention cudnn "
                            "--ranks 1",
                        ),
                        "offload_defaults": ("--offload --settings defaults",),
                    },
                    {"ours": 1024 / 0.15, "offload": 1024 / 0.2},  # 2 rows of 512 tokens
                    lesson="05",
                    rows_a_rank=2,
                    sequence=512,
                    # No lesson is kept paused between its turns, so no program needs --watchdog.
                    programs=lambda found: "--watchdog" not in f"{found}"
                    and names(*OF_OFFLOAD, "one_device", "offload", "offload_defaults")(found),
                ),
                **row(
                    "offload_355m",
                    ratios=ratios(
                        "_over_offload",
                        **{
                            name: 2 / seconds
                            for name, seconds in zip(OF_OFFLOAD, (1.5, 1.425, 0.975, 0.525, 1.425, 0.75))
                        },
                    ),
                ),
            },
            out=("0.667 (one round) of one GPU", "0.500 (one round) of one GPU; ours 1.333 (one round)"),
        )
    ],
    "DeepSpeed's stages": [
        Call(
            f"{TWO} --rows zero",
            row(
                "zero_355m x2",
                **{
                    "programs": names(
                        *("ours", "zero1", "zero2", "zero3", "stage1", "stage2", "stage3", "stage2_defaults")
                    ),
                    "programs/stage3/command": lambda text: "--shard" not in text
                    and words("--stage 3 --settings best --attention cudnn --ranks 2")(text),
                    "ratios/zero1_over_stage1/median": 1.6,
                    "ratios/zero2_over_stage2/median": 2.0,
                    "ratios/zero3_over_stage3/median": 1.0,
                    "ratios/zero2_over_stage2_defaults/median": 2.5,
                },
            ),
            out=(
                "DeepSpeed, ZeRO-2, its defaults, bf16 parameters and gradients, fp32 master",
                "lesson 03 2.500 (one round)",
            ),
        )
    ],
    # Scaling compares all GPUs together with the slower of the GPUs, each timed alone but at the same time.
    "scaling from the slowest": [
        Call(
            f"--world 2 --rows 774m {ALONE} --lessons ours_1",
            row(
                "774m x2",
                **{
                    "rounds/0/programs/ours_1/medians_of_gpus": [0.1, 0.125],
                    "rounds/0/programs/ours_1/median_seconds": 0.125,
                    "ratios/scaling/median": 1.25,
                    "warm_seconds": 4.0,
                    "warm_from": "the first turn",
                },
            ),
            out=("lesson 01 on one GPU", "scaling 1.250 (one round)"),
        )
    ],
    # Energy comes from the counters of the GPUs that made the timed steps; for GPUs timed alone, from the
    # counter of the GPU that counts.
    "energy": [
        Call(
            f"{TWO} --rows 355m --peers compile --lessons ours,ours_1,zero2,zero2_1 --steps 20",
            row(
                "355m x2",
                **under(
                    "rounds/0/programs",
                    {
                        "ours": of_watts(400),
                        "ours_1": of_watts(300),
                        "zero2_1": of_watts(300),
                        "compile": of_watts(400),
                    },
                ),
                **{
                    "rounds/0/programs": lambda cells: all(
                        abs(
                            cell["joules_per_token"] * cell["tokens_per_second"] * cell["median_seconds"] * 20
                            - cell["joules"]
                        )
                        < 1e-6
                        for cell in cells.values()
                    ),
                    "ratios/zero2_scaling/median": 1.25,
                    "ratios": lacks("ours_over_zero2_1"),
                    "": lambda found: abs(
                        found["ratios"]["ours_over_compile"]["per_joule"]["median"]
                        - joules_of(found, "compile") / joules_of(found, "ours")
                    )
                    < 1e-9,
                },
            ),
            out=("scaling of lesson 03 1.250 (one round)", "W | J per k tok |"),
            env={"FAKE_TURN": "0.4"},
        ),
        Call(
            f"{TWO} --rows scaling",
            row(
                "scaling x2",
                **{
                    "programs": names("ours", "ours_1", "zero2", "zero2_1"),
                    "rounds/0/programs/ours/joules_per_token": None,
                    "ratios/scaling": lacks("per_joule"),
                },
            ),
            out=(" 690 | - |",),
            env={"FAKE_NO_COUNTER": "1"},
        ),
        seen(
            "1",
            f"--world 1 --rows 355m {ALONE} --lessons ours",
            "355m",
            "ours",
            {"machine/gpus": 1, "rounds/0/programs/ours/power/watts/median": 590.5},
        ),
        seen("1,0", f"{TWO} --rows scaling --again", "scaling x2", "ours_1", {"machine/gpus": 2}),
    ],
    "bits": [
        Call(
            "",
            {
                **under("world 1/groups/deterministic", EQUAL),
                **under("world 1/groups/fused", DIFFER),
                "world 1/steps": 3,
            },
            script="gpu_bits.py",
        ),
        Call(
            "--world 2",
            {
                **under("world 2/groups/all", EQUAL),
                "world 2/runs/04_zero3/commit": "c",
                "": lambda result: "world 1" in result,
            },
            script="gpu_bits.py",
        ),
        Call(
            "--world 2",
            {"world 2/groups/all/equal_weights": False},
            1,
            env={"FAKE_OTHER": "03"},
            script="gpu_bits.py",
        ),
    ],
    "bits of lesson 10": [
        Call(
            "--tensor '1558M split,124M lanes'",
            {
                "": names("1558M split", "124M lanes"),
                **under("1558M split", EQUAL),
                "1558M split/runs": names(
                    "00_one_device", *(f"{TEN}{mode}" for mode in ("", " kept", " recompute", " graph off"))
                ),
                # Lesson 00 gets flags for the same order of sums.
                "1558M split/runs/00_one_device/command": lambda text: "mpirun" not in text
                and "--ops deterministic --tensor-ranks 2 " in text,
                f"1558M split/runs/{TEN}/command": words("-n 2", "batch.global=4 --set batch.micro=2"),
                f"1558M split/runs/{TEN}/as_predicted": True,
                "124M lanes/runs/00_one_device/command": words("--tensor-ranks 2 --lanes 2"),
            },
            script="gpu_bits.py",
        ),
        Call(
            "--tensor '1558M split,5 heads fp16 whole' --seconds 0",
            code=1,
            out=("1558M split: is in", "time limit"),
            script="gpu_bits.py",
        ),
        Call(
            "--tensor '5 heads fp16 whole,124M whole,124M gather'",
            {
                "124M whole/equal_weights": False,
                "124M lanes/equal_losses": True,
                "124M gather/runs/00_one_device/command": words("--context-ranks 2 --exchange gather"),
                "124M gather/runs/12_context_parallel/command": words("-n 2", "--set exchange=gather"),
            },
            1,
            env={"FAKE_OTHER": "10"},
            script="gpu_bits.py",
        ),
        Call(
            "--tensor '355M split x4,355M 2x1x2'",
            {
                "355M split x4/runs/00_one_device/command": words("--tensor-ranks 4 "),
                f"355M split x4/runs/{TEN}/command": words("-n 4"),
                "355M 2x1x2/runs/00_one_device/command": words("--tensor-ranks 2 --tied-sum split "),
                "355M 2x1x2/runs/11_combined/command": words("-n 4", "mesh=2x1x2"),
            },
            script="gpu_bits.py",
        ),
    ],
    # Two rows do not fit a GPU together, so the second row's peers are compiled when the first row is done.
    # Lessons that pause between their turns take memory as well, and so does llm.c, which has no turn without
    # peers.
    "rows share the memory": [
        *(
            Call(f"--rows {rows} --rounds 1 --again --peers compile,bf16 --lessons ours{more}", before=order)
            for rows, more, order in (
                ("355m,774m", "", ("355m round", "774m compile: ready")),
                ("124m,355m", "", ("355m compile: ready", "124m round")),
                ("124m,355m", ",dp,zero1,zero2,zero3", ("124m round", "355m compile: ready")),
                ("124m,355m", " --llmc {folder}/llmc", ("124m round", "355m compile: ready")),
            )
        ),
        Call(
            "--rows sharding --rounds 1 --llmc {folder}/llmc",
            row("sharding", programs=names("ours", "dp", "zero1", "zero2", "zero3")),
        ),
    ],
    # llm.c's first two steps (0.9 and 0.08 s) show how long a step takes; then it warms up for 4 s. Stored
    # numbers never stand beside measured ones.
    "llm.c": [
        Call(
            "--rows 774m --rounds 2 --peers none --llmc {folder}/llmc@abc",
            row(
                "774m",
                **{
                    "ratios/ours_over_llmc/median": 0.8,
                    "programs/llmc/commit": "abc",
                    "programs/llmc/command": lambda text: text.endswith("-r 0"),
                    "warm_seconds": 4.0,
                },
            ),
            files={"log.llmc": ["2", "12", "53"]},
            never="stored",
        )
    ],
    # Turns warm up for 4 s: the first turn has 22 steps of 0.19 s, a step's time at 400 TFLOP/s; the second
    # has 40 steps of the measured 0.1 s.
    "turns warm up as long": [
        Call(
            "--world 2 --rows 774m --rounds 2 --peers none --lessons ours",
            files={"log": lambda made: len(made) == (22 + 3) + (40 + 3)},
        )
    ],
    "awake links that do not work": [
        Call(
            f"{TWO} --rows links",
            row(
                "links x2",
                **{
                    "programs/ours_1_awake/failure": words("no second GPU"),
                    "programs/ours_1": lacks("failure"),
                },
            ),
            1,
            env={"FAKE_NO_LINK": "1"},
        )
    ],
    "what is not built is said at once": [
        refused("--rows 774m --bin {folder}/other", "00_one_device is not built", never="ready")
    ],
    "dtypes": [
        Call(
            "--rounds 2",
            {
                "ratios/fp32_over_fp16/median": 4.0,
                "programs/fp32/epoch_seconds": 100.0,  # 250 steps of 0.4 s
                "commit": "c",
                "command": words("tests/benchmarks/dtype_only.py --"),
                "machine/gpu": "Pretended GPU",
                "rounds/0/programs/fp16/power/sm_mhz/median": 1500.0,
            },
            script="dtype_only.py",
        ),
        refused("--rounds 2 --seconds 1", "the time limit was reached", script="dtype_only.py"),
    ],
    "curves": [
        Call(
            "--steps 20",
            {
                "commit": "c",
                "command": words("tests/benchmarks/loss_curves.py --"),
                "machine/gpu": "Pretended GPU",
                "runs": lambda runs: [one["precision"] for one in runs]
                == [
                    *(f"{dtype}, gradients same" for dtype in ("fp32", "bf16", "fp16")),
                    "bf16, gradients fp32",
                ],
                "runs/0/power/sm_mhz/median": 1500.0,
                "runs/3/power/watts/median": 690.5,
                "runs/3/loss": [5.0, 5.0],
                "runs/3/command": words(
                    "build/cuda/bin/00_one_device --workload configs/gpt2_124m.json",
                    "precision.dtype=bf16 --set precision.grad_dtype=fp32",
                ),
            },
            script="loss_curves.py",
        ),
        refused(
            "--steps 20",
            "a curve is more than 2.0 % away",
            env={"FAKE_LOSS": "1.05"},
            script="loss_curves.py",
        ),
        refused("--steps 20", "as predicted: False", env={"FAKE_WRONG": "1"}, script="loss_curves.py"),
    ],
}


def holds_cases():
    for what, calls in CASES.items():
        print(what, flush=True)
        with stage() as (_, run):
            for call in calls:
                call.of(run)


def takes_turns():
    with machine() as (folder, run):
        out = ("llm.c (stored)", "; attention: cudnn")
        said, result = Call(f"{BOTH} 2", out=out, env={"FAKE_TURN": "0.4"}).of(run)
        found = result["rows"]["774m"]
        turns = sorted(
            (c["began"], c["ended"], name) for r in found["rounds"] for name, c in r["programs"].items()
        )
        order = ["ours", "compile", "bf16", "compile", "bf16", "ours"]
        check([name for _, _, name in turns] == order, f"each round begins with another program: {turns}")
        check(all(a[1] <= b[0] for a, b in zip(turns, turns[1:])), f"turns overlap: {turns}")
        theirs = [(began, ended) for began, ended, name in turns if name != "ours"]
        ours = [float(x) for x in (folder / "log").read_text().split()]
        check(
            not any(a + 0.01 < at < b for a, b in theirs for at in ours),
            "ours went on during another program's turn",
        )
        stored = stored_result("peers_stored")["llm.c"]["tokens_per_second"]["774m"]
        check(
            said.stdout.index("774m: attention") < said.stdout.index("ready"),
            "attention is timed before anything else runs",
        )
        commit = (harness.git("rev-parse", "--short=12", "HEAD") or "unknown",)
        timed, own = "rounds/1/programs/compile", "tests/benchmarks/gpu.py --"
        has(
            result,
            row(
                "774m",
                {
                    "ours": ("data.source=build/random_tokens_50257.bin", "build/cuda/bin/00_one_device --"),
                    "compile": ("--tokens build/random_tokens_50257.bin",),
                },
                **{
                    "ratios/ours_over_compile/median": 2.0,
                    "ratios/ours_over_bf16/median": 2.5,
                    "ratios/ours_over_llmc/median": 16 * 1024 / 0.1 / stored,
                    "ratios/ours_over_llmc/stored": True,
                    "programs/llmc/source": words("not in this run"),
                    "attention/attention_milliseconds": {"cudnn": 0.6, "flash": 0.9},
                    "programs/compile/attention": "cudnn",
                    "tokens": "random",
                    "programs/ours/peak_planned": 1000,
                    "programs/ours/peak_allocated": 1024,
                    "programs/compile/peak_allocated": 2**30,
                    # The record names the commit of this script as well as that of the programs.
                    "runner": words(*commit),
                    "rounds/0/runner": words(*commit),
                    "rounds/0/commit": "c",
                    "rounds/0/command": words(own),
                    "command": words(own),
                    "machine/gpu": "Pretended GPU",
                    f"{timed}/power/samples": lambda count: count > 0,
                    f"{timed}/power/watts/median": 690.5,
                    f"{timed}/power/clock_reasons": ["0x0000000000000004"],
                    # The power of a timed program is read from the driver's counters.
                    timed: lambda cell: 85 < watts(cell) < 115,
                },
            ),
        )
        shown = [found["command"], *(found["programs"][name]["command"] for name in ("ours", "compile"))]
        check(
            not any(re.search(r"(^|=)/", word) for command in shown for word in command.split()),
            f"a path of this machine: {shown}",
        )


def goes_on():
    with stage() as (_, run):
        ask = "--rows 774m --peers none --rounds"

        def rounds_of(more, **how):
            said, result = Call(f"{ask} {more}", **how).of(run)
            return said, result["rows"]["774m"]["rounds"]

        _, first = rounds_of("1")
        _, rounds = rounds_of("2")
        check(len(rounds) == 2 and rounds[0] == first[0], "a second run adds the round that is missing")
        said, same = rounds_of("2", env={"FAKE_STEPS": "0"}, out=("774m: is in",))
        check(
            same == rounds and "round" not in said.stdout.split("|")[0], "a complete row is kept, and skipped"
        )
        _, again = rounds_of("1 --again")
        check(len(again) == 1 and again[0] != first[0], "--again measures anew")
        _, same = rounds_of("1 --again --seconds 0.001", code=1)
        check(same == again, "without time for a round nothing is lost")
        _, same = rounds_of("1 --again", code=1, env={"FAKE_STEPS": "0"}, err=("ours failed",))
        check(same == again, "a failure without a round replaces none")


def keeps_to_the_time():
    with stage() as (folder, run):
        ask, began = "--rows 774m --peers none --rounds", run.clock.time()
        _, result = Call(f"{ask} 1000 --seconds 4", code=1, out=("time limit",)).of(run)
        found = result["rows"]["774m"]
        rounds = found["rounds"]
        check(0 < len(rounds) < 1000 and sum(r["seconds"] for r in rounds) <= 4, f"{rounds}")
        check(run.clock.time() - began < 6, "it ends in time")
        check("failure" not in found["programs"]["ours"], "and that is no failure")
        found["rounds"] = [{**rounds[0], "seconds": 1000}]
        (folder / "out.json").write_text(json.dumps(result))
        (folder / "log").unlink()
        Call(f"{ask} 2 --seconds 100", code=1, out=("time limit",)).of(run)
        check(not (folder / "log").exists(), "no round is started that will not fit")


# A lesson keeps its record although turns were not taken, if the remaining steps would take only seconds.
def ends_what_can_end():
    with stage() as (folder, run):
        for turns, ends in ((2, True), (100000, False)):
            lesson = gpu_programs.Lesson(
                folder / "00_one_device",
                [],
                1,
                folder / "out",
                paused=True,
                turns=turns,
                environment={"FAKE_LOG": f"{folder}/log"},
            )
            lesson.measure(1, 2, run.clock.time() + 60)
            about = lesson.close(run.clock.time() + 60)
            check(
                ("bytes_measured" in about) == ends and ("record" in about) != ends,
                f"{turns} turns, one taken: {about}",
            )


# Tests arithmetic on made-up numbers: scaling is rate_N / (N rate_1); a program that missed a round says how
# many it had; power is constant between two changes of a counter; rows asked for without --out are kept in a
# default place; split=balanced counts operations as common/pipeline/split.cpp does.
def computes():
    cells = [
        {"programs": {"ours": {"tokens_per_second": a}, "ours_1": {"tokens_per_second": b}}}
        for a, b in ((18, 10), (19, 10), (30, 15))
    ]
    found = gpu_table.ratios_of({"world": 2, "programs": {"ours": {}, "ours_1": {}}, "rounds": cells})
    check(found == {"scaling": {"median": 0.95, "lowest": 0.9, "highest": 1.0, "rounds": 3}}, f"{found}")
    programs = {"ours": {"label": "Ours"}, "ours_1": {"label": "Peer"}, "lost": {"label": "Lost"}}
    rounds = [cells[0], {"programs": {"ours": {"tokens_per_second": 2, "joules_per_token": 0.0021}}}]
    table = {"programs": programs, "rounds": rounds, "ratios": {}, "world": 1}
    lines = [gpu_table.program_line("x", table, name) for name in programs]
    for line, label in zip(lines, ("Ours", "Peer; 1 of 2 rounds", "Lost"), strict=True):
        check(f"| {label} |" in line, line)
    check(lines[0].endswith(" | 2.10 |"), lines[0])
    updates = [(10.0, 1000), (20.0, 3000), (40.0, 4000)]
    found = [gpu_watch.at(updates, when) for when in (15.0, 20.0, 30.0)]
    check(found == [2000, 3000, 3500], f"{found}")
    for record, asked in KEPT.items():
        check(gpu.Comparison.record_of([gpu.ROWS[name] for name in asked]) == record, f"{asked}")
    for name in gpu.GROUPS["pipeline"]:
        one = gpu.ROWS[name]
        config, (_, _, vocab) = one.config(), gpu.sizes(one)
        d, blocks = config["model"]["width"], config["model"]["layers"]
        block, head = 24 * d * d + 2 * config["batch"]["sequence"] * d, 2 * vocab * d
        balanced = min(range(1, blocks), key=lambda n: max(n * block, (blocks - n) * block + head))
        check(one.split == (balanced, blocks - balanced), f"{name}: {balanced}")
    for gpus, there, expected in (
        (2, 2, [1, 0]),
        (2, 4, [2, 3]),
        (2, 3, [2, 2]),
        (4, 4, [1, 2, 3, 0]),
        (1, 2, [1]),
    ):
        check(sources_of(gpus, there) == expected, f"{gpus} of {there}: {sources_of(gpus, there)}")


KEPT = {
    "gpu_peers": ["355m"],
    "gpu_pipeline": gpu.GROUPS["pipeline"],
    "gpu_tensor": ["tensor_355m", "tensor_774m"],
    "gpu_combined": ["combined_355m", "mesh_8"],
    "gpu_deepspeed": ["offload_355m", "offload_774m", "zero_355m"],
}


# Lesson 06 and ZeRO-Infinity run twice on the same disk, whose raw rate is measured before each pair; a
# second call continues.
def compares_disks():
    if built := os.environ.get(
        "STAGECRAFT_BENCHMARKS"
    ):  # where CMake builds adamw_benchmark and block_io_benchmark
        check(
            all(pathlib.Path(folder).parts[-2:] == ("bin", "tests") for folder in built.split(":")),
            f"looked for in bin/tests, built in {built}",
        )
    with machine() as (folder, _):
        log, out = folder / "log", folder / "disk.json"

        def run(script, *more, code=0, err="", **environment):
            command = [HERE / script, "--bin", folder, "--commit", "c", *more]
            done = started(sys.executable, *command, environment={"FAKE_LOG": str(log), **environment})
            check(done.returncode == code and err in done.stderr, f"{done}")
            return done

        infinity = ("gpu_infinity.py", "--deepspeed", "--disk", folder, "--out", out)
        infinity = (*infinity, "--deepspeed-peer", folder / "peer.py")
        run(*infinity, code=1, err="block_io_benchmark is not built")
        offload = run(
            "gpu_offload.py", "--out", folder / "x.json", code=1, err="adamw_benchmark is not built"
        )
        check(offload.stdout == "" and not log.exists(), "it says so before anything runs")
        (folder / "tests").mkdir()
        disk = folder / "tests" / "block_io_benchmark"
        disk.write_text(
            "#!/bin/sh\necho 'mixed, io_uring: 4.00 GB/s'\necho 'BlockFile io_uring mixed 3.50 GB/s'\n"
        )
        disk.chmod(0o755)
        run(*infinity, code=1, err="lost the GPU", FAKE_LOST="3")
        check(run(*infinity).stdout.count("raw 4.0 3.5") == 1, "the second call has one left")
        result = json.loads(out.read_text())
        rows = [(one["name"], one["tokens_per_second"]) for one in result["runs"]]
        expected = [("exact", 16 * 1024 / 0.1), ("deepspeed", 16 * 1024 / 0.2)]
        check(rows == expected * 2 and len(result["raw"]) == 2, f"{result}")
        check(str(folder) not in json.dumps(result["runs"][1]["about"]["config"]), "a path of this machine")


# The cost of awake links: one GPU beside copies over one GPU alone, in the same round.
def compares_awake_links():
    copied = ("ours", "ours_1", "ours_1_awake", "ours_1_within")
    costs = ratios(scaling=1.25, ours_1_awake_over_ours_1=1, ours_1_within_over_ours_1=1)
    with stage() as (folder, run):
        expected = row("links x2", programs=names(*copied), ratios=costs)
        Call(f"{TWO} --rows links", expected, out=("1.000 (one round) of one GPU",)).of(run)
        noted = [line.split() for line in (folder / "log.copies").read_text().splitlines()]
        check([line[0] for line in noted] == ["--gpus", "end"] * 2, f"each has copies of its own: {noted}")
        check([line[1] for line in noted[::2]] == ["2", "2"], f"{noted}")
        check(["--within" in line for line in noted] == [False, False, True, False], f"{noted}")
        steps = [
            float(line) for line in (folder / "log").read_text().split()
        ]  # 46 to warm up and 3 of ours, twice as many (two GPUs) of each that follows
        check(len(steps) == 7 * 49, f"{len(steps)} steps")
        for turn, (begin, end) in ((steps[3 * 49 : 5 * 49], noted[:2]), (steps[5 * 49 :], noted[2:])):
            beside = float(begin[-1]) <= min(turn) and max(turn) <= float(end[-1])
            check(beside, "copies beside all steps of the turn")


def compares_curves_of_records():
    with stage() as (folder, run):
        paths = {}
        for name, dtype, commit in (("a", "fp32", "c"), ("b", "fp16", "c"), ("other", "fp32", "d")):
            own = sets((f"precision.dtype={dtype}", "precision.grad_dtype=same"))
            command = [folder / "00_one_device", *own, "--steps", "10", "--out", folder / name]
            environment = {"FAKE_LOG": str(folder / "log"), "STAGECRAFT_COMMIT": commit}
            run.process(command, environment).wait(run.clock.time() + 60)
            paths[name] = folder / name / "record.json"
        own = words("build/cuda/bin/00_one_device --set")
        expected = {"commit": "c", "runs/1/power": None, "runs/0/command": own}
        _, result = Call(f"{paths['a']} {paths['b']}", expected, script="loss_curves.py").of(run)
        check(str(folder) not in json.dumps(result), f"a path of this machine: {result}")
        other = "the records are of different commits"
        refused(f"{paths['a']} {paths['other']}", other, script="loss_curves.py").of(run)


# Tests what records.py takes from the folders of runs with --profile.
def keeps_profiles():
    with tempfile.TemporaryDirectory() as at:
        folder = pathlib.Path(at)
        good = {"lesson": "00_one_device", "commit": "abc", "started": "now", "versions": {}, "world": 1}
        good |= {"device": "cuda", "exit_code": 0, "as_predicted": True, "profile": {"steps": 3}}
        good |= {"command": "bin/00_one_device --profile --out /tmp/x"}
        not_held = "not a run on GPUs that held what was predicted"
        for other, why in (
            ({}, ""),
            ({"profile": {"steps": 0}}, "no step was profiled"),
            ({"device": "cpu"}, not_held),
            ({"exit_code": 70}, not_held),
        ):
            (folder / "record.json").write_text(json.dumps({**good, **other}))
            try:
                found, refusal = records.gpu_profile([folder])["runs"][0], ""
                check(found["profile"] == {"steps": 3} and "--out" not in found["command"], f"{found}")
            except SystemExit as ended:
                refusal = str(ended)
            check(why in refusal and bool(why) == bool(refusal), f"{other}: {refusal}")
        (folder / "record.json").write_text(json.dumps({**good, "world": 2}))
        for flags, code, why in (
            (("--gpu-profile", folder, "--as", "gpu_profile_one"), 1, "is of runs on one GPU"),
            (("--as", "gpu_profile_one"), 2, "--as names what --gpu-profile writes"),
        ):
            done = started(sys.executable, HERE / "records.py", *flags, timeout=20)
            check(done.returncode == code and why in done.stderr, f"{done}")


# A figure shows a typical step: not a first one, not one that happened to wait, and none of a slow run.
def draws_a_usual_step():
    slow = {"seconds": [1.1, 1.1, 2.0], "waited_seconds": [0.1, 0.1, 0.1]}
    usual = {"seconds": [1.1, 1.1, 1.0, 1.1, 1.3, 1.1], "waited_seconds": [0.1, 0.1, 0.6, 0.1, 0.1, 0.2]}
    check(
        records.typical_step([slow, usual]) == (1, 3), f"run and step {records.typical_step([slow, usual])}"
    )
    asked = []

    class Traced:
        def __init__(self, *flags):
            asked.append(flags)
            steps = {"seconds": [9.0, 9.0, 1.0 + len(asked)], "waited_seconds": [9.0, 9.0, 0.25 * len(asked)]}
            self.command, self.record = f"run {len(asked)}", {"steps": steps}
            self.trace = [
                {"ph": "X", "pid": 0, "cat": "step", "name": "step 2", "ts": 100.0, "dur": float(len(asked))}
            ]

    with unittest.mock.patch.object(records, "Run", Traced):
        found = records.RECORDS["zero_trace"].make()
    ran = [(lesson, 2) for lesson in ("02_zero1", "03_zero2", "04_zero3") for _ in range(3)]
    check([flags[:2] for flags in asked] == ran, f"three runs of each on two ranks: {asked}")
    has(
        found,
        {
            # The step shown is the median one, without the first steps.
            "lessons/02_zero1/command": "run 2",
            "lessons/02_zero1/microseconds": 2.0,
            "lessons/02_zero1/step": 2,
            "lessons/02_zero1/runs": 3,
            "lessons/02_zero1/steps_microseconds": {"median": 3e6, "lowest": 2e6, "highest": 4e6},
            "lessons/02_zero1/waited_microseconds": {"median": 5e5, "lowest": 2.5e5, "highest": 7.5e5},
        },
    )


# Without a GPU there is one message, and everything that needs no GPU still works.
def refuses_without_gpu():
    with machine() as (folder, _):
        (folder / "nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
        run = functools.partial(
            started, HERE / "gpu.sh", environment={"PATH": f"{folder}:{os.environ['PATH']}"}
        )
        for arguments in ((), ("--dtype-only",), ("--peers", "none")):
            said = run(*arguments)
            check(said.returncode == 69 and said.stderr.startswith("error: no GPU is visible"), f"{said}")
            check(said.stderr.count("\n") == 2, f"{said}")
        said = run("--render", ROOT / "docs/results/gpu_peers.json")
        check(said.returncode == 0 and said.stdout.startswith("| run | program |"), f"{said}")
        said = started(sys.executable, HERE / "dtype_only.py", "--bin", folder / "nowhere")
        check(said.returncode == 1 and "00_one_device is not built\n  fix: " in said.stderr, f"{said}")


def main():
    for test in (
        refuses_without_gpu,
        takes_turns,
        goes_on,
        keeps_to_the_time,
        ends_what_can_end,
        holds_cases,
        computes,
        compares_disks,
        compares_awake_links,
        compares_curves_of_records,
        keeps_profiles,
        draws_a_usual_step,
    ):
        test()
    print("passed")


if __name__ == "__main__":
    main()
