"""Lesson 06 on the real programs: lesson 05's bits on one to three ranks, whatever the window, the engine and the disk are; what a disk
refuses, loses or never answers ends all ranks with one message, or is one line; no file is ever left; bytes as the kernel counts them."""

import filecmp
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import unittest

import support

LESSON = "06_infinity"
STEPS = ["--steps", "20"]
ENDLESS = ["--steps", "100000"]
LATE = "update=delayed grads_at=host"
ON_DISK = "parameters=sharded params_at=disk"  # the parameters too
MBPS = 5
SLOW = f"--disk-mbps {MBPS}"
# ranks: settings, and flags, whose updates are exact; infinity_test.cpp has all of them on threads
EXACT = {
    1: ["", "engine=threads grads_at=host buffers=1", f"{ON_DISK} buffers=1 prefetch=0"],
    2: [
        "",
        SLOW,
        f"{LATE} warm_steps=100",
        "parameters=sharded params_at=host piece=1000 buffers=2",
        f"{ON_DISK} piece=1000",
        "grads_at=host piece=700 block=4096",
    ],
    3: ["piece=1000", "parameters=sharded prefetch=0 activations=recompute depth=1"],
}
EXACT = support.chosen({**EXACT, 2: support.chosen(EXACT[2], SLOW, f"{ON_DISK} piece=1000")}, 2)
DELAYED = [
    LATE,
    f"{LATE} parameters=sharded piece=1000 buffers=1",
    f"{LATE} {ON_DISK} piece=1000",
    f"{LATE} {SLOW}",
]  # on two ranks
DELAYED = support.chosen(DELAYED, f"{LATE} {SLOW}")
ROOM = r"; the file takes \d+\.\d\d kB, \S+ k?B are free\n  fix: free space on the file system that holds it, or write elsewhere"
NO_DIRECT = "{}: no O_DIRECT there: transfers go through the page cache, which takes memory"
OTHER_ENGINE = r"io_uring is refused here: .*; threads takes its place"
STUCK = (
    r"rank \d is stuck: its operation [\d]+ \(disk_(read|write) of (the embedding|the head|block \d+)'s (states|parameters) \([\d,]+ f32\), train step \d+\) has not ended for more than {} s\n"
    r"  fix: see whether the disk still answers \(dmesg\); one that is only slow needs a longer --watchdog \(now {} s\)"
)

# As a container does it: from now on this system call fails. No launcher has a flag for that.
REFUSE = """
import ctypes, os, struct, sys
number, error = int(sys.argv[1]), int(sys.argv[2])
load, equal, leave = 0x20, 0x15, 0x06  # BPF_LD | BPF_W | BPF_ABS, BPF_JMP | BPF_JEQ | BPF_K, BPF_RET | BPF_K
steps = [(load, 0, 0, 0), (equal, 0, 1, number), (leave, 0, 0, 0x00050000 | error), (leave, 0, 0, 0x7FFF0000)]
filter = b"".join(struct.pack("HBBI", *step) for step in steps)
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]
libc = ctypes.CDLL(None)
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(Program(len(steps), filter))):
    sys.exit("no seccomp here")
os.execvp(sys.argv[3], sys.argv[3:])
"""
EPERM, EOPNOTSUPP = 1, 95
IO_URING_SETUP = 425
FALLOCATE = {"x86_64": 285, "aarch64": 47}.get(os.uname().machine)

# Runs a command where `$2` is a file system in memory of `$1` bytes.
ON_TMPFS = [
    "unshare",
    "-rm",
    "sh",
    "-c",
    'mount -t tmpfs -o size="$1" none "$2" && shift 2 && exec "$@"',
    "sh",
]


def new_disk():
    path = support.new_path("disk")
    os.mkdir(path)
    return path


def infinity(world, text, disk, *flags):
    """A run. text: settings, then flags."""
    settings, dashes, more = text.partition("--")
    return support.Run(LESSON, world, settings, *(dashes + more).split(), "--disk", disk, *flags)


def command(ranks, disk, *flags, each=(), out=None):
    """A command line. each: what starts every rank's program."""
    program = [
        *each,
        support.program(LESSON),
        *support.files_of(LESSON),
        "--out",
        out or support.new_path("out"),
        "--disk",
        disk,
    ]
    return support.mpirun(ranks) + program + list(flags)


def refusing(number, error):
    return [sys.executable, "-c", REFUSE, str(number), str(error)]


