#!/usr/bin/env python3
"""Tests of gpu.py, gpu_bits.py, dtype_only.py and loss_curves.py with programs that only pretend (pretended.py): turns, resuming, ratios, failures, the time limit.
Those that are about processes run them; in all others they share this process and a clock of its own."""
import contextlib
import functools
import io
import json
import os
import pathlib
import queue
import re
import signal
import subprocess
import sys
import tempfile
import types
import unittest.mock

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))
import choosing  # noqa: E402
import dtype_only  # noqa: E402
import gpu  # noqa: E402
import gpu_bits  # noqa: E402
import gpu_programs  # noqa: E402
import gpu_table  # noqa: E402
import gpu_watch  # noqa: E402
import loss_curves  # noqa: E402
import pretended  # noqa: E402
import records  # noqa: E402
from gpu_copies import sources_of  # noqa: E402

MODULES = {"gpu.py": gpu, "gpu_bits.py": gpu_bits, "dtype_only.py": dtype_only, "loss_curves.py": loss_curves}
sources = functools.cache(gpu_programs.sources)
LESSONS = (
    "00_one_device",
    "01_data_parallel",
    "02_zero1",
    "03_zero2",
    "04_zero3",
    "05_offload",
    "06_infinity",
    "07_pipeline",
    "10_tensor_parallel",
    "11_combined",
)

MPIRUN = '#!/bin/sh\nwhile [ "${1#-}" != "$1" ] || [ ! -x "$1" ]; do shift; done\nexec "$@"\n'

# Counters of energy: 100 W on the first GPU, 300 on the second. FAKE_NO_COUNTER: GPUs that have none.
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


def check(holds, what):
    if not holds:
        sys.exit(f"failed: {what}")


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
                    f"#!{sys.executable} -IS\nimport sys\nsys.path.insert(0, '{HERE}')\nimport pretended\npretended.main(pretended.{what})\n",
                )
                for name, what in programs.items()
            ),
            ("mpirun", MPIRUN),
        ):
            (folder / program).write_text(text)
            (folder / program).chmod(0o755)

        def run(*arguments, **environment):
            environment = {
                **os.environ,
                "PATH": f"{folder}:{os.environ['PATH']}",
                "LD_LIBRARY_PATH": str(folder),
                "FAKE_LOG": str(folder / "log"),
                **environment,
            }
            result = subprocess.run(
                [sys.executable, HERE / "gpu.py", *words_of(folder, "gpu.py", arguments)],
                capture_output=True,
                text=True,
                check=False,
                env=environment,
            )
            path = folder / "out.json"
            return result, json.loads(path.read_text()) if path.exists() else None

        yield folder, run


def words_of(folder, script, arguments):
    own = (
        []
        if script != "gpu.py"
        else [
            "--peer",
            folder / "peer.py",
            "--pipeline-peer",
            folder / "peer.py",
            "--tensor-peer",
            folder / "peer.py",
            "--deepspeed-peer",
            folder / "peer.py",
            "--copies",
            folder / "copies.py",
        ]
    )
    warm_up = [] if script in ("gpu_bits.py", "loss_curves.py") else ["--warm-up", "2"]
    return [
        str(word)
        for word in (
            *own,
            "--bin",
            folder,
            "--out",
            folder / "out.json",
            "--commit",
            "c",
            "--steps",
            "3",
            *warm_up,
            *arguments,
        )
    ]


@contextlib.contextmanager
def stage():
    """The same in this process, where no time passes but a clock's."""
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
            path = folder / "out.json"
            return (
                subprocess.CompletedProcess((), code, out.getvalue(), err.getvalue()),
                json.loads(path.read_text()) if path.exists() else None,
            )

        run.clock, run.process = clock, process
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


