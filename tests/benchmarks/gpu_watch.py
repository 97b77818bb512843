"""What nvidia-smi says: the machine once, and clocks, power and temperature while programs run; and the
energy that GPUs count themselves."""
import bisect
import contextlib
import ctypes
import itertools
import os
import pty
import re
import statistics
import subprocess
import sys
import threading
import time

MACHINE = {
    "gpu": "name",
    "driver": "driver_version",
    "memory_mib": "memory.total",
    "power_limit_watts": "power.limit",
    "sm_mhz_most": "clocks.max.sm",
}
SAMPLED = ["index", "clocks.sm", "power.draw", "temperature.gpu"]
REASONS = ["clocks_event_reasons.active", "clocks_throttle_reasons.active"]  # the newer name, the older


def query(fields):
    """Rows of one call; empty where there is no nvidia-smi, no GPU, or no such field."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        said = subprocess.run(
            ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        ).stdout
        return [[cell.strip() for cell in line.split(",")] for line in said.splitlines() if line.strip()]
    return []


def number(text):
    try:
        return float(text)
    except ValueError:
        return None  # "[N/A]"


def asked():
    """What CUDA_VISIBLE_DEVICES leaves, in its order; None: all."""
    words = os.environ.get("CUDA_VISIBLE_DEVICES")
    if words is None:
        return None
    names = [word.strip() for word in words.split(",")] if words.strip() else []
    if not all(re.fullmatch(r"-?\d+", name) for name in names):
        sys.exit(
            f"error: CUDA_VISIBLE_DEVICES={words}: whose clocks and joules are these?\n  fix: numbers, as "
            "nvidia-smi counts GPUs: CUDA_VISIBLE_DEVICES=0,1"
        )
    return [int(name) for name in names]


ASKED = asked()  # before anything is measured


def visible(count):
    """The indices of the GPUs that programs see, out of `count`: programs call the k-th of them GPU k. As
    CUDA does, it stops at a number that is none."""
    return (
        list(range(count))
        if ASKED is None
        else list(itertools.takewhile(lambda gpu: 0 <= gpu < count, ASKED))
    )


def machine():
    rows = query(list(MACHINE.values()))
    rows = [rows[gpu] for gpu in visible(len(rows))]
    if not rows:
        return {"gpus": 0}
    facts = dict(zip(MACHINE, rows[0], strict=True))
    return {
        "gpus": len(rows),
        **{key: number(value) if key not in ("gpu", "driver") else value for key, value in facts.items()},
    }


def summary(values):
    values = sorted(v for v in values if v is not None)
    if not values:
        return None
    return {"median": statistics.median(values), "lowest": values[0], "highest": values[-1]}


class Watch:
    """Samples every GPU in the background, five times a second, until stop()."""

    def __init__(self, period_ms=200):
        self.samples, self.lock, self.child, self.fields = [], threading.Lock(), None, None
        reason, found = next((name for name in REASONS if query([name])), None), query(SAMPLED)
        if not found:
            return
        self.visible = [str(gpu) for gpu in visible(len(found))]
        self.fields = SAMPLED + ([reason] if reason else [])
        self.begin(period_ms)

    def begin(self, period_ms):
        # nvidia-smi writes to a terminal, because it may hold back what it writes to a pipe.
        terminal, theirs = pty.openpty()
        self.child = subprocess.Popen(
            [
                "nvidia-smi",
                f"--query-gpu={','.join(self.fields)}",
                "--format=csv,noheader,nounits",
                f"--loop-ms={period_ms}",
            ],
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(theirs)
        threading.Thread(target=self.read, args=(terminal,), daemon=True).start()

    def read(self, terminal):
        with contextlib.suppress(OSError), os.fdopen(
            terminal, "r", errors="replace"
        ) as lines:  # EIO at its end
            for line in lines:
                self.keep(line)

    def keep(self, line):
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == len(self.fields):
            with self.lock:
                self.samples.append((time.time(), cells))

    def between(self, began, ended, gpus):
        """Over the first `gpus` GPUs that programs see and a span of time; None without samples."""
        with self.lock:
            rows = [
                cells
                for at, cells in self.samples
                if began <= at <= ended and cells[0] in self.visible[:gpus]
            ]
        if not rows:
            return None
        columns = list(zip(*rows, strict=True))
        reasons = sorted(set(columns[4])) if len(columns) > 4 else []
        return {
            "samples": len(rows),
            "sm_mhz": summary(map(number, columns[1])),
            "watts": summary(map(number, columns[2])),
            "celsius": summary(map(number, columns[3])),
            "clock_reasons": reasons,
        }

    def stop(self):
        if self.child is not None:
            self.child.terminate()
            self.child.wait()
            self.child = None


def energy_counters(library="libnvidia-ml.so.1"):
    """For each GPU a function that reads its millijoules since the driver was loaded (NVML:
    nvmlDeviceGetTotalEnergyConsumption); none without the driver's library, or where a GPU counts none."""
    try:
        nvml = ctypes.CDLL(library)
    except OSError:
        return []

    def asked(name, *arguments):
        if (error := getattr(nvml, name)(*arguments)) != 0:
            raise OSError(f"{name}: error {error}")

    def counter(index):
        gpu, energy = ctypes.c_void_p(), ctypes.c_ulonglong()
        asked("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(gpu))

        def read():
            asked("nvmlDeviceGetTotalEnergyConsumption", gpu, ctypes.byref(energy))
            return energy.value

        read()
        return read

    try:
        count = ctypes.c_uint()
        asked("nvmlInit_v2")
        asked("nvmlDeviceGetCount_v2", ctypes.byref(count))
        return [counter(index) for index in visible(count.value)]
    except OSError as error:
        print(f"note: joules are not counted: {error}", file=sys.stderr)
        return []


class EnergyCounter:
    """Joules by each GPU's own counter, which is read in the background as long as this process lives. Where
    GPUs count none, there are no joules."""

    def __init__(self, period=0.01):
        counters, self.lock = energy_counters(), threading.Lock()
        self.updates = [
            [(time.time(), read())] for read in counters
        ]  # of each GPU: (when its counter was seen to change, what it said)
        if counters:
            self.begin(counters, period)

    def begin(self, counters, period):
        threading.Thread(target=self.read, args=(counters, period), daemon=True).start()

    def read(self, counters, period):
        while True:
            self.look(counters)
            time.sleep(period)

    def look(self, counters):
        for read, updates in zip(counters, self.updates, strict=True):
            said = read()
            if said != updates[-1][1]:
                with self.lock:
                    updates.append((time.time(), said))

    def between(self, began, ended, gpus, limit=2.0):
        """Energy and power of these GPUs together over a span of time that has just ended; None without
        counters. A counter changes about ten times a second: between two changes power is taken as
        constant."""
        limit += time.monotonic()
        while self.updates and any(self.updates[gpu][-1][0] < ended for gpu in gpus):
            if time.monotonic() > limit:
                return None
            time.sleep(0.01)
        if not self.updates:
            return None
        with self.lock:
            return sum(at(self.updates[gpu], ended) - at(self.updates[gpu], began) for gpu in gpus) / 1e3


def at(updates, when):
    """What a counter said at a time between its first update and its last."""
    later = bisect.bisect_left(updates, (when,))
    (before, low), (after, high) = updates[later - 1], updates[later]
    return low + (high - low) * (when - before) / (after - before)
