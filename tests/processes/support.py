"""What the process tests share: jobs of real ranks, what they printed, and what they left behind.

A test file ends with support.main(); CMake starts it with the folder of the programs:
  python3 tests/processes/signal_test.py build/cpu/bin [unittest's own arguments]

Each rank's process takes half a second of a core before it does anything. Ordinarily one setting of each kind runs, where tests of threads
(tests/lessons) have all of them; with STAGECRAFT_SETTINGS=all every one runs (tests/soak.sh).
"""

import array
import concurrent.futures
import contextlib
import glob
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WORKLOAD = os.path.join(
    ROOT, "tests/processes/workload.json"
)  # its data: tokens.bin of the working directory
DEADLINE = 100  # seconds; a job that reaches it has hung, and its whole group is killed

programs = ""  # the folder of the executables
scratch = ""  # a folder of this test process, removed at its end; every job's working directory
_numbers = itertools.count()
_repository_lock = threading.Lock()


def all_settings():
    """Whether every setting runs, and every case."""
    return os.environ.get("STAGECRAFT_SETTINGS") == "all"


in_all_settings = unittest.skipUnless(all_settings(), "with STAGECRAFT_SETTINGS=all alone")


def chosen(cases, *few):
    """All of a dict or a list, or those few of them."""
    unknown = [one for one in few if one not in cases]
    if unknown:
        raise AssertionError(f"chosen, but no case: {unknown}")
    if all_settings():
        return cases
    return {one: cases[one] for one in few} if isinstance(cases, dict) else list(few)


class Ended:
    """A job that is over."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def __str__(self):
        return f"exit {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"

    @property
    def errors(self):
        """The messages: from "error: " to the next one, on stderr."""
        return ["error: " + part.strip() for part in re.split(r"(?:^|\n)error: ", self.err)[1:]]


def new_path(name):
    """A path that no other job has, and that is found in the command line of a process that outlives it."""
    return os.path.join(scratch, f"{name}-{os.getpid()}-{next(_numbers)}")


def write_tokens(path, values, magic=20240520, version=1, count=None):
    """A token file of llm.c's format (common/data/token_file.h)."""
    header = array.array("i", [magic, version, len(values) if count is None else count] + [0] * 253)
    with open(path, "wb") as file:
        file.write(header.tobytes() + array.array("H", values).tobytes())
    return path