def takes_turns():
    with machine() as (folder, run):
        said, result = run("--rows", "774m", "--rounds", "2", "--peers", "compile,bf16", FAKE_TURN="0.4")
        check(said.returncode == 0, said.stdout + said.stderr)
        row = result["rows"]["774m"]
        turns = sorted(
            (c["began"], c["ended"], name) for r in row["rounds"] for name, c in r["programs"].items()
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
        ratios = row["ratios"]
        stored = json.loads((ROOT / "docs/results/peers_stored.json").read_text())["llm.c"][
            "tokens_per_second"
        ]["774m"]
        expected = {"ours_over_compile": 2, "ours_over_bf16": 2.5, "ours_over_llmc": 16 * 1024 / 0.1 / stored}
        check(
            all(abs(ratios[name]["median"] - value) < 1e-9 for name, value in expected.items()), f"{ratios}"
        )
        check(
            ratios["ours_over_llmc"]["stored"] and "not in this run" in row["programs"]["llmc"]["source"],
            "a stored rate says so",
        )
        check("llm.c (stored)" in said.stdout, "in the table, too")
        check(
            said.stdout.index("774m: attention") < said.stdout.index("ready"),
            "attention is timed before anything else runs",
        )
        check(row["attention"]["attention_milliseconds"] == {"cudnn": 0.6, "flash": 0.9}, "kept with the row")
        check(
            row["programs"]["compile"]["attention"] == "cudnn" and "; attention: cudnn" in said.stdout,
            "and named",
        )
        check(
            "data.source=build/random_tokens_50257.bin" in row["programs"]["ours"]["command"],
            "ours trains on random tokens",
        )
        check(
            "--tokens build/random_tokens_50257.bin" in row["programs"]["compile"]["command"]
            and row["tokens"] == "random",
            "and so does the peer",
        )
        said_by = (
            subprocess.run(
                ["git", "rev-parse", "--short=12", "HEAD"],
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=False,
            ).stdout.strip()
            or "unknown"
        )
        check(
            row["runner"].removesuffix("-dirty")
            == row["rounds"][0]["runner"].removesuffix("-dirty")
            == said_by,
            "what measured is named beside what was",
        )
        check(
            row["rounds"][0]["commit"] == "c"
            and row["rounds"][0]["command"].startswith("tests/benchmarks/gpu.py --"),
            "a round says what it was",
        )
        check(
            (row["programs"]["ours"]["peak_planned"], row["programs"]["ours"]["peak_allocated"])
            == (1000, 1024),
            "ours has its peak, by its record",
        )
        check(row["programs"]["compile"]["peak_allocated"] == 2**30, "the peer has its peak")
        power = row["rounds"][1]["programs"]["compile"]["power"]
        check(
            power["samples"] > 0
            and power["watts"]["median"] == 690.5
            and power["clock_reasons"] == ["0x0000000000000004"],
            f"{power}",
        )
        timed = row["rounds"][1]["programs"]["compile"]
        check(
            0.85 < timed["joules"] / (timed["ended"] - timed["began"]) / 100 < 1.15,
            f"by the driver's counters: {timed}",
        )
        check(result["rows"]["774m"]["machine"]["gpu"] == "Pretended GPU", "the machine is named")
        commands = [row["command"], *(row["programs"][name]["command"] for name in ("ours", "compile"))]
        check(row["command"].startswith("tests/benchmarks/gpu.py --"), row["command"])
        check(
            not any(re.search(r"(^|=)/", word) for command in commands for word in command.split()),
            f"a path of this machine: {commands}",
        )
        check(
            commands[1].startswith("build/cuda/bin/00_one_device --"),
            f"a lesson's program is named where a build puts it: {commands[1]}",
        )


def goes_on():
    with stage() as (folder, run):
        ask = ("--rows", "774m", "--peers", "none")
        run(*ask, "--rounds", "1")
        first = json.loads((folder / "out.json").read_text())["rows"]["774m"]["rounds"]
        _, result = run(*ask, "--rounds", "2")
        rounds = result["rows"]["774m"]["rounds"]
        check(len(rounds) == 2 and rounds[0] == first[0], "a second run adds the round that is missing")
        said, result = run(*ask, "--rounds", "2", FAKE_STEPS="0")
        check(
            said.returncode == 0 and result["rows"]["774m"]["rounds"] == rounds,
            "a row that is complete is kept",
        )
        check(
            "774m: is in" in said.stdout and "round" not in said.stdout.split("|")[0],
            f"and skipped: {said.stdout}",
        )
        _, result = run(*ask, "--rounds", "1", "--again")
        said, kept = run(*ask, "--rounds", "1", "--again", "--seconds", "0.001")
        check(
            said.returncode == 1 and kept["rows"]["774m"]["rounds"] == result["rows"]["774m"]["rounds"],
            "without time for a round nothing is lost",
        )
        check(
            len(result["rows"]["774m"]["rounds"]) == 1 and result["rows"]["774m"]["rounds"][0] != first[0],
            "--again measures anew",
        )
        said, kept = run(*ask, "--rounds", "1", "--again", FAKE_STEPS="0")
        check(said.returncode == 1 and "ours failed" in said.stderr, said.stdout + said.stderr)
        check(
            kept["rows"]["774m"]["rounds"] == result["rows"]["774m"]["rounds"],
            "a failure without a round replaces none",
        )


def failures_stay_with_their_program():
    with stage() as (_, run):
        said, result = run("--rows", "774m", "--rounds", "1", "--peers", "compile,bf16", FAKE_BAD="autocast")
        row = result["rows"]["774m"]
        check(
            said.returncode == 1 and "no compiler found" in row["programs"]["compile"]["failure"],
            f"{row['programs']}",
        )
        check(
            row["rounds"] and set(row["rounds"][0]["programs"]) == {"ours", "bf16"},
            f"the others go on: {row} {said.stdout} {said.stderr}",
        )
        check(
            "| failed |" in said.stdout and "autocast: failed: exit 1: no compiler found" in said.stdout,
            said.stdout,
        )
    with stage() as (_, run):
        said, result = run("--rows", "774m", "--rounds", "2", "--peers", "compile,bf16", FAKE_LOST="autocast")
        row = result["rows"]["774m"]
        check(
            "exit 1\nlost the GPU" in row["programs"]["compile"]["failure"], f"{row['programs']['compile']}"
        )
        check(
            [set(r["programs"]) for r in row["rounds"]] == [{"ours", "bf16"}] * 2,
            "a turn that fails ends its program alone",
        )
    with stage() as (_, run):
        said, result = run("--rows", "774m", "--rounds", "1", "--peers", "compile,bf16", FAKE_NAN="autocast")
        programs = result["rows"]["774m"]["programs"]
        check(
            said.returncode == 1
            and "a loss is not finite" in programs["compile"]["failure"]
            and programs["bf16"]["last_loss"] == 5.0,
            f"{programs}",
        )
    for mode in ("paused", "process"):
        with stage() as (_, run):
            said, result = run(
                "--rows", "774m", "--rounds", "1", "--peers", "none", "--ours", mode, FAKE_STEPS="4"
            )
            row = result["rows"]["774m"]
            check(
                said.returncode == 1
                and not row["rounds"]
                and "4 steps" in row["programs"]["ours"]["failure"],
                f"{mode}: {row}",
            )
    with stage() as (folder, run):
        (folder / "00_one_device").unlink()
        said, result = run("--rows", "774m", "--peers", "compile")
        check(
            said.returncode == 1
            and "00_one_device is not built" in said.stderr
            and "ready" not in said.stdout,
            "it says so at once",
        )
    with stage() as (_, run):
        _, result = run("--rows", "774m", "--rounds", "1", "--peers", "none", FAKE_TOKENS="1")
        check(
            "16385 tokens" in result["rows"]["774m"]["programs"]["ours"]["failure"],
            "another batch is no comparison",
        )
    with stage() as (_, run):
        said, result = run("--rows", "774m", "--rounds", "1", "--peers", "none", FAKE_WRONG="1")
        check(
            said.returncode == 1
            and "as predicted: False" in result["rows"]["774m"]["programs"]["ours"]["failure"],
            said.stdout,
        )


def keeps_to_the_time():
    with stage() as (folder, run):
        began = run.clock.time()
        said, result = run("--rows", "774m", "--rounds", "1000", "--peers", "none", "--seconds", "4")
        rounds = result["rows"]["774m"]["rounds"]
        check(
            said.returncode == 1 and "time limit" in said.stdout and 0 < len(rounds) < 1000,
            said.stdout + said.stderr,
        )
        check(sum(r["seconds"] for r in rounds) <= 4 and run.clock.time() - began < 6, "it ends in time")
        check("failure" not in result["rows"]["774m"]["programs"]["ours"], "and that is no failure")
        result["rows"]["774m"]["rounds"] = [{**rounds[0], "seconds": 1000}]
        (folder / "out.json").write_text(json.dumps(result))
        (folder / "log").unlink()
        said, result = run("--rows", "774m", "--rounds", "2", "--peers", "none", "--seconds", "100")
        check(
            "time limit" in said.stdout and not (folder / "log").exists(),
            "no round is started that will not fit",
        )


# Turns that were not taken do not cost a run its record, where the steps that are left take seconds.
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


# Two rows that do not fit a GPU together: the second one's peers are compiled when the first is done.
def rows_share_the_memory():
    with stage() as (folder, run):
        for rows, first, last in (
            ("355m,774m", "355m round", "774m compile: ready"),
            ("124m,355m", "355m compile: ready", "124m round"),
        ):
            said, _ = run(
                "--rows", rows, "--rounds", "1", "--again", "--peers", "compile,bf16", "--lessons", "ours"
            )
            check(
                said.returncode == 0 and -1 < said.stdout.find(first) < said.stdout.find(last),
                f"{rows}: {said.stdout}{said.stderr}",
            )
        # Lessons that stand still between their turns count, and llm.c.
        for rows, more, first, last in (
            ("124m,355m", ("--lessons", "ours,dp,zero1,zero2,zero3"), "124m round", "355m compile: ready"),
            (
                "124m,355m",
                ("--lessons", "ours", "--llmc", f"{folder}/llmc"),
                "124m round",
                "355m compile: ready",
            ),
        ):
            said, _ = run("--rows", rows, "--rounds", "1", "--again", "--peers", "compile,bf16", *more)
            check(
                said.returncode == 0 and -1 < said.stdout.find(first) < said.stdout.find(last),
                f"{rows} {more}: {said.stdout}{said.stderr}",
            )
        _, result = run("--rows", "sharding", "--rounds", "1", "--llmc", f"{folder}/llmc")
        check(
            list(result["rows"]["sharding"]["programs"]) == ["ours", "dp", "zero1", "zero2", "zero3"],
            f"no peer: {result['rows']['sharding']['programs']}",
        )
        said, _ = run("--rows", "scaled")
        check(
            said.returncode == 1
            and "scaled is none of seed, 124m, 355m, 774m, 1558m, sharding, offload_355m, offload_774m, offload (GPUs: 1)"
            in said.stderr,
            said.stderr,
        )
        said, _ = run("--world", "2", "--rows", "sharding")
        check(
            said.returncode == 1
            and "1558m, accumulate, windows, scaling, links, pipeline_4, pipeline_8, pipeline_16, tensor_355m, tensor_774m, combined_355m, zero_355m, pipeline, tensor, combined, zero (GPUs: 2)"
            in said.stderr,
            said.stderr,
        )


def runs_llmc():
    with stage() as (folder, run):
        said, result = run(
            "--rows", "774m", "--rounds", "2", "--peers", "none", "--llmc", f"{folder}/llmc@abc"
        )
        row = result["rows"]["774m"]
        check(said.returncode == 0, said.stdout + said.stderr)
        ratio = row["ratios"]["ours_over_llmc"]
        check(abs(ratio["median"] - 0.8) < 1e-9 and "stored" not in ratio, f"{ratio}")
        check(
            row["programs"]["llmc"]["commit"] == "abc"
            and row["programs"]["llmc"]["command"].endswith("-r 0"),
            f"{row['programs']['llmc']}",
        )
        check(
            (folder / "log.llmc").read_text() == "2 12 53 ",
            "two steps tell how long they are (0.9 and 0.08 s), then it warms up for 4 s",
        )
        check(row["warm_seconds"] == 4.0, "and the row says so")
        check(
            "stored" not in row["programs"]["llmc"] and "stored" not in said.stdout,
            "nothing stored stands beside what was measured",
        )


def scales():
    cells = [
        {"programs": {"ours": {"tokens_per_second": a}, "ours_1": {"tokens_per_second": b}}}
        for a, b in ((18, 10), (19, 10), (30, 15))
    ]
    ratios = gpu_table.ratios_of({"world": 2, "programs": {"ours": {}, "ours_1": {}}, "rounds": cells})
    check(
        ratios == {"scaling": {"median": 0.95, "lowest": 0.9, "highest": 1.0, "rounds": 3}},
        "scaling is rate_N / (N rate_1)",
    )


# What splits stands beside lesson 01 and beside the peer that splits the same. mpirun's stand-in starts one process.
def compares_what_splits():
    with stage() as (_, run):
        said, result = run("--world", "2", "--rows", "1558m", "--rounds", "1", "--peers", "compile,zero,fsdp")
        check(said.returncode == 0, said.stdout + said.stderr)
        row = result["rows"]["1558m x2"]
        programs = [
            "ours",
            "ours_1",
            "zero1",
            "zero2",
            "zero3",
            "zero3_gelu",
            "compile",
            "zero",
            "fsdp",
            "fsdp_stored",
        ]
        check(list(row["programs"]) == programs, f"{list(row['programs'])}")
        stored = json.loads((ROOT / "docs/results/peers_stored.json").read_text())["FSDP2 + compile"][
            "tokens_per_second"
        ]["1558m x2"]
        rate = 2 * 8 * 1024 / 0.1 / stored
        expected = {
            "scaling": 1.25,
            "ours_over_compile": 2,
            "ours_over_zero": 2,
            "ours_over_fsdp": 2,
            "zero1_over_ours": 0.8,
            "zero1_over_zero": 1.6,
            "zero2_over_ours": 1,
            "zero3_over_ours": 0.5,
            "zero3_over_fsdp": 1,
            "zero3_gelu_over_ours": 1 / 3,
            "zero3_gelu_over_fsdp": 2 / 3,
            "ours_over_fsdp_stored": rate,
            "zero3_over_fsdp_stored": rate / 2,
            "zero3_gelu_over_fsdp_stored": rate / 3,
        }
        found = {name: ratio["median"] for name, ratio in row["ratios"].items()}
        check(
            found.keys() == expected.keys() and all(abs(found[k] - v) < 1e-9 for k, v in expected.items()),
            f"{found}",
        )
        check(
            [row["programs"][name]["shard"] for name in ("compile", "zero", "fsdp")]
            == ["none", "optimizer", "all"],
            "what the peers split",
        )
        check(
            row["programs"]["zero2"]["commit"] == "c" and row["programs"]["zero2"]["wait_share"] == 0.125,
            f"{row['programs']['zero2']}",
        )
        check(
            "0.800 (one round) of lesson 01" in said.stdout and "lesson 04 1.000 (" in said.stdout,
            said.stdout,
        )
    with stage() as (_, run):
        said, result = run("--rows", "124m", "--rounds", "1", "--peers", "none")
        programs = result["rows"]["124m"]["programs"]
        check(said.returncode == 0 and list(programs) == ["ours", "text", "llmc"], said.stdout + said.stderr)
        check(
            "data.source" not in programs["text"]["command"] and "data.source" in programs["ours"]["command"],
            f"{programs}",
        )
        check(
            result["rows"]["124m"]["ratios"]["text_over_ours"]["median"] == 1,
            "what random tokens hide stands in the table",
        )
        said, result = run(
            "--rows", "124m", "--rounds", "1", "--peers", "none", "--tokens", "/elsewhere/some.bin"
        )
        check(
            "first round replaces what" in said.stdout and result["rows"]["124m"]["tokens"] == "some.bin",
            "other tokens are another measurement",
        )
        check(
            result["rows"]["124m"]["programs"]["ours"]["workload"]["data.source"] == "some.bin",
            "nor in the workload",
        )
        check(
            " data.source=some.bin " in result["rows"]["124m"]["programs"]["ours"]["command"],
            "which train on them; where they lie is this machine's",
        )
    with stage() as (_, run):
        said, result = run(
            "--rows", "774m", "--rounds", "1", "--peers", "none", "--lessons", "dp,zero1,zero3"
        )
        check(said.returncode == 0, said.stdout + said.stderr)
        found = {
            name: ratio["median"]
            for name, ratio in result["rows"]["774m"]["ratios"].items()
            if name != "ours_over_llmc"
        }
        check(
            result["rows"]["774m"]["programs"]["zero1"]["wait_share"] is None,
            "a run that stood still between its turns knows no share",
        )
        check(
            found == {"dp_over_ours": 1, "zero1_over_ours": 0.8, "zero3_over_ours": 0.5},
            f"world 1, too: {found}",
        )
        check("0.500 (one round) of lesson 00" in said.stdout, said.stdout)
        said, result = run("--rows", "774m", "--peers", "fsdp")
        check(said.returncode == 1 and "on several GPUs" in said.stderr, "one GPU splits nothing")


# Modes of torch.compile beside each other. Another call adds rounds with other modes.
def compares_modes():
    with stage() as (_, run):
        run("--rows", "355m", "--rounds", "1", "--peers", "compile,compile:reduce-overhead")
        said, result = run(
            "--rows",
            "355m",
            "--rounds",
            "2",
            "--peers",
            "compile,compile:max-autotune,compile:max-autotune-no-cudagraphs",
        )
        check(said.returncode == 0, said.stdout + said.stderr)
        row = result["rows"]["355m"]
        for mode in ("reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"):
            name = "compile_" + mode.replace("-", "_")
            program = row["programs"][name]
            check(
                f"--variant autocast --mode {mode} " in program["command"]
                and program["label"].endswith(f"bf16 autocast ({mode})"),
                f"{program}",
            )
            check(row["ratios"][f"ours_over_{name}"]["rounds"] == 1, f"{row['ratios']}")
        check(
            row["ratios"]["ours_over_compile"]["rounds"] == 2
            and "(reduce-overhead); 1 of 2 rounds" in said.stdout,
            said.stdout,
        )


# Four micro-batches of 16 rows on each of two GPUs; peers have one, so that there are none.
def accumulates():
    with stage() as (_, run):
        said, result = run("--world", "2", "--rows", "accumulate", "--rounds", "1")
        check(said.returncode == 0, said.stdout + said.stderr)
        row = result["rows"]["accumulate x2"]
        check(
            list(row["programs"]) == ["ours", "zero1", "zero2", "zero3"] and row["micro_batches"] == 4,
            f"{row['programs']}",
        )
        check(
            "batch.global=128 --set batch.micro=16" in row["programs"]["zero1"]["command"],
            row["programs"]["zero1"]["command"],
        )
        check(
            abs(row["rounds"][0]["programs"]["ours"]["tokens_per_second"] - 128 * 1024 / 0.1) < 1,
            "all four count",
        )


# The same program in another environment, beside lesson 01 and beside itself.
def compares_without_windows():
    with stage() as (_, run):
        said, result = run("--world", "2", "--rows", "windows", "--rounds", "1")
        check(said.returncode == 0, said.stdout + said.stderr)
        found = {name: ratio["median"] for name, ratio in result["rows"]["windows x2"]["ratios"].items()}
        check(found == {"zero3_over_ours": 0.5, "zero3_plain_over_ours": 0.25}, f"{found}")
        check(
            "NCCL_WIN_ENABLE=0 | " in said.stdout and "0.250 (one round) of lesson 01" in said.stdout,
            said.stdout,
        )


# Stages of one pipeline share a step's micro-batches, cut alike on both sides; what gpu.sh writes by itself is a record of its own.
def compares_pipelines():
    with stage() as (folder, run):
        said, result = run("--world", "2", "--rows", "pipeline", "--rounds", "1")
        check(said.returncode == 0, said.stdout + said.stderr)
        rows = result["rows"]
        check(list(rows) == ["pipeline_4 x2", "pipeline_8 x2", "pipeline_16 x2"], f"{list(rows)}")
        check(
            [list(row["programs"]) for row in rows.values()]
            == [
                ["ours", "ours_warmup", "one_device", "1f1b"],
                ["ours", "ours_warmup", "ours_gpipe", "one_device", "1f1b", "gpipe"],
                ["ours", "ours_warmup", "one_device", "1f1b"],
            ],
            f"{[list(row['programs']) for row in rows.values()]}",
        )
        for count, row in zip((4, 8, 16), rows.values(), strict=True):
            check(
                (row["lesson"], row["split"], row["micro_batches"], row["rows_a_rank"])
                == ("07", [14, 10], count, 4),
                f"{row}",
            )
            ours, peer = row["programs"]["ours"], row["programs"]["1f1b"]
            check(
                f"batch.global={4 * count} --set batch.micro=4" in ours["command"]
                and "07_pipeline" in ours["command"],
                ours["command"],
            )
            check(
                "schedule=1f1b --set split=14,10" in ours["command"] and "-n 2" in ours["command"],
                ours["command"],
            )
            check(
                f"--rows 4 --micro-batches {count} --schedule 1f1b --split 14,10 --attention cudnn --ranks 2"
                in peer["command"],
                peer["command"],
            )
            one = row["programs"]["one_device"]["command"]
            check(
                "00_one_device" in one
                and f"batch.global={4 * count} --set batch.micro=4" in one
                and "split" not in one,
                one,
            )
            cells = row["rounds"][0]["programs"]
            check(
                abs(cells["ours"]["tokens_per_second"] - 4 * count * 1024 / 0.1) < 1,
                f"a step's tokens, not those of each rank: {cells}",
            )
            check(
                ours["bytes_of_ranks"] == [1, 2] and peer["peak_allocated_of_ranks"] == [2**30, 2**29],
                "stages hold different bytes",
            )
            check(row["ratios"]["ours_over_1f1b"]["median"] == 2, f"{row['ratios']}")
        found = {name: ratio["median"] for name, ratio in rows["pipeline_8 x2"]["ratios"].items()}
        found = {name: ratio for name, ratio in found.items() if "one_device" not in name}
        check(
            found
            == {
                "ours_over_1f1b": 2,
                "ours_over_gpipe": 2.5,
                "ours_gpipe_over_ours": 0.8,
                "ours_gpipe_over_gpipe": 2,
                "ours_warmup_over_ours": 1,
                "ours_warmup_over_1f1b": 2,
            },
            f"{found}",
        )
        check(
            "--set warmup=1 --set split=14,10" in rows["pipeline_8 x2"]["programs"]["ours_warmup"]["command"],
            "the longer warm-up",
        )
        check(" of one GPU; ours 2.000 (one round)" in said.stdout, said.stdout)
        check(said.stdout.count(": attention {") == 1, "one shape, one choice")
        said, result = run(
            "--world", "2", "--rows", "pipeline_4", "--rounds", "1", "--again", "--peers", "1f1b,1f1b:13+11"
        )
        peers = result["rows"]["pipeline_4 x2"]["programs"]
        check(
            said.returncode == 0
            and "--split 13,11 " in peers["1f1b_13_11"]["command"]
            and peers["1f1b_13_11"]["label"].endswith("(13 + 11 blocks)"),
            f"{said} {peers}",
        )
        for more, text in (
            (("--peers", "compile"), "'compile' is none of 1f1b, gpipe"),
            (("--lessons", "zero1"), "'zero1' is none of ours, ours_warmup, ours_gpipe, one_device"),
        ):
            said, _ = run("--world", "2", "--rows", "pipeline", *more)
            check(said.returncode == 1 and text in said.stderr, f"{said}")
        for world, rows, text in (
            ("4", "pipeline", "pipeline_4 is none of"),
            ("1", "pipeline", "pipeline_4 is none of"),
        ):
            said, _ = run("--world", world, "--rows", rows)
            check(said.returncode == 1 and text in said.stderr, f"the cut is of two: {said}")
        said, _ = run("--world", "2", "--rows", "355m", "--peers", "1f1b")
        check(
            said.returncode == 1 and "'1f1b' is none of compile" in said.stderr, "no peer of another lesson"
        )
    rows = [gpu.ROWS[name] for name in gpu.GROUPS["pipeline"]]
    for row in rows:  # by operations, as common/pipeline/split.cpp counts them
        d, (_, _, vocab), config = row.config()["model"]["width"], gpu.sizes(row), row.config()
        block, head, blocks = (
            24 * d * d + 2 * config["batch"]["sequence"] * d,
            2 * vocab * d,
            config["model"]["layers"],
        )
        balanced = min(range(1, blocks), key=lambda n: max(n * block, (blocks - n) * block + head))
        check(row.split == (balanced, blocks - balanced), f"what split=balanced makes: {balanced}")
    check(
        gpu.Comparison.record_of(rows) == "gpu_pipeline"
        and gpu.Comparison.record_of([gpu.ROWS["355m"]]) == "gpu_peers",
        "where each is kept",
    )
    try:
        gpu.Comparison.record_of([gpu.ROWS["355m"], *rows])
        check(False, "two records in one")
    except SystemExit as refusal:
        check("fix: ask for them apart, or --out FILE" in str(refusal), f"{refusal}")


# All GPUs work on the same rows, and every program beside one GPU that does, too; a peer that fails is a line.
def compares_tensor_parallelism():
    with stage() as (_, run):
        said, result = run("--world", "2", "--rows", "tensor", "--rounds", "1", FAKE_BAD="async")
        check(said.returncode == 1, said.stdout + said.stderr)
        rows = result["rows"]
        ours = [
            "ours",
            "ours_whole",
            "ours_kept",
            "ours_lanes",
            "ours_lanes_kept",
            "ours_nccl",
            "one_device",
            "dp",
            "zero3",
        ]
        check(
            {key: list(row["programs"]) for key, row in rows.items()}
            == {"tensor_355m x2": [*ours, "tp", "sp", "async"], "tensor_774m x2": ours},
            f"{rows}",
        )
        row = rows["tensor_355m x2"]
        check((row["lesson"], row["rows_a_rank"], "split" in row) == ("10", 16, False), f"{row}")
        for name, words in (
            ("ours", ("-n 2", "10_tensor_parallel", "batch.micro=16", "tokens=split")),
            ("ours_lanes", ("batch.micro=8", "lanes=2")),
            ("ours_kept", ("gathered=kept",)),
            ("ours_lanes_kept", ("batch.micro=8", "gathered=kept")),
            ("ours_nccl", ("--transport=nccl",)),
            ("one_device", ("00_one_device", "batch.micro=16")),
            ("dp", ("-n 2", "01_data_parallel", "batch.micro=8")),
            ("zero3", ("04_zero3", "batch.micro=8")),
        ):
            command = row["programs"][name]["command"]
            check(all(word in command for word in ("batch.global=16", *words)), f"{name}: {command}")
        check(
            "mpirun" not in row["programs"]["one_device"]["command"]
            and row["rounds"][0]["programs"]["one_device"]["medians_of_gpus"] == [0.1, 0.125],
            "each GPU alone, the slower one counts",
        )
        check(
            "--rows 16 --cut sp --mode default --attention cudnn --ranks 2"
            in row["programs"]["sp"]["command"],
            row["programs"]["sp"]["command"],
        )
        rates = {name: cell["tokens_per_second"] for name, cell in row["rounds"][0]["programs"].items()}
        check(
            abs(rates["sp"] - 16 * 1024 / 0.2) < 1 and abs(rates["dp"] - 16 * 1024 / 0.1) < 1,
            f"a step's tokens, not those of each rank: {rates}",
        )
        found = {
            name: round(ratio["median"], 9)
            for name, ratio in row["ratios"].items()
            if name.endswith("_over_one_device")
        }
        expected = {
            "ours": 1.25,
            "ours_whole": 1.5625,
            "ours_kept": 1.25,
            "ours_lanes": 1.25,
            "ours_lanes_kept": 1.25,
            "ours_nccl": 1.25,
            "dp": 1.25,
            "zero3": 0.625,
            "tp": 0.625,
            "sp": 0.625,
        }
        check(found == {f"{name}_over_one_device": value for name, value in expected.items()}, f"{found}")
        check(
            row["ratios"]["ours_over_sp"]["median"] == 2 and "scaling" not in row["ratios"],
            f"{row['ratios']}",
        )
        check(
            "no compiler found" in row["programs"]["async"]["failure"]
            and "1.250 (one round) of one GPU" in said.stdout,
            said.stdout,
        )
        check(
            "async TP, blocks compiled, loss_parallel, fp32 parameters, bf16 autocast: failed: exit 1"
            in said.stdout,
            said.stdout,
        )
        said, result = run(
            "--world",
            "2",
            "--rows",
            "tensor_355m",
            "--rounds",
            "1",
            "--again",
            "--peers",
            "sp,sp:one-graph",
            "--lessons",
            "ours",
        )
        program = result["rows"]["tensor_355m x2"]["programs"]["sp_one_graph"]
        check(
            said.returncode == 0
            and "--cut sp --one-graph --attention" in program["command"]
            and program["label"].endswith("(one-graph)"),
            f"{said} {program}",
        )
        for more, text in (
            (("--peers", "compile"), "'compile' is none of tp, sp, async"),
            (("--lessons", "zero1"), "'zero1' is none of ours, ours_whole"),
        ):
            said, _ = run("--world", "2", "--rows", "tensor_774m", *more)
            check(said.returncode == 1 and text in said.stderr, f"{said}")
        said, _ = run("--world", "2", "--rows", "355m", "--lessons", "ours_whole")
        check(
            said.returncode == 1 and "'ours_whole' is none of ours, ours_1" in said.stderr,
            "no variant of another lesson",
        )
    check(
        gpu.Comparison.record_of([gpu.ROWS["tensor_355m"], gpu.ROWS["tensor_774m"]]) == "gpu_tensor",
        "where they are kept",
    )


# Lesson 11 along one axis, and the lesson that has that axis alone: the same rows a step, micro-batches of the same size.
def compares_meshes():
    with stage() as (_, run):
        said, result = run("--world", "2", "--rows", "combined", "--rounds", "1")
        check(said.returncode == 0, said.stdout + said.stderr)
        row = result["rows"]["combined_355m x2"]
        for one, other, words in (
            ("ours", "pipeline", ("mesh=2x1x1", "07_pipeline", 4)),
            ("ours_1x2x1", "dp", ("mesh=1x2x1", "01_data_parallel", 8)),
            ("ours_1x1x2", "tensor", ("mesh=1x1x2", "10_tensor_parallel", 16)),
        ):
            commands = [row["programs"][name]["command"] for name in (one, other)]
            check(
                "11_combined" in commands[0] and words[0] in commands[0] and words[1] in commands[1],
                f"{commands}",
            )
            check(
                all(
                    f"batch.micro={words[2]} " in command and "batch.global=16 " in command
                    for command in commands
                ),
                f"{commands}",
            )
            check(f"{one}_over_{other}" in row["ratios"], f"{row['ratios']}")
        lines = [
            line
            for line in said.stdout.splitlines()
            if "lesson 01 (data" in line or "lesson 10 (tensor" in line
        ]
        check("lesson 11, 1x2x1, " in lines[0] and "lesson 11, 1x1x2, " in lines[1], f"{lines}")
        said, _ = run("--world", "2", "--rows", "combined", "--peers", "sp")
        check(said.returncode == 1 and "combined_355m has lessons alone" in said.stderr, f"{said}")
        # Of four GPUs: what choose predicts, no more and no less.
        said, result = run("--world", "4", "--rows", "mesh", "--rounds", "1")
        check(said.returncode == 0, said.stdout + said.stderr)
        row, asked = result["rows"]["mesh_4 x4"], [
            one for one in choosing.ahead() if one["gpus"] == 4 and one["set"]["batch.global"] == "64"
        ]
        for name, ahead in zip(row["programs"], asked, strict=True):
            command = row["programs"][name]["command"]
            words = [
                ahead["lesson"],
                "configs/gpt2_774m.json",
                *ahead["settings"],
                *(f"{key}={value} " for key, value in ahead["set"].items()),
            ]
            check(
                all(word in command for word in words) and "shard_ranks=4" not in command,
                f"{command} {words}",
            )
        check(
            "mesh_2x1x2_over_ours" in row["ratios"] and "zero3_over_ours" in row["ratios"], f"{row['ratios']}"
        )
        said, _ = run("--world", "2", "--rows", "mesh_4")
        check(said.returncode == 1 and "mesh_4 is none of" in said.stderr, f"{said}")
    check(
        gpu.Comparison.record_of([gpu.ROWS["combined_355m"], gpu.ROWS["mesh_8"]]) == "gpu_combined",
        "where it is kept",
    )


# Lesson 05 in its variants and lesson 00 beside ZeRO-Offload, each lesson a process a turn; lessons 02-04 beside DeepSpeed's stages.
def compares_deepspeed():
    with stage() as (_, run):
        said, result = run("--rows", "offload", "--rounds", "1")
        check(said.returncode == 0, said.stdout + said.stderr)
        rows = result["rows"]
        names = [
            "ours",
            "ours_resident_1",
            "ours_resident_7",
            "ours_resident_13",
            "ours_early",
            "ours_delayed",
            "one_device",
            "offload",
            "offload_defaults",
        ]
        check(
            {key: list(row["programs"]) for key, row in rows.items()}
            == {"offload_355m": names, "offload_774m": names},
            f"{rows}",
        )
        row = rows["offload_774m"]
        check((row["lesson"], row["rows_a_rank"], row["sequence"]) == ("05", 2, 512), f"{row}")
        commands = {name: program["command"] for name, program in row["programs"].items()}
        for name, words in (
            ("ours", ("05_offload", "batch.global=2", "activations=recompute", "batch.sequence=512")),
            ("ours_resident_7", ("05_offload", "resident=7")),
            ("ours_early", ("update=early", "resident=1")),
            ("ours_delayed", ("05_offload", "update=delayed")),
            ("one_device", ("00_one_device", "batch.sequence=512", "activations=recompute")),
            (
                "offload",
                ("--rows 2 --sequence 512 --stage 2 --offload --settings best --attention cudnn --ranks 1",),
            ),
            ("offload_defaults", ("--offload --settings defaults",)),
        ):
            check(
                all(word in commands[name] for word in words) and "--watchdog" not in commands[name],
                commands[name],
            )
        cells = row["rounds"][0]["programs"]
        check(
            all(
                abs(cells[name]["tokens_per_second"] * cells[name]["median_seconds"] - 1024) < 1e-6
                for name in names
            ),
            f"2 rows of 512 tokens: {cells}",
        )
        found = {
            name: round(ratio["median"], 6)
            for name, ratio in rows["offload_355m"]["ratios"].items()
            if name.endswith("_over_offload")
        }
        check(
            found
            == {
                "ours_over_offload": round(2 / 1.5, 6),
                "ours_resident_1_over_offload": round(2 / 1.425, 6),
                "ours_resident_7_over_offload": round(2 / 0.975, 6),
                "ours_resident_13_over_offload": round(2 / 0.525, 6),
                "ours_early_over_offload": round(2 / 1.425, 6),
                "ours_delayed_over_offload": round(2 / 0.75, 6),
            },
            f"{found}",
        )
        check(
            "0.667 (one round) of one GPU" in said.stdout
            and "0.500 (one round) of one GPU; ours 1.333 (one round)" in said.stdout,
            said.stdout,
        )
        for more, text in (
            (("--peers", "compile"), "'compile' is none of offload"),
            (("--peers", "offload:eager"), "its best, or defaults"),
            (("--lessons", "dp"), "'dp' is none of ours, ours_resident_1"),
        ):
            said, _ = run("--rows", "offload_355m", "--again", *more)
            check(said.returncode == 1 and text in said.stderr, f"{said}")
        said, _ = run("--rows", "355m", "--peers", "stage2")
        check(
            said.returncode == 1 and "stage2, stage3: on several GPUs" in said.stderr,
            "one GPU splits nothing",
        )
    with stage() as (_, run):
        said, result = run("--world", "2", "--rows", "zero", "--rounds", "1")
        check(said.returncode == 0, said.stdout + said.stderr)
        row = result["rows"]["zero_355m x2"]
        check(
            list(row["programs"])
            == ["ours", "zero1", "zero2", "zero3", "stage1", "stage2", "stage3", "stage2_defaults"],
            f"{row['programs']}",
        )
        check(
            "--stage 3 --settings best --attention cudnn --ranks 2" in row["programs"]["stage3"]["command"]
            and "--shard" not in row["programs"]["stage3"]["command"],
            f"{row['programs']['stage3']}",
        )
        found = {
            name: round(row["ratios"][name]["median"], 9)
            for name in (
                "zero1_over_stage1",
                "zero2_over_stage2",
                "zero3_over_stage3",
                "zero2_over_stage2_defaults",
            )
        }
        check(
            found
            == {
                "zero1_over_stage1": 1.6,
                "zero2_over_stage2": 2,
                "zero3_over_stage3": 1,
                "zero2_over_stage2_defaults": 2.5,
            },
            f"{found}",
        )
        check(
            "DeepSpeed, ZeRO-2, its defaults, bf16 parameters and gradients, fp32 master" in said.stdout
            and "lesson 03 2.500 (one round)" in said.stdout,
            said.stdout,
        )
    check(
        gpu.Comparison.record_of([gpu.ROWS[name] for name in ("offload_355m", "offload_774m", "zero_355m")])
        == "gpu_deepspeed",
        "where they are kept",
    )


# Lesson 06 and ZeRO-Infinity twice on the same disk, whose own rate is measured before each pair; a second call goes on.
def compares_disks():
    if built := os.environ.get(
        "STAGECRAFT_BENCHMARKS"
    ):  # where CMake builds adamw_benchmark and block_io_benchmark
        check(
            all(pathlib.Path(folder).parts[-2:] == ("bin", "tests") for folder in built.split(":")),
            f"looked for in bin/tests, built in {built}",
        )
    with machine() as (folder, _):
        command = [
            sys.executable,
            HERE / "gpu_infinity.py",
            "--deepspeed",
            "--bin",
            folder,
            "--commit",
            "c",
            "--disk",
            folder,
            "--out",
            folder / "disk.json",
            "--deepspeed-peer",
            folder / "peer.py",
        ]
        said = subprocess.run(command, capture_output=True, text=True, check=False)
        check(
            said.returncode == 1
            and "block_io_benchmark is not built" in said.stderr
            and not (folder / "log").exists(),
            f"{said}",
        )
        offload = [
            sys.executable,
            HERE / "gpu_offload.py",
            "--bin",
            folder,
            "--commit",
            "c",
            "--out",
            folder / "offload.json",
        ]
        said = subprocess.run(offload, capture_output=True, text=True, check=False)
        check(
            said.returncode == 1 and "adamw_benchmark is not built" in said.stderr and said.stdout == "",
            f"{said}",
        )
        (folder / "tests").mkdir()
        (folder / "tests" / "block_io_benchmark").write_text(
            "#!/bin/sh\necho 'mixed, io_uring: 4.00 GB/s'\necho 'BlockFile io_uring mixed 3.50 GB/s'\n"
        )
        (folder / "tests" / "block_io_benchmark").chmod(0o755)
        environment = {**os.environ, "FAKE_LOG": str(folder / "log")}
        said = subprocess.run(
            command, capture_output=True, text=True, check=False, env={**environment, "FAKE_LOST": "3"}
        )
        check(said.returncode == 1 and "lost the GPU" in said.stderr, f"{said}")
        said = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        check(said.returncode == 0 and said.stdout.count("raw 4.0 3.5") == 1, f"{said}")
        result = json.loads((folder / "disk.json").read_text())
        check(
            [one["name"] for one in result["runs"]] == ["exact", "deepspeed"] * 2 and len(result["raw"]) == 2,
            f"{result}",
        )
        check(
            [one["tokens_per_second"] for one in result["runs"][:2]] == [16 * 1024 / 0.1, 16 * 1024 / 0.2],
            f"{result['runs']}",
        )
        check(str(folder) not in json.dumps(result["runs"][1]["about"]["config"]), "a path of this machine")


# A program that missed a round says how many it had.
def says_how_many_rounds():
    rounds = [
        {"programs": {"ours": {"tokens_per_second": 2e3}, "compile": {"tokens_per_second": 1e3}}},
        {"programs": {"ours": {"tokens_per_second": 2e3}}},
    ]
    row = {
        "programs": {"ours": {"label": "Ours"}, "compile": {"label": "Peer"}, "lost": {"label": "Lost"}},
        "rounds": rounds,
        "ratios": {},
        "world": 1,
    }
    lines = [gpu_table.program_line("x", row, name) for name in row["programs"]]
    check(
        "| Ours |" in lines[0] and "| Peer; 1 of 2 rounds |" in lines[1] and "| Lost |" in lines[2],
        f"{lines}",
    )


# Each GPU alone at once; the slower one is what all of them together are compared with.
def scales_from_the_slowest():
    with stage() as (_, run):
        said, result = run(
            "--world", "2", "--rows", "774m", "--rounds", "1", "--peers", "none", "--lessons", "ours_1"
        )
        check(said.returncode == 0, said.stdout + said.stderr)
        row = result["rows"]["774m x2"]
        cell = row["rounds"][0]["programs"]["ours_1"]
        check(cell["medians_of_gpus"] == [0.1, 0.125] and cell["median_seconds"] == 0.125, f"{cell}")
        check(abs(row["ratios"]["scaling"]["median"] - 1.25) < 1e-9, f"{row['ratios']}")
        check(
            "lesson 01 on one GPU" in said.stdout and "scaling 1.250 (one round)" in said.stdout, said.stdout
        )
    with stage() as (folder, run):
        said, result = run(
            "--world", "2", "--rows", "774m", "--rounds", "2", "--peers", "none", "--lessons", "ours"
        )
        check(
            said.returncode == 0 and result["rows"]["774m x2"]["warm_seconds"] == 4.0,
            said.stdout + said.stderr,
        )
        made = len((folder / "log").read_text().split())
        check(
            made == (22 + 3) + (40 + 3),
            f"the first turn warms up for 4 s, 22 steps of the 0.19 s that 400 TFLOP/s would take, the second 40 steps of 0.1 s: {made} steps",
        )
        check(result["rows"]["774m x2"]["warm_from"] == "the first turn", "and the row says so")


# Energy of the timed steps by the counters of the GPUs that made them. Each GPU alone: the counter of the one that counts.
def counts_energy():
    with stage() as (_, run):
        said, result = run(
            "--world",
            "2",
            "--rows",
            "355m",
            "--rounds",
            "1",
            "--peers",
            "compile",
            "--lessons",
            "ours,ours_1,zero2,zero2_1",
            "--steps",
            "20",
            FAKE_TURN="0.4",
        )
        check(said.returncode == 0, said.stdout + said.stderr)
        row = result["rows"]["355m x2"]
        for name, watts in (("ours", 400), ("ours_1", 300), ("zero2_1", 300), ("compile", 400)):
            cell = row["rounds"][0]["programs"][name]
            check(0.85 < cell["joules"] / (cell["ended"] - cell["began"]) / watts < 1.15, f"{name}: {cell}")
            tokens = cell["tokens_per_second"] * cell["median_seconds"] * 20
            check(abs(cell["joules_per_token"] * tokens - cell["joules"]) < 1e-6, f"{name}: {cell}")
        ours, peer = (row["rounds"][0]["programs"][name] for name in ("ours", "compile"))
        check(
            abs(
                row["ratios"]["ours_over_compile"]["per_joule"]["median"]
                - peer["joules_per_token"] / ours["joules_per_token"]
            )
            < 1e-9,
            f"{row['ratios']}",
        )
        check(
            said.stdout.count(f" | {1e3 * ours['joules_per_token']:.2f} |") > 0
            and "W | J per k tok |" in said.stdout,
            said.stdout,
        )
        check(
            row["ratios"]["zero2_scaling"]["median"] == 1.25 and "ours_over_zero2_1" not in row["ratios"],
            f"{row['ratios']}",
        )
        check("scaling of lesson 03 1.250 (one round)" in said.stdout, said.stdout)
        said, result = run("--world", "2", "--rows", "scaling", "--rounds", "1", FAKE_NO_COUNTER="1")
        row = result["rows"]["scaling x2"]
        check(
            said.returncode == 0 and list(row["programs"]) == ["ours", "ours_1", "zero2", "zero2_1"],
            said.stdout + said.stderr,
        )
        check(
            row["rounds"][0]["programs"]["ours"]["joules_per_token"] is None
            and "per_joule" not in row["ratios"]["scaling"],
            "no counter, no joules",
        )
        check(" 690 | - |" in said.stdout, said.stdout)
        said, result = run(
            "--world",
            "1",
            "--rows",
            "355m",
            "--rounds",
            "1",
            "--peers",
            "none",
            "--lessons",
            "ours",
            "--steps",
            "20",
            FAKE_TURN="0.4",
            CUDA_VISIBLE_DEVICES="1",
            FAKE_GPUS="2",
        )
        cell = result["rows"]["355m"]["rounds"][0]["programs"]["ours"]
        check(
            said.returncode == 0 and result["rows"]["355m"]["machine"]["gpus"] == 1, said.stdout + said.stderr
        )
        check(
            cell["power"]["watts"]["median"] == 590.5
            and 0.85 < cell["joules"] / (cell["ended"] - cell["began"]) / 300 < 1.15,
            f"of the GPU that is seen: {cell}",
        )
        said, result = run(
            "--world",
            "2",
            "--rows",
            "scaling",
            "--rounds",
            "1",
            "--again",
            "--steps",
            "20",
            FAKE_TURN="0.4",
            CUDA_VISIBLE_DEVICES="1,0",
            FAKE_GPUS="2",
        )
        cell = result["rows"]["scaling x2"]["rounds"][0]["programs"]["ours_1"]
        check(
            said.returncode == 0 and 0.85 < cell["joules"] / (cell["ended"] - cell["began"]) / 300 < 1.15,
            f"of GPU 1, the slower one and the first that is seen: {cell}",
        )
        said, _ = run("--world", "1", "--rows", "355m", CUDA_VISIBLE_DEVICES="GPU-12")
        check(
            said.returncode == 1
            and "CUDA_VISIBLE_DEVICES=GPU-12" in said.stderr
            and "fix: numbers" in said.stderr,
            f"{said}",
        )
    updates = [(10.0, 1000), (20.0, 3000), (40.0, 4000)]
    check(
        [gpu_watch.at(updates, when) for when in (15.0, 20.0, 30.0)] == [2000, 3000, 3500],
        "between two changes power is constant",
    )


# What awake links cost: one GPU beside copies, over one GPU alone, in the same round.
def compares_awake_links():
    with stage() as (folder, run):
        said, result = run("--world", "2", "--rows", "links", "--rounds", "1")
        check(said.returncode == 0, said.stdout + said.stderr)
        row = result["rows"]["links x2"]
        check(
            list(row["programs"]) == ["ours", "ours_1", "ours_1_awake", "ours_1_within"],
            f"{list(row['programs'])}",
        )
        found = {name: ratio["median"] for name, ratio in row["ratios"].items()}
        check(
            found == {"scaling": 1.25, "ours_1_awake_over_ours_1": 1, "ours_1_within_over_ours_1": 1},
            f"{found}",
        )
        check("1.000 (one round) of one GPU" in said.stdout, said.stdout)
        began, ended, within, ended_too = (
            line.split() for line in (folder / "log.copies").read_text().splitlines()
        )
        check(
            "--within" not in began and "--within" in within and began[1] == within[1] == "2",
            f"{began} {within}",
        )
        check(
            [began[0], ended[0], within[0], ended_too[0]] == ["--gpus", "end", "--gpus", "end"],
            "each has copies of its own",
        )
        steps = [
            float(line) for line in (folder / "log").read_text().split()
        ]  # 46 to warm up and 3 of ours, twice as many (two GPUs) of each that follows
        check(len(steps) == 7 * 49, f"{len(steps)} steps")
        for turn, begin, end in (
            (steps[3 * 49 : 5 * 49], began, ended),
            (steps[5 * 49 :], within, ended_too),
        ):
            check(
                float(begin[-1]) <= min(turn) and max(turn) <= float(end[-1]),
                "copies beside all steps of the turn",
            )
    with stage() as (_, run):
        said, result = run("--world", "2", "--rows", "links", "--rounds", "1", FAKE_NO_LINK="1")
        failures = {
            name: program.get("failure", "")
            for name, program in result["rows"]["links x2"]["programs"].items()
        }
        check(
            said.returncode == 1 and "no second GPU" in failures["ours_1_awake"] and not failures["ours_1"],
            f"{failures}",
        )
    with stage() as (_, run):
        said, _ = run("--rows", "links")
        check(said.returncode == 1 and "links is none of" in said.stderr, "one GPU has no links")
    for gpus, there, expected in (
        (2, 2, [1, 0]),
        (2, 4, [2, 3]),
        (2, 3, [2, 2]),
        (4, 4, [1, 2, 3, 0]),
        (1, 2, [1]),
    ):
        check(sources_of(gpus, there) == expected, f"{gpus} of {there}: {sources_of(gpus, there)}")


def compares_bits():
    with stage() as (_, run):
        said, result = run(script="gpu_bits.py")
        check(said.returncode == 0, said.stdout + said.stderr)
        groups = result["world 1"]["groups"]
        check(
            groups["deterministic"]["equal_weights"] and groups["deterministic"]["equal_losses"], f"{groups}"
        )
        check(not groups["fused"]["equal_weights"] and not groups["fused"]["equal_losses"], f"{groups}")
        said, result = run("--world", "2", script="gpu_bits.py")
        check(said.returncode == 0 and "world 1" in result, said.stdout + said.stderr)
        check(
            result["world 2"]["groups"]["all"]["equal_weights"]
            and result["world 2"]["runs"]["04_zero3"]["commit"] == "c",
            f"{result}",
        )
        said, result = run("--world", "2", script="gpu_bits.py", FAKE_OTHER="03")
        check(
            said.returncode == 1 and not result["world 2"]["groups"]["all"]["equal_weights"],
            "one that differs is noticed",
        )
    with stage() as (_, run):
        said, result = run("--tensor", "1558M split,124M lanes", script="gpu_bits.py")
        check(
            said.returncode == 0 and list(result) == ["1558M split", "124M lanes"], said.stdout + said.stderr
        )
        runs = result["1558M split"]["runs"]
        ten = "10_tensor_parallel"
        check(
            list(runs) == ["00_one_device", ten, f"{ten} kept", f"{ten} recompute", f"{ten} graph off"]
            and result["1558M split"]["equal_weights"],
            f"{runs}",
        )
        check(
            "mpirun" not in runs["00_one_device"]["command"]
            and "--ops deterministic --tensor-ranks 2 " in runs["00_one_device"]["command"],
            runs["00_one_device"]["command"],
        )
        check(
            "-n 2" in runs[ten]["command"]
            and "batch.global=4 --set batch.micro=2" in runs[ten]["command"]
            and runs[ten]["as_predicted"],
            f"{runs[ten]}",
        )
        check(
            "--tensor-ranks 2 --lanes 2" in result["124M lanes"]["runs"]["00_one_device"]["command"],
            "lesson 00 is told the order",
        )
        said, _ = run("--tensor", "1558M split,5 heads fp16 whole", "--seconds", "0", script="gpu_bits.py")
        check(
            said.returncode == 1 and "1558M split: is in" in said.stdout and "time limit" in said.stdout,
            said.stdout + said.stderr,
        )
        said, result = run("--tensor", "5 heads fp16 whole,124M whole", script="gpu_bits.py", FAKE_OTHER="10")
        check(
            said.returncode == 1
            and not result["124M whole"]["equal_weights"]
            and result["124M lanes"]["equal_losses"],
            said.stdout + said.stderr,
        )
        said, _ = run("--tensor", "5 heads fp16 lanes", script="gpu_bits.py")
        check(
            said.returncode == 1 and "'5 heads fp16 lanes' is none of 124M split" in said.stderr,
            "three micro-batches make no pairs",
        )
        said, result = run("--tensor", "355M split x4,355M 2x1x2", script="gpu_bits.py")
        check(said.returncode == 0, said.stdout + said.stderr)
        for group, of_00, program in (
            ("355M split x4", "--tensor-ranks 4 ", ten),
            ("355M 2x1x2", "--tensor-ranks 2 --tied-sum split ", "11_combined"),
        ):
            runs = result[group]["runs"]
            check(of_00 in runs["00_one_device"]["command"] and "-n 4" in runs[program]["command"], f"{runs}")
        check("mesh=2x1x2" in result["355M 2x1x2"]["runs"]["11_combined"]["command"], f"{result}")


def compares_dtypes():
    with stage() as (_, run):
        said, result = run("--rounds", "2", script="dtype_only.py")
        check(said.returncode == 0, said.stdout + said.stderr)
        check(result["ratios"]["fp32_over_fp16"]["median"] == 4, f"{result['ratios']}")
        check(result["programs"]["fp32"]["epoch_seconds"] == 100, "250 steps of 0.4 s")
        check(
            result["commit"] == "c"
            and result["command"].startswith("tests/benchmarks/dtype_only.py --")
            and result["machine"]["gpu"] == "Pretended GPU",
            "and what was measured",
        )
        check(
            result["rounds"][0]["programs"]["fp16"]["power"]["sm_mhz"]["median"] == 1500,
            "with clocks and power",
        )


def compares_curves():
    with stage() as (_, run):
        said, result = run("--steps", "20", script="loss_curves.py")
        check(said.returncode == 0, said.stdout + said.stderr)
        check(
            [one["precision"] for one in result["runs"]]
            == [
                "fp32, gradients same",
                "bf16, gradients same",
                "fp16, gradients same",
                "bf16, gradients fp32",
            ],
            f"{result}",
        )
        check(
            result["commit"] == "c"
            and result["command"].startswith("tests/benchmarks/loss_curves.py --")
            and result["machine"]["gpu"] == "Pretended GPU",
            f"{result}",
        )
        for one in result["runs"]:
            check(
                one["power"]["samples"] > 0
                and one["power"]["sm_mhz"]["median"] == 1500
                and one["power"]["watts"]["median"] == 690.5,
                f"{one}",
            )
            check(
                one["command"].startswith("build/cuda/bin/00_one_device --workload configs/gpt2_124m.json")
                and one["loss"] == [5.0, 5.0],
                f"{one}",
            )
        check(
            "precision.dtype=bf16 --set precision.grad_dtype=fp32" in result["runs"][3]["command"],
            result["runs"][3]["command"],
        )
        said, _ = run("--steps", "20", script="loss_curves.py", FAKE_LOSS="1.05")
        check(
            said.returncode == 1 and "a curve is more than 2.0 % away" in said.stderr,
            said.stdout + said.stderr,
        )
        said, _ = run("--steps", "20", script="loss_curves.py", FAKE_WRONG="1")
        check(said.returncode == 1 and "as predicted: False" in said.stderr, said.stdout + said.stderr)
    with stage() as (folder, run):
        for name, commit in (("a", "c"), ("b", "c"), ("other", "d")):
            run.process(
                [
                    folder / "00_one_device",
                    "--set",
                    f"precision.dtype={'fp16' if name == 'b' else 'fp32'}",
                    "--set",
                    "precision.grad_dtype=same",
                    "--steps",
                    "10",
                    "--out",
                    folder / name,
                ],
                {"FAKE_LOG": str(folder / "log"), "STAGECRAFT_COMMIT": commit},
            ).wait(run.clock.time() + 60)
        records = {name: folder / name / "record.json" for name in ("a", "b", "other")}
        said, result = run(records["a"], records["b"], script="loss_curves.py")
        check(
            said.returncode == 0 and result["commit"] == "c" and result["runs"][1]["power"] is None,
            said.stdout + said.stderr,
        )
        check(
            result["runs"][0]["command"].startswith("build/cuda/bin/00_one_device --set")
            and str(folder) not in json.dumps(result),
            f"a path of this machine: {result}",
        )
        said, _ = run(records["a"], records["other"], script="loss_curves.py")
        check(
            said.returncode == 1 and "the records are of different commits" in said.stderr,
            said.stdout + said.stderr,
        )


# What records.py takes from the folders of runs with --profile.
def keeps_profiles():
    with tempfile.TemporaryDirectory() as at:
        folder = pathlib.Path(at)
        said = {
            "lesson": "00_one_device",
            "commit": "abc",
            "started": "now",
            "versions": {},
            "world": 1,
            "device": "cuda",
            "exit_code": 0,
            "as_predicted": True,
            "command": "bin/00_one_device --profile --out /tmp/x",
            "profile": {"steps": 3},
        }

        def refused(**other):
            (folder / "record.json").write_text(json.dumps({**said, **other}))
            try:
                records.gpu_profile([folder])
            except SystemExit as refusal:
                return str(refusal)
            return ""

        check(refused() == "", "a good run")
        found = records.gpu_profile([folder])["runs"][0]
        check(found["profile"] == {"steps": 3} and "--out" not in found["command"], f"{found}")
        check("no step was profiled" in refused(profile={"steps": 0}), "too short a run")
        check(
            "not a run on GPUs" in refused(device="cpu")
            and "held what was predicted" in refused(exit_code=70),
            "another run",
        )

        def records_py(*flags):
            return subprocess.run(
                [sys.executable, HERE / "records.py", *flags],
                capture_output=True,
                text=True,
                check=False,
                timeout=20,
            )

        (folder / "record.json").write_text(json.dumps({**said, "world": 2}))
        done = records_py("--gpu-profile", folder, "--as", "gpu_profile_one")
        check(
            done.returncode == 1 and "is of runs on one GPU" in done.stderr,
            f"two GPUs in the record of one: {done}",
        )
        done = records_py("--as", "gpu_profile_one")
        check(
            done.returncode == 2 and "--as names what --gpu-profile writes" in done.stderr,
            f"a name for nothing: {done}",
        )


# A figure shows a step as most are over all runs: no first one, none that happened to wait, none of a slow run.
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

        def machine(self):
            return {"cores": 2}

    with unittest.mock.patch.object(records, "Run", Traced):
        found = records.zero_trace()
    check(
        len(asked) == 9
        and {flags[:2] for flags in asked}
        == {(lesson, 2) for lesson in ("02_zero1", "03_zero2", "04_zero3")},
        f"three runs of each on two ranks: {asked}",
    )
    drawn = found["lessons"]["02_zero1"]
    check(
        drawn["command"] == "run 2"
        and drawn["microseconds"] == 2.0
        and drawn["step"] == 2
        and drawn["runs"] == 3,
        f"the middle one: {drawn}",
    )
    check(
        drawn["steps_microseconds"] == {"median": 3e6, "lowest": 2e6, "highest": 4e6},
        f"without first steps: {drawn}",
    )
    check(
        drawn["waited_microseconds"] == {"median": 5e5, "lowest": 2.5e5, "highest": 7.5e5}, f"waits: {drawn}"
    )
    check(found["cores"] == 2 and "machine" not in drawn, f"the machine once: {found}")


# One message, and what needs no GPU works without one.
def refuses_without_gpu():
    with machine() as (folder, _):
        (folder / "nvidia-smi").write_text("#!/bin/sh\nexit 9\n")

        def run(*arguments):
            environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
            return subprocess.run(
                [HERE / "gpu.sh", *arguments], capture_output=True, text=True, check=False, env=environment
            )

        for arguments in ((), ("--dtype-only",), ("--peers", "none")):
            said = run(*arguments)
            check(
                said.returncode == 69
                and said.stderr.startswith("error: no GPU is visible")
                and said.stderr.count("\n") == 2,
                f"{said}",
            )
        said = run("--render", ROOT / "docs/results/gpu_peers.json")
        check(said.returncode == 0 and said.stdout.startswith("| run | program |"), f"{said}")
        said = subprocess.run(
            [sys.executable, HERE / "dtype_only.py", "--bin", folder / "nowhere"],
            capture_output=True,
            text=True,
            check=False,
        )
        check(said.returncode == 1 and "00_one_device is not built\n  fix: " in said.stderr, f"{said}")


def main():
    for test in (
        refuses_without_gpu,
        takes_turns,
        goes_on,
        failures_stay_with_their_program,
        keeps_to_the_time,
        ends_what_can_end,
        rows_share_the_memory,
        runs_llmc,
        scales,
        compares_what_splits,
        compares_modes,
        accumulates,
        compares_without_windows,
        compares_pipelines,
        compares_tensor_parallelism,
        compares_meshes,
        compares_deepspeed,
        compares_disks,
        says_how_many_rounds,
        scales_from_the_slowest,
        counts_energy,
        compares_awake_links,
        compares_bits,
        compares_dtypes,
        compares_curves,
        keeps_profiles,
        draws_a_usual_step,
    ):
        test()
    print("passed")


if __name__ == "__main__":
    main()
