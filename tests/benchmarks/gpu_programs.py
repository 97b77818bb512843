"""The programs that gpu.py lets take turns: a lesson, PyTorch as a server, llm.c. Each has

  measure(warm_up, steps, deadline)  {"seconds": [of each timed step], "tokens": of a step, "began", "ended",
                                     ...}; then it computes no more. "gpus": which of them the timed steps ran
                                     on, where these are not all
  close(deadline)                    ends it; returns what only its end tells

A Peer, which takes a minute to compile, also has start(), and poll(), which is True once it can be measured.
Each has `process` and `command`, and raises Failed with what it printed last. Deadlines and limits are
time.monotonic()'s.
"""
import array
import contextlib
import json
import math
import os
import pathlib
import queue
import random
import re
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

from gpu_watch import ASKED
from harness import ENVIRONMENT, MPIRUN, ROOT, name_of, record_in

TOKENS = 2**22  # of a file of random ones
TAIL = 2000  # characters of a failed program's output that are kept
SLACK = 8  # steps a turn that may pass before a program is paused
FACTS = ("strategy", "workload_hash", "device", "world", "as_predicted")  # of a record, as they are
WARM = 4.0  # seconds that a process a turn computes before it is timed


class Failed(Exception):
    """One program failed; the others go on."""


class OutOfTime(Exception):
    """The runner's own limit: nothing failed."""


class Process:
    """A child in a session of its own, its stderr in a file; it ends when this process does."""

    def __init__(self, command, environment=None, pipes=False, ends_by="KILL"):
        self.log = tempfile.TemporaryFile(mode="w+b")
        guard = ["setpriv", "--pdeathsig", ends_by, "--"] if shutil.which("setpriv") else []
        streams = (
            {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            if pipes
            else {"stdin": subprocess.DEVNULL, "stdout": self.log}
        )
        try:
            self.child = subprocess.Popen(
                [*guard, *map(str, command)],
                env={**os.environ, **ENVIRONMENT, **(environment or {})},
                stderr=self.log,
                cwd=ROOT,
                start_new_session=True,
                text=pipes or None,
                **streams,
            )
        except OSError as error:
            raise Failed(str(error)) from error

    def output(self):
        self.log.flush()
        size = os.fstat(self.log.fileno()).st_size
        return os.pread(self.log.fileno(), size, 0).decode(errors="replace")

    def tail(self):
        return self.output()[-TAIL:]

    def signal(self, number):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.child.pid, number)

    def wait(self, deadline):
        try:
            return self.child.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return None

    def end(self):
        """Asks first: mpirun then ends its ranks, which are in groups of their own."""
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)
        if self.wait(time.monotonic() + 5.0) is None:
            self.signal(signal.SIGKILL)
            self.child.wait()
        for stream in (self.child.stdin, self.child.stdout):
            if stream:
                with contextlib.suppress(OSError):
                    stream.close()


def stopped(deadline, limit, process, what):
    """What to raise when a wait for `process` took too long."""
    if deadline <= limit:
        return OutOfTime()
    return Failed(f"{what}: no answer in time\n{process.tail()}")


def turn_of(seconds, tokens, ended, began=None):
    """What measure() returns. `began`: where steps were seen to begin and end; else they are counted back
    from the last one's end."""
    return {
        "seconds": seconds,
        "tokens": tokens,
        "began": ended - sum(seconds) if began is None else began,
        "ended": ended,
        "wall_seconds": None if began is None else ended - began,
    }


def warm(steps, median):
    """Steps before the timed ones of a process a turn: a chip rests while it starts, and is faster for some
    seconds. `median`: of its last turn's steps, or what is expected, or None."""
    return max(steps, math.ceil(WARM / median)) if median else steps


class Program:
    """A turn has a limit of its own, in seconds; the deadline is everybody's."""

    limit = 600.0
    process, command, about = None, (), None

    def measure(self, warm_up, steps, deadline):
        return self.turn(warm_up, steps, deadline, time.monotonic() + self.limit)

    def close(self, deadline):
        """Ends the program. Its exit code tells nothing, so nobody waits longer for it than it takes."""
        del deadline
        if self.process is not None:
            self.process.end()
            self.process = None
        return self.about or {}