def environment(**more):
    """Without a launcher's variables: a test may itself run under one. What the machine says of how mpirun starts processes stays,
    since without ssh it must say so. One thread: sums are compared to the bit."""
    env = {
        k: v
        for k, v in os.environ.items()
        if not re.match("OMPI_(?!MCA_plm)|PMIX_|PMI_|SLURM_|STAGECRAFT_", k)
    }
    env.update(OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    env["ASAN_OPTIONS"] = "detect_leaks=0:allocator_may_return_null=1:" + env.get("ASAN_OPTIONS", "")
    env.update(more)
    return env


def gpus():
    """How many a process here sees."""
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        return len([one for one in os.environ["CUDA_VISIBLE_DEVICES"].split(",") if one.strip()])
    try:
        said = subprocess.run(
            ["nvidia-smi", "--list-gpus"], capture_output=True, text=True, check=True, timeout=60
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return 0
    return len([line for line in said.splitlines() if line.startswith("GPU ")])


def one_gpu():
    """An environment in which a job sees one GPU."""
    return environment(CUDA_VISIBLE_DEVICES=os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0])


def program(name):
    return os.path.join(programs, name)


def files_of(lesson):
    """The flags that run.sh adds."""
    strategy = os.path.join(ROOT, "lessons", lesson, "config.json")
    return ["--workload", WORKLOAD, "--strategy", strategy]


def mpirun(ranks):
    """The start of a command line; empty for 0 ranks: no launcher."""
    if ranks == 0:
        return []
    return [
        "env",
        "EVENT_NOEPOLL=1",
        "mpirun",
        "-q",
        "--oversubscribe",
        "--bind-to",
        "none",
        "-n",
        str(ranks),
    ]


def start(command, env=None, **options):
    """A process group of its own, so that a hang can be ended as a whole; and a folder of mpirun's own, since of two that share one the first
    to end removes it while the other begins."""
    session = new_path("mpi")
    os.mkdir(session)
    env = {**(env or environment()), "OMPI_MCA_orte_tmpdir_base": session}
    return subprocess.Popen(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        cwd=scratch,
        start_new_session=True,
        **options,
    )


def end(process):
    """Waits for it; what it printed."""
    try:
        out, err = process.communicate(timeout=DEADLINE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        err += f"\nthe job hung for {DEADLINE} s and was killed"
    code = process.returncode
    return Ended(code if code >= 0 else 128 - code, out, err)


def end_struck(process):
    """The same, without what Open MPI says of a neighbour whose process is gone while it reads in its memory."""
    ended = end(process)
    ended.err = re.sub(r"(?m)^\[\S+:\d+\] Read -1, expected \d+, errno = \d+\n?", "", ended.err)
    return ended


def execute(command, env=None):
    return end(start(command, env))


def run(lesson, ranks, *flags, env=None):
    """A lesson's program under mpirun; without any launcher if ranks is 0."""
    return execute(mpirun(ranks) + [program(lesson)] + files_of(lesson) + list(flags), env)


class Run:
    """Where a run's files will lie, and the run. settings: "key=value key=value"; env: instead of environment()."""

    def __init__(self, lesson, ranks, settings, *flags, env=None):
        self.out = new_path("out")
        self.weights = self.out + ".safetensors"
        setting = [part for s in settings.split() for part in ("--set", s)]
        self.job = lambda: run(
            lesson, ranks, *setting, *flags, "--out", self.out, "--save", self.weights, env=env
        )

    def losses(self):
        """(loss, norm) of every step."""
        with open(self.out + "/steps.jsonl", encoding="utf-8") as file:
            return [(step["loss"], step["grad_norm"]) for step in map(json.loads, file)]

    def record(self):
        return record(self.out)


def record(out):
    with open(out + "/record.json", encoding="utf-8") as file:
        return json.load(file)


def repository():
    """A folder with the real run.sh files, whose build/cpu is the build under test, wherever that lies."""
    place = os.path.join(scratch, "repository")
    with _repository_lock:  # jobs start in several threads; the first one makes it
        if os.path.exists(place):
            return place
        shutil.copytree(os.path.join(ROOT, "lessons"), os.path.join(place, "lessons"))
        shutil.copytree(os.path.join(ROOT, "common/setup"), os.path.join(place, "common/setup"))
        os.symlink(os.path.join(ROOT, "configs"), os.path.join(place, "configs"))
        os.makedirs(os.path.join(place, "build/cpu"))
        os.symlink(programs, os.path.join(place, "build/cpu/bin"))
    return place


def run_sh(lesson, ranks, *flags):
    """The command line of lessons/<lesson>/run.sh."""
    script = os.path.join(repository(), "lessons", lesson, "run.sh")
    return [script, "--preset", "cpu", "--no-build", "-n", str(ranks)] + files_of(lesson) + list(flags)


def side_by_side(jobs, at_once=3):
    """jobs: name -> function without arguments. They wait more than they compute. Returns name -> result."""
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        futures = {name: pool.submit(job) for name, job in jobs.items()}
    return {name: future.result() for name, future in futures.items()}


def processes_with(text):
    """Ids of processes whose command line contains `text`."""
    found = []
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, "rb") as file:
                if text.encode() in file.read():
                    found.append(int(path.split("/")[2]))
        except OSError:
            pass  # it ended meanwhile
    return found


def process_of(text, rank):
    """The id of the process of that rank, of those whose command line contains `text`."""
    for pid in processes_with(text):
        with contextlib.suppress(OSError), open(
            f"/proc/{pid}/environ", encoding="utf-8", errors="replace"
        ) as file:  # it ended meanwhile
            if f"OMPI_COMM_WORLD_RANK={rank}\0" in file.read():
                return pid
    raise AssertionError(f"no process of rank {rank}")


def peak_memory(lesson, ranks, *flags):
    """A run, what it planned, and what the kernel counted: (Ended, predicted_bytes by rank, VmHWM in bytes by rank); two Nones if it failed."""
    out = new_path("out")
    process = start(mpirun(ranks) + [program(lesson)] + files_of(lesson) + [*flags, "--out", out])
    peaks, deadline = {}, time.monotonic() + DEADLINE
    while process.poll() is None and time.monotonic() < deadline:
        for pid in processes_with(out):
            try:
                with open(f"/proc/{pid}/environ", encoding="utf-8", errors="replace") as file:
                    rank = re.search(r"OMPI_COMM_WORLD_RANK=(\d+)", file.read())
                with open(f"/proc/{pid}/status", encoding="utf-8") as file:
                    peak = re.search(r"VmHWM:\s+(\d+) kB", file.read())
            except OSError:
                continue  # it ended meanwhile
            if rank and peak:
                peaks[int(rank[1])] = max(peaks.get(int(rank[1]), 0), 1024 * int(peak[1]))
        time.sleep(0.05)
    ended = end(process)
    if ended.code != 0:
        return ended, None, None
    return ended, [rank["predicted_bytes"] for rank in record(out)["ranks"]], [peaks[r] for r in range(ranks)]


def stale_boards():
    """Progress boards (common/watch/progress_board.h) of jobs whose first rank is gone."""
    boards = glob.glob("/dev/shm/stagecraft-*") + glob.glob("/tmp/stagecraft-[0-9]*-[0-9]*")
    return {board for board in boards if not os.path.exists("/proc/" + os.path.basename(board).split("-")[1])}


def comes_true(condition, seconds=10):
    """mpirun may return a moment before its last child is gone."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


class ProcessTest(unittest.TestCase):
    maxDiff = None

    def expect_one_error(self, ended, code, message):
        """`message`: the whole text after "error: ", or a compiled pattern that the whole text must match."""
        self.assertEqual(ended.code, code, ended)
        self.assertEqual(len(ended.errors), 1, ended)
        self.assertNotIn("error: ", ended.out)
        said = ended.errors[0][len("error: ") :]
        if isinstance(message, re.Pattern):
            self.assertRegex(said, re.compile(r"\A(?:" + message.pattern + r")\Z"))
        else:
            self.assertEqual(said, message)

    def struck(self, number, rank, lesson, ranks, *flags):
        """Sends the signal to one rank of a run that would last for hours, once it trains. All of it ends, and nothing is left."""
        out, boards = new_path("out"), stale_boards()
        job = start(run_sh(lesson, ranks, *flags, "--steps", "1000000", "--out", out))
        steps = out + "/steps.jsonl"
        trains = comes_true(lambda: os.path.exists(steps) and os.path.getsize(steps) > 1000, 60)
        os.kill(process_of(out, rank), number)
        ended = end_struck(job)
        self.assertTrue(trains, ended)
        self.expect_nothing_left(out, boards)
        self.assertEqual(record(out)["exit_code"], 75)
        return ended

    def expect_nothing_left(self, text, boards_before):
        self.assertTrue(comes_true(lambda: not processes_with(text)), f"left: {processes_with(text)}")
        self.assertTrue(comes_true(lambda: stale_boards() <= boards_before), stale_boards() - boards_before)


def main(gpus_needed=0):
    """gpus_needed: with fewer the file is skipped (77)."""
    global programs, scratch
    if gpus() < gpus_needed:
        print(f"skipped: {gpus_needed} GPU{'s' if gpus_needed > 1 else ''} needed, {gpus()} visible")
        sys.exit(77)
    programs = os.path.abspath(sys.argv.pop(1))
    with tempfile.TemporaryDirectory(prefix="stagecraft-processes-") as scratch:
        letters = random.Random(1)
        values = []
        while len(values) < 20000:  # words of a small dictionary: there is something to learn
            values += b"the rank waits for a sum " if letters.random() < 0.5 else b"gradients travel "
        write_tokens(os.path.join(scratch, "tokens.bin"), values)
        unittest.main(verbosity=2)
