"""Lesson 06 on the real programs: lesson 05's bits on one to three ranks, whatever the window, the engine and
the disk are; what a disk refuses, loses or never answers ends all ranks with one message, or is one line; no
file is ever left; bytes as the kernel counts them."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

import support
from support import Run, once

LESSON = "06_infinity"
LATE = "update=delayed grads_at=host"
ON_DISK = "parameters=sharded params_at=disk"  # the parameters too
MBPS = 5
SLOW = f"--disk-mbps {MBPS}"
# By number of ranks: settings and flags with exact updates. infinity_test.cpp tests all of them on threads.
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
ROOM = (
    r"; the file takes \d+\.\d\d kB, \S+ k?B are free\n  fix: free space on the file system that holds it, "
    r"or write elsewhere"
)
NO_DIRECT = "{}: no O_DIRECT there: transfers go through the page cache, which takes memory"
OTHER_ENGINE = r"io_uring is refused here: .*; threads takes its place"
STUCK = (
    r"rank \d is stuck: its operation [\d]+ \(disk_(read|write) of (the embedding|the head|block \d+)'s "
    r"(states|parameters) \([\d,]+ f32\), train step \d+\) has not ended for more than {} s\n"
    r"  fix: see whether the disk still answers \(dmesg\); one that is only slow needs a longer --watchdog "
    r"\(now {} s\)"
)
NO_SECCOMP = "no seccomp here"

# Makes a system call fail from now on, as in a container. No launcher has a flag for that.
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


def reference(world, steps, more=""):
    """Lesson 00 in the order of sums that 04, 05 and 06 have, as zero_test.py and offload_test.py show."""
    return support.lesson_00(world, f"{more} --steps {steps}")


def refusing(number, error):
    return [sys.executable, "-c", REFUSE, str(number), str(error)]


def disk_bytes(record, rank=0):
    """What a rank reads, and what it writes, in a step."""
    operations = record["ranks"][rank]["measured_operations"]
    return [
        sum(4 * op["count"] * op["elements"] for op in operations if op["kind"] == kind)
        for kind in ("disk_read", "disk_write")
    ]


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
    """(the folder of a new control group whose processes have `limit` bytes of memory, None), or (None, why
    there is none)."""
    if os.geteuid() != 0:
        return None, "this user may make no control group"
    kinds = {
        "cgroup2": {"memory.max": limit, "memory.swap.max": 0},
        "cgroup": {"memory.limit_in_bytes": limit, "memory.memsw.limit_in_bytes": limit},
    }
    why = "no control groups of memory are mounted here"
    for _, place, kind, options, *_ in map(str.split, support.read_text("/proc/mounts").splitlines()):
        if kind not in kinds or kind == "cgroup" and "memory" not in options.split(","):
            continue
        group = pathlib.Path(place, f"stagecraft-{os.getpid()}")
        try:
            group.mkdir()
        except OSError as error:
            why = f"no control group can be made here: {error}"
            continue
        try:
            for name, count in kinds[kind].items():
                if "sw" not in name or (group / name).exists():  # not every kernel counts what is swapped out
                    (group / name).write_text(str(count), encoding="ascii")
            if support.execute([*joining(group), "true"]).code == 0:
                return group, None
            why = "no process may join a control group here"
        except OSError as error:  # on v2: memory is not handed down to this group
            why = f"no control group of memory can be made here: {error}"
        group.rmdir()
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
        self.disk = support.new_folder("disk")
        self.boards = support.stale_boards()

    def tearDown(self):
        self.assertEqual(os.listdir(self.disk), [], "left on the disk")

    def job(self, ranks, text="", *flags, **how):
        """A run with that disk."""
        return Run(LESSON, ranks, text, *flags, "--disk", self.disk, **how)

    def training(self, ranks, text="", steps=5, **how):
        """A run that would last for hours, and its process, once it has made some steps."""
        job = self.job(ranks, f"{text} --steps 100000", save=False, **how)
        return job, job.start(steps)

    def expect_notes(self, job, *patterns):
        """The lines before the first one about the run: each said once, whatever the number of ranks."""
        notes = re.findall(r"warning\S*\] (.*?)\r?\n", job.ended.out)
        self.assertEqual(len(notes), len(patterns), notes)
        for note, pattern in zip(notes, patterns):
            self.assertRegex(note, rf"\A{pattern}\Z")

    def expect_end(self, job, code, message, process=None, within=2):
        """A run (or its process, if it is under way) ends with one message, all ranks some seconds later at
        most, and leaves nothing."""
        ended, seconds = end_timed(process or support.start(job.line, job.env))
        self.expect_one_error(ended, code, re.compile(message))
        self.assertLess(seconds, within, ended)
        self.expect_nothing_left(job.out, self.boards)


class Bits(InfinityTest):
    STEPS = "--steps 20"

    @classmethod
    def setUpClass(cls):
        cls.shared = support.new_folder("disk")
        cls.late = once("05_offload", 2, f"update=delayed {cls.STEPS}")
        cls.exact = {
            (world, s): Run(LESSON, world, f"{s} {cls.STEPS} --disk {cls.shared}")
            for world, settings in EXACT.items()
            for s in settings
        }
        cls.delayed = {s: Run(LESSON, 2, f"{s} {cls.STEPS} --disk {cls.shared}") for s in DELAYED}
        support.together([cls.late, *cls.exact.values(), *cls.delayed.values()])

    def test_exact_updates_end_in_lesson_00s_file(self):
        self.expect_references({name: (job, reference(name[0], 20)) for name, job in self.exact.items()})
        self.assertEqual(os.listdir(self.shared), [])

    @support.in_all_settings  # zero_test.py and offload_test.py compare these two with lesson 00
    def test_exact_updates_end_in_the_files_of_04_and_05(self):
        for lesson in ("04_zero3", "05_offload"):
            self.expect_references(
                {name: (job, once(lesson, name[0], self.STEPS)) for name, job in self.exact.items()}
            )

    def test_delayed_updates_end_in_lesson_05s_file(self):
        self.expect_references({name: (job, self.late) for name, job in self.delayed.items()})
        self.expect_other_file(self.expect_well(reference(2, 20)).weights, self.late.weights)

    # Only lower bounds of times are tested, since a busy machine is slow. A step ends when its update is on
    # the disk.
    def test_a_slow_disk_takes_its_time(self):
        for job in (self.exact[2, SLOW], self.delayed[f"{LATE} {SLOW}"]):
            record = job.record()
            each = sum(disk_bytes(record)) / 1e6 / MBPS
            self.assertGreater(each, 0.05)
            self.assertGreaterEqual(record["seconds"], 19 * each)

    # Loaded weights reach the disk and return unchanged to the bit: the steps' learning rate is too small to
    # change one.
    def test_a_run_goes_on_from_a_file_of_another_lesson(self):
        trained = self.expect_well(reference(2, 20)).weights
        settings = ("piece=1000 buffers=2", "parameters=sharded params_at=host", ON_DISK, LATE)
        jobs = {
            s: self.job(3, f"{s} optim.lr=1e-30 --steps 1 --init {trained}")
            for s in support.chosen(settings, ON_DISK)
        }
        self.expect_all_well(jobs)
        for job in jobs.values():
            self.expect_same_file(job.weights, trained)

    # Work that a save or an evaluation makes the host do early is counted for the next step, so every step
    # has the predicted operations.
    def test_what_comes_between_two_steps(self):
        text = support.new_file("validation.txt", "the rank waits for a sum\n" * 20)
        jobs = {
            (s, what): self.job(2, f"{s} --steps 4 {what}")
            for s in support.chosen(("", ON_DISK), ON_DISK)
            for what in ("--save-every 1", f"--eval-every 1 --validation {text}")
        }
        self.expect_all_well(jobs)
        for job in jobs.values():
            self.expect_same_file(job, reference(2, 4))

    def test_a_gradient_that_is_not_finite(self):
        poisoned = "--steps 4 --inject nan@0,2"
        self.expect_one_error(
            self.job(2, f"optim.nonfinite=stop {poisoned}"),
            70,
            re.compile(
                r"step 2: the gradient is not finite, first seen in unit 3; it came from rank 0's own "
                r"micro-batches\n  fix: .*"
            ),
        )

    @support.in_all_settings
    def test_an_update_that_is_skipped(self):
        skip = "optim.nonfinite=skip"
        poisoned = "--steps 4 --inject nan@0,2"
        peer = self.expect_well(Run("04_zero3", 2, f"{skip} {poisoned}"), warned=True)
        for settings in ("", f"{LATE} warm_steps=100"):
            job = self.job(2, f"{skip} {settings} {poisoned}")
            self.expect_well(job, warned=True)
            self.expect_record(job, skipped_updates=1)
            self.expect_same_file(job.weights, peer.weights)


class Refusals(InfinityTest):
    def test_what_cannot_be(self):
        disk, file = self.disk, support.WORKLOAD
        whole = (
            "with parameters=whole every rank has all of them on its device\n"
            "  fix: parameters=sharded, or params_at=device"
        )
        no_folder = (
            69,
            re.compile(
                rf"{disk}/no/states of rank \d: cannot create: No such file or directory \(ENOENT\); the "
                r"file takes "
                rf"\d+\.\d\d kB\n  fix: create its directory: mkdir -p {disk}/no"
            ),
        )
        cases = {
            "update=delayed": (
                64,
                "update=delayed: the next gradient would overwrite the one on the device that the update "
                "still reads\n"
                "  fix: grads_at=host, or update=exact",
            ),
            "block=5000": (64, "block: 5000 is no multiple of 4096\n  fix: block=8192"),
            "params_at=host": (64, f"params_at=host: {whole}"),
            "params_at=disk": (64, f"params_at=disk: {whole}"),
            "--disk-cap 100000": (
                69,
                re.compile(
                    r"--disk-cap 100\.00 kB: a rank would hold (\d+\.\d\d) kB on the disk\n"
                    r"  fix: --disk-cap \d+, or a strategy that holds less there"
                ),
            ),
        }
        for flags, words in {
            "block=100": r"--set block=100: block: 100 is outside its range, at least 4096",
            "buffers=0": r"--set buffers=0: buffers: 0 is outside its range, 1 \.\. 1024",
            "engine=aio": r'--set engine=aio: engine: "aio" is none of io_uring, threads',
            "--disk-mbps -1": r"--disk-mbps -1: disk_mbps: -1 is outside its range, at least 0",
            "--graph on": r"--graph: it is about GPUs, and this is on the CPU",
        }.items():
            cases[flags] = (64, re.compile(words + r"\n  fix: .*"))
        jobs = {(LESSON, 0, flags, "--disk", disk): ends for flags, ends in cases.items()}
        jobs |= {(LESSON, ranks, f"--disk {disk}/no"): no_folder for ranks in (0, 2)}
        jobs[LESSON, 0, f"--disk {file}"] = (
            69,
            re.compile(
                rf"{file}/states of rank 0: cannot create: Not a directory \(ENOTDIR\); the file takes .*"
                r"\n  fix: a part of the path is a file: check the path"
            ),
        )
        self.expect_ends(jobs)

    def test_a_directory_that_may_not_be_written(self):
        each = []
        if os.geteuid() == 0:  # who may write everywhere unless that is taken away
            each = ["setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override"]
            self.needs([*each, "true"], "root may write everywhere, and setpriv cannot take that away")
        locked = support.new_folder("locked")
        os.chmod(locked, 0o500)
        self.expect_one_error(
            Run(LESSON, 0, f"--disk {locked}", each=each),
            69,
            re.compile(
                rf"{locked}/states of rank 0: cannot create: Permission denied \(EACCES\); the file takes "
                r"\d+\.\d\d kB, .* are free\n"
                r"  fix: write where you have permission, or change the directory's owner or mode"
            ),
        )

    # Open MPI's shared memory would not fit into the limit of file sizes either.
    def test_a_limit_of_file_sizes(self):
        message = (
            r"\S+/states of rank \d: cannot allocate (\d+) bytes: File too large \(EFBIG\); the file takes "
            r"\S+ kB, .* are free\n"
            r"  fix: raise the limit of a file's size \(ulimit -f unlimited\), or use another file system"
        )
        env, each = support.environment(OMPI_MCA_btl="tcp,self"), ["prlimit", "--fsize=200000"]
        for ranks in (0, 2):
            self.expect_end(self.job(ranks, each=each, env=env), 69, message)


class PoorDisks(InfinityTest):
    """A disk in memory, an engine that is refused: one line and the right bits, or the end before the
    start."""

    def on_small_disk(self, size, job):
        """The run, on a disk of that size."""
        job.line = self.on_tmpfs(size, self.disk, job.line)
        return job

    def file_size(self):
        """The size of one rank's file in a world of two."""
        ended = support.run(LESSON, 0, "--plan --world 2")
        return int(re.search(r"\n  total, disk +[\d.]+ kB +([\d,]+)\n", ended.out)[1].replace(",", ""))

    def expect_right(self, job, *notes):
        """A run of four steps on two ranks: its bits, and what is noted."""
        self.expect_same_file(job, reference(2, 4))
        self.expect_notes(job, *notes)

    def test_without_o_direct(self):
        job = self.on_small_disk("16m", self.job(2))
        self.expect_right(job, re.escape(NO_DIRECT.format(self.disk)))

    def test_half_the_room(self):
        message = (
            rf"{self.disk}/states of rank \d: cannot (make a file of this size|allocate \d+ bytes): No "
            r"space left on device \(ENOSPC\)" + ROOM
        )
        for ranks in (0, 2):  # of two one may find room
            self.expect_end(self.on_small_disk(self.file_size(), self.job(ranks)), 69, message)

    # There is room for each rank's file but not for both, and no room can be reserved: the first pass over a
    # file fails, for whichever rank comes second.
    def test_half_the_room_where_no_room_can_be_kept(self):
        if FALLOCATE is None:
            self.skipTest(NO_SECCOMP)
        refused = refusing(FALLOCATE, EOPNOTSUPP)
        self.needs([*refused, "true"], NO_SECCOMP)
        message = (
            rf"{self.disk}/states of rank \d: cannot (write \d+ bytes at byte \d+|make a file of this size): "
            r"No space left on device \(ENOSPC\)"
        ) + ROOM
        size = self.file_size() * 3 // 2 // 4096 * 4096
        self.expect_end(self.on_small_disk(size, self.job(2, each=refused)), 69, message)

    def test_an_engine_that_is_refused(self):
        refused = refusing(IO_URING_SETUP, EPERM)
        self.needs([*refused, "true"], NO_SECCOMP)
        self.expect_right(self.job(2, each=refused), OTHER_ENGINE)
        self.expect_right(self.job(2, "engine=threads", each=refused))
        # Only the second rank is refused, as on a machine of its own.
        one = self.job(1)
        one.line += [":", "-n", "1", *refused, *one.line[len(support.mpirun(1)) :]]
        self.expect_right(one, f"rank 1: {OTHER_ENGINE}")

    # Newer kernels do not count an io_uring's memory as locked.
    def test_little_locked_memory(self):
        job = self.job(2, each=["prlimit", "--memlock=4096"])
        self.expect_right(job, *([OTHER_ENGINE] if "warning" in job.ended.out else []))