def disk_bytes(record, rank=0):
    """What a rank reads, and what it writes, in a step."""
    operations = record["ranks"][rank]["measured_operations"]
    return [
        sum(4 * op["count"] * op["elements"] for op in operations if op["kind"] == kind)
        for kind in ("disk_read", "disk_write")
    ]


def steps_of(out):
    """How many steps a run has written down."""
    try:
        with open(out + "/steps.jsonl", encoding="utf-8") as file:
            return len(file.readlines())
    except FileNotFoundError:
        return 0


def processes_of(out):
    """rank -> process of a run that is under way."""
    found = {}
    for pid in support.processes_with(out):
        try:
            with open(f"/proc/{pid}/environ", encoding="utf-8", errors="replace") as file:
                rank = re.search(r"OMPI_COMM_WORLD_RANK=(\d+)", file.read())
            if os.path.basename(os.readlink(f"/proc/{pid}/exe")) == LESSON:
                found[int(rank[1]) if rank else 0] = pid
        except OSError:
            continue  # it ended meanwhile
    return found


def state_file(pid, disk):
    """The file without a name, by a name that /proc has for it; None before it is there."""
    for fd in os.listdir(f"/proc/{pid}/fd"):
        path = f"/proc/{pid}/fd/{fd}"
        try:
            if re.fullmatch(re.escape(disk) + r"/\S+ \(deleted\)", os.readlink(path)):
                return path
        except OSError:
            continue
    return None


def memory_group(limit):
    """(the folder of a new control group whose processes have `limit` bytes of memory, None), or (None, why there is none)."""
    if os.geteuid() != 0:
        return None, "this user may make no control group"
    with open("/proc/mounts", encoding="utf-8") as file:
        mounts = [line.split()[1:4] for line in file]
    kinds = {
        "cgroup2": {"memory.max": limit, "memory.swap.max": 0},
        "cgroup": {"memory.limit_in_bytes": limit, "memory.memsw.limit_in_bytes": limit},
    }
    why = "no control groups of memory are mounted here"
    for place, kind, options in mounts:
        if kind not in kinds or kind == "cgroup" and "memory" not in options.split(","):
            continue
        group = os.path.join(place, f"stagecraft-{os.getpid()}")
        try:
            os.mkdir(group)
        except OSError as error:
            why = f"no control group can be made here: {error}"
            continue
        try:
            for name, count in kinds[kind].items():
                if "sw" not in name or os.path.exists(
                    os.path.join(group, name)
                ):  # not every kernel counts what is swapped out
                    with open(os.path.join(group, name), "w", encoding="ascii") as file:
                        file.write(str(count))
            if subprocess.run([*joining(group), "true"], check=False, capture_output=True).returncode == 0:
                return group, None
            why = "no process may join a control group here"
        except OSError as error:  # on v2: memory is not handed down to this group
            why = f"no control group of memory can be made here: {error}"
        os.rmdir(group)
    return None, why


def joining(group):
    """What starts a program in that control group."""
    return ["sh", "-c", 'echo $$ > "$1" && shift && exec "$@"', "sh", os.path.join(group, "cgroup.procs")]


def end_timed(process):
    """(Ended, seconds between its first message and its end)"""
    lines, moments = [], []

    def read():
        for line in process.stderr:
            moments.append(time.monotonic())
            lines.append(line)

    reader = threading.Thread(target=read)
    reader.start()
    timer = threading.Timer(support.DEADLINE, os.killpg, (process.pid, signal.SIGKILL))
    timer.start()
    out = process.stdout.read()  # until nobody can write there
    code = process.wait()
    reader.join()
    over = time.monotonic()
    timer.cancel()
    process.stdout.close()
    process.stderr.close()
    return (
        support.Ended(code if code >= 0 else 128 - code, out, "".join(lines)),
        over - (moments or [over])[0],
    )


class InfinityTest(support.ProcessTest):
    def setUp(self):
        self.disk = new_disk()
        self.boards = support.stale_boards()

    def tearDown(self):
        self.assertEqual(os.listdir(self.disk), [], "left on the disk")

    def expect_well(self, ended):
        self.assertEqual((ended.code, ended.err), (0, ""), ended)

    def expect_notes(self, ended, *patterns):
        """The lines before the first one about the run: each said once, whatever the number of ranks."""
        notes = re.findall(r"warning\S*\] (.*?)\r?\n", ended.out)
        self.assertEqual(len(notes), len(patterns), notes)
        for note, pattern in zip(notes, patterns):
            self.assertRegex(note, rf"\A{pattern}\Z")

    def expect_end(self, process, code, message, out, within=2):
        """One message, the end of all ranks some seconds later at most, and nothing left."""
        ended, seconds = end_timed(process)
        self.expect_one_error(ended, code, re.compile(message))
        self.assertLess(seconds, within, ended)
        self.expect_nothing_left(out, self.boards)

    def start_and_train(self, ranks, *flags, steps=5, **how):
        """(process, out) of a run that has made some steps."""
        out = support.new_path("out")
        process = support.start(command(ranks, self.disk, *flags, *ENDLESS, out=out, **how))
        self.assertTrue(support.comes_true(lambda: steps_of(out) >= steps or process.poll() is not None, 30))
        self.assertIsNone(process.poll(), "it ended")
        return process, out


