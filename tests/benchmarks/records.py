#!/usr/bin/env python3
"""The runs that the lessons' pages show, made again with the real programs: docs/results/lesson_*.json.

Losses, bytes, operations and weights are the same on every run of the same machine; times are the machine's, so make them
where nothing else runs (every record keeps how many cores were busy before it). Needs build/cpu (tests/run.sh); lesson_09_timeline
needs strace.

  python3 tests/benchmarks/records.py                          everything, about half an hour on two idle cores
  python3 tests/benchmarks/records.py lesson_01_lr ...         some of them
  python3 tests/benchmarks/records.py --timed                  those whose times the pages show
  python3 tests/benchmarks/records.py --gpu-trace FOLDER ...   from runs on GPUs with --trace --out FOLDER
  python3 tests/benchmarks/records.py --gpu-profile FOLDER ... from runs on GPUs with --profile --out FOLDER; --as gpu_profile_one:
                                                               of several lessons on one GPU
afterwards: python3 docs/render.py
"""
import argparse
import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from gpu_programs import command_text, sources
from gpu_table import spread
from plans import axes_of, operations_of, printed

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from operations import span_without_names, without_names  # noqa: E402

sys.path.insert(0, str(ROOT / "common/records/curves"))
from side_by_side import ONE_DEVICE, ROWS as LESSONS, Ran, held, moved  # noqa: E402

RESULTS = ROOT / "docs/results"
FOUR_BLOCKS = (
    "--workload",
    "tests/workloads/four_blocks.json",
)  # sweeps and traces; other runs have the default
WARM_UP = 5  # steps that timings leave out, as a record's own does
IDLE = 0.5  # of a core: a machine that does more before a timed turn is busy, and the pages say so


