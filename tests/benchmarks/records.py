#!/usr/bin/env python3
"""The runs that the lessons' pages show, made again with the real programs: docs/results/lesson_*.json.

Losses, bytes, operations and weights are the same on every run of the same machine; times are the machine's,
so make them where nothing else runs (every record keeps how many cores were busy before it). Needs build/cpu
(tests/run.sh); lesson_09_timeline needs strace.

  python3 tests/benchmarks/records.py                          everything, half an hour on two idle cores
  python3 tests/benchmarks/records.py lesson_01_lr ...         some of them
  python3 tests/benchmarks/records.py --timed                  those whose times the pages show
  python3 tests/benchmarks/records.py --gpu-trace FOLDER ...   from runs on GPUs with --trace --out FOLDER
  python3 tests/benchmarks/records.py --gpu-profile FOLDER ... from runs on GPUs with --profile --out FOLDER;
                                                               --as gpu_profile_one: of several lessons on one
                                                               GPU
afterwards: python3 docs/render.py
"""
import collections.abc
import dataclasses
import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import statistics
import sys
import tempfile
import time

from gpu_table import spread
from harness import (
    CPU_BIN,
    ONE_THREAD,
    RESULTS,
    ROOT,
    command_text,
    first_paragraph,
    parser_of,
    record_in,
    said_by,
    sets,
    sources,
)
from plans import axes_of, listed, operations_of, printed, summed

sys.path.insert(0, str(ROOT / "tests"))
from operations import span_without_names, without_names  # noqa: E402

sys.path.insert(0, str(ROOT / "common/records/curves"))
from side_by_side import ONE_DEVICE, ROWS as LESSONS, Ran, held, moved  # noqa: E402

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


def events_in(folder):
    return json.loads((folder / "trace.json").read_text())["traceEvents"]