class Bits(support.ProcessTest):
    @classmethod
    def setUpClass(cls):
        cls.disk = new_disk()  # of all of them
        peers = {
            (world, lesson): support.Run(lesson, world, "", *STEPS)
            for world in EXACT
            for lesson in ("04_zero3", "05_offload")
        }
        cls.exact = {
            (world, s): infinity(world, s, cls.disk, *STEPS)
            for world, settings in EXACT.items()
            for s in settings
        }
        cls.delayed = {("delayed", s): infinity(2, s, cls.disk, *STEPS) for s in DELAYED}
        late = {("delayed", "05_offload"): support.Run("05_offload", 2, "update=delayed", *STEPS)}
        cls.runs, cls.peers = {**cls.exact, **cls.delayed}, {**peers, **late}
        cls.ended = support.side_by_side(
            {name: run.job for name, run in {**cls.peers, **cls.runs}.items()}, at_once=2
        )

    def test_all_end_well_and_as_predicted(self):
        for name, ended in self.ended.items():
            with self.subTest(name=name):
                self.assertEqual((ended.code, ended.err), (0, ""), ended)
        for name, run in self.runs.items():
            with self.subTest(name=name):
                self.assertTrue(run.record()["as_predicted"])
        self.assertEqual(os.listdir(self.disk), [])

    def test_exact_updates_end_in_the_files_of_04_and_05(self):
        for (world, settings), run in self.exact.items():
            for lesson in ("04_zero3", "05_offload"):
                with self.subTest(world=world, settings=settings, lesson=lesson):
                    self.assertTrue(
                        filecmp.cmp(run.weights, self.peers[world, lesson].weights, shallow=False)
                    )
                    self.assertEqual(run.losses(), self.peers[world, lesson].losses())

    def test_delayed_updates_end_in_lesson_05s_file(self):
        peer = self.peers["delayed", "05_offload"]
        for run in self.delayed.values():
            self.assertTrue(filecmp.cmp(run.weights, peer.weights, shallow=False))
            self.assertEqual(run.losses(), peer.losses())
        exact = self.peers[2, "05_offload"].weights
        self.assertFalse(filecmp.cmp(exact, peer.weights, shallow=False), "the comparisons could not fail")

    # Bounds from below alone: a busy machine is slow. A step ends when the update before it is on the disk.
    def test_a_slow_disk_takes_its_time(self):
        for run in (self.exact[2, SLOW], self.delayed["delayed", f"{LATE} {SLOW}"]):
            record = run.record()
            each = sum(disk_bytes(record)) / 1e6 / MBPS
            self.assertGreater(each, 0.05)
            self.assertGreaterEqual(record["seconds"], 19 * each)

    # Loaded weights reach the disk, and come back from there, to the bit.
    def test_a_run_goes_on_from_a_file_of_another_lesson(self):
        trained = self.peers[2, "04_zero3"].weights
        still = ["--set", "optim.lr=1e-30", "--steps", "1", "--init", trained]
        runs = {
            s: infinity(3, s, self.disk, *still)
            for s in support.chosen(
                ("piece=1000 buffers=2", "parameters=sharded params_at=host", ON_DISK, LATE), ON_DISK
            )
        }
        for settings, ended in support.side_by_side(
            {s: run.job for s, run in runs.items()}, at_once=2
        ).items():
            self.assertEqual((ended.code, ended.err), (0, ""), ended)
            run = runs[settings]
            self.assertTrue(
                filecmp.cmp(run.weights, trained, shallow=False), "a step too small to change a bit"
            )

    # What a save or an evaluation makes the host do early is still the next step's: every step holds what was predicted.
    def test_what_comes_between_two_steps(self):
        text = os.path.join(support.scratch, "validation.txt")
        with open(text, "w", encoding="utf-8") as file:
            file.write("the rank waits for a sum\n" * 20)
        between = {
            "saves": lambda: ["--save-every", "1", "--checkpoints", support.new_path("ck")],
            "evaluations": lambda: ["--eval-every", "1", "--validation", text],
        }
        plain = infinity(2, "", self.disk, "--steps", "4")
        runs = {
            (s, what): infinity(2, s, self.disk, "--steps", "4", *flags())
            for s in support.chosen(("", ON_DISK), ON_DISK)
            for what, flags in between.items()
        }
        self.assertEqual(plain.job().code, 0)
        for (settings, what), ended in support.side_by_side(
            {name: run.job for name, run in runs.items()}, at_once=2
        ).items():
            with self.subTest(settings=settings, what=what):
                self.assertEqual((ended.code, ended.err), (0, ""), ended)
                self.assertTrue(filecmp.cmp(runs[settings, what].weights, plain.weights, shallow=False))

    def test_a_gradient_that_is_not_finite(self):
        poisoned = ["--steps", "4", "--inject", "nan@0,2"]
        for how in support.chosen(("stop", "skip"), "stop"):
            peer = support.Run("04_zero3", 2, f"optim.nonfinite={how}", *poisoned)
            more = ["", f"{LATE} warm_steps=100"] if how == "skip" else [""]
            runs = [
                infinity(2, f"optim.nonfinite={how} {settings}", self.disk, *poisoned) for settings in more
            ]
            expected, *found = support.side_by_side(
                {run: run.job for run in (peer, *runs)}, at_once=2
            ).values()
            for run, ended in zip(runs, found):
                self.assertEqual((ended.code, ended.errors), (expected.code, expected.errors), ended)
                if how == "skip":
                    self.assertEqual(ended.code, 0)
                    self.assertEqual(run.record()["skipped_updates"], 1)
                    self.assertTrue(filecmp.cmp(run.weights, peer.weights, shallow=False))


