"""Event files for TensorBoard, and an offline Weights & Biases run, from what a run writes.
Called by lessons/curves.sh."""

import argparse
import contextlib
import datetime
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time

from run_files import (
    CANNOT_WRITE,
    DATA,
    MISSING,
    USAGE,
    WHOLE,
    Refused,
    StepFile,
    find_run,
    load_record,
    read_run,
    run_program,
    say,
)

POLL_SECONDS = 0.25
# Seconds between two searches for the process that writes the run.
SEARCH_SECONDS = 5
# The suffix of event files that this program wrote, and may therefore replace.
SUFFIX = ".stagecraft"
# Scalars drawn for a step, by name. Only steps after which a run evaluated have a validation loss.
SCALARS = {
    "loss": lambda step: step["loss"],
    "validation_loss": lambda step: step.get("validation_loss"),
    "lr": lambda step: step["lr"],
    "grad_norm": lambda step: step["grad_norm"],
    "tokens_per_second": lambda step: step["tokens"] / step["seconds"] if step["seconds"] > 0 else None,
    "step_seconds": lambda step: step["seconds"],
}


class TensorBoard:
    """One event file, by the tensorboard package's own writer."""

    def __init__(self, folder, shown):
        # Imported only here, since an offline Weights & Biases run needs no tensorboard.
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self.folder, self._shown, self._event, self._summary = folder, shown, Event, Summary
        # An older event file of the same run would draw every point twice.
        for old in glob.glob(os.path.join(glob.escape(folder), "events.out.tfevents.*" + SUFFIX)):
            os.remove(old)
        # The writer's thread keeps its error for the next flush(), which raises it, so the thread need not
        # print it.
        threading.excepthook = lambda _: None
        self._writer = EventFileWriter(folder, filename_suffix=SUFFIX)

    def add(self, values, step, wall):
        scalars = [self._summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
        self._writer.add_event(self._event(step=step, wall_time=wall, summary=self._summary(value=scalars)))

    def flush(self):
        self._writer.flush()

    def close(self):
        self._writer.flush()
        self._writer.close()
        python = os.path.relpath(sys.executable)
        python = sys.executable if python.startswith("..") else python
        return f"event file in {self.folder}; to see it: {python} -m tensorboard.main --logdir {self._shown}"


class WeightsAndBiases:
    """A process of the Python that has wandb, which need not be this one."""

    def __init__(self, folder, run):
        program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "wandb_offline.py")
        python = next(
            (p for p in (shutil.which("python3"), sys.executable) if p and self._has_wandb(p, program)), None
        )
        if python is None:
            raise Refused(MISSING, "--wandb", "python3 has no package wandb", "python3 -m pip install wandb")
        os.makedirs(folder, exist_ok=True)
        config = {
            key: run.record.get(key)
            for key in ("lesson", "world", "device", "commit", "command", "workload", "strategy")
        }
        self.folder = folder
        self._process = subprocess.Popen(
            [python, program, folder],
            stdin=subprocess.PIPE,
            text=True,
            env={**os.environ, "WANDB_MODE": "offline", "WANDB_SILENT": "true"},
        )
        self._send({"name": run.name, "config": config})

    @staticmethod
    def _has_wandb(python, program):
        return subprocess.run([python, program, "--probe"], check=False).returncode == 0

    def _send(self, value):
        with contextlib.suppress(BrokenPipeError):  # it has ended: flush() or close() says so
            self._process.stdin.write(json.dumps(value) + "\n")

    def _refuse_its_end(self):
        where, what = f"--wandb {self.folder}", "wandb ended, its message is above"
        raise Refused(CANNOT_WRITE, where, what, "mend what it says")

    def add(self, values, step, _wall):
        self._send({"step": step, "values": values})

    def flush(self):
        try:
            self._process.stdin.flush()
        except BrokenPipeError:
            self._process.wait()
            self._refuse_its_end()

    def close(self):
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        if self._process.wait() != 0:
            self._refuse_its_end()
        folder = os.path.join(self.folder, "wandb")
        return f"offline run in {folder}; to upload it: wandb sync {folder}/offline-run-*"


class Curves:
    """Puts steps into all sinks, each at its number and at the time at which the run had done it."""

    def __init__(self, run, sinks):
        self.sinks, self.written, self.last = sinks, 0, 0
        try:
            started = datetime.datetime.strptime(run.record["started"], "%Y-%m-%dT%H:%M:%SZ")
        except ValueError:
            raise Refused(DATA, run.file, '"started" is no time', WHOLE) from None
        self.wall = started.replace(tzinfo=datetime.timezone.utc).timestamp()

    def add(self, steps):
        for step in steps:
            self.last, self.written = step["step"], self.written + 1
            self.wall += step["seconds"]
            values = {tag: value for tag, of in SCALARS.items() if (value := of(step)) is not None}
            self._put(values)
        if steps:
            self.flush()

    def _put(self, values):
        for sink in self.sinks:
            sink.add(values, self.last, self.wall)

    def flush(self):
        for sink in self.sinks:
            sink.flush()

    def end(self, record):
        """The validation loss is known after the last step. Returns what to say."""
        if record["validation_loss"] is not None:
            self._put({"validation_loss": record["validation_loss"]})
        return [sink.close() for sink in self.sinks]