class WhileItTrains(InfinityTest):
    def test_two_runs_in_one_directory(self):
        jobs = {seed: self.job(2, f"seed={seed} --steps 60") for seed in (1, 2)}
        together = threading.Thread(target=support.together, args=[jobs.values()])
        together.start()
        files = lambda: [
            state_file(pid, self.disk) for job in jobs.values() for pid in support.ranks_of(job.out).values()
        ]
        self.assertTrue(
            support.comes_true(lambda: len(files()) == 4 and all(files()), 30), "never both at once"
        )
        self.assertEqual(os.listdir(self.disk), [], "while they train")
        together.join()
        self.expect_all_well(jobs)
        for seed in support.chosen(list(jobs), 1):
            self.expect_same_file(
                jobs[seed].weights, self.expect_well(reference(2, 60, f"seed={seed}")).weights
            )
        self.expect_other_file(jobs[1].weights, jobs[2].weights)

    # What another process writes may be overwritten by the next update unnoticed; in that case the test
    # writes again.
    def test_somebody_writes_into_the_file(self):
        at = 30 * 4096
        for rank in (0, 1):
            job, process = self.training(2, "piece=1000 block=4096")
            pid = support.ranks_of(job.out)[rank]
            file, before = state_file(pid, self.disk), 0
            garbage = f"dd if=/dev/urandom of={file} bs=4096 seek={at // 4096} count=1 conv=notrunc".split()
            ends = lambda: support.processes_with(job.out) == [] or process.poll() is not None
            for _ in range(10):
                os.kill(pid, signal.SIGSTOP)
                before = len(support.steps_of(job.out))
                subprocess.run(garbage, check=True, capture_output=True)
                os.kill(pid, signal.SIGCONT)
                if support.comes_true(ends, 3):
                    break
            self.assertTrue(ends(), "never noticed")
            self.expect_end(
                job,
                65,
                rf"{self.disk}/states of rank {rank}: the 4096 bytes at byte {at} are not what was written "
                r"there last: "
                r"a write was lost, or somebody changed the file\n"
                r"  fix: look for the disk's errors \(dmesg\), or use another disk",
                process,
            )
            self.assertLessEqual(len(support.steps_of(job.out)), before + 2)

    # Open MPI may print first that it cannot read the killed rank's memory.
    def test_a_killed_rank_leaves_nothing(self):
        for rank in (0, 1):
            job, process = self.training(2, sh=True)
            os.kill(support.ranks_of(job.out)[rank], signal.SIGKILL)
            lost = (
                rf"lost rank {rank}: noticed by rank {1 - rank}\n  rank {rank}: process \d+ is gone; (.*\n?)*"
            )
            self.expect_end(job, 75, lost, process, within=5)