class Refusals(InfinityTest):
    def test_what_cannot_be(self):
        disk, file = self.disk, support.WORKLOAD
        for flags, code, message in (
            (
                "--set update=delayed",
                64,
                "update=delayed: the next gradient would overwrite the one on the device that the update still reads\n"
                "  fix: grads_at=host, or update=exact",
            ),
            ("--set block=5000", 64, r"block: 5000 is no multiple of 4096\n  fix: block=8192"),
            (
                "--set block=100",
                64,
                r"--set block=100: block: 100 is outside its range, at least 4096\n  fix: .*",
            ),
            (
                "--set buffers=0",
                64,
                r"--set buffers=0: buffers: 0 is outside its range, 1 \.\. 1024\n  fix: .*",
            ),
            (
                "--set engine=aio",
                64,
                r'--set engine=aio: engine: "aio" is none of io_uring, threads\n  fix: .*',
            ),
            (
                "--set params_at=host",
                64,
                "params_at=host: with parameters=whole every rank has all of them on its device\n"
                "  fix: parameters=sharded, or params_at=device",
            ),
            (
                "--set params_at=disk",
                64,
                "params_at=disk: with parameters=whole every rank has all of them on its device\n"
                "  fix: parameters=sharded, or params_at=device",
            ),
            (
                "--disk-mbps -1",
                64,
                r"--disk-mbps -1: disk_mbps: -1 is outside its range, at least 0\n  fix: .*",
            ),
            ("--graph on", 64, r"--graph: it is about GPUs, and this is on the CPU\n  fix: .*"),
            (
                f"--disk {disk}/no",
                69,
                rf"{disk}/no/states of rank \d: cannot create: No such file or directory \(ENOENT\); the file takes "
                rf"\d+\.\d\d kB\n  fix: create its directory: mkdir -p {disk}/no",
            ),
            (
                f"--disk {file}",
                69,
                rf"{file}/states of rank 0: cannot create: Not a directory \(ENOTDIR\); the file takes .*"
                r"\n  fix: a part of the path is a file: check the path",
            ),
            (
                "--disk-cap 100000",
                69,
                r"--disk-cap 100\.00 kB: a rank would hold (\d+\.\d\d) kB on the disk\n"
                r"  fix: --disk-cap \d+, or a strategy that holds less there",
            ),
        ):
            for ranks in (0, 2) if "/no" in flags else (0,):
                with self.subTest(flags=flags, ranks=ranks):
                    name, *where = flags.split()
                    started = (
                        command(ranks, where[0]) if name == "--disk" else command(ranks, disk, name, *where)
                    )
                    self.expect_one_error(support.execute(started), code, re.compile(message))

    def test_a_directory_that_may_not_be_written(self):
        locked = os.path.join(self.disk, "locked")
        os.mkdir(locked, 0o500)
        each = []
        if os.geteuid() == 0:  # who may write everywhere unless that is taken away
            each = ["setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override"]
            if (
                shutil.which("setpriv") is None
                or subprocess.run([*each, "true"], check=False).returncode != 0
            ):
                os.rmdir(locked)
                self.skipTest("root may write everywhere, and setpriv cannot take that away")
        ended = support.execute(command(0, locked, each=each))
        os.rmdir(locked)
        self.expect_one_error(
            ended,
            69,
            re.compile(
                rf"{locked}/states of rank 0: cannot create: Permission denied \(EACCES\); the file takes \d+\.\d\d kB, .* are free\n"
                r"  fix: write where you have permission, or change the directory's owner or mode"
            ),
        )

    # Open MPI's shared memory would not fit into the limit either.
    def test_a_limit_of_file_sizes(self):
        message = (
            r"\S+/states of rank \d: cannot allocate (\d+) bytes: File too large \(EFBIG\); the file takes \S+ kB, .* are free\n"
            r"  fix: raise the limit of a file's size \(ulimit -f unlimited\), or use another file system"
        )
        for ranks in (0, 2):
            out = support.new_path("out")
            env = support.environment(OMPI_MCA_btl="tcp,self")
            each = ["prlimit", "--fsize=200000"]
            self.expect_end(
                support.start(command(ranks, self.disk, each=each, out=out), env), 69, message, out
            )