class Run:
    """A run of a lesson: its command as a reader would type it, what it printed, and its record."""

    first = None  # of the record that is made: it says on what machine

    def __init__(self, lesson, ranks, *flags, save=False, under=(), screen=False):
        self.command = " ".join([f"lessons/{lesson}/run.sh", *(["-n", str(ranks)] if ranks else []), *flags])
        print(self.command, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            out, weights = (pathlib.Path(folder) / name for name in ("out", "weights.safetensors"))
            words = ["--no-build", "--preset", "cpu", *(["-n", ranks] if ranks else []), *flags]
            words += ["--threads", "1", *([] if screen else ["--verbose"]), "--out", out]
            words += ["--save", weights] if save else []
            said = said_by([ROOT / "lessons" / lesson / "run.sh", *words], ONE_THREAD, self.command, under)
            self.record = record_in(out)
            self.trace = events_in(out) if "--trace" in flags else []
            self.weights = hashlib.sha256(weights.read_bytes()).hexdigest() if save else None
        Run.first = Run.first or self
        # The first line of launch.sh with --verbose names this machine's user and environment, so it is left
        # out; paths of the temporary folder are replaced.
        self.said = said.replace(str(out), f"runs/{lesson}/<time>").splitlines()[0 if screen else 1 :]

    def bytes_sent(self):
        """The bytes that rank 0 sends in one step, predicted and measured; a world of one sends nothing."""
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
    """A run, and how many cores were busy with something else around it: before it, or behind it if more.
    Where that is too much it is made again, for a while."""
    while True:
        until = time.monotonic() + 60
        while (load := busy_cores()) > IDLE and time.monotonic() < until:
            pass
        run, tries = Run(*flags), tries - 1
        load = max(load, busy_cores())
        if load <= IDLE or tries == 0:
            return run, load


def in_turns(runs, rounds):
    """name -> the first run's exact results, and the times of each round: in a round each has one turn, so
    that all see the same machine."""
    turns = {name: [] for name in runs}
    for _ in range(rounds):
        for name, flags in runs.items():
            turns[name].append(turn(flags))
    return {
        name: {**done[0][0].exact(), "rounds": [{**run.timed(), "load_before": load} for run, load in done]}
        for name, done in turns.items()
    }


def rows_in_turns(names, runs, rounds):
    """Runs in turns as one row per run, with what its key says under `names`."""
    return [{**dict(zip(names, key)), **run} for key, run in in_turns(runs, rounds).items()]


def in_short(runs, rounds):
    """name -> the command and each round's times, in turns. Without the results, which other records hold."""
    turns = {name: {"rounds": []} for name in runs}
    for _ in range(rounds):
        for name, flags in runs.items():
            load, run = busy_cores(), Run(*flags)
            found = shares(run) if run.record.get("timetable") else {}
            again = {**run.timed(), "shares": found, "load_before": load}
            turns[name] = {
                "command": run.command,
                "loss": rounded(run.record["steps"]["loss"]),
                "rounds": [*turns[name]["rounds"], again],
            }
    return turns


def saved(*flags):
    """20 steps of a run, and the hash of its weights."""
    return Run(*flags, "--steps", "20", save=True).exact()


def whole(lesson, ranks):
    """A run as a reader makes it, with what it prints."""
    run = Run(lesson, ranks)
    return {"workload": run.record["workload"], "default": {**curve(run), "said": run.said}}


def on_screen(lesson):
    """The screen of a lesson's run without further flags."""
    run = Run(lesson, 0, screen=True)
    losses = {"loss": rounded(run.record["steps"]["loss"]), "validation_loss": run.record["validation_loss"]}
    return {
        "workload": run.record["workload"],
        "default": {"command": run.command, **losses, "said": run.said},
    }


def shares(run):
    """Seconds of a step, by what they went to, of rank 0."""
    return {share["name"]: share["seconds"][0] for share in run.record["timetable"]["shares"]}


STEPS_20 = ("--steps", "20")
PACED = ("--pace", "lessons/07_pipeline/pace.json")
UNTIED = (
    "--workload",
    "configs/tiny_untied.json",
)  # lesson 08's default; a tied matrix would have two owners
ROWS = (
    "--workload",
    "configs/tiny_rows.json",
)  # lesson 10's default: a micro-batch of 4 rows, which 2 and 4 ranks share
SCREENS = {
    "00": ("00_one_device", 0),
    "01": ("01_data_parallel", 0),
    "01 brief": ("01_data_parallel", 0, "--brief"),
    "02": ("02_zero1", 0),
    "03": ("03_zero2", 0),
    "04": ("04_zero3", 0),
    "05": ("05_offload", 0),
    "06": ("06_infinity", 0),
    "07": ("07_pipeline", 0, "--steps", "8", *PACED),
    "08": ("08_weight_versions", 0, "--steps", "8", *PACED),
}


def screens():
    runs = {name: Run(*flags, screen=True) for name, flags in SCREENS.items()}
    return {name: {"command": run.command, "said": run.said} for name, run in runs.items()}


BASE_LR = 0.0005
# Runs with the same number of tokens: (rows a step, steps, factor of the learning rate, warm-up steps).
LR_RUNS = (
    (12, 500, 1, 40),
    (48, 125, 1, 10),
    (48, 125, 4, 10),
    (48, 125, 4, 0),
    (48, 125, 16, 10),
    (48, 125, 16, 40),
)


def lesson_01_lr():
    def run_of(rows, steps, factor, warm_up):
        settings = (f"batch.global={rows}", f"optim.lr={BASE_LR * factor:g}", f"optim.warmup_steps={warm_up}")
        return {
            "name": f"{rows} rows, lr x {factor}, warm-up {warm_up}",
            "rows": rows,
            "steps": steps,
            "factor": factor,
            "lr_peak": BASE_LR * factor,
            "warmup_steps": warm_up,
            **curve(Run("01_data_parallel", 2, *FOUR_BLOCKS, "--steps", str(steps), *sets(settings))),
        }

    return {"tokens_a_row": 128, "runs": [run_of(*one) for one in LR_RUNS]}


def step_of(trace, step):
    """Rank 0's events, and when one of its steps begins and ends."""
    mine = [e for e in trace if e["ph"] == "X" and e["pid"] == 0]
    whole_step = next(e for e in mine if e["name"] == f"step {step}")
    return mine, whole_step["ts"], whole_step["ts"] + whole_step["dur"]


def spans(trace, step):
    """One step of rank 0's trace, in microseconds from the step's start: [row, name, begin, end]."""
    mine, begin, end = step_of(trace, step)
    rows = {"compute": "compute", "train": "communication", "wait": "waiting"}
    inside = [
        e
        for e in mine
        if e["cat"] in rows and not e["name"].startswith("step ") and begin - 1 <= e["ts"] <= end
    ]
    return {
        "microseconds": round(end - begin, 1),
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
    """(run, step) whose length and waiting are nearest to the medians over all runs; a run's steps:
    {"seconds": [...], "waited_seconds": [...]}."""
    usual = {
        key: statistics.median(value for steps in runs for value in steps[key][UNUSUAL:])
        for key in ("seconds", "waited_seconds")
    }
    return min(
        ((run, step) for run, steps in enumerate(runs) for step in range(UNUSUAL, len(steps["seconds"]))),
        key=lambda at: sum(abs(runs[at[0]][key][at[1]] - usual[key]) for key in usual),
    )


def typical_spans(lesson, *flags):
    """The most usual step of three short traced runs with one micro-batch per rank, and how long the steps
    were and waited."""
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
    }


ZERO = {
    "01_data_parallel": "step",
    "02_zero1": "step",
    "03_zero2": "micro_batch",
    "04_zero3": "micro_batch",
}  # lesson: its order of sums


def lesson_06_tokens():
    mbps, counts = 200, (1, 2, 4, 8, 16, 32)
    disk = ("06_infinity", 1, "--disk-mbps", str(mbps), *sets(("piece=10000", "buffers=3")))
    kinds = {
        "no_disk": ("05_offload", 1),
        "exact": disk,
        "delayed": (*disk, *sets(("update=delayed", "grads_at=host"))),
    }
    asked = {
        (m, kind): (*flags, *STEPS_20, "--set", f"batch.global={m}")
        for m in counts
        for kind, flags in kinds.items()
    }
    runs = in_short(asked, 3)
    losses = {at: run.pop("loss") for at, run in runs.items()}
    for m in counts:
        if losses[m, "exact"] != losses[m, "no_disk"]:
            sys.exit(f"error: {runs[m, 'exact']['command']}: its losses are not lesson 05's")
    traced = Run("05_offload", 1, "--steps", "8", "--trace", "--set", "batch.global=1")
    gathered = [
        [end for _, name, _, end in spans(traced.trace, step)["spans"] if name.startswith(GATHERED)][-1]
        for step in range(UNUSUAL, 8)
    ]
    return {
        "disk_mbps": mbps,
        "tokens_per_micro_batch": traced.record["steps"]["tokens"][0],
        "forward_seconds": statistics.median(gathered) / 1e6,
        "forward_command": traced.command,
        "runs": [{"micro_batches": m, **{kind: runs[m, kind] for kind in kinds}} for m in counts],
    }


GATHERED = "wait for all_gather"  # of what forward needs
WINDOW = {"read": ("disk_read", "train"), "AdamW": ("update", "marks"), "write": ("disk_write", "train")}


def window_spans(trace, step, buffers):
    """One step of a traced run, in microseconds from its start: when forward has all parameters, and [buffer,
    what, piece, begin, end] of its window."""
    mine, begin, end = step_of(trace, step)

    def of(what, kind):
        return sorted(
            (e for e in mine if e["cat"] == kind and e["name"].startswith(what)),
            key=lambda e: (int(e["args"]["number"].replace(",", "")) if "args" in e else e["ts"]),
        )

    rows = {what: of(*how) for what, how in WINDOW.items()}
    inside = [e for e in mine if begin <= e["ts"] <= end]
    pieces = len([e for e in rows["AdamW"] if e in inside])
    return {
        "step": step,
        "microseconds": round(end - begin, 1),
        "pieces": pieces,
        "turn": round(max(e["ts"] + e["dur"] for e in inside if e["name"].startswith(GATHERED)) - begin, 1),
        "spans": [
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
        ],
    }


def lesson_06_window():
    model = ("model.layers=6", "model.width=256", "model.heads=8", "batch.global=1", "batch.sequence=64")
    disk = ("06_infinity", 1, *sets(model), "--disk-mbps", "2000", "--set", "piece=800000", "--set")
    runs = in_short({n: (*disk, f"buffers={n}", *STEPS_20) for n in (1, 2, 3, 4)}, 3)
    if len({tuple(run.pop("loss")) for run in runs.values()}) != 1:
        sys.exit("error: lesson_06_window: the losses depend on the buffers")
    drawn = {}
    for buffers in (1, 3):
        traced = Run(*disk, f"buffers={buffers}", "--steps", "9", "--trace")
        steps = {key: traced.record["steps"][key][:8] for key in ("seconds", "waited_seconds")}
        step = typical_step([steps])[1]
        drawn[buffers] = {"command": traced.command, **window_spans(traced.trace, step, buffers)}
    return {
        "disk_mbps": 2000,
        "runs": [{"buffers": buffers, **run} for buffers, run in runs.items()],
        "drawn": drawn,
    }


def lesson_05_delayed():
    def run_of(rate, *settings):
        found = curve(Run("05_offload", 2, *sets((f"optim.lr={rate:g}", *settings))))
        return {"lr": rate, "settings": list(settings), **{**found, "lr": rate}}

    several = ((), ("update=delayed",), ("update=delayed", "warm_steps=40"))
    return {"runs": [run_of(rate, *settings) for rate in (0.004, 0.001) for settings in several]}


def side_by_side():
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

    return {"rows": [one(row, run) for row, run in runs.items()]}


SCHEDULES = "naive", "gpipe", "1f1b", "interleaved", "zb_h1"
SHAPES = ((1, 1), (2, 1), (3, 1), (4, 1), (2, 2))  # stages, replicas


def pipeline_order():
    def reference(stages, replicas):
        tied = "joint" if stages == 1 else "split"
        return saved("00_one_device", 0, "--virtual-ranks", str(replicas), "--tied-sum", tied)

    def piped(schedule, stages, replicas):
        settings = sets((f"schedule={schedule}", f"replicas={replicas}"))
        run = Run("07_pipeline", stages * replicas, *settings, *STEPS_20, save=True)
        ranks = run.record["ranks"]
        return {
            **run.exact(),
            "bytes_of_ranks": [rank["measured_bytes"] for rank in ranks],
            "sent_by_ranks": [without_names(rank["measured_operations"]) for rank in ranks],
        }

    Run("07_pipeline", 4, "--steps", "2")
    return {
        "shapes": {
            f"{stages}x{replicas}": {
                "reference": reference(stages, replicas),
                "schedules": {name: piped(name, stages, replicas) for name in SCHEDULES},
            }
            for stages, replicas in SHAPES
        }
    }


def timetable_of(run):
    """The rows of a run's timetable by name, and the spans."""
    rows = {row["name"]: row for row in run.record["timetable"]["rows"]}
    return {
        "command": run.command,
        "rows": {
            name: {key: value for key, value in row.items() if key != "name"} for name, row in rows.items()
        },
    }


def pipeline_pace():
    def paced(schedule, micro_batches, *flags):
        settings = (f"schedule={schedule}", f"batch.global={micro_batches}", "model.width=32")
        run = Run("07_pipeline", 4, "--steps", "8", *sets(settings), *PACED, *flags)
        if (schedule, micro_batches) == ("1f1b", 4):
            drawn.extend(run.record["timetable"]["ranks"])
        return timetable_of(run)

    drawn = []
    return {
        "schedules": {name: {m: paced(name, m) for m in (4, 8, 16)} for name in SCHEDULES},
        "link_ms_60": {name: paced(name, 8, "--link-ms", "60") for name in ("gpipe", "1f1b")},
        "drawn": drawn,
    }


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


def lesson_08():
    first = whole("08_weight_versions", 0)

    def paced(rule):
        run = Run("08_weight_versions", 0, *rule_flags(rule), "--steps", "8", *PACED)
        return {
            **timetable_of(run),
            "ranks": [
                {"bytes": rank["measured_bytes"], "predicted": rank["predicted_bytes"]}
                for rank in run.record["ranks"]
            ],
            "updates_behind": run.record["timetable"]["updates_behind"],
        }

    rules = {rule: paced(rule) for rule in RULES}
    flush = timetable_of(Run("07_pipeline", 4, *UNTIED, "--steps", "8", *PACED))
    drawn = Run("08_weight_versions", 0, "--set", "batch.global=4", "--steps", "12", *PACED)
    return {
        **first,
        "rules": rules,
        "flush": flush,
        "drawn": {**timetable_of(drawn), "microbatches": 4, "ranks": drawn.record["timetable"]["ranks"]},
    }


STEPS, MICRO_BATCHES = 200, 12  # of the runs below
SMALL = ("--steps", str(STEPS * MICRO_BATCHES))  # of one micro-batch each


def losses_of(*flags):
    """A run of 200 steps, or of 2,400 with one micro-batch each, whose losses are means over 12."""
    run = Run(*flags)
    loss = run.record["steps"]["loss"]
    every = len(loss) // STEPS
    return {
        "command": run.command,
        "workload_hash": run.record["workload_hash"],
        "loss": rounded(statistics.fmean(loss[i : i + every]) for i in range(0, len(loss), every)),
        "validation_loss": run.record["validation_loss"],
    }


def rules_and_twins(*more):
    """Each rule of weight versions on 4 stages, and the twins without staleness: lesson 00 with as many
    updates."""
    flags, twin = ("--steps", str(STEPS), *more), ("00_one_device", 0, *UNTIED)
    return {
        **{rule: losses_of("08_weight_versions", 0, *rule_flags(rule), *flags) for rule in RULES},
        "small_steps": losses_of(*twin, *SMALL, *more, "--set", "batch.global=1"),
        "one_device": losses_of(*twin, *flags),
    }


def losses_at(rate):
    more = ("--set", f"optim.lr={rate}")
    flush = ("07_pipeline", 4, *UNTIED, "--steps", str(STEPS), *more)
    return {**rules_and_twins(*more), "1f1b": losses_of(*flush)}


SAVED_IN = "runs/09_checkpoint_and_faults/cost"  # removed before each run
SAVING = {"off": ("--save-async", "off"), "on": ()}  # a record's key, as the command says it


def lesson_09():
    said = said_by([ROOT / "lessons/09_checkpoint_and_faults/run.sh"]).splitlines()
    runs = {key: {"rounds": []} for key in SAVING}
    saving = ("09_checkpoint_and_faults", 2, "--steps", "65", "--save-every", "10")
    for _ in range(3):
        for key, flags in SAVING.items():
            shutil.rmtree(ROOT / SAVED_IN, ignore_errors=True)
            load, run = busy_cores(), Run(*saving, *flags, "--checkpoints", SAVED_IN)
            saves, newest = run.record["saves"], max((ROOT / SAVED_IN).glob("step-*"))
            times = {
                "load_before": load,
                "blocked": [save["blocked"] for save in saves],
                "durable": [save["seconds"] for save in saves],
            }
            runs[key] = {
                **run.exact(),
                "files": {path.name: path.stat().st_size for path in sorted(newest.iterdir())},
                "rounds": [*runs[key]["rounds"], times],
            }
    return {"workload": run.record["workload"], "said": said, "runs": runs}


TIMELINE_IN = "runs/09_checkpoint_and_faults/timeline"
TIMELINE = (
    *("--steps", "8", "--save-every", "4", "--trace"),
    *sets(("model.width=512", "model.layers=4", "batch.global=2", "batch.sequence=32")),
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
        seen = [word for path in paths for one in (path, ROOT / path) for word in ("-P", one)]
        under = ["strace", "-f", "-q", "--seccomp-bpf", "-ttt", "-T", "-y", "-o", log]
        under += ["-e", "signal=none", *seen, "-e", "trace=pwrite64,fsync,rename"]
        under += ["-e", f"inject=pwrite64:delay_enter={SLOW_WRITE}"]
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
    }


READ_IN = "runs/09_checkpoint_and_faults/reads"
READ_FLAGS = (*FOUR_BLOCKS, "--set", "model.tied=off", "--steps", "1", "--save-every", "1")
READERS = (("01_data_parallel", 3), ("04_zero3", 3), ("07_pipeline", 2))


def entries_of(path):
    """[tensor, purpose, begin, end, first byte in the file, the one after the last] of all that a file
    holds."""
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
    shutil.rmtree(ROOT / READ_IN, ignore_errors=True)
    writer = Run("04_zero3", 4, *READ_FLAGS, "--checkpoints", f"{READ_IN}/written")
    checkpoint, saved_at = "build/cpu/bin/checkpoint", f"{READ_IN}/written/step-000001"
    files = {
        path.name: {"bytes": path.stat().st_size, "entries": entries_of(path)}
        for path in sorted((ROOT / saved_at).glob("rank-*"))
    }
    show = [checkpoint, "show", saved_at, "--entries"]
    shown, ends = said_by(show).splitlines()[:10], {}
    for tensor, _, _, end, *_ in (entry for file in files.values() for entry in file["entries"]):
        ends[tensor] = max(end, ends.get(tensor, 0))
    every = [[tensor, 0, end] for tensor, end in ends.items()]

    def reader(lesson, ranks):
        folder = f"{READ_IN}/{lesson}"
        run = Run(lesson, ranks, *READ_FLAGS, "--resume", saved_at, "--checkpoints", folder)
        taken_over = ROOT / folder / "step-000001"
        said_by([checkpoint, "diff", ROOT / saved_at, taken_over])  # all of it, to the bit
        paths = sorted(taken_over.glob("rank-*"))
        holds = [held_by(run, rank, entries_of(path), every) for rank, path in enumerate(paths)]
        return {"command": run.command, "lesson": lesson, "world": ranks, "holds": holds}

    return {
        "commit": writer.record["commit"],
        "command": writer.command,
        "lesson": "04_zero3",
        "world": 4,
        "files": files,
        "readers": [reader(*one) for one in READERS],
        "shown": {"command": " ".join(show), "said": shown},
    }


# By lesson: the settings of each run, of two steps on two ranks.
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
    def run_of(lesson, settings):
        run = Run(lesson, 2, *FOUR_BLOCKS, "--steps", "2", *sets(settings.split()))
        return {"lesson": lesson, "settings": settings, **run.exact()}

    rows = [run_of(lesson, one) for lesson, several in ZERO_SETTINGS.items() for one in several]
    return {"world": 2, "runs": rows}


PAPER = (
    "model.layers=36",
    "model.width=4096",
    "model.heads=32",
    "model.vocab=60800",
)  # 7.5 G parameters: section 1 of the ZeRO paper


def plan_of(lesson, world, workload, settings=()):
    """What --plan says of a run on GPUs: no rank, no GPU. Buffers of one name are one entry, in their order;
    what is not on the device is no part of the total."""
    file = f"configs/{workload}.json"
    words = [f"lessons/{lesson}/run.sh", "--plan", "--world", str(world), "--device", "cuda"]
    plan = printed(CPU_BIN, lesson, file, world, settings)
    rank = plan["ranks"][0]
    at = [
        (one["purpose"] if one["place"] == "device" else one["place"], one["bytes"])
        for one in rank["buffers"]
    ]
    return {
        "command": " ".join([*words, "--workload", file, *sets(settings)]),
        "bytes": {**summed(at), "total": rank["bytes"]["device"]},
        "buffers": listed((one["name"], one["bytes"]) for one in rank["buffers"]),
        "operations": operations_of(plan),
    }


MODELS = ("gpt2_124m", "gpt2_355m", "gpt2_774m", "gpt2_1558m")


def zero_plans():
    def one(lesson, world, model):
        plan = plan_of(lesson, world, model)
        return plan if world <= 2 else {key: plan[key] for key in ("command", "bytes")}

    def settings_of(lesson, several):
        return {
            model: {setting: plan_of(lesson, 2, model, (setting,)) for setting in several}
            for model in MODELS[1::2]
        }

    keys = ("prefetch=0", "prefetch=2", "prefetch=4", "reshard_after_forward=off", "persist_below=100000")
    return {
        "commit": sources(),
        "models": {
            model: {lesson: {2**i: one(lesson, 2**i, model) for i in range(11)} for lesson in ZERO}
            for model in MODELS
        },
        "zero2": settings_of("03_zero2", ("bucket=500000000", "bucket=50000000")),
        "zero3": settings_of("04_zero3", keys),
        "paper": {lesson: plan_of(lesson, 64, "gpt2_1558m", PAPER) for lesson in ZERO},
    }


def lesson_10():
    first = on_screen("10_tensor_parallel")
    shapes = [(n, tokens) for n in (2, 4) for tokens in ("split", "whole")]
    ranks = {
        f"{n} {tokens}": Run("10_tensor_parallel", n, "--set", f"tokens={tokens}", *STEPS_20, save=True)
        for n, tokens in shapes
    }
    device = ("00_one_device", 0)
    return {
        **first,
        "plan": {"command": ranks["2 split"].command, "said": ranks["2 split"].said},
        "ranks": {shape: run.exact() for shape, run in ranks.items()},
        "parts": {
            f"{n} {tokens}": saved(*device, "--tensor-ranks", str(n), "--tokens", tokens, *ROWS)
            for n, tokens in shapes
        },
        "one_device": saved(*device, *ROWS),
    }


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
    first = on_screen("11_combined")

    def meshed(mesh, ranks, micro):
        stages, _, tensor = map(int, mesh.split("x"))
        settings = sets((f"mesh={mesh}", f"batch.micro={micro}"))
        run = Run("11_combined", ranks, *settings, *STEPS_20, save=True)
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
        order = order_of_mesh(mesh)
        return saved("00_one_device", 0, *order, *ROWS, "--set", f"batch.micro={micro}")

    return {
        **first,
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
    return command_text(shlex.split(re.sub(r" --out \S+", "", said["command"])))


def gpu_profile(folders):
    """Where the time of a step goes on GPUs, beside what each part takes alone, from the folders that runs
    wrote with --profile."""
    runs = gpu_runs(folders)
    if unprofiled := [folder for folder, said in runs if not said.get("profile", {}).get("steps")]:
        sys.exit(f"error: {unprofiled[0]}/record.json: no step was profiled")
    return {
        "about": first_paragraph(gpu_profile.__doc__),
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
        "about": first_paragraph(gpu_trace.__doc__),
        **{key: first[key] for key in same},
        "started": first["started"],
        "step": step,
        "lessons": {
            lesson: {"command": plain_command(said), **spans(events_in(folder), step)}
            for lesson, (folder, said) in sorted(runs.items())
        },
    }


@dataclasses.dataclass(frozen=True)
class Record:
    about: str
    make: collections.abc.Callable
    timed: bool = False  # its times are shown
    runs: bool = True  # they say on what machine


WORLDS = (1, 2, 3, 4)
RECORDS = {
    "lesson_01_variants": Record(
        "Buckets and overlap: 25 timed steps of each variant in a round, in turns.",
        lambda: {
            "variants": rows_in_turns(
                ("bucket", "overlap"),
                {
                    (bucket, overlap): (
                        *("01_data_parallel", 2, *FOUR_BLOCKS, "--steps", "30", "--set", "batch.micro=6"),
                        *sets((f"bucket={bucket}", f"overlap={overlap}")),
                    )
                    for bucket in ("tensor", "unit", "model")
                    for overlap in ("on", "off")
                },
                5,
            )
        },
        timed=True,
    ),
    "lesson_01_batch": Record(
        "One global batch cut into micro-batches of several sizes.",
        lambda: {
            "global": 12,
            "runs": rows_in_turns(
                ("micro", "accumulation"),
                {
                    (micro, 6 // micro): (
                        *("01_data_parallel", 2, *FOUR_BLOCKS, "--steps", "25"),
                        *("--set", f"batch.micro={micro}"),
                    )
                    for micro in (1, 2, 3, 6)
                },
                3,
            ),
        },
        timed=True,
    ),
    "lesson_00": Record(
        "The whole run with what it prints; activations kept or computed again.",
        lambda: {
            **whole("00_one_device", 0),
            "activations": in_turns(
                {
                    mode: ("00_one_device", 0, "--steps", "25", "--set", f"activations={mode}")
                    for mode in ("keep", "recompute_gelu", "recompute")
                },
                3,
            ),
        },
        timed=True,
    ),
    "lesson_05_link": Record(
        "Copies beside the device and one after the other, over a link without a limit and over a slow one: "
        "one micro-batch a rank, 25 timed steps, in turns.",
        lambda: {
            "runs": rows_in_turns(
                ("link_mbps", "overlap"),
                {
                    (mbps, overlap): (
                        *("05_offload", 2, "--steps", "30"),
                        *sets(("batch.micro=6", f"overlap={overlap}")),
                        *(("--link-mbps", str(mbps)) if mbps else ()),
                    )
                    for mbps in (0, 50)
                    for overlap in ("on", "off")
                },
                3,
            )
        },
        timed=True,
    ),
    "lesson_06_tokens": Record(
        "Seconds per step by how many micro-batches a step has: exact and delayed updates over a disk of "
        "200 MB/s, and lesson 05, which has no disk. One rank, 15 timed\n"
        "    steps, in turns. `forward_seconds`: of the first micro-batch without the head, the median of "
        "lesson 05's traced steps.\n"
        "    ",
        lesson_06_tokens,
        timed=True,
    ),
    "lesson_06_window": Record(
        "Seconds per step by buffers of the window, over a disk of 2000 MB/s, one rank, 15 timed steps, in "
        "turns; and what happens in one and in three buffers in a step of\n"
        "    usual length: [buffer, what, piece, begin, end].",
        lesson_06_window,
        timed=True,
    ),
    "pipeline_pace": Record(
        "Lesson 07 on 4 stages, paced by lessons/07_pipeline/pace.json: makespan and idle share of the "
        "median of 7 steps, beside what the simulator makes of\n"
        "    the same costs; on a slow link too, whose messages take as long as a forward.",
        pipeline_pace,
        timed=True,
    ),
    "lesson_08": Record(
        "The whole run with what it prints. Each rule of weight versions on 4 stages, and lesson 07's 1F1B, "
        "paced by lessons/07_pipeline/pace.json: a step's time,\n"
        "    bytes of all ranks, how many updates behind the weights were. Two steps of 4 micro-batches, "
        "drawn: [action, begin, end, expected begin, expected end].\n"
        "    ",
        lesson_08,
        timed=True,
    ),
    "lesson_09": Record(
        "Its story as run.sh prints it. 65 steps on two ranks that save every 10 steps, and wait for the "
        "disk or write from a copy: seconds that a save blocks the\n"
        "    run, and until it is durable; bytes of a checkpoint.",
        lesson_09,
        timed=True,
    ),
    "lesson_09_timeline": Record(
        "The first checkpoint of a run on two ranks, with and without --save-async: rank 0's steps, and its\n"
        "    file's writes, flush and name, in ms from the step before. strace delays each write, as a "
        "slower disk\n"
        "    would.",
        lambda: {
            "write_delay_microseconds": SLOW_WRITE,
            "drawn": {mode: timeline_of(mode) for mode in SAVING},
        },
        timed=True,
    ),
    "lesson_10_turns": Record(
        "25 timed steps of lesson 10 on two ranks next to lesson 00 and lesson 01, in turns: in each of "
        "them the ranks share micro-batches of 4 rows.",
        lambda: {
            "runs": in_turns(
                {
                    "one_device": ("00_one_device", 0, *ROWS, "--steps", "30"),
                    "data_parallel": (
                        *("01_data_parallel", 2, *ROWS, "--set", "batch.micro=2", "--steps", "30"),
                    ),
                    "split": ("10_tensor_parallel", 2, "--steps", "30"),
                    "whole": ("10_tensor_parallel", 2, "--set", "tokens=whole", "--steps", "30"),
                    "lanes": ("10_tensor_parallel", 2, *sets(("lanes=2", "batch.micro=2")), "--steps", "30"),
                },
                5,
            )
        },
        timed=True,
    ),
    "screens": Record("What runs show where nothing else is asked of them, and with --brief.", screens),
    "lesson_01": Record("The whole run with what it prints.", lambda: whole("01_data_parallel", 2)),
    "lesson_01_order": Record(
        "20 steps of lesson 01 on 1, 2, 3, 4 ranks and of lesson 00 with as many virtual ranks: losses and "
        "hashes of the weights.",
        lambda: {
            "ranks": {n: saved("01_data_parallel", n) for n in WORLDS},
            "virtual": {n: saved("00_one_device", 0, "--virtual-ranks", str(n)) for n in WORLDS},
            "virtual_4_every_micro_batch": saved(
                *("00_one_device", 0, "--virtual-ranks", "4", "--reduce-every", "micro_batch")
            ),
        },
    ),
    "lesson_01_lr": Record(
        "The same tokens in steps of 12 rows and of 48, with the learning rate scaled and with and without "
        "warm-up.",
        lesson_01_lr,
    ),
    "lesson_02": Record("The whole run with what it prints.", lambda: whole("02_zero1", 2)),
    "lesson_03": Record("The whole run with what it prints.", lambda: whole("03_zero2", 2)),
    "lesson_04": Record("The whole run with what it prints.", lambda: whole("04_zero3", 2)),
    "lesson_05": Record(
        "The whole run with what it prints; bytes of its other settings.",
        lambda: {
            **whole("05_offload", 2),
            **{
                name: Run("05_offload", 2, "--set", setting, "--steps", "4").exact()
                for name, setting in (("sharded", "parameters=sharded"), ("delayed", "update=delayed"))
            },
        },
    ),
    "lesson_05_delayed": Record(
        "Whole runs, exact and one update behind: by learning rate, and by how many steps are exact first.",
        lesson_05_delayed,
    ),
    "lesson_06": Record("The whole run with what it prints.", lambda: whole("06_infinity", 2)),
    "lesson_07": Record("The whole run with what it prints.", lambda: whole("07_pipeline", 4)),
    "pipeline_order": Record(
        "20 steps of lesson 07 by every schedule on 1 to 4 stages, and on 2 stages of 2 replicas; lesson 00 "
        "in the same order of sums. Bytes of all ranks.",
        pipeline_order,
    ),
    "lesson_08_losses": Record(
        "200 steps of 12 micro-batches by each rule of weight versions on 4 stages, by 1F1B, and by the "
        "twins without staleness, which are lesson 00 with as many\n"
        "    updates: of one micro-batch each (losses: means over 12 steps), and of 12. By learning rate.",
        lambda: {
            "steps": STEPS,
            "micro_batches": MICRO_BATCHES,
            "rates": {key: losses_at(rate) for key, rate in RATES.items()},
        },
    ),
    "lesson_08_seeds": Record(
        "The runs of lesson_08_losses at learning rate 0.001 with other first weights and another order of "
        "the data.",
        lambda: {
            "steps": STEPS,
            "micro_batches": MICRO_BATCHES,
            "seeds": {
                seed: rules_and_twins("--set", "optim.lr=0.001", "--seed", seed) for seed in ("2", "3")
            },
        },
    ),
    "lesson_09_reads": Record(
        "A checkpoint by lesson 04 on four ranks: which elements lie where in its files; and the elements "
        "that\n"
        "    each rank of other runs holds, and so reads, that go on from it; the first lines of checkpoint "
        "show --entries.\n"
        "    ",
        lesson_09_reads,
        runs=False,
    ),
    "lesson_10": Record(
        "The whole run with what it prints. 20 steps on 2 and 4 ranks, tokens split and whole, and of "
        "lesson 00 that computes in as many parts: losses, bytes,\n"
        "    operations, hashes of the weights; lesson 00 as one device.",
        lesson_10,
    ),
    "lesson_11": Record(
        "The whole run with what it prints. 20 steps of four meshes, and of lesson 00 that sums in the same "
        "order: losses, hashes of the weights, bytes of all ranks, and messages along each\n"
        "    axis.",
        lesson_11,
    ),
    "side_by_side": Record(
        "20 steps of each lesson as lessons/all.sh runs them, and of lesson 00 in each one's order of sums: "
        "bytes by place, bytes moved in a step, hashes of the weights.",
        side_by_side,
    ),
    "zero_order": Record(
        "20 steps of lessons 01 to 04 on 1, 2, 3, 4 ranks, and of lesson 00 with as many virtual ranks in "
        "both orders of sums.",
        lambda: {
            "order_of": ZERO,
            "orders": {
                order: {
                    n: saved("00_one_device", 0, "--virtual-ranks", str(n), "--reduce-every", order)
                    for n in WORLDS
                }
                for order in ("step", "micro_batch")
            },
            "lessons": {lesson: {n: saved(lesson, n) for n in WORLDS} for lesson in ZERO},
        },
    ),
    "zero_settings": Record(
        "Bytes, operations and losses of lessons 01 to 04 in several settings, two steps on two ranks.",
        zero_settings,
    ),
    "zero_plans": Record(
        "What --plan says of lessons 01 to 04: GPT-2 on 1 to 1024 GPUs, the ZeRO paper's example, and "
        "settings of ZeRO-2 and ZeRO-3.",
        zero_plans,
        runs=False,
    ),
    "zero_trace": Record(
        "A step of lessons 02 to 04 on two ranks, one micro-batch each, drawn from trace.json: what travels "
        "under forward and behind backward.",
        lambda: {"lessons": {lesson: typical_spans(lesson) for lesson in list(ZERO)[1:]}},
    ),
}


def keep(name, value):
    """JSON whose innermost lists stand on one line."""
    scalar = r'(?:"[^"\\]*"|[-+.\deE]+|null|true|false)'
    text = json.dumps(value, indent=1)
    text = re.sub(
        rf"\[\s+({scalar}(?:,\n\s+{scalar})*)\s+\]", lambda m: "[" + re.sub(r",\n\s*", ",", m[1]) + "]", text
    )
    (RESULTS / f"{name}.json").write_text(text + "\n")


ASKED = {
    "names": {"nargs": "*", "metavar": "RECORD", "help": "default: all of them"},
    "--timed": {"action": "store_true", "help": "those with times"},
    "--gpu-trace": {
        "type": pathlib.Path,
        "nargs": "+",
        "metavar": "FOLDER",
        "help": "only gpu_trace.json, from runs' folders (--trace --out FOLDER)",
    },
    "--gpu-profile": {
        "type": pathlib.Path,
        "nargs": "+",
        "metavar": "FOLDER",
        "help": "only gpu_profile.json, from runs' folders (--profile --out FOLDER)",
    },
    "--as": {
        "dest": "name",
        "choices": ("gpu_profile", "gpu_profile_one"),
        "default": "gpu_profile",
        "help": "which record --gpu-profile writes",
    },
}


def main():
    parser = parser_of(__doc__, ASKED)
    args = parser.parse_args()
    if args.name != "gpu_profile" and not args.gpu_profile:
        parser.error("--as names what --gpu-profile writes")
    if args.gpu_profile:
        found = gpu_profile(args.gpu_profile)
        if args.name == "gpu_profile_one" and (
            wide := [folder for folder, run in zip(args.gpu_profile, found["runs"]) if run["world"] != 1]
        ):
            sys.exit(f"error: {wide[0]}/record.json: --as gpu_profile_one is of runs on one GPU")
        return keep(args.name, found)
    if args.gpu_trace:
        return keep("gpu_trace", gpu_trace(args.gpu_trace))
    os.environ.setdefault("STAGECRAFT_COMMIT", sources())
    if unknown := set(args.names) - set(RECORDS):
        parser.error(f"{unknown.pop()} is none of {', '.join(RECORDS)}")
    for name, record in RECORDS.items():
        if name not in (args.names or RECORDS) or args.timed > record.timed:
            continue
        load, Run.first = busy_cores(), None
        if record.timed and load > IDLE:
            print(
                f"note: {load} cores are busy: times of {name} are those of a busy machine", file=sys.stderr
            )
        found = record.make()
        where = Run.first.machine() if record.runs else {}
        keep(name, {"about": record.about, "load_before": load, **where, **found})
    return None


if __name__ == "__main__":
    main()