class Lesson(Program):
    """A lesson's program. One rank: one process, which is stopped (SIGSTOP) between its turns, as starting
    the largest model takes half a minute. Several ranks: a process a turn, as ranks that stop between two
    steps would leave kernels waiting.
    """

    def __init__(self, program, settings, ranks, folder, paused, turns, environment=None, expected=None):
        """`expected`: about how many seconds a step takes, for the warm-up of a first turn."""
        self.program, self.settings, self.ranks, self.environment = program, settings, ranks, environment
        self.paused, self.turns = paused and ranks == 1, turns
        self.folder, self.seen, self.lines = pathlib.Path(folder), 0, []
        self.about, self.asked, self.median = {}, 0, expected

    def launch(self, steps):
        shutil.rmtree(self.folder, ignore_errors=True)
        command = [self.program, *self.settings, "--steps", str(steps), "--out", self.folder]
        if self.paused:
            command += ["--watchdog", "86400"]  # a pause is no hang
        self.command = [
            str(x) for x in ([*MPIRUN, "-n", str(self.ranks)] if self.ranks > 1 else []) + command
        ]
        self.process = Process(self.command, self.environment, ends_by="TERM" if self.ranks > 1 else "KILL")
        self.seen, self.lines = 0, []

    def read_steps(self):
        """Complete lines of steps.jsonl so far."""
        with contextlib.suppress(FileNotFoundError):
            with (self.folder / "steps.jsonl").open() as file:
                file.seek(self.seen)
                text = file.read()
            whole = text[: text.rfind("\n") + 1]
            self.seen += len(whole.encode())
            self.lines += [json.loads(line) for line in whole.splitlines()]
        return len(self.lines)

    def wait_for(self, count, deadline, limit):
        """Returns when the count-th step was seen to end."""
        while self.read_steps() < count:
            if self.process.child.poll() is not None and self.read_steps() < count:
                raise Failed(
                    f"exit {self.process.child.returncode} after {len(self.lines)} steps, {count} were "
                    "asked for\n"
                    f"{self.process.tail()}"
                )
            if time.monotonic() > min(deadline, limit):
                raise stopped(deadline, limit, self.process, f"step {len(self.lines)}")
            time.sleep(0.001)
        return time.time()

    def turn(self, warm_up, steps, deadline, limit):
        if self.paused:
            return self.measure_paused(warm_up, steps, deadline, limit)
        warm_up = warm(warm_up, self.median)
        self.launch(warm_up + steps)
        return self.collect(warm_up, steps, deadline, limit)

    def collect(self, warm_up, steps, deadline, limit):
        """What the launched process did."""
        status = self.process.wait(min(deadline, limit))
        if status is None:
            error = stopped(deadline, limit, self.process, "the run")
            self.process.end()
            raise error
        record = self.read_record(status)
        self.read_steps()
        if len(self.lines) != warm_up + steps:
            raise Failed(f"the record has {len(self.lines)} steps, {warm_up + steps} were asked for")
        seconds = [line["seconds"] for line in self.lines[warm_up:]]
        self.median = statistics.median(seconds)
        ended = (self.folder / "steps.jsonl").stat().st_mtime  # a line is written as its step ends
        self.about = self.facts(record)
        return turn_of(seconds, self.lines[-1]["tokens"], ended)

    def measure_paused(self, warm_up, steps, deadline, limit):
        first = warm_up
        if self.process is None:
            self.asked = self.turns * (warm_up + steps + SLACK)
            self.launch(self.asked)
        else:
            first += (
                self.read_steps()
            )  # the step that was under way while it stood still is the first of the warm-up
            self.process.signal(signal.SIGCONT)
        began = self.wait_for(first, deadline, limit)
        ended = self.wait_for(first + steps, deadline, limit)
        self.process.signal(signal.SIGSTOP)
        seconds = [line["seconds"] for line in self.lines[first : first + steps]]
        if len(seconds) != steps:
            raise Failed(f"the record has {len(seconds)} timed steps, {steps} were asked for")
        return turn_of(seconds, self.lines[first]["tokens"], ended, began)

    def read_record(self, status):
        path = self.folder / "record.json"
        record = record_in(self.folder) if path.exists() else {}
        if status != 0 or record.get("exit_code") != 0 or not record.get("as_predicted"):
            why = record.get("message") or f"as predicted: {record.get('as_predicted')}"
            raise Failed(f"exit {status}; {why}\n{self.process.tail()}")
        return record

    def facts(self, record):
        """What a record says beside its steps."""
        rank, of_ranks = record["ranks"][0], [one["measured_bytes"]["total"] for one in record["ranks"]]
        allocator = record.get("allocator")  # rank 0's; CPU ranks have none
        waited = (record.get("timing") or {}).get("wait_share")
        return {
            "versions": record["versions"],
            "commit": record["commit"],
            "workload": {key: name_of(value) for key, value in record["workload"].items()},
            **{key: record[key] for key in FACTS},
            "wait_share": None if self.paused else waited,  # it may have stood still within a wait
            "bytes_planned": rank["predicted_bytes"]["total"],
            "bytes_measured": rank["measured_bytes"]["total"],
            **({"bytes_of_ranks": of_ranks} if len(set(of_ranks)) > 1 else {}),
            "peak_planned": allocator and sum(allocator["predicted"].values()),
            "peak_allocated": allocator and allocator["peak"],
        }

    def close(self, deadline):
        """A paused run goes to its end, if it comes to it in time: its record then says whether what was
        planned was measured."""
        if self.process is None:
            return self.about
        try:
            if self.paused:
                self.about = {"record": "none: the run was ended before its last step"}
                self.process.signal(signal.SIGCONT)
                limit = min(deadline, time.monotonic() + 120.0)
                left = (
                    (self.asked - self.read_steps())
                    * statistics.median(line["seconds"] for line in self.lines)
                    if self.lines
                    else math.inf
                )
                status = self.process.wait(limit) if time.monotonic() + left < limit else None
                if status is not None:
                    self.about = self.facts(self.read_record(status))
        finally:
            super().close(deadline)
            shutil.rmtree(self.folder, ignore_errors=True)
        return self.about