def busy_cores(seconds=1.0):
    """How many cores are busy with something else: nothing of ours runs while this looks."""

    def ticks():
        numbers = [int(n) for n in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        return sum(numbers) - numbers[3] - numbers[4], sum(numbers)  # all but idle and iowait; all

    busy, every = ticks()
    time.sleep(seconds)
    busier, later = ticks()
    return round((busier - busy) / max(1, later - every) * (os.cpu_count() or 1), 2)


class Run:
    """A run of a lesson: its command as a reader would type it, what it printed, and its record."""

    def __init__(self, lesson, ranks, *flags, save=False, under=(), screen=False):
        self.command = " ".join([f"lessons/{lesson}/run.sh", *(["-n", str(ranks)] if ranks else []), *flags])
        print(self.command, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "out"
            more = ["--save", f"{folder}/weights.safetensors"] if save else []
            command = [
                ROOT / "lessons" / lesson / "run.sh",
                "--no-build",
                "--preset",
                "cpu",
                *(["-n", str(ranks)] if ranks else []),
                *flags,
            ]
            say = [] if screen else ["--verbose"]
            done = subprocess.run(
                [*under, *command, "--threads", "1", *say, "--out", out, *more],
                cwd=ROOT,
                text=True,
                capture_output=True,
                check=False,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
            if done.returncode != 0:
                sys.exit(f"error: {self.command}: exit {done.returncode}\n{done.stdout}{done.stderr}")
            self.record = json.loads((out / "record.json").read_text())
            self.trace = (
                json.loads((out / "trace.json").read_text())["traceEvents"] if "--trace" in flags else []
            )
            self.weights = (
                hashlib.sha256((pathlib.Path(folder) / "weights.safetensors").read_bytes()).hexdigest()
                if save
                else None
            )
        # launch.sh's first line (--verbose) speaks of this machine's user and environment; the files lie in a folder that is gone.
        self.said = done.stdout.replace(str(out), f"runs/{lesson}/<time>").splitlines()[0 if screen else 1 :]

    def bytes_sent(self):
        """Of rank 0 in one step, as predicted and as measured; a world of one sends nothing."""
        line = re.search(r"^ +bytes sent +([\d,]+) +([\d,]+)  ", "\n".join(self.said), re.M)
        return [int(number.replace(",", "")) for number in line.groups()] if line else [0, 0]

    def exact(self):
        """What does not depend on the machine's speed."""
        rank = self.record["ranks"][0]
        predicted, measured = self.bytes_sent()
        return {
            "command": self.command,
            "world": self.record["world"],
            "workload_hash": self.record["workload_hash"],
            "strategy": self.record["strategy"],
            "bytes": rank["measured_bytes"],
            "operations": without_names(rank["measured_operations"]),
            "predicted_bytes": rank["predicted_bytes"],
            "predicted_operations": without_names(rank["predicted_operations"]),
            "predicted_bytes_sent": predicted,
            "bytes_sent": measured,
            "as_predicted": self.record["as_predicted"],
            "loss": self.record["steps"]["loss"],
            "validation_loss": self.record["validation_loss"],
            **({"weights_sha256": self.weights} if self.weights else {}),
        }

    def timed(self):
        """Medians after the warm-up: tokens a second, and the share of a step that the rank waited."""
        steps = {key: self.record["steps"][key][WARM_UP:] for key in ("seconds", "waited_seconds", "tokens")}
        seconds = statistics.median(steps["seconds"])
        return {
            "seconds": seconds,
            "tokens_per_second": statistics.median(steps["tokens"]) / seconds,
            "wait_share": statistics.median(w / s for w, s in zip(steps["waited_seconds"], steps["seconds"])),
            "steps": len(steps["seconds"]),
        }

    def machine(self):
        rank = self.record["ranks"][0]
        return {
            "commit": self.record["commit"],
            "started": self.record["started"],
            "cpu": rank["cpu"],
            "cores": rank["cores"],
            "versions": self.record["versions"],
            "threads": self.record["threads"],
            "device": self.record["device"],
        }


def rounded(losses):
    return [round(loss, 5) for loss in losses]


def curve(run):
    """A long run: its losses to five decimals, which is what a figure shows."""
    return {
        **run.exact(),
        "loss": rounded(run.record["steps"]["loss"]),
        "lr": rounded(run.record["steps"]["lr"]),
    }


def turn(flags, tries=8):
    """A run, and how many cores were busy with something else around it: before it, or behind it if more. Where that is too much it is made again, for a while."""
    while True:
        until = time.monotonic() + 60
        while (load := busy_cores()) > IDLE and time.monotonic() < until:
            pass
        run, tries = Run(*flags), tries - 1
        load = max(load, busy_cores())
        if load <= IDLE or tries == 0:
            return run, load


def in_turns(runs, rounds):
    """name -> the first run's exact results, and the times of each round: in a round each has one turn, so that all see the same machine."""
    turns = {name: [] for name in runs}
    for _ in range(rounds):
        for name, flags in runs.items():
            turns[name].append(turn(flags))
    return {
        name: {
            **done[0][0].exact(),
            "rounds": [{**run.timed(), "load_before": load} for run, load in done],
            "machine": done[0][0].machine(),
        }
        for name, done in turns.items()
    }


def machine_of(runs):
    """Once for all of them."""
    machines = [run.pop("machine") for run in runs.values()]
    return machines[0]


def lesson_00():
    """The whole run with what it prints; activations kept or computed again."""
    whole = Run("00_one_device", 0)
    kept = in_turns(
        {
            mode: ("00_one_device", 0, "--steps", "25", "--set", f"activations={mode}")
            for mode in ("keep", "recompute_gelu", "recompute")
        },
        3,
    )
    machine_of(kept)
    return {
        **whole.machine(),
        "workload": whole.record["workload"],
        "default": {**curve(whole), "said": whole.said},
        "activations": kept,
    }


def lesson_01():
    """The whole run with what it prints."""
    whole = Run("01_data_parallel", 2)
    return {
        **whole.machine(),
        "workload": whole.record["workload"],
        "default": {**curve(whole), "said": whole.said},
    }


PACE = ("--steps", "8", "--pace", "lessons/07_pipeline/pace.json")
SCREENS = {
    "00": ("00_one_device", 0),
    "01": ("01_data_parallel", 0),
    "01 brief": ("01_data_parallel", 0, "--brief"),
    "02": ("02_zero1", 0),
    "03": ("03_zero2", 0),
    "04": ("04_zero3", 0),
    "05": ("05_offload", 0),
    "06": ("06_infinity", 0),
    "07": ("07_pipeline", 0, *PACE),
    "08": ("08_weight_versions", 0, *PACE),
}


def screens():
    """What runs show where nothing else is asked of them, and with --brief."""
    runs = {name: Run(*flags, screen=True) for name, flags in SCREENS.items()}
    return {
        **runs["00"].machine(),
        **{name: {"command": run.command, "said": run.said} for name, run in runs.items()},
    }


def lesson_01_order():
    """20 steps of lesson 01 on 1, 2, 3, 4 ranks and of lesson 00 with as many virtual ranks: losses and hashes of the weights."""
    steps = ("--steps", "20")
    ranks = {n: Run("01_data_parallel", n, *steps, save=True) for n in (1, 2, 3, 4)}
    virtual = {n: Run("00_one_device", 0, "--virtual-ranks", str(n), *steps, save=True) for n in (1, 2, 3, 4)}
    every = Run(
        "00_one_device", 0, "--virtual-ranks", "4", "--reduce-every", "micro_batch", *steps, save=True
    )
    return {
        **ranks[1].machine(),
        "ranks": {n: run.exact() for n, run in ranks.items()},
        "virtual": {n: run.exact() for n, run in virtual.items()},
        "virtual_4_every_micro_batch": every.exact(),
    }


def lesson_01_variants():
    """Buckets and overlap: 25 timed steps of each variant in a round, in turns."""
    flags = (*FOUR_BLOCKS, "--steps", "30", "--set", "batch.micro=6")
    runs = in_turns(
        {
            (bucket, overlap): (
                "01_data_parallel",
                2,
                *flags,
                "--set",
                f"bucket={bucket}",
                "--set",
                f"overlap={overlap}",
            )
            for bucket in ("tensor", "unit", "model")
            for overlap in ("on", "off")
        },
        5,
    )
    return {
        **machine_of(runs),
        "variants": [
            {"bucket": bucket, "overlap": overlap, **run} for (bucket, overlap), run in runs.items()
        ],
    }


def lesson_01_batch():
    """One global batch cut into micro-batches of several sizes."""
    runs = in_turns(
        {
            micro: ("01_data_parallel", 2, *FOUR_BLOCKS, "--steps", "25", "--set", f"batch.micro={micro}")
            for micro in (1, 2, 3, 6)
        },
        3,
    )
    return {
        **machine_of(runs),
        "global": 12,
        "runs": [{"micro": micro, "accumulation": 6 // micro, **run} for micro, run in runs.items()],
    }


BASE_LR = 0.0005
# rows a step, steps, factor of the learning rate, warm-up steps: the same tokens in each
LR_RUNS = (
    (12, 500, 1, 40),
    (48, 125, 1, 10),
    (48, 125, 4, 10),
    (48, 125, 4, 0),
    (48, 125, 16, 10),
    (48, 125, 16, 40),
)


def lesson_01_lr():
    """The same tokens in steps of 12 rows and of 48, with the learning rate scaled and with and without warm-up."""
    runs = []
    for rows, steps, factor, warm_up in LR_RUNS:
        flags = (
            *FOUR_BLOCKS,
            "--steps",
            str(steps),
            "--set",
            f"batch.global={rows}",
            "--set",
            f"optim.lr={BASE_LR * factor:g}",
            "--set",
            f"optim.warmup_steps={warm_up}",
        )
        run = Run("01_data_parallel", 2, *flags)
        name = f"{rows} rows, lr x {factor}, warm-up {warm_up}"
        runs.append(
            {
                "name": name,
                "rows": rows,
                "steps": steps,
                "factor": factor,
                "lr_peak": BASE_LR * factor,
                "warmup_steps": warm_up,
                **curve(run),
            }
        )
        machine = run.machine()
    return {**machine, "tokens_a_row": 128, "runs": runs}


def spans(trace, step):
    """One step of rank 0's trace, in microseconds from the step's start: [row, name, begin, end]."""
    mine = [e for e in trace if e["ph"] == "X" and e["pid"] == 0]
    whole = next(e for e in mine if e["name"] == f"step {step}")
    rows = {"compute": "compute", "train": "communication", "wait": "waiting"}
    begin, end = whole["ts"], whole["ts"] + whole["dur"]
    inside = [
        e
        for e in mine
        if e["cat"] in rows and not e["name"].startswith("step ") and begin - 1 <= e["ts"] <= end
    ]
    return {
        "microseconds": round(whole["dur"], 1),
        "spans": [
            [
                rows[e["cat"]],
                span_without_names(e["name"]),
                round(e["ts"] - begin, 1),
                round(e["ts"] - begin + e["dur"], 1),
            ]
            for e in inside
        ],
    }


UNUSUAL = 2  # steps at the start of a traced run


def typical_step(runs):
    """(run, step) whose length and waiting are nearest to the medians over all runs; a run's steps: {"seconds": [...], "waited_seconds": [...]}."""
    usual = {
        key: statistics.median(value for steps in runs for value in steps[key][UNUSUAL:])
        for key in ("seconds", "waited_seconds")
    }
    return min(
        ((run, step) for run, steps in enumerate(runs) for step in range(UNUSUAL, len(steps["seconds"]))),
        key=lambda at: sum(abs(runs[at[0]][key][at[1]] - usual[key]) for key in usual),
    )


def typical_spans(lesson, *flags):
    """Of three short traced runs with one micro-batch a rank: the most usual step, and how long the steps were and waited."""
    runs = [
        Run(lesson, 2, *FOUR_BLOCKS, "--steps", "8", "--trace", "--set", "batch.micro=6", *flags)
        for _ in range(3)
    ]
    steps = [run.record["steps"] for run in runs]
    chosen, step = typical_step(steps)

    def over_all(key):
        found = spread(1e6 * value for one in steps for value in one[key][UNUSUAL:])
        return {name: round(found[name], 1) for name in ("median", "lowest", "highest")}

    return {
        "command": runs[chosen].command,
        "runs": len(runs),
        "step": step,
        "steps_microseconds": over_all("seconds"),
        "waited_microseconds": over_all("waited_seconds"),
        **spans(runs[chosen].trace, step),
        "machine": runs[chosen].machine(),
    }


ZERO = {
    "01_data_parallel": "step",
    "02_zero1": "step",
    "03_zero2": "micro_batch",
    "04_zero3": "micro_batch",
}  # lesson: its order of sums


def whole_zero(lesson):
    whole = Run(lesson, 2)
    return {
        **whole.machine(),
        "workload": whole.record["workload"],
        "default": {**curve(whole), "said": whole.said},
    }


def lesson_02():
    """The whole run with what it prints."""
    return whole_zero("02_zero1")


def lesson_03():
    """The whole run with what it prints."""
    return whole_zero("03_zero2")


def lesson_04():
    """The whole run with what it prints."""
    return whole_zero("04_zero3")


def lesson_05():
    """The whole run with what it prints; bytes of its other settings."""
    others = {
        setting: Run("05_offload", 2, "--set", setting, "--steps", "4").exact()
        for setting in ("parameters=sharded", "update=delayed")
    }
    return {**whole_zero("05_offload"), **{setting.split("=")[1]: run for setting, run in others.items()}}


def lesson_06():
    """The whole run with what it prints."""
    return whole_zero("06_infinity")


def shares(run):
    """Seconds of a step, by what they went to, of rank 0."""
    return {share["name"]: share["seconds"][0] for share in run.record["timetable"]["shares"]}


def in_short(runs, rounds):
    """name -> the command and each round's times, in turns. Without the results, which other records hold."""
    turns = {name: {"rounds": []} for name in runs}
    for _ in range(rounds):
        for name, flags in runs.items():
            load = busy_cores()
            run = Run(*flags)
            found = shares(run) if run.record.get("timetable") else {}
            turns[name] = {
                "command": run.command,
                "loss": rounded(run.record["steps"]["loss"]),
                "machine": run.machine(),
                "rounds": [*turns[name]["rounds"], {**run.timed(), "shares": found, "load_before": load}],
            }
    return turns


def lesson_06_tokens():
    """Seconds per step by how many micro-batches a step has: exact and delayed updates over a disk of 200 MB/s, and lesson 05, which has no disk. One rank, 15 timed
    steps, in turns. `forward_seconds`: of the first micro-batch without the head, the median of lesson 05's traced steps.
    """
    mbps, counts = 200, (1, 2, 4, 8, 16, 32)
    disk = ("06_infinity", 1, "--disk-mbps", str(mbps), "--set", "piece=10000", "--set", "buffers=3")
    kinds = {
        "no_disk": ("05_offload", 1),
        "exact": disk,
        "delayed": (*disk, "--set", "update=delayed", "--set", "grads_at=host"),
    }
    runs = in_short(
        {
            (m, kind): (*flags, "--steps", "20", "--set", f"batch.global={m}")
            for m in counts
            for kind, flags in kinds.items()
        },
        3,
    )
    machine = machine_of(runs)
    for m in counts:
        if runs[m, "exact"].pop("loss") != runs[m, "no_disk"].pop("loss"):
            sys.exit(f"error: {runs[m, 'exact']['command']}: its losses are not lesson 05's")
        del runs[m, "delayed"]["loss"]
    traced = Run("05_offload", 1, "--steps", "8", "--trace", "--set", "batch.global=1")
    gathers = [
        [
            end
            for _, name, _, end in spans(traced.trace, step)["spans"]
            if name.startswith("wait for all_gather")
        ]
        for step in range(UNUSUAL, 8)
    ]
    return {
        **machine,
        "disk_mbps": mbps,
        "tokens_per_micro_batch": traced.record["steps"]["tokens"][0],
        "forward_seconds": statistics.median(ends[-1] for ends in gathers) / 1e6,
        "forward_command": traced.command,
        "runs": [{"micro_batches": m, **{kind: runs[m, kind] for kind in kinds}} for m in counts],
    }


def window_spans(trace, step, buffers):
    """One step of a traced run, in microseconds from its start: when forward has all parameters, and [buffer, what, piece, begin, end] of its window."""
    mine = [e for e in trace if e["ph"] == "X" and e["pid"] == 0]
    whole = next(e for e in mine if e["name"] == f"step {step}")
    begin, end = whole["ts"], whole["ts"] + whole["dur"]

    def of(what, kind):
        return sorted(
            (e for e in mine if e["cat"] == kind and e["name"].startswith(what)),
            key=lambda e: (int(e["args"]["number"].replace(",", "")) if "args" in e else e["ts"]),
        )

    rows = {
        "read": of("disk_read", "train"),
        "AdamW": of("update", "marks"),
        "write": of("disk_write", "train"),
    }
    pieces = len([e for e in rows["AdamW"] if begin <= e["ts"] <= end])
    found = [
        [
            number % buffers,
            what,
            number % pieces,
            round(e["ts"] - begin, 1),
            round(e["ts"] - begin + e["dur"], 1),
        ]
        for what, several in rows.items()
        for number, e in enumerate(several)
        if e["ts"] < end and e["ts"] + e["dur"] > begin
    ]
    turn = max(
        e["ts"] + e["dur"]
        for e in mine
        if e["name"].startswith("wait for all_gather") and begin <= e["ts"] <= end
    )
    return {
        "step": step,
        "microseconds": round(whole["dur"], 1),
        "pieces": pieces,
        "turn": round(turn - begin, 1),
        "spans": found,
    }


def lesson_06_window():
    """Seconds per step by buffers of the window, over a disk of 2000 MB/s, one rank, 15 timed steps, in turns; and what happens in one and in three buffers in a step of
    usual length: [buffer, what, piece, begin, end]."""
    model = (
        "--set",
        "model.layers=6",
        "--set",
        "model.width=256",
        "--set",
        "model.heads=8",
        "--set",
        "batch.global=1",
        "--set",
        "batch.sequence=64",
    )
    flags = {
        buffers: (
            "06_infinity",
            1,
            *model,
            "--disk-mbps",
            "2000",
            "--set",
            "piece=800000",
            "--set",
            f"buffers={buffers}",
        )
        for buffers in (1, 2, 3, 4)
    }
    runs = in_short({buffers: (*words, "--steps", "20") for buffers, words in flags.items()}, 3)
    machine = machine_of(runs)
    if len({tuple(run.pop("loss")) for run in runs.values()}) != 1:
        sys.exit("error: lesson_06_window: the losses depend on the buffers")
    drawn = {}
    for buffers in (1, 3):
        traced = Run(*flags[buffers], "--steps", "9", "--trace")
        steps = {key: traced.record["steps"][key][:8] for key in ("seconds", "waited_seconds")}
        drawn[buffers] = {
            "command": traced.command,
            **window_spans(traced.trace, typical_step([steps])[1], buffers),
        }
    return {
        **machine,
        "disk_mbps": 2000,
        "runs": [{"buffers": buffers, **run} for buffers, run in runs.items()],
        "drawn": drawn,
    }


def lesson_05_delayed():
    """Whole runs, exact and one update behind: by learning rate, and by how many steps are exact first."""

    def run_of(rate, *settings):
        run = Run(
            "05_offload",
            2,
            "--set",
            f"optim.lr={rate:g}",
            *(word for one in settings for word in ("--set", one)),
        )
        return {
            "lr": rate,
            "settings": list(settings),
            "machine": run.machine(),
            **{key: value for key, value in curve(run).items() if key != "lr"},
        }

    runs = [
        run_of(rate, *settings)
        for rate in (0.004, 0.001)
        for settings in ((), ("update=delayed",), ("update=delayed", "warm_steps=40"))
    ]
    return {**[run.pop("machine") for run in runs][0], "runs": runs}


def lesson_05_link():
    """Copies beside the device and one after the other, over a link without a limit and over a slow one: one micro-batch a rank, 25 timed steps, in turns."""
    runs = in_turns(
        {
            (mbps, overlap): (
                "05_offload",
                2,
                "--steps",
                "30",
                "--set",
                "batch.micro=6",
                "--set",
                f"overlap={overlap}",
                *(("--link-mbps", str(mbps)) if mbps else ()),
            )
            for mbps in (0, 50)
            for overlap in ("on", "off")
        },
        3,
    )
    return {
        **machine_of(runs),
        "runs": [{"link_mbps": mbps, "overlap": overlap, **run} for (mbps, overlap), run in runs.items()],
    }


def side_by_side():
    """20 steps of each lesson as lessons/all.sh runs them, and of lesson 00 in each one's order of sums: bytes by place, bytes moved in a step, hashes of the weights."""

    def run_of(row, flags=None):
        saved = ("--checkpoints", SAVED_IN) if "--save-every" in row.flags else ()
        return Run(row.lesson, row.ranks, *row.words(flags), "--steps", "20", *saved, save=True)

    runs = {row: run_of(row) for row in LESSONS}
    orders = {
        order: run_of(ONE_DEVICE, order)
        for order in dict.fromkeys(row.order for row in LESSONS if row.order is not None)
    }

    def one(row, run):
        predicted = [
            {**rank, "measured_bytes": None, "measured_operations": None} for rank in run.record["ranks"]
        ]
        places = {
            key: {"predicted": of(Ran({**run.record, "ranks": predicted})), "measured": of(run)}
            for key, of in (("held", held), ("moved", moved))
        }
        return {
            "lesson": row.lesson,
            "command": run.command,
            "world": run.record["world"],
            **places,
            "as_predicted": run.record["as_predicted"],
            "weights_sha256": run.weights,
            "order": None
            if row.order is None
            else {"command": orders[row.order].command, "weights_sha256": orders[row.order].weights},
        }

    return {**runs[ONE_DEVICE].machine(), "rows": [one(row, run) for row, run in runs.items()]}


def zero_order():
    """20 steps of lessons 01 to 04 on 1, 2, 3, 4 ranks, and of lesson 00 with as many virtual ranks in both orders of sums."""
    steps, worlds = ("--steps", "20"), (1, 2, 3, 4)
    orders = {
        order: {
            n: Run("00_one_device", 0, "--virtual-ranks", str(n), "--reduce-every", order, *steps, save=True)
            for n in worlds
        }
        for order in ("step", "micro_batch")
    }
    lessons = {lesson: {n: Run(lesson, n, *steps, save=True) for n in worlds} for lesson in ZERO}
    return {
        **lessons["04_zero3"][1].machine(),
        "order_of": ZERO,
        "orders": {order: {n: run.exact() for n, run in runs.items()} for order, runs in orders.items()},
        "lessons": {lesson: {n: run.exact() for n, run in runs.items()} for lesson, runs in lessons.items()},
    }


SCHEDULES = "naive", "gpipe", "1f1b", "interleaved", "zb_h1"


def lesson_07():
    """The whole run with what it prints."""
    whole = Run("07_pipeline", 4)
    return {
        **whole.machine(),
        "workload": whole.record["workload"],
        "default": {**curve(whole), "said": whole.said},
    }


def pipeline_order():
    """20 steps of lesson 07 by every schedule on 1 to 4 stages, and on 2 stages of 2 replicas; lesson 00 in the same order of sums. Bytes of all ranks."""
    steps = ("--steps", "20")

    def reference(stages, replicas):
        return Run(
            "00_one_device",
            0,
            "--virtual-ranks",
            str(replicas),
            "--tied-sum",
            "joint" if stages == 1 else "split",
            *steps,
            save=True,
        ).exact()

    def piped(schedule, stages, replicas):
        run = Run(
            "07_pipeline",
            stages * replicas,
            "--set",
            f"schedule={schedule}",
            "--set",
            f"replicas={replicas}",
            *steps,
            save=True,
        )
        return {
            **run.exact(),
            "bytes_of_ranks": [rank["measured_bytes"] for rank in run.record["ranks"]],
            "sent_by_ranks": [without_names(rank["measured_operations"]) for rank in run.record["ranks"]],
        }

    shapes = ((1, 1), (2, 1), (3, 1), (4, 1), (2, 2))
    machine = Run("07_pipeline", 4, "--steps", "2").machine()
    return {
        **machine,
        "shapes": {
            f"{stages}x{replicas}": {
                "reference": reference(stages, replicas),
                "schedules": {name: piped(name, stages, replicas) for name in SCHEDULES},
            }
            for stages, replicas in shapes
        },
    }


def pipeline_pace():
    """Lesson 07 on 4 stages, paced by lessons/07_pipeline/pace.json: makespan and idle share of the median of 7 steps, beside what the simulator makes of
    the same costs; on a slow link too, whose messages take as long as a forward."""

    def paced(schedule, micro_batches, *flags):
        run = Run(
            "07_pipeline",
            4,
            "--steps",
            "8",
            "--set",
            f"schedule={schedule}",
            "--set",
            f"batch.global={micro_batches}",
            "--set",
            "model.width=32",
            "--pace",
            "lessons/07_pipeline/pace.json",
            *flags,
        )
        machines.append(run)
        return {
            "command": run.command,
            "rows": {row.pop("name"): row for row in run.record["timetable"]["rows"]},
            "ranks": run.record["timetable"]["ranks"],
        }

    machines, counts = [], (4, 8, 16)
    runs = {name: {m: paced(name, m) for m in counts} for name in SCHEDULES}
    slow = {name: paced(name, 8, "--link-ms", "60") for name in ("gpipe", "1f1b")}
    drawn = runs["1f1b"][4]["ranks"]
    for run in (*(run for several in runs.values() for run in several.values()), *slow.values()):
        del run["ranks"]
    return {**machines[0].machine(), "schedules": runs, "link_ms_60": slow, "drawn": drawn}


UNTIED = (
    "--workload",
    "configs/tiny_untied.json",
)  # lesson 08's default; a tied matrix would have two owners
PACED = ("--pace", "lessons/07_pipeline/pace.json")
RULES = {
    "none": (),
    "stash": (),
    "vertical_sync": (),
    "two_buffers": (),
    "stash_12": ("--set", "update_every=12"),
}  # the last one: an update per step
RATES = {"4e-3": "0.004", "1e-3": "0.001"}  # a record's key, as the command says it


def rule_flags(rule):
    return "--set", f"versions={rule.removesuffix('_12')}", *RULES[rule]


def timetable_of(run):
    """Its rows by name; the spans apart."""
    found = run.record["timetable"]
    return {
        "command": run.command,
        "rows": {
            row["name"]: {key: value for key, value in row.items() if key != "name"} for row in found["rows"]
        },
    }


def lesson_08():
    """The whole run with what it prints. Each rule of weight versions on 4 stages, and lesson 07's 1F1B, paced by lessons/07_pipeline/pace.json: a step's time,
    bytes of all ranks, how many updates behind the weights were. Two steps of 4 micro-batches, drawn: [action, begin, end, expected begin, expected end].
    """
    whole = Run("08_weight_versions", 0)

    def paced(rule):
        run = Run("08_weight_versions", 0, *rule_flags(rule), "--steps", "8", *PACED)
        ranks = [
            {"bytes": rank["measured_bytes"], "predicted": rank["predicted_bytes"]}
            for rank in run.record["ranks"]
        ]
        return {
            **timetable_of(run),
            "ranks": ranks,
            "updates_behind": run.record["timetable"]["updates_behind"],
        }

    rules = {rule: paced(rule) for rule in RULES}
    flush = timetable_of(Run("07_pipeline", 4, *UNTIED, "--steps", "8", *PACED))
    drawn = Run("08_weight_versions", 0, "--set", "batch.global=4", "--steps", "12", *PACED)
    return {
        **whole.machine(),
        "workload": whole.record["workload"],
        "default": {**curve(whole), "said": whole.said},
        "rules": rules,
        "flush": flush,
        "drawn": {**timetable_of(drawn), "microbatches": 4, "ranks": drawn.record["timetable"]["ranks"]},
    }


STEPS, MICRO_BATCHES = 200, 12  # of the runs below


def losses_of(machines, *flags):
    """A run of 200 steps, or of 2,400 with one micro-batch each, whose losses are means over 12."""
    run = Run(*flags)
    loss = run.record["steps"]["loss"]
    every = len(loss) // STEPS
    machines.append(run.machine())
    return {
        "command": run.command,
        "workload_hash": run.record["workload_hash"],
        "loss": rounded(statistics.fmean(loss[i : i + every]) for i in range(0, len(loss), every)),
        "validation_loss": run.record["validation_loss"],
    }


def rules_and_twins(machines, *more):
    """Each rule of weight versions on 4 stages, and the twins without staleness: lesson 00 with as many updates."""
    flags = ("--steps", str(STEPS), *more)
    return {
        **{rule: losses_of(machines, "08_weight_versions", 0, *rule_flags(rule), *flags) for rule in RULES},
        "small_steps": losses_of(
            machines,
            "00_one_device",
            0,
            *UNTIED,
            "--steps",
            str(STEPS * MICRO_BATCHES),
            *more,
            "--set",
            "batch.global=1",
        ),
        "one_device": losses_of(machines, "00_one_device", 0, *UNTIED, *flags),
    }


def lesson_08_losses():
    """200 steps of 12 micro-batches by each rule of weight versions on 4 stages, by 1F1B, and by the twins without staleness, which are lesson 00 with as many
    updates: of one micro-batch each (losses: means over 12 steps), and of 12. By learning rate."""
    machines, runs = [], {}
    for key, rate in RATES.items():
        more = ("--set", f"optim.lr={rate}")
        runs[key] = {
            **rules_and_twins(machines, *more),
            "1f1b": losses_of(machines, "07_pipeline", 4, *UNTIED, "--steps", str(STEPS), *more),
        }
    return {**machines[0], "steps": STEPS, "micro_batches": MICRO_BATCHES, "rates": runs}


def lesson_08_seeds():
    """The runs of lesson_08_losses at learning rate 0.001 with other first weights and another order of the data."""
    machines = []
    seeds = {
        str(seed): rules_and_twins(machines, "--set", "optim.lr=0.001", "--seed", str(seed))
        for seed in (2, 3)
    }
    return {**machines[0], "steps": STEPS, "micro_batches": MICRO_BATCHES, "seeds": seeds}


SAVED_IN = "runs/09_checkpoint_and_faults/cost"  # removed before each run
SAVING = {"off": ("--save-async", "off"), "on": ()}  # a record's key, as the command says it


def lesson_09():
    """Its story as run.sh prints it. 65 steps on two ranks that save every 10 steps, and wait for the disk or write from a copy: seconds that a save blocks the
    run, and until it is durable; bytes of a checkpoint."""
    said = subprocess.run(
        [ROOT / "lessons/09_checkpoint_and_faults/run.sh"],
        cwd=ROOT,
        text=True,
        capture_output=True,
        check=True,
    ).stdout.splitlines()
    rounds, exact, sizes = {key: [] for key in SAVING}, {}, {}
    for _ in range(3):
        for key, flags in SAVING.items():
            shutil.rmtree(ROOT / SAVED_IN, ignore_errors=True)
            load = busy_cores()
            run = Run(
                "09_checkpoint_and_faults",
                2,
                "--steps",
                "65",
                "--save-every",
                "10",
                *flags,
                "--checkpoints",
                SAVED_IN,
            )
            saves = run.record["saves"]
            rounds[key].append(
                {
                    "load_before": load,
                    "blocked": [save["blocked"] for save in saves],
                    "durable": [save["seconds"] for save in saves],
                }
            )
            exact[key] = run.exact()
            newest = max((ROOT / SAVED_IN).glob("step-*"))
            sizes[key] = {path.name: path.stat().st_size for path in sorted(newest.iterdir())}
    return {
        **run.machine(),
        "workload": run.record["workload"],
        "said": said,
        "runs": {key: {**exact[key], "files": sizes[key], "rounds": rounds[key]} for key in SAVING},
    }


TIMELINE_IN = "runs/09_checkpoint_and_faults/timeline"
TIMELINE = (
    "--steps",
    "8",
    "--save-every",
    "4",
    "--trace",
    "--set",
    "model.width=512",
    "--set",
    "model.layers=4",
    "--set",
    "batch.global=2",
    "--set",
    "batch.sequence=32",
)  # short steps, and a file that outlasts one
SLOW_WRITE = 1000  # microseconds before each write into a rank's file


def calls_of(log):
    """What `strace -f -ttt -T` wrote: (name, text, begin, end) of each call, in seconds since 1970."""
    ends = r"(?:<([\d.]+)>|<unfinished \.\.\.>)"
    line = re.compile(r"(\d+) +([\d.]+) (?:<\.\.\. (\w+) resumed>|(\w+)\()(.*?)" + ends + "$")
    begun, found = {}, []
    for match in filter(None, map(line.match, log.splitlines())):
        process, at, resumed, name, text, lasted = match.groups()
        if resumed:
            found.append((*begun.pop(process), float(at)))
        elif lasted:
            found.append((name, text, float(at), float(at) + float(lasted)))
        else:
            begun[process] = (name, text, float(at))
    return found


def timed_calls(hidden, *flags):
    """A run of which strace sees what happens to the files in `hidden`, and delays writes: the run, and its
    calls in ms on the clock of its trace."""
    paths = [hidden, *(f"{hidden}/rank-000{rank}.safetensors" for rank in (0, 1))]
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "log"
        under = [
            "strace",
            "-f",
            "-q",
            "--seccomp-bpf",
            "-ttt",
            "-T",
            "-y",
            "-o",
            log,
            "-e",
            "signal=none",
            *(word for path in paths for one in (path, ROOT / path) for word in ("-P", one)),
            "-e",
            "trace=pwrite64,fsync,rename",
            "-e",
            f"inject=pwrite64:delay_enter={SLOW_WRITE}",
        ]
        run = Run(*flags, under=under)
        apart = time.time() - time.monotonic()  # strace has the one clock, a trace the other
        calls = calls_of(log.read_text())
    return run, [(*what, 1e3 * (begin - apart), 1e3 * (end - apart)) for *what, begin, end in calls]


def timeline_of(mode):
    """Rank 0's steps around a run's first checkpoint, and what its file went through, in ms from the step
    before."""
    shutil.rmtree(ROOT / TIMELINE_IN, ignore_errors=True)
    hidden, mine, load = f"{TIMELINE_IN}/.step-000004.tmp-0", "rank-0000.safetensors", busy_cores()
    flags = (*TIMELINE, *SAVING[mode], "--checkpoints", TIMELINE_IN)
    run, calls = timed_calls(hidden, "09_checkpoint_and_faults", 2, *flags)
    steps = {
        int(e["name"][5:]): (e["ts"] / 1e3, (e["ts"] + e["dur"]) / 1e3)
        for e in run.trace
        if e["ph"] == "X" and e["pid"] == 0 and re.fullmatch(r"step \d+", e["name"])
    }

    def since(*moments):
        return [round(at - steps[3][0], 2) for at in moments]

    def moments_of(call, what):
        return [since(begin, end) for name, text, begin, end in calls if name == call and what in text]

    writes = moments_of("pwrite64", mine)
    save = run.record["saves"][0]
    return {
        "command": run.command,
        "load_before": load,
        "blocked": save["blocked"],
        "durable": save["seconds"],
        "steps": [[step, *since(begin, end)] for step, (begin, end) in sorted(steps.items()) if step >= 3],
        "bytes": (ROOT / TIMELINE_IN / "step-000004" / mine).stat().st_size,
        "writes": len(writes),
        "written": [writes[0][0], writes[-1][1]],
        "flushed": moments_of("fsync", mine)[0],
        "named": moments_of("rename", hidden)[0],
        "machine": run.machine(),
    }


def lesson_09_timeline():
    """The first checkpoint of a run on two ranks, with and without --save-async: rank 0's steps, and its
    file's writes, flush and name, in ms from the step before. strace delays each write, as a slower disk
    would."""
    drawn = {mode: timeline_of(mode) for mode in SAVING}
    return {**machine_of(drawn), "write_delay_microseconds": SLOW_WRITE, "drawn": drawn}


READ_IN = "runs/09_checkpoint_and_faults/reads"
READ_FLAGS = (*FOUR_BLOCKS, "--set", "model.tied=off", "--steps", "1", "--save-every", "1")
READERS = (("01_data_parallel", 3), ("04_zero3", 3), ("07_pipeline", 2))


def entries_of(path):
    """[tensor, purpose, begin, end, first byte in the file, the one after the last] of all that a file holds."""
    raw = path.read_bytes()
    size = 8 + int.from_bytes(raw[:8], "little")
    found = []
    for name, entry in json.loads(raw[8:size]).items():
        if name != "__metadata__":
            tensor, purpose, begin, end = re.fullmatch(r"(.*)@(\w+)\[(\d+):(\d+)\]", name).groups()
            found.append(
                [tensor, purpose, int(begin), int(end), *(size + at for at in entry["data_offsets"])]
            )
    return sorted(found, key=lambda entry: entry[4])


def held_by(run, rank, entries, whole):
    """[tensor, begin, end] that a rank holds, and so reads, of weights and of both moments. A run that trains
    nothing writes what it holds; where the plan has the whole model on each rank, they share the writing, and
    each holds all."""
    written = [
        [[tensor, begin, end] for tensor, of, begin, end, *_ in entries if of == purpose]
        for purpose in ("parameters", "momentum", "variance")
    ]
    if written.count(written[0]) != len(written):
        sys.exit(f"error: {run.command}: weights and moments are not cut alike")
    holds = run.record["ranks"][rank]["predicted_bytes"]["momentum"] // 4
    return whole if holds >= sum(end for *_, end in whole) else written[0]


def lesson_09_reads():
    """A checkpoint by lesson 04 on four ranks: which elements lie where in its files; and the elements that
    each rank of other runs holds, and so reads, that go on from it; the first lines of checkpoint show --entries.
    """
    shutil.rmtree(ROOT / READ_IN, ignore_errors=True)
    writer = Run("04_zero3", 4, *READ_FLAGS, "--checkpoints", f"{READ_IN}/written")
    saved = f"{READ_IN}/written/step-000001"
    files = {
        path.name: {"bytes": path.stat().st_size, "entries": entries_of(path)}
        for path in sorted((ROOT / saved).glob("rank-*"))
    }
    show = ["build/cpu/bin/checkpoint", "show", saved, "--entries"]
    said = subprocess.run(show, cwd=ROOT, text=True, capture_output=True, check=True).stdout.splitlines()
    ends = {}
    for tensor, _, _, end, *_ in (entry for file in files.values() for entry in file["entries"]):
        ends[tensor] = max(end, ends.get(tensor, 0))
    whole = [[tensor, 0, end] for tensor, end in ends.items()]
    readers = []
    for lesson, ranks in READERS:
        folder = f"{READ_IN}/{lesson}"
        run = Run(lesson, ranks, *READ_FLAGS, "--resume", saved, "--checkpoints", folder)
        taken_over = ROOT / folder / "step-000001"
        subprocess.run(
            [ROOT / "build/cpu/bin/checkpoint", "diff", ROOT / saved, taken_over],
            check=True,
            stdout=subprocess.DEVNULL,
        )  # all of it, to the bit
        paths = sorted(taken_over.glob("rank-*"))
        holds = [held_by(run, rank, entries_of(path), whole) for rank, path in enumerate(paths)]
        readers.append({"command": run.command, "lesson": lesson, "world": ranks, "holds": holds})
    return {
        "commit": writer.machine()["commit"],
        "command": writer.command,
        "lesson": "04_zero3",
        "world": 4,
        "files": files,
        "readers": readers,
        "shown": {"command": " ".join(show), "said": said[:10]},
    }


# lesson: the settings of each run, two steps on two ranks
ZERO_SETTINGS = {
    "01_data_parallel": ("",),
    "02_zero1": ("", "batch.micro=6"),
    "03_zero2": (
        "",
        "bucket=50000",
        "bucket=400000",
        "bucket=1000000",
        "batch.micro=6",
        "batch.micro=6 bucket=1000000",
    ),
    "04_zero3": (
        "",
        "prefetch=0",
        "prefetch=2",
        "reshard_after_forward=off",
        "persist_below=1000",
        "batch.micro=6",
        "batch.micro=6 prefetch=0",
        "batch.micro=6 reshard_after_forward=off",
    ),
}


def zero_settings():
    """Bytes, operations and losses of lessons 01 to 04 in several settings, two steps on two ranks."""

    def run_of(lesson, settings):
        return Run(
            lesson,
            2,
            *FOUR_BLOCKS,
            "--steps",
            "2",
            *(word for one in settings.split() for word in ("--set", one)),
        )

    runs = {
        lesson: {settings: run_of(lesson, settings) for settings in several}
        for lesson, several in ZERO_SETTINGS.items()
    }
    return {
        **runs["04_zero3"][""].machine(),
        "world": 2,
        "runs": [
            {"lesson": lesson, "settings": settings, **run.exact()}
            for lesson, several in runs.items()
            for settings, run in several.items()
        ],
    }


PAPER = (
    "model.layers=36",
    "model.width=4096",
    "model.heads=32",
    "model.vocab=60800",
)  # 7.5 G parameters: section 1 of the ZeRO paper


def plan_of(lesson, world, workload, settings=()):
    """What --plan says of a run on GPUs: no rank, no GPU. Buffers of one name are one entry, in their order."""
    sets = [word for one in settings for word in ("--set", one)]
    words = [
        f"lessons/{lesson}/run.sh",
        "--plan",
        "--world",
        str(world),
        "--device",
        "cuda",
        "--workload",
        f"configs/{workload}.json",
        *sets,
    ]
    plan = printed(ROOT / "build/cpu/bin", lesson, f"configs/{workload}.json", world, settings)
    rank, purposes, buffers = plan["ranks"][0], {}, {}
    for one in rank["buffers"]:
        purpose = (
            one["purpose"] if one["place"] == "device" else one["place"]
        )  # which is no part of the total
        purposes[purpose] = purposes.get(purpose, 0) + one["bytes"]
        buffers.setdefault(one["name"], []).append(one["bytes"])
    return {
        "command": " ".join(words),
        "bytes": {**purposes, "total": rank["bytes"]["device"]},
        "buffers": buffers,
        "operations": operations_of(plan),
    }


def zero_plans():
    """What --plan says of lessons 01 to 04: GPT-2 on 1 to 1024 GPUs, the ZeRO paper's example, and settings of ZeRO-2 and ZeRO-3."""
    worlds = [2**i for i in range(11)]
    models = ("gpt2_124m", "gpt2_355m", "gpt2_774m", "gpt2_1558m")
    plans = {
        model: {lesson: {n: plan_of(lesson, n, model) for n in worlds} for lesson in ZERO} for model in models
    }
    many = ("bucket=500000000", "bucket=50000000")
    keys = ("prefetch=0", "prefetch=2", "prefetch=4", "reshard_after_forward=off", "persist_below=100000")
    return {
        "commit": sources(),
        "models": {
            model: {
                lesson: {
                    n: {"command": plan["command"], "bytes": plan["bytes"]} if n > 2 else plan
                    for n, plan in one.items()
                }
                for lesson, one in lessons.items()
            }
            for model, lessons in plans.items()
        },
        "zero2": {
            model: {setting: plan_of("03_zero2", 2, model, (setting,)) for setting in many}
            for model in models[1::2]
        },
        "zero3": {
            model: {setting: plan_of("04_zero3", 2, model, (setting,)) for setting in keys}
            for model in models[1::2]
        },
        "paper": {lesson: plan_of(lesson, 64, "gpt2_1558m", PAPER) for lesson in ZERO},
    }


def zero_trace():
    """A step of lessons 02 to 04 on two ranks, one micro-batch each, drawn from trace.json: what travels under forward and behind backward."""
    drawn = {lesson: typical_spans(lesson) for lesson in ("02_zero1", "03_zero2", "04_zero3")}
    return {**machine_of(drawn), "lessons": drawn}


ROWS = (
    "--workload",
    "configs/tiny_rows.json",
)  # lesson 10's default: a micro-batch of 4 rows, which 2 and 4 ranks share


def lesson_10():
    """The whole run with what it prints. 20 steps on 2 and 4 ranks, tokens split and whole, and of lesson 00 that computes in as many parts: losses, bytes,
    operations, hashes of the weights; lesson 00 as one device."""
    whole, steps = Run("10_tensor_parallel", 0, screen=True), ("--steps", "20")
    shapes = [(n, tokens) for n in (2, 4) for tokens in ("split", "whole")]
    ranks = {
        f"{n} {tokens}": Run("10_tensor_parallel", n, "--set", f"tokens={tokens}", *steps, save=True)
        for n, tokens in shapes
    }
    parts = {
        f"{n} {tokens}": Run(
            "00_one_device", 0, "--tensor-ranks", str(n), "--tokens", tokens, *ROWS, *steps, save=True
        )
        for n, tokens in shapes
    }
    device = Run("00_one_device", 0, *ROWS, *steps, save=True)
    return {
        **whole.machine(),
        "workload": whole.record["workload"],
        "default": {
            "command": whole.command,
            "loss": rounded(whole.record["steps"]["loss"]),
            "validation_loss": whole.record["validation_loss"],
            "said": whole.said,
        },
        "plan": {"command": ranks["2 split"].command, "said": ranks["2 split"].said},
        "ranks": {shape: run.exact() for shape, run in ranks.items()},
        "parts": {shape: run.exact() for shape, run in parts.items()},
        "one_device": device.exact(),
    }


def lesson_10_turns():
    """25 timed steps of lesson 10 on two ranks next to lesson 00 and lesson 01, in turns: in each of them the ranks share micro-batches of 4 rows."""
    runs = in_turns(
        {
            "one_device": ("00_one_device", 0, *ROWS, "--steps", "30"),
            "data_parallel": ("01_data_parallel", 2, *ROWS, "--set", "batch.micro=2", "--steps", "30"),
            "split": ("10_tensor_parallel", 2, "--steps", "30"),
            "whole": ("10_tensor_parallel", 2, "--set", "tokens=whole", "--steps", "30"),
            "lanes": ("10_tensor_parallel", 2, "--set", "lanes=2", "--set", "batch.micro=2", "--steps", "30"),
        },
        5,
    )
    return {**machine_of(runs), "runs": runs}


MESHES = {
    "2x1x2": (4, 4),
    "2x2x1": (4, 2),
    "1x2x2": (4, 2),
    "2x2x2": (8, 2),
}  # stages x data x tensor: ranks, rows of a micro-batch


def order_of_mesh(mesh):
    """Lesson 00's flags with which it sums as lesson 11 does on this mesh."""
    stages, data, tensor = map(int, mesh.split("x"))
    return [
        word
        for flag, value, needed in (
            ("--virtual-ranks", data, data > 1),
            ("--tensor-ranks", tensor, tensor > 1),
            ("--tied-sum", "split", stages > 1),
        )
        if needed
        for word in (flag, str(value))
    ]


def lesson_11():
    """The whole run with what it prints. 20 steps of four meshes, and of lesson 00 that sums in the same order: losses, hashes of the weights, bytes of all ranks, and messages along each
    axis."""
    whole, steps = Run("11_combined", 0, screen=True), ("--steps", "20")

    def meshed(mesh, ranks, micro):
        stages, _, tensor = map(int, mesh.split("x"))
        run = Run(
            "11_combined", ranks, "--set", f"mesh={mesh}", "--set", f"batch.micro={micro}", *steps, save=True
        )
        return {
            **run.exact(),
            "ranks": [
                {
                    "bytes": one["measured_bytes"],
                    "predicted_bytes": one["predicted_bytes"],
                    **{
                        key: axes_of(one[f"{key}_operations"], one["rank"], ranks, stages, tensor)
                        for key in ("measured", "predicted")
                    },
                }
                for one in run.record["ranks"]
            ],
        }

    def reference(mesh, micro):
        return Run(
            "00_one_device",
            0,
            *order_of_mesh(mesh),
            *ROWS,
            "--set",
            f"batch.micro={micro}",
            *steps,
            save=True,
        ).exact()

    return {
        **whole.machine(),
        "workload": whole.record["workload"],
        "default": {
            "command": whole.command,
            "loss": rounded(whole.record["steps"]["loss"]),
            "validation_loss": whole.record["validation_loss"],
            "said": whole.said,
        },
        "meshes": {
            mesh: {"run": meshed(mesh, *shape), "parts": reference(mesh, shape[1])}
            for mesh, shape in MESHES.items()
        },
    }


def gpu_runs(folders):
    """(folder, its record) of runs on GPUs that held what was predicted."""
    runs = [(folder, json.loads((folder / "record.json").read_text())) for folder in folders]
    for folder, said in runs:
        if said["exit_code"] != 0 or not said["as_predicted"] or said["device"] != "cuda":
            sys.exit(f"error: {folder}/record.json: not a run on GPUs that held what was predicted")
    return runs


def plain_command(said):
    """As a reader would type it."""
    return command_text(shlex.split(re.sub(r" --out \S+", "", said["command"])))


def gpu_profile(folders):
    """Where the time of a step goes on GPUs, beside what each part takes alone, from the folders that runs wrote with --profile."""
    runs = gpu_runs(folders)
    if unprofiled := [folder for folder, said in runs if not said.get("profile", {}).get("steps")]:
        sys.exit(f"error: {unprofiled[0]}/record.json: no step was profiled")
    return {
        "about": gpu_profile.__doc__,
        "runs": [
            {
                "command": plain_command(said),
                **{key: said[key] for key in ("lesson", "commit", "started", "versions", "world", "profile")},
            }
            for _, said in runs
        ],
    }


def gpu_trace(folders):
    """A step of lessons on GPUs, from the folders that runs wrote with --trace."""
    runs = {said["lesson"]: (folder, said) for folder, said in gpu_runs(folders)}
    first, step = next(iter(runs.values()))[1], 6  # captured steps begin with the fourth
    same = ("commit", "versions", "world", "workload_hash")
    if any(said[key] != first[key] for _, said in runs.values() for key in same):
        sys.exit(f"error: --gpu-trace: runs differ in one of {', '.join(same)}")
    return {
        "about": gpu_trace.__doc__,
        **{key: first[key] for key in same},
        "started": first["started"],
        "step": step,
        "lessons": {
            lesson: {
                "command": plain_command(said),
                **spans(json.loads((folder / "trace.json").read_text())["traceEvents"], step),
            }
            for lesson, (folder, said) in sorted(runs.items())
        },
    }


TIMED = (
    lesson_01_variants,
    lesson_01_batch,
    lesson_00,
    lesson_05_link,
    lesson_06_tokens,
    lesson_06_window,
    pipeline_pace,
    lesson_08,
    lesson_09,
    lesson_09_timeline,
    lesson_10_turns,
)
ALL = (
    *TIMED,
    screens,
    lesson_01,
    lesson_01_order,
    lesson_01_lr,
    lesson_02,
    lesson_03,
    lesson_04,
    lesson_05,
    lesson_05_delayed,
    lesson_06,
    lesson_07,
    pipeline_order,
    lesson_08_losses,
    lesson_08_seeds,
    lesson_09_reads,
    lesson_10,
    lesson_11,
    side_by_side,
    zero_order,
    zero_settings,
    zero_plans,
    zero_trace,
)


def text_of(value):
    """JSON whose innermost lists stand on one line."""
    scalar = r'(?:"[^"\\]*"|[-+.\deE]+|null|true|false)'
    text = json.dumps(value, indent=1)
    return (
        re.sub(
            rf"\[\s+({scalar}(?:,\n\s+{scalar})*)\s+\]",
            lambda m: "[" + re.sub(r",\n\s*", ",", m[1]) + "]",
            text,
        )
        + "\n"
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="RECORD", help="default: all of them")
    parser.add_argument("--timed", action="store_true", help="those with times")
    parser.add_argument(
        "--gpu-trace",
        type=pathlib.Path,
        nargs="+",
        metavar="FOLDER",
        help="only gpu_trace.json, from runs' folders (--trace --out FOLDER)",
    )
    parser.add_argument(
        "--gpu-profile",
        type=pathlib.Path,
        nargs="+",
        metavar="FOLDER",
        help="only gpu_profile.json, from runs' folders (--profile --out FOLDER)",
    )
    parser.add_argument(
        "--as",
        dest="name",
        choices=("gpu_profile", "gpu_profile_one"),
        default="gpu_profile",
        help="which record --gpu-profile writes",
    )
    args = parser.parse_args()
    if args.name != "gpu_profile" and not args.gpu_profile:
        parser.error("--as names what --gpu-profile writes")
    if args.gpu_profile:
        found = gpu_profile(args.gpu_profile)
        if args.name == "gpu_profile_one" and (
            wide := [folder for folder, run in zip(args.gpu_profile, found["runs"]) if run["world"] != 1]
        ):
            sys.exit(f"error: {wide[0]}/record.json: --as gpu_profile_one is of runs on one GPU")
        (RESULTS / f"{args.name}.json").write_text(text_of(found))
        return
    if args.gpu_trace:
        (RESULTS / "gpu_trace.json").write_text(text_of(gpu_trace(args.gpu_trace)))
        return
    os.environ.setdefault("STAGECRAFT_COMMIT", sources())
    unknown = set(args.names) - {make.__name__ for make in ALL}
    if unknown:
        parser.error(f"{unknown.pop()} is none of {', '.join(make.__name__ for make in ALL)}")
    for make in TIMED if args.timed else ALL:
        if args.names and make.__name__ not in args.names:
            continue
        load = busy_cores()
        if make in TIMED and load > IDLE:
            print(
                f"note: {load} cores are busy: times of {make.__name__} are those of a busy machine",
                file=sys.stderr,
            )
        result = {"about": make.__doc__, "load_before": load, **make()}
        (RESULTS / f"{make.__name__}.json").write_text(text_of(result))


if __name__ == "__main__":
    main()