class PoorDisks(InfinityTest):
    """A disk in memory, an engine that is refused: one line and the right bits, or the end before the start."""

    @classmethod
    def setUpClass(cls):
        place = new_disk()
        cls.mounts = (
            subprocess.run([*ON_TMPFS, "1m", place, "true"], check=False, capture_output=True).returncode == 0
        )
        cls.peer = support.Run("05_offload", 2, "", "--steps", "4")
        cls.peer_ended = cls.peer.job()

    def setUp(self):
        super().setUp()
        self.expect_well(self.peer_ended)

    def tmpfs(self, size, started):
        if not self.mounts:
            self.skipTest("this user may not mount (unshare -rm)")
        return [*ON_TMPFS, str(size), self.disk, *started]

    def file_size(self):
        """Of one rank of two."""
        ended = support.run(LESSON, 0, "--plan", "--world", "2")
        return int(re.search(r"\n  total, disk +[\d.]+ kB +([\d,]+)\n", ended.out)[1].replace(",", ""))

    def right(self, wrap=lambda started: started, each=(), flags=(), ranks=2):
        """A run of two ranks, which ends in lesson 05's file. ranks: that `wrap` is given."""
        weights = support.new_path("w")
        ended = support.execute(wrap(command(ranks, self.disk, *flags, "--save", weights, each=each)))
        self.expect_well(ended)
        self.assertTrue(filecmp.cmp(weights, self.peer.weights, shallow=False))
        return ended

    def test_without_o_direct(self):
        ended = self.right(lambda started: self.tmpfs("16m", started))
        self.expect_notes(ended, re.escape(NO_DIRECT.format(self.disk)))

    def test_half_the_room(self):
        message = (
            rf"{self.disk}/states of rank \d: cannot (make a file of this size|allocate \d+ bytes): No space left on device \(ENOSPC\)"
            + ROOM
        )
        for ranks in (0, 2):  # of two one may find room
            out = support.new_path("out")
            started = self.tmpfs(self.file_size(), command(ranks, self.disk, out=out))
            self.expect_end(support.start(started), 69, message, out)

    # Each rank by itself has room, and no room can be kept: the first pass over the file fails, unless the other rank's was quicker.
    def test_half_the_room_where_no_room_can_be_kept(self):
        if (
            FALLOCATE is None
            or subprocess.run([*refusing(FALLOCATE, EOPNOTSUPP), "true"], check=False).returncode != 0
        ):
            self.skipTest("no seccomp here")
        out = support.new_path("out")
        started = self.tmpfs(
            self.file_size() * 3 // 2 // 4096 * 4096,
            command(2, self.disk, each=refusing(FALLOCATE, EOPNOTSUPP), out=out),
        )
        message = (
            rf"{self.disk}/states of rank \d: cannot (write \d+ bytes at byte \d+|make a file of this size): "
            r"No space left on device \(ENOSPC\)"
        ) + ROOM
        self.expect_end(support.start(started), 69, message, out)

    def test_an_engine_that_is_refused(self):
        if subprocess.run([*refusing(IO_URING_SETUP, EPERM), "true"], check=False).returncode != 0:
            self.skipTest("no seccomp here")
        ended = self.right(each=refusing(IO_URING_SETUP, EPERM))
        self.expect_notes(ended, OTHER_ENGINE)
        self.expect_notes(self.right(each=refusing(IO_URING_SETUP, EPERM), flags=["--set", "engine=threads"]))

    # Also by another rank than the first, whose machine may be another one.
    def test_an_engine_that_is_refused_to_one_rank(self):
        refused = refusing(IO_URING_SETUP, EPERM)
        if subprocess.run([*refused, "true"], check=False).returncode != 0:
            self.skipTest("no seccomp here")
        ended = self.right(
            lambda started: [*started, ":", "-n", "1", *refused, *started[len(support.mpirun(1)) :]], ranks=1
        )
        self.expect_notes(ended, f"rank 1: {OTHER_ENGINE}")

    # Newer kernels do not count a ring's memory.
    def test_little_locked_memory(self):
        ended = self.right(each=["prlimit", "--memlock=4096"])
        self.expect_notes(ended, *([OTHER_ENGINE] if "warning" in ended.out else []))


