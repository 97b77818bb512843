"""Programs that only pretend, for gpu_test.py: lessons, a peer, llm.c, copies beside a program, nvidia-smi.
Each is a generator that yields the seconds it sleeps, or READ for a line of its stdin. They run as processes
(main), or in one process with a clock of their own (Clock), where waiting costs nothing."""
import contextlib
import json
import math
import os
import pathlib
import queue
import signal
import struct
import subprocess
import sys
import time
import types

ROOT = pathlib.Path(__file__).resolve().parents[2]
READ = "a line of stdin"
GPU = {
    "name": "Pretended GPU",
    "driver_version": "1.2",
    "memory.total": "143771",
    "power.limit": "700.00",
    "clocks.max.sm": "1980",
    "clocks.sm": "1500",
    "temperature.gpu": "50",
    "clocks_throttle_reasons.active": "0x0000000000000004",
}
FACTORS = {  # of a step's time
    "update=delayed": 0.5,
    "activations=recompute_gelu": 1.5,
    "schedule=gpipe": 1.25,
    "tokens=whole": 0.8,
    "NCCL_WIN_ENABLE=0": 2.0,
    "CUDA_VISIBLE_DEVICES=1": 1.25,
}
WATTS = (100, 300, 100, 100)  # by the GPUs' counters


class Terminated(Exception):
    """SIGTERM."""


def value_of(line, flag, other=None):
    return line[line.index(flag) + 1] if flag in line else other


def lesson(io):
    """A step takes 20 ms, since a busy machine may let the runner see its end late, of which it says what
    FAKE_SECONDS says. FAKE_STEPS: it makes no more than these."""
    name, env, line = pathlib.Path(io.words[0]).name, io.env, io.words[1:]
    sets = dict(line[i + 1].split("=") for i, word in enumerate(line) if word == "--set")
    noise = io.number if "fused" in line or name[:2] == env.get("FAKE_OTHER") else 0
    if "--save" in line:
        pathlib.Path(value_of(line, "--save")).write_text(f"weights {noise}")
    out, steps = pathlib.Path(value_of(line, "--out")), min(
        int(value_of(line, "--steps")), int(env.get("FAKE_STEPS", "100000"))
    )
    out.mkdir(parents=True)
    tokens = int(sets.get("batch.global", 4)) * int(
        sets.get("batch.sequence", 1024 if "batch.global" in sets else 512)
    ) + int(env.get("FAKE_TOKENS", "0"))
    seconds = {"fp32": 0.4, "fp16": 0.1}.get(
        sets.get("precision.dtype"), float(env.get("FAKE_SECONDS", "0.1"))
    )
    seconds *= {"02": 1.25, "04": 2.0, "05": 1.5}.get(name[:2], 1.0) * (
        1 - 0.05 * int(sets.get("resident", 0))
    )
    said = {*(f"{key}={value}" for key, value in (*sets.items(), *env.items()))}
    seconds *= math.prod(factor for setting, factor in FACTORS.items() if setting in said)
    with (out / "steps.jsonl").open("w") as file, open(env["FAKE_LOG"], "a", encoding="utf-8") as log:
        for step in range(steps):
            yield 0.02
            file.write(
                json.dumps(
                    {
                        "step": step,
                        "seconds": seconds,
                        "tokens": tokens,
                        "loss": 5.0 + noise,
                        "grad_norm": 1.0,
                    }
                )
                + "\n"
            )
            file.flush()
            log.write(f"{io.time()}\n")
            log.flush()
    os.utime(out / "steps.jsonl", (io.time(), io.time()))
    loss = 5.0 * (float(env.get("FAKE_LOSS", "1")) if sets.get("precision.dtype") == "fp16" else 1)
    record = {
        "exit_code": 0,
        "as_predicted": "FAKE_WRONG" not in env,
        "message": "",
        "versions": {"GPU": "none"},
        "commit": env.get("STAGECRAFT_COMMIT"),
        "timing": {"wait_share": 0.125, "tokens_per_second": tokens / seconds},
        "workload": {"model.width": "64", **sets},
        "strategy": {},
        "workload_hash": "h",
        "device": "cuda",
        "world": 1,
        "allocator": {"predicted": {"ledger": 900, "one operation": 100}, "peak": 1024},
        "command": " ".join(io.words),
        "started": "then",
        "validation_loss": 2.0,
        "skipped_updates": 0,
        "steps": {"seconds": [seconds] * steps, "tokens": [tokens] * steps, "loss": [loss] * steps},
        "ranks": [
            {"predicted_bytes": {"total": 1}, "measured_bytes": {"total": 1}, "measured_operations": []},
            *([{"measured_bytes": {"total": 2}}] if "split" in sets else []),
        ],
    }
    (out / "record.json").write_text(json.dumps(record))