class Watched(InfinityTest):
    # The reads of a step, all in flight at once, take longer than the watchdog's limit together, but none
    # does alone.
    def test_a_long_disk_step_is_no_hang(self):
        job = self.job(2, "piece=4000 buffers=8 --disk-mbps 0.2 --watchdog 1 --steps 2")
        record = self.expect_well(job).record()
        reads, writes = (moved / 0.2e6 for moved in disk_bytes(record))
        self.assertGreater(reads, 1.2)
        self.assertLess(12 * 4000 / 0.2e6, 0.3)
        self.assertGreaterEqual(record["seconds"], 2 * (reads + writes))

    # A single read takes longer than the watchdog's limit, and is named.
    def test_a_read_that_hangs_is_named(self):
        job = self.job(0, "--disk-mbps 0.2 --watchdog 0.5")
        self.expect_end(job, 75, STUCK.format(r"0\.5", r"0\.5"))

    # A frozen file system stands for a disk that no longer answers.
    def test_a_disk_that_does_not_answer_is_named(self):
        image = support.new_file("image", "")
        os.truncate(image, 32 << 20)
        made = f"mkfs.ext4 -q -F {image} && mount -o loop {image} {self.disk}"
        if os.geteuid() != 0 or support.execute(["sh", "-c", made]).code:
            self.skipTest("this user may not mount an image (loop device)")
        try:
            os.rmdir(self.disk + "/lost+found")
            job, process = self.training(2, "--watchdog 2")
            subprocess.run(["fsfreeze", "--freeze", self.disk], check=True)
            try:
                begin, steps = time.monotonic(), len(support.steps_of(job.out))
                said = support.comes_true(lambda: job.record()["exit_code"] == 75, 10)
                took = time.monotonic() - begin
            finally:  # nobody ends a process that waits in the kernel
                subprocess.run(["fsfreeze", "--unfreeze", self.disk], check=True)
            self.assertTrue(said, "never noticed")
            self.assertGreater(took, 1.9)
            self.assertLessEqual(len(support.steps_of(job.out)), steps + 1)
            # The first rank to notice may be one that waits for the rank whose disk is frozen.
            waits = r"lost rank \d: rank \d waits for its operation (.*\n?)*"
            self.expect_end(job, 75, STUCK.format(r"2\.0", r"2\.0") + "|" + waits, process)
            self.assertEqual(os.listdir(self.disk), [])
        finally:
            gone = lambda: support.execute(["umount", self.disk]).code == 0
            self.assertTrue(support.comes_true(gone))