class WhileItTrains(InfinityTest):
    def test_two_runs_in_one_directory(self):
        seeds = {seed: infinity(2, f"seed={seed}", self.disk, "--steps", "60") for seed in (1, 2)}
        peers = {
            seed: support.Run("05_offload", 2, f"seed={seed}", "--steps", "60")
            for seed in support.chosen(list(seeds), 1)
        }
        ended = {}
        threads = [
            threading.Thread(target=lambda s=seed, r=run: ended.update({s: r.job()}))
            for seed, run in seeds.items()
        ]
        for thread in threads:
            thread.start()
        files = lambda: [
            state_file(pid, self.disk) for run in seeds.values() for pid in processes_of(run.out).values()
        ]
        self.assertTrue(
            support.comes_true(lambda: len(files()) == 4 and all(files()), 30), "never both at once"
        )
        self.assertEqual(os.listdir(self.disk), [], "while they train")
        for thread in threads:
            thread.join()
        peers_ended = support.side_by_side({seed: peer.job for seed, peer in peers.items()}, at_once=2)
        for one in ended.values():
            self.expect_well(one)
        for seed, peer in peers.items():
            self.expect_well(peers_ended[seed])
            self.assertTrue(filecmp.cmp(seeds[seed].weights, peer.weights, shallow=False))
        self.assertFalse(
            filecmp.cmp(seeds[1].weights, seeds[2].weights, shallow=False), "the comparison could not fail"
        )

    # What lies in the window at that moment is written over it again, and all is well: then once more.
    def test_somebody_writes_into_the_file(self):
        for rank in (0, 1):
            process, out = self.start_and_train(2, "--set", "piece=1000", "--set", "block=4096")
            pid, at = processes_of(out)[rank], 30 * 4096
            file, before = state_file(pid, self.disk), 0

            def overwrite():
                nonlocal before
                os.kill(pid, signal.SIGSTOP)
                before = steps_of(out)
                subprocess.run(
                    [
                        "dd",
                        "if=/dev/urandom",
                        f"of={file}",
                        "bs=4096",
                        f"seek={at // 4096}",
                        "count=1",
                        "conv=notrunc",
                    ],
                    check=True,
                    capture_output=True,
                )
                os.kill(pid, signal.SIGCONT)

            def noticed():
                overwrite()
                return support.comes_true(
                    lambda: support.processes_with(out) == [] or process.poll() is not None, 3
                )

            self.assertTrue(any(noticed() for _ in range(10)), "never noticed")
            self.expect_end(
                process,
                65,
                rf"{self.disk}/states of rank {rank}: the 4096 bytes at byte {at} are not what was written there last: "
                r"a write was lost, or somebody changed the file\n"
                r"  fix: look for the disk's errors \(dmesg\), or use another disk",
                out,
            )
            self.assertLessEqual(steps_of(out), before + 2)

    # Open MPI may say first that it cannot read the other rank's memory.
    def test_a_killed_rank_leaves_nothing(self):
        for rank in (0, 1):
            out = support.new_path("out")
            process = support.start(support.run_sh(LESSON, 2, "--disk", self.disk, "--out", out, *ENDLESS))
            self.assertTrue(support.comes_true(lambda: steps_of(out) >= 5, 30))
            os.kill(processes_of(out)[rank], signal.SIGKILL)
            lost = (
                rf"lost rank {rank}: noticed by rank {1 - rank}\n  rank {rank}: process \d+ is gone; (.*\n?)*"
            )
            self.expect_end(process, 75, lost, out, within=5)