def peer(io):
    """A step of 0.2 s, or 0.25 with bf16 parameters. Of pipelines and cuts 0.2 s, by GPipe 0.25. FAKE_BAD
    names a variant that does not start, FAKE_LOST one that ends at its turn, FAKE_NAN one that learns
    nothing."""
    line, env = io.words, io.env
    if "--attention-only" in line:
        io.say(json.dumps({"attention": "cudnn", "attention_milliseconds": {"cudnn": 0.6, "flash": 0.9}}))
        return
    variant = value_of(
        line,
        "--variant",
        value_of(line, "--schedule", value_of(line, "--cut", value_of(line, "--stage", ""))),
    )
    if env.get("FAKE_BAD") == variant:
        sys.exit("no compiler found")
    io.say(
        json.dumps(
            {
                "ready": True,
                "config": {
                    "zero_optimization": {"offload_optimizer": {"nvme_path": value_of(line, "--nvme")}}
                },
                "variant": variant,
                "shard": value_of(line, "--shard"),
                "split": value_of(line, "--split"),
                "cut": value_of(line, "--cut"),
                "attention": value_of(line, "--attention"),
            }
        )
    )
    while text := (yield READ):
        if env.get("FAKE_LOST") == variant:
            sys.exit("lost the GPU")
        command, began = json.loads(text), io.time()
        yield float(env.get("FAKE_TURN", "0.02"))
        seconds = [0.25 if variant in ("bf16", "gpipe") or "defaults" in line else 0.2] * command["steps"]
        tokens = (
            int(value_of(line, "--sequence", 1024))
            * int(value_of(line, "--rows", 0))
            * int(
                value_of(
                    line,
                    "--micro-batches",
                    1 if {"--cut", "--rotate"} & set(line) else value_of(line, "--ranks", 1),
                )
            )
        )
        losses = [math.nan if env.get("FAKE_NAN") == variant else 5.0] * command["steps"]
        io.say(
            json.dumps(
                {
                    "seconds": seconds,
                    "losses": losses,
                    "tokens": tokens,
                    "began": began,
                    "ended": io.time(),
                    "peak_allocated": 2**30,
                    "peak_reserved": 2**31,
                    **({"peak_allocated_of_ranks": [2**30, 2**29]} if "--split" in line else {}),
                }
            )
        )


def llmc(io):
    """Steps of 80 ms after a first one of 900."""
    data = (ROOT / value_of(io.words, "-i")).read_bytes()
    count = struct.unpack("<3i", data[:12])[2]
    if len(data) != 1024 + 2 * count or max(memoryview(data)[1024:].cast("H")) >= 50257:
        sys.exit("a bad token file")
    steps = value_of(io.words, "-x")
    with open(io.env["FAKE_LOG"] + ".llmc", "a", encoding="utf-8") as log:
        log.write(steps + " ")
    for step in range(int(steps)):
        io.say(
            f"step    {step + 1}/5 | loss 11.009 (+nanz)| norm 15.2 (+nanz)| lr 4e-07 | "
            f"{80 if step else 900}.00 ms | 59.0% bf16 MFU | 204800 tok/s"
        )
    yield 0.0


def copies(io):
    """Noted in a file as they begin and as they are ended. FAKE_NO_LINK: they end by themselves."""
    if "FAKE_NO_LINK" in io.env:
        sys.exit("no second GPU")
    with open(io.env["FAKE_LOG"] + ".copies", "a", encoding="utf-8") as log:
        print(*io.words[1:], "began", io.time(), file=log, flush=True)
        io.say("copying")
        try:
            yield 60.0
        except Terminated:
            print("end", io.time(), file=log)


def rows_of(fields, env):
    """What nvidia-smi says of each GPU; nothing where it does not know a field."""
    gpus = [
        {**GPU, "index": str(gpu), "power.draw": str(690.5 - 100 * gpu)}
        for gpu in range(int(env.get("FAKE_GPUS", "1")))
    ]
    return (
        [[gpu[field] for field in fields] for gpu in gpus]
        if all(field in gpus[0] for field in fields)
        else []
    )