class Apart(Program):
    """A one-rank run on every GPU at once: what each does alone while the others are as busy. The slowest
    counts: ranks of one run would wait for it."""

    def __init__(self, make, gpus):
        """make(index, environment) -> Lesson, of one process a turn."""
        seen = range(gpus) if ASKED is None else ASKED
        self.lessons = [
            make(gpu, {"CUDA_VISIBLE_DEVICES": str(name)}) for gpu, name in enumerate(seen[:gpus])
        ]

    def turn(self, warm_up, steps, deadline, limit):
        turns = []
        try:
            warm_up = max(warm(warm_up, lesson.median) for lesson in self.lessons)
            for lesson in self.lessons:
                lesson.launch(warm_up + steps)
            for lesson in self.lessons:
                turns.append(lesson.collect(warm_up, steps, deadline, limit))
        finally:
            for lesson in self.lessons[len(turns) :]:
                if lesson.process is not None:
                    lesson.process.end()
        medians = [statistics.median(turn["seconds"]) for turn in turns]
        slowest = medians.index(max(medians))
        counts = self.lessons[slowest]
        self.process, self.command, self.about = counts.process, counts.command, counts.about
        return {**turns[slowest], "medians": medians, "gpus": [slowest]}

    def close(self, deadline):
        for lesson in self.lessons:
            lesson.close(deadline)
        return self.about or {}


class BesideCopies(Program):
    """A program while small copies keep the links of its GPUs awake, or, to compare, as many copies use no
    link."""

    def __init__(self, program, copies, gpus, within):
        self.program = program
        self.copies = [sys.executable, str(copies), "--gpus", str(gpus), *(["--within"] if within else [])]

    def measure(self, warm_up, steps, deadline):
        copies = Process(self.copies)
        try:
            self.wait_for_copies(copies, deadline)
            turn = self.program.measure(warm_up, steps, deadline)
            self.check(copies)
        finally:
            copies.end()
        self.process, self.command = self.program.process, self.program.command
        return turn

    def wait_for_copies(self, copies, deadline):
        limit = time.monotonic() + 60.0
        while "copying" not in copies.output():
            self.check(copies)
            if time.monotonic() > min(deadline, limit):
                raise stopped(deadline, limit, copies, "copies")
            time.sleep(0.01)

    def check(self, copies):
        if copies.child.poll() is not None:
            raise Failed(f"{name_of(self.copies[1])}: exit {copies.child.returncode}\n{copies.tail()}")

    def close(self, deadline):
        return self.program.close(deadline)