class Watched(InfinityTest):
    # A step's reads, which are all in flight at once, take longer than the limit; each of them does not.
    def test_a_long_disk_step_is_no_hang(self):
        run = infinity(2, "piece=4000 buffers=8 --disk-mbps 0.2 --watchdog 1", self.disk, "--steps", "2")
        self.expect_well(run.job())
        record = run.record()
        reads, writes = (moved / 0.2e6 for moved in disk_bytes(record))
        self.assertGreater(reads, 1.2)
        self.assertLess(12 * 4000 / 0.2e6, 0.3)
        self.assertGreaterEqual(record["seconds"], 2 * (reads + writes))

    # A read that takes longer than the limit.
    def test_a_read_that_hangs_is_named(self):
        out = support.new_path("out")
        process = support.start(command(0, self.disk, "--disk-mbps", "0.2", "--watchdog", "0.5", out=out))
        self.expect_end(process, 75, STUCK.format(r"0\.5", r"0\.5"), out)

    # A file system that no longer answers: frozen, as a disk that is gone would be.
    def test_a_disk_that_does_not_answer_is_named(self):
        image = support.new_path("image")
        with open(image, "wb") as file:
            file.truncate(32 << 20)
        made = f"mkfs.ext4 -q -F {image} && mount -o loop {image} {self.disk}"
        if (
            os.geteuid() != 0
            or subprocess.run(["sh", "-c", made], check=False, capture_output=True).returncode != 0
        ):
            self.skipTest("this user may not mount an image (loop device)")
        try:
            os.rmdir(self.disk + "/lost+found")
            process, out = self.start_and_train(2, "--watchdog", "2")
            subprocess.run(["fsfreeze", "--freeze", self.disk], check=True)
            try:
                begin, steps = time.monotonic(), steps_of(out)
                said = support.comes_true(lambda: support.record(out)["exit_code"] == 75, 10)
                took = time.monotonic() - begin
            finally:  # nobody ends a process that waits in the kernel
                subprocess.run(["fsfreeze", "--unfreeze", self.disk], check=True)
            self.assertTrue(said, "never noticed")
            self.assertGreater(took, 1.9)
            self.assertLessEqual(steps_of(out), steps + 1)
            # Who notices first may be a rank that waits for one whose disk it is.
            waits = r"lost rank \d: rank \d waits for its operation (.*\n?)*"
            self.expect_end(process, 75, STUCK.format(r"2\.0", r"2\.0") + "|" + waits, out)
            self.assertEqual(os.listdir(self.disk), [])
        finally:
            gone = (
                lambda: subprocess.run(["umount", self.disk], check=False, capture_output=True).returncode
                == 0
            )
            self.assertTrue(support.comes_true(gone))