def smi(io):
    rows = rows_of(io.words[1].split("=")[1].split(","), io.env)
    if not rows:
        sys.exit(2)
    while True:
        for row in rows:
            io.say(", ".join(row))
        if "--loop-ms=200" not in io.words:
            return
        yield 0.01


def main(program):
    def end(*_):
        raise Terminated

    if program is copies:
        signal.signal(signal.SIGTERM, end)
    running = program(
        types.SimpleNamespace(
            words=sys.argv,
            env=os.environ,
            number=os.getpid(),
            time=time.time,
            say=lambda text: print(text, flush=True),
        )
    )
    answer = None
    with contextlib.suppress(StopIteration):
        try:
            while True:
                asked = running.send(answer)
                answer = sys.stdin.readline() if asked is READ else time.sleep(asked)
        except Terminated:
            running.throw(Terminated())


class Clock:
    """Time that passes only where somebody waits, or asks for it; what runs meanwhile does so in the order of
    its steps."""

    def __init__(self):
        self.now, self.running, self.begun = time.time(), [], 0

    def time(self):
        self.now += 1e-6
        return self.now

    monotonic = time

    def sleep(self, seconds):
        self.until(self.now + seconds)

    def until(self, end, done=lambda: False):
        while not done():
            soonest = min(
                (one for one in self.running if not one.stopped), key=lambda one: one.wakes, default=None
            )
            if soonest is None or soonest.wakes > end:
                self.now = max(self.now, end)
                return
            self.now = max(self.now, soonest.wakes)
            soonest.go_on()


class Running:
    """A generator that a clock goes on with: what gpu_programs.Process is for a process, in its own words."""

    def __init__(self, clock, program, words=(), env=None, heard=None):
        self.clock, self.wakes, self.stopped, self.returncode, self.said, self.inbox, self.reads = (
            clock,
            clock.now,
            False,
            None,
            "",
            [],
            False,
        )
        self.heard = heard  # instead of keeping what it says: gets it line by line, and None at its end
        self.child = self.stdin = self
        self.steps = program(
            types.SimpleNamespace(
                words=[*map(str, words)], env=env, number=clock.begun, time=clock.time, say=self.say
            )
        )
        clock.running.append(self)
        clock.begun += 1

    def say(self, text):
        if self.heard:
            self.heard(text)
        else:
            self.said += text + "\n"

    def go_on(self, how=None):
        """To where it next waits."""
        answer = self.inbox.pop(0) if self.reads and self.inbox else None
        try:
            asked = self.steps.throw(how) if how else self.steps.send(answer)
            self.reads = asked is READ
            self.wakes = self.clock.now + (
                0.0 if self.reads and self.inbox else math.inf if self.reads else asked
            )
        except StopIteration:
            self.ends(0)
        except Terminated:
            self.ends(-signal.SIGTERM)
        except SystemExit as error:
            if isinstance(error.code, str):
                self.said += error.code + "\n"
            self.ends(1 if isinstance(error.code, str) else error.code)

    def ends(self, code):
        self.returncode = code
        self.clock.running.remove(self)
        if self.heard:
            self.heard(None)

    def write(self, text):
        if self.returncode is not None:
            raise BrokenPipeError
        self.inbox.append(text)
        if self.reads:
            self.wakes = self.clock.now

    def flush(self):
        pass

    def poll(self):
        return self.returncode

    def wait(self, deadline):
        self.clock.until(deadline, lambda: self.returncode is not None)
        return self.returncode

    def output(self):
        return self.said

    def tail(self):
        return self.said[-2000:]

    def signal(self, number):
        if number == signal.SIGCONT:
            self.wakes = max(self.wakes, self.clock.now)
        self.stopped = {signal.SIGSTOP: True, signal.SIGCONT: False}.get(number, self.stopped)

    def end(self):
        if self.returncode is None:
            self.go_on(Terminated())


class Answers:
    """queue.Queue of a clock."""

    def __init__(self, clock):
        self.clock, self.lines = clock, []

    def get(self, timeout):
        self.clock.until(self.clock.now + timeout, lambda: self.lines)
        if not self.lines:
            raise queue.Empty
        return self.lines.pop(0)


def completed(running):
    """subprocess.run's result of one that needs no time."""
    running.clock.until(running.clock.now, lambda: running.returncode is not None)
    return subprocess.CompletedProcess((), running.returncode, running.said, running.said)