def writer_of(path):
    """The open file, in /proc, of the process of this machine that writes `path`; None if none is seen."""
    target = os.path.realpath(path)
    for link in glob.glob("/proc/[0-9]*/fd/*"):
        try:
            if os.readlink(link) != target:
                continue
            with open(link.replace("/fd/", "/fdinfo/"), encoding="ascii") as info:
                flags = next(int(line.split()[1], 8) for line in info if line.startswith("flags:"))
        except (OSError, StopIteration):
            continue
        if flags & os.O_ACCMODE != os.O_RDONLY:
            return link
    return None


def still_open(link, path):
    try:
        return os.readlink(link) == os.path.realpath(path)
    except OSError:
        return False


def follow(run, curves, patience):
    """Writes steps as they come, until the run ends. Returns the last record and how it ended."""
    steps, writer, news, search = StepFile(run.steps_file), None, time.monotonic(), 0
    while True:
        # The record is read before the steps, so that no step of a run that ends meanwhile is missed.
        record = load_record(run.file)
        if writer is None and time.monotonic() >= search:
            writer, search = writer_of(run.steps_file), time.monotonic() + SEARCH_SECONDS
        gone = writer is not None and not still_open(writer, run.steps_file)
        new = steps.read()
        curves.add(new)
        if record["exit_code"] is not None:
            return record, f"the run ended with exit code {record['exit_code']}"
        if gone:
            record = load_record(run.file)
            curves.add(steps.read())
            killed = "the run was killed" + (f"; {steps.torn}" if steps.torn else "")
            code = record["exit_code"]
            return record, killed if code is None else f"the run ended with exit code {code}"
        news = time.monotonic() if new or writer else news
        if time.monotonic() - news > patience:
            return (
                record,
                f"no step came for {patience:g} s and no process of this machine writes them: "
                "the run was killed, or runs elsewhere",
            )
        time.sleep(POLL_SECONDS)


class Arguments(argparse.ArgumentParser):
    def error(self, message):
        raise Refused(USAGE, "lessons/curves.sh", message, "lessons/curves.sh --help")


def seconds(text):
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text):  # nan is never over
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return float(text)


def parse(arguments):
    parser = Arguments(add_help=False, allow_abbrev=False)
    parser.add_argument("run")
    parser.add_argument("--tensorboard")
    parser.add_argument("--wandb")
    parser.add_argument("--follow", action="store_true")
    parser.add_argument("--patience", type=seconds, default=600)
    return parser.parse_args(arguments)


def make_sinks(asked, run):
    sinks = []
    try:
        if asked.wandb:  # first: where the package is missing nothing has been written
            sinks.append(WeightsAndBiases(asked.wandb, run))
        if asked.tensorboard or not asked.wandb:
            folder = os.path.join(asked.tensorboard, run.name) if asked.tensorboard else run.folder
            sinks.append(TensorBoard(folder, asked.tensorboard or run.folder))
    except OSError as error:
        raise Refused(
            CANNOT_WRITE,
            error.filename or asked.tensorboard or asked.wandb or run.folder,
            error.strerror or str(error),
            "name another folder: --tensorboard DIR or --wandb DIR",
        ) from None
    except UnicodeEncodeError:
        raise Refused(
            CANNOT_WRITE, folder, "its name is no UTF-8, and tensorboard writes no other", "rename it"
        ) from None
    return sinks


def main(arguments):
    asked = parse(arguments)
    run = find_run(asked.run) if asked.follow else read_run(asked.run)
    if asked.follow and os.path.basename(run.file) != "record.json":
        raise Refused(
            USAGE,
            "--follow " + asked.run,
            "is the copy of a record, which does not grow",
            "name the folder of the run",
        )
    if not asked.follow and not run.steps and run.record["validation_loss"] is None:
        hint = "take a run that trained" if run.ended else "--follow waits for its steps"
        raise Refused(DATA, asked.run, "has no finished step" + (f" ({run.note})" if run.note else ""), hint)
    curves = Curves(run, make_sinks(asked, run))
    try:
        if asked.follow:
            say(f"following {run.name} until it ends; Ctrl-C ends this alone")
            record, how = follow(run, curves, asked.patience)
        else:
            curves.add(run.steps)
            record, how = run.record, run.note
            if not run.ended:
                how = "the run has not ended, or was killed: --follow waits for more" + (
                    f"; {how}" if how else ""
                )
        said = curves.end(record)
    except OSError as error:
        raise Refused(
            CANNOT_WRITE,
            error.filename or asked.tensorboard or run.folder,
            error.strerror or str(error),
            "free some space, or name another folder: --tensorboard DIR",
        ) from None
    say(f"{curves.written} steps of {run.name}" + (f"; {how}" if how else ""))
    say("\n".join(said))
    return 0


if __name__ == "__main__":
    run_program(main)