class Counted(InfinityTest):
    MODEL = ["--set=model.width=256", "--set=model.heads=8", "--set=model.vocab=4096"]
    # The kernel adds what a process's children have moved when it waits for them.
    COUNT = [
        "sh",
        "-c",
        'file=$1; shift; "$@"; code=$?; cat /proc/$$/io > "$file.$OMPI_COMM_WORLD_RANK"; exit $code',
        "sh",
    ]

    def moved(self, steps, settings):
        """rank -> (bytes read, bytes written) of a whole run, and its record; what is saved at the end waits for the last update."""
        out, counts = support.new_path("out"), support.new_path("io")
        more = [f"--set={setting}" for setting in settings.split()]
        flags = [
            *self.MODEL,
            *more,
            "--set=model.layers=4",
            "--set=batch.global=2",
            "--steps",
            str(steps),
            "--save",
            support.new_path("w"),
        ]
        ended = support.execute(command(2, self.disk, *flags, each=[*self.COUNT, counts], out=out))
        self.expect_well(ended)
        if "no O_DIRECT" in ended.out:
            self.skipTest("no O_DIRECT here: the page cache reads and writes when it likes")
        found = []
        for rank in (0, 1):
            with open(f"{counts}.{rank}", encoding="utf-8") as file:
                text = file.read()
            found.append(
                [int(re.search(rf"\n{name}: (\d+)\n", text)[1]) for name in ("read_bytes", "write_bytes")]
            )
        return found, support.record(out)

    def test_bytes_of_a_step_as_the_kernel_counts_them(self):
        if not os.path.exists("/proc/self/io"):
            self.skipTest("this kernel counts no bytes (CONFIG_TASK_IO_ACCOUNTING)")
        self.moved(2, "")
        for settings in support.chosen(("", ON_DISK), ON_DISK):
            with self.subTest(settings=settings):
                self.expect_as_counted(settings)

    # What the kernel reads again of a program that it had dropped only adds to a run: the least of a few is the run's own.
    def expect_as_counted(self, settings):
        few, many = [], []
        for _ in range(4):
            (less, _), (more, record) = self.moved(3, settings), self.moved(13, settings)
            few, many = [*few, less], [*many, more]
            off = [
                (min(run[rank][way] for run in many) - min(run[rank][way] for run in few))
                / 10
                / disk_bytes(record, rank)[way]
                - 1
                for rank in (0, 1)
                for way in (0, 1)
            ]
            self.assertGreater(disk_bytes(record, 0)[0], 20e6)
            if max(map(abs, off)) < 0.001:
                return
        self.fail(f"read and written beside the plan: {off}")

    # Two models whose states, 12 bytes a parameter, differ by 340 MB. Compared: VmHWM (all that was ever in memory at once: program, libraries,
    # window, LibTorch's own) less the plan of place device, which grows with the model. States that are kept anywhere in memory, a page cache's
    # pages that are mapped, or a window that grows with the model would take a byte a parameter at least. A block's own tensors, each rounded up
    # to pages, its operations and its rows of the plan take 0.1 to 0.2 here.
    def test_host_memory_does_not_grow_with_the_model(self):
        beside, planned = {}, {}
        for _ in range(
            3
        ):  # what the kernel maps of a library besides only adds: the least of a few is the run's own
            for layers in (12, 48):
                flags = [
                    *self.MODEL,
                    f"--set=model.layers={layers}",
                    "--set=batch.global=1",
                    "--set=piece=500000",
                    "--steps",
                    "3",
                ]
                flags += ["--page", "off", "--sample", "0"]  # marks and a text grow with the model, too
                ended, plans, peaks = support.peak_memory(LESSON, 1, *flags, "--disk", self.disk)
                self.expect_well(ended)
                beside[layers] = min(peaks[0] - plans[0]["total"], beside.get(layers, peaks[0]))
                planned[layers] = {place: sum(plans[0][place].values()) for place in ("pinned", "disk")}
            self.assertEqual(planned[48]["pinned"], planned[12]["pinned"])
            parameters = (planned[48]["disk"] - planned[12]["disk"]) / 12
            self.assertGreater(parameters, 25e6)
            if abs(beside[48] - beside[12]) < parameters / 2:
                return
        self.fail(f"beside the plan of place device: {beside}")

    # Parameters lie on the disk too; of what grows with the model only gradients are in memory. Lesson 05, which keeps the states there, is refused
    # before it takes them: the control group's limit is known.
    def test_a_limit_of_memory_below_the_states(self):
        limit = 400 << 20
        group, missing = memory_group(limit)
        if missing:
            self.skipTest(missing)
        flags = [
            *self.MODEL,
            "--set=model.layers=48",
            "--set=batch.global=1",
            "--set=batch.sequence=8",
            "--steps",
            "2",
        ]
        settings = f"{ON_DISK} piece=500000".split()
        commands = {  # name: lesson, its flags, what starts it
            "free": (LESSON, [*settings, f"disk={self.disk}"], []),
            "limited": (LESSON, [*settings, f"disk={self.disk}"], joining(group)),
            "states in memory": ("05_offload", [], joining(group)),
        }
        weights, outs = ({name: support.new_path(what) for name in commands} for what in ("w", "out"))
        ended = {}
        try:
            for name, (lesson, chosen, each) in commands.items():
                sets = [f"--set={setting}" for setting in chosen]
                ended[name] = support.execute(
                    [
                        *each,
                        support.program(lesson),
                        *support.files_of(lesson),
                        *flags,
                        *sets,
                        "--save",
                        weights[name],
                        "--out",
                        outs[name],
                    ]
                )
        finally:
            os.rmdir(group)
        self.expect_well(ended["free"])
        self.expect_well(ended["limited"])
        states = sum(
            support.record(outs["limited"])["ranks"][0]["measured_bytes"]["disk"][name]
            for name in ("master", "momentum", "variance")
        )
        self.assertGreater(states, 1.1 * limit)
        self.assertTrue(filecmp.cmp(weights["limited"], weights["free"], shallow=False))
        self.assertEqual(ended["states in memory"].code, 69, ended["states in memory"])
        self.assertRegex(ended["states in memory"].err, "of host memory free, ranks here: 1")


if __name__ == "__main__":
    support.main()