class Counted(InfinityTest):
    MODEL = "model.width=256 model.heads=8 model.vocab=4096"
    # The kernel adds the bytes that a process's children have moved when the process waits for them.
    COUNT = [
        "sh",
        "-c",
        'file=$1; shift; "$@"; code=$?; cat /proc/$$/io > "$file.$OMPI_COMM_WORLD_RANK"; exit $code',
        "sh",
    ]

    def moved(self, steps, settings):
        """rank -> (bytes read, bytes written) of a whole run, and its record; what is saved at the end waits
        for the last update."""
        counts = support.new_path("io")
        text = f"{self.MODEL} {settings} model.layers=4 batch.global=2 --steps {steps}"
        job = self.expect_well(self.job(2, text, each=[*self.COUNT, counts]))
        if "no O_DIRECT" in job.ended.out:
            self.skipTest("no O_DIRECT here: the page cache reads and writes when it likes")
        found = []
        for rank in (0, 1):
            text = support.read_text(f"{counts}.{rank}")
            found.append(
                [int(re.search(rf"\n{name}: (\d+)\n", text)[1]) for name in ("read_bytes", "write_bytes")]
            )
        return found, job.record()

    def test_bytes_of_a_step_as_the_kernel_counts_them(self):
        if not os.path.exists("/proc/self/io"):
            self.skipTest("this kernel counts no bytes (CONFIG_TASK_IO_ACCOUNTING)")
        self.moved(2, "")
        for settings in support.chosen(("", ON_DISK), ON_DISK):
            with self.subTest(settings=settings):
                self.expect_as_counted(settings)

    # The kernel may read a program's pages again, which only adds bytes to a run, so the smallest of a few
    # runs is taken.
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

    # Two models whose states, 12 bytes a parameter, differ by 340 MB. Compared is VmHWM (the peak of all
    # memory: program, libraries, window, LibTorch) less the plan for the device, which grows with the model.
    # States kept in memory, mapped pages of a page cache, or a window that grew with the model would take a
    # byte a parameter at least. Rounding of a block's tensors to pages, operations and rows of the plan take
    # 0.1 to 0.2.
    def test_host_memory_does_not_grow_with_the_model(self):
        beside, planned = {}, {}
        for _ in range(
            3
        ):  # what the kernel maps of a library besides only adds: the least of a few is the run's own
            for layers in (12, 48):
                text = (
                    f"{self.MODEL} model.layers={layers} batch.global=1 piece=500000 --steps 3 --disk "
                    f"{self.disk}"
                )
                # Marks and a sample text would grow with the model, so both are off.
                ended, plans, peaks = support.peak_memory(LESSON, 1, f"{text} --page off --sample 0")
                self.expect_well(ended)
                beside[layers] = min(peaks[0] - plans[0]["total"], beside.get(layers, peaks[0]))
                planned[layers] = {place: sum(plans[0][place].values()) for place in ("pinned", "disk")}
            self.assertEqual(planned[48]["pinned"], planned[12]["pinned"])
            parameters = (planned[48]["disk"] - planned[12]["disk"]) / 12
            self.assertGreater(parameters, 25e6)
            if abs(beside[48] - beside[12]) < parameters / 2:
                return
        self.fail(f"beside the plan of place device: {beside}")

    # Parameters lie on the disk, too, so only gradients grow in memory with the model. Lesson 05 keeps the
    # states in memory and is refused before it allocates them, because the control group's limit is known.
    def test_a_limit_of_memory_below_the_states(self):
        support.skip_with_a_sanitizer()
        limit = 400 << 20
        group, missing = memory_group(limit)
        if missing:
            self.skipTest(missing)
        model = f"{self.MODEL} model.layers=48 batch.global=1 batch.sequence=8"
        states_on_disk = f"{model} {ON_DISK} piece=500000 --steps 2"
        free, limited = self.job(0, states_on_disk), self.job(0, states_on_disk, each=joining(group))
        in_memory = Run("05_offload", 0, f"{model} --steps 2", each=joining(group))
        try:
            support.together([free, limited, in_memory], at_once=1)
        finally:
            os.rmdir(group)
        self.expect_well(free)
        held = self.expect_well(limited).record()["ranks"][0]["measured_bytes"]["disk"]
        self.assertGreater(sum(held[name] for name in ("master", "momentum", "variance")), 1.1 * limit)
        self.expect_same_file(limited.weights, free.weights)
        self.expect_one_error(in_memory, 69, ("of host memory free, ranks here: 1",))


if __name__ == "__main__":
    support.main()