class Peer(Program):
    """PyTorch: started once, since compiling takes a minute; idle between its turns."""

    limit = 300.0

    def __init__(self, program, arguments, start_limit=400.0, environment=None):
        self.command = [sys.executable, str(program), *map(str, arguments)]
        self.start_limit, self.environment = start_limit, environment
        self.answers, self.began = queue.Queue(), None

    def start(self):
        self.process = Process(self.command, self.environment, pipes=True)
        self.began = time.monotonic()
        threading.Thread(
            target=self.read, args=(self.process.child.stdout, self.answers), daemon=True
        ).start()

    @staticmethod
    def read(stream, answers):
        with contextlib.suppress(ValueError, OSError):
            for line in stream:
                answers.put(line)
        answers.put(None)

    def answer(self, deadline):
        """The next line; None where there is none yet."""
        try:
            line = self.answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            return None
        if line is None:
            status = self.process.wait(time.monotonic() + 5)
            raise Failed(f"exit {status}\n{self.process.tail()}")
        try:
            return json.loads(line)
        except json.JSONDecodeError as error:
            raise Failed(f"answered {line[:200]!r}\n{self.process.tail()}") from error

    def poll(self):
        if self.about is not None:
            return True
        answer = self.answer(time.monotonic())
        if answer is None:
            if time.monotonic() > self.began + self.start_limit:
                raise Failed(f"not ready after {self.start_limit:.0f} s\n{self.process.tail()}")
            return False
        self.about = answer
        return True

    def turn(self, warm_up, steps, deadline, limit):
        try:
            self.process.child.stdin.write(json.dumps({"warm_up": warm_up, "steps": steps}) + "\n")
            self.process.child.stdin.flush()
        except OSError as error:
            raise Failed(f"exit {self.process.wait(time.monotonic() + 5)}\n{self.process.tail()}") from error
        answer = self.answer(min(deadline, limit))
        if answer is None:
            raise stopped(deadline, limit, self.process, "a turn")
        if len(answer.get("seconds", [])) != steps:
            raise Failed(f"answered {len(answer.get('seconds', []))} steps, {steps} were asked for")
        if not all(map(math.isfinite, answer["losses"])):
            raise Failed(f"a loss is not finite: {answer['losses']}")
        self.about.update(
            {
                "last_loss": answer["losses"][-1],
                **{key: value for key, value in answer.items() if key.startswith("peak_")},
            }
        )
        return turn_of(*(answer[key] for key in ("seconds", "tokens", "ended", "began")))


class LlmC(Program):
    """karpathy/llm.c's train_gpt2cu, a process a turn, nothing computed twice (-r 0). `binary`: FILE, or
    FILE@COMMIT of its sources."""

    limit = 300.0

    def __init__(self, binary, layers, rows, sequence, tokens):
        self.step_tokens = rows * sequence
        binary, _, commit = str(binary).partition("@")
        settings = {"-i": tokens, "-j": tokens, "-e": f"d{layers}", "-b": rows, "-t": sequence}
        settings |= {"-d": rows * sequence, "-v": 1 << 30, "-m": 1, "-s": 0, "-h": 0, "-r": 0}
        self.command = [binary, *(word for setting in settings.items() for word in setting)]
        self.about, self.median = {"commit": commit} if commit else {}, None

    def turn(self, warm_up, steps, deadline, limit):
        if self.median is None:  # how long its steps are, for as long a warm-up as later turns have
            self.run(0, warm_up, deadline, limit)
        return self.run(warm(warm_up, self.median), steps, deadline, limit)

    def run(self, warm_up, steps, deadline, limit):
        self.process = Process([*self.command, "-x", warm_up + steps])
        status = self.process.wait(min(deadline, limit))
        if status is None:
            raise stopped(deadline, limit, self.process, "the run")
        # llm.c prints "step 3/35 | ... | 80.12 ms | ... | 204000 tok/s" for each step.
        seconds = [float(ms) / 1e3 for ms in re.findall(r"\| +([\d.]+) ms \|.*tok/s", self.process.output())]
        if status != 0 or len(seconds) != warm_up + steps:
            raise Failed(f"exit {status}, {len(seconds)} steps of {warm_up + steps}\n{self.process.tail()}")
        ended, self.median = time.time(), statistics.median(seconds[warm_up:])
        return turn_of(seconds[warm_up:], self.step_tokens, ended)


def random_tokens(vocab):
    """A token file (common/data/token_file.h) of random tokens, made when it is first asked for. Relative to
    the repository."""
    path = pathlib.Path(f"build/random_tokens_{vocab}.bin")
    if not (ROOT / path).exists():
        words = array.array("H", random.Random(1).randbytes(2 * TOKENS * 2**16 // vocab))
        tokens = array.array("H", [word for word in words if word < vocab])
        partial = ROOT / f"{path}.partial"
        partial.parent.mkdir(exist_ok=True)
        partial.write_bytes(struct.pack("<256i", 20240520, 1, len(tokens), *[0] * 253) + tokens.tobytes())
        partial.replace(ROOT / path)
    return path
