"""What the process tests share: jobs of real ranks, what they printed, and what they left behind.

A test file ends with support.main(); CMake starts it with the folder of the programs:
  python3 tests/processes/signal_test.py build/cpu/bin [unittest's own arguments]

A command is (lesson, ranks, text, more flags): the lesson's program under mpirun, or without any launcher if
ranks is 0. Its text is "key=value key=value --flag value", settings first; a flag whose value has blanks
follows by itself. What commands must end in stands in tables, command -> (exit code, message), that
ProcessTest.expect_ends reads; once() is the run that several tests of a file look at.

Each rank's process takes half a second of a core before it does anything. Ordinarily one setting of each kind
runs, where tests of threads (tests/lessons) have all of them; with STAGECRAFT_SETTINGS=all every one runs
(tests/soak.sh)."""

import array
import concurrent.futures
import contextlib
import filecmp
import functools
import glob
import itertools
import json
import os
import pathlib
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
ORACLE = os.path.join(ROOT, ".deps/oracle/bin/python")
DEADLINE = 100  # seconds; a job that reaches it has hung, and its whole group is killed
# Runs a command that sees a file system in memory of `$1` bytes at `$2`.
ON_TMPFS = [
    "unshare",
    "-rm",
    "sh",
    "-c",
    'mount -t tmpfs -o size="$1" none "$2" && shift 2 && exec "$@"',
    "sh",
]

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
    def said(self):
        return self.out + self.err

    @property
    def errors(self):
        """The messages: from "error: " to the next one, on stderr."""
        return ["error: " + part.strip() for part in re.split(r"(?:^|\n)error: ", self.err)[1:]]


# --- files --------------------------------------------------------------------------------------------------


def new_path(name):
    """A path that no other job has, with the name's ending, and that is found in the command line of a
    process that outlives it."""
    stem, dot, ending = name.partition(".")
    return os.path.join(scratch, f"{stem}-{os.getpid()}-{next(_numbers)}{dot}{ending}")


def new_file(name, content):
    """One of that text, or of those bytes."""
    path = pathlib.Path(new_path(name))
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def new_folder(name):
    path = new_path(name)
    os.mkdir(path)
    return path


def copy_of(folder):
    return shutil.copytree(folder, new_path("copy"))


def names_in(folder):
    return sorted(os.listdir(folder)) if os.path.exists(folder) else []


def read_text(*path):
    return pathlib.Path(*path).read_text(encoding="utf-8")


def read_json(*path):
    return json.loads(read_text(*path))


def write_tokens(path, values, magic=20240520, version=1, count=None):
    """A token file of llm.c's format (common/data/token_file.h)."""
    header = array.array("i", [magic, version, len(values) if count is None else count] + [0] * 253)
    with open(path, "wb") as file:
        file.write(header.tobytes() + array.array("H", values).tobytes())
    return path


def record(out):
    return read_json(out, "record.json")


def steps_of(out):
    """What a run has written down of each of its steps so far."""
    path = pathlib.Path(out, "steps.jsonl")
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def step(number):
    """The name of a checkpoint."""
    return f"step-{number:06d}"


# --- jobs ---------------------------------------------------------------------------------------------------


def environment(**more):
    """Without a launcher's variables: a test may itself run under one. What the machine says of how mpirun
    starts processes stays, since without ssh it must say so. One thread: sums are compared to the bit."""
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
    """The flags that run.sh adds; a lesson of tests has no file of keys."""
    strategy = os.path.join(ROOT, "lessons", lesson, "config.json")
    return ["--workload", WORKLOAD] + (["--strategy", strategy] if os.path.exists(strategy) else [])


def mpirun(ranks):
    """The start of a command line; empty for 0 ranks: no launcher."""
    line = "env EVENT_NOEPOLL=1 mpirun -q --oversubscribe --bind-to none -n"
    return [*line.split(), str(ranks)] if ranks else []


def words(text):
    """The words of "key=value key=value --flag value": a --set before each setting, flags as they are."""
    settings, dashes, flags = text.partition("--")
    return [word for setting in settings.split() for word in ("--set", setting)] + (dashes + flags).split()


def command(lesson, ranks, text="", *flags, each=()):
    """A command line. each: what starts every rank's program."""
    flags = [*words(text), *flags]
    files = [] if "--workload" in flags else files_of(lesson)
    return [*mpirun(ranks), *each, program(lesson), *files, *flags]


def run_sh(lesson, ranks, text="", *flags):
    """The command line of lessons/<lesson>/run.sh."""
    script = os.path.join(repository(), "lessons", lesson, "run.sh")
    return [
        script,
        "--preset",
        "cpu",
        "--no-build",
        "-n",
        str(ranks),
        *files_of(lesson),
        *words(text),
        *flags,
    ]


def start(line, env=None, **options):
    """A process group of its own, so that a hang can be ended as a whole; and a folder of mpirun's own, since
    of two that share one the first to end removes it while the other begins."""
    env = {**(env or environment()), "OMPI_MCA_orte_tmpdir_base": new_folder("mpi")}
    return subprocess.Popen(
        line,
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
    """The end of a job that was struck, without what Open MPI says of a neighbour whose process is gone while
    it reads in its memory."""
    ended = end(process)
    ended.err = re.sub(r"(?m)^\[\S+:\d+\] Read -1, expected \d+, errno = \d+\n?", "", ended.err)
    return ended


def execute(line, env=None):
    return end(start(line, env))


def tool(name, *arguments):
    """A program that is no lesson: checkpoint, pipedream and their like."""
    return execute([program(name), *arguments])


def forge(checkpoint, how):
    """Changes it as tests/storage/forge_checkpoint.cpp says."""
    forger = os.path.join(os.path.dirname(programs), "tests/storage/forge_checkpoint")
    subprocess.run([forger, checkpoint, how], check=True)


def finished(line, **options):
    """How a command ended that is started as a user would, with nothing of our own."""
    done = subprocess.run(
        line,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=DEADLINE,
        check=False,
        **options,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


class Run:
    """A command, and where its files lie: those of --out, --save and --checkpoints, which it gets unless it
    says them itself.

    sh: by run.sh. each: what starts every rank's program. checkpoints: where they lie, of a run that saves or
    goes on. save: whether it saves weights."""

    def __init__(
        self, lesson, ranks, text="", *flags, checkpoints=None, save=True, env=None, sh=False, each=()
    ):
        self.out, self.env, self._ended = new_path("out"), env, None
        self.weights, self.checkpoints = self.out + ".safetensors", checkpoints or self.out + "-checkpoints"
        flags = [*words(text), *flags]
        places = {"--out": self.out} | ({"--save": self.weights} if save else {})
        if checkpoints or "--save-every" in flags:
            places["--checkpoints"] = self.checkpoints
        if "--plan" not in flags:
            flags = [word for flag in places if flag not in flags for word in (flag, places[flag])] + flags
        self.line = run_sh(lesson, ranks, "", *flags) if sh else command(lesson, ranks, "", *flags, each=each)

    @property
    def ended(self):
        """How it ended. It starts when somebody asks for the first time."""
        if self._ended is None:
            self._ended = execute(self.line, self.env)
        return self._ended

    def start(self, steps=1):
        """Starts the job and returns its process, once it has made `steps` steps."""
        process = start(self.line, self.env)
        comes_true(lambda: len(steps_of(self.out)) >= steps or process.poll() is not None, 60)
        if process.poll() is None and len(steps_of(self.out)) >= steps:
            return process
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        raise AssertionError(f"it does not train: {end(process)}")

    def losses(self):
        """(loss, norm) of every step."""
        return [(row["loss"], row["grad_norm"]) for row in map(json.loads, steps_of(self.out))]

    def record(self):
        return record(self.out)

    def saved(self, number):
        """The job's checkpoint after `number` steps."""
        return os.path.join(self.checkpoints, step(number))


@functools.cache
def once(lesson, ranks, text="", *flags):
    """The one run of this command, whatever tests look at it."""
    return Run(lesson, ranks, text, *flags)


def lesson_00(world, text, order="micro_batch"):
    """Lesson 00 in the order of sums that so many ranks have."""
    return once("00_one_device", 0, f"{text} --virtual-ranks {world} --reduce-every {order}")


def run(lesson, ranks, text="", *flags, env=None):
    """How a run ended whose files nobody looks at."""
    return Run(lesson, ranks, text, *flags, env=env).ended


def side_by_side(jobs, at_once=3):
    """jobs: name -> function without arguments. They wait more than they compute. Returns name -> result."""
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        futures = {name: pool.submit(job) for name, job in jobs.items()}
    return {name: future.result() for name, future in futures.items()}


def together(runs, at_once=2):
    """Runs them side by side, each once."""
    side_by_side({run: lambda run=run: run.ended for run in runs}, at_once)


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


# --- what is there ------------------------------------------------------------------------------------------


def processes_with(text):
    """Ids of processes whose command line contains `text`."""
    found = []
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        with contextlib.suppress(OSError), open(path, "rb") as file:  # it ended meanwhile
            if text.encode() in file.read():
                found.append(int(path.split("/")[2]))
    return found


def ranks_of(text):
    """rank -> process of a lesson (0 where there is no launcher), of those whose command line contains
    `text`."""
    found = {}
    for pid in processes_with(text):
        with contextlib.suppress(OSError):  # it ended meanwhile
            if re.match(r"\d\d_", os.path.basename(os.readlink(f"/proc/{pid}/exe"))):
                variables = pathlib.Path(f"/proc/{pid}/environ").read_text(encoding="utf-8", errors="replace")
                rank = re.search(r"OMPI_COMM_WORLD_RANK=(\d+)", variables)
                found[int(rank[1]) if rank else 0] = pid
    return found


def skip_with_a_sanitizer():
    if os.path.basename(os.path.dirname(programs)).endswith("san"):
        raise unittest.SkipTest("a sanitizer maps memory of its own")


def peak_memory(lesson, ranks, text):
    """A run, what it planned, and what the kernel counted: (Ended, predicted_bytes by rank, VmHWM in bytes by
    rank); two Nones if it failed. Skips a test of programs with a sanitizer, whose own memory would count."""
    skip_with_a_sanitizer()
    job = Run(lesson, ranks, text, save=False)
    process, peaks = start(job.line), {}
    deadline = time.monotonic() + DEADLINE
    while process.poll() is None and time.monotonic() < deadline:
        for rank, pid in ranks_of(job.out).items():
            with contextlib.suppress(OSError):  # it ended meanwhile
                peak = re.search(r"VmHWM:\s+(\d+) kB", read_text(f"/proc/{pid}/status"))
                peaks[rank] = max(peaks.get(rank, 0), 1024 * int(peak[1]) if peak else 0)
        time.sleep(0.05)
    ended = end(process)
    if ended.code != 0:
        return ended, None, None
    return (
        ended,
        [rank["predicted_bytes"] for rank in job.record()["ranks"]],
        [peaks[r] for r in range(ranks)],
    )


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


# --- what must hold -----------------------------------------------------------------------------------------


class ProcessTest(unittest.TestCase):
    maxDiff = None

    def needs(self, line, why):
        """Skips the test where that command fails."""
        if execute(["env", *line]).code:
            self.skipTest(why)

    def expect_said(self, text, *parts):
        """Each of them is somewhere in it: a text as it stands, or a compiled pattern."""
        for part in parts:
            found = part.search(text) if isinstance(part, re.Pattern) else part in text
            self.assertTrue(found, f"{part} is not in\n{text}")

    def expect_well(self, job, *parts, warned=False):
        """A run, or how it ended: with 0 and an empty stderr, or without an error if it may have warned; its
        stdout has the parts, stderr too if it may have warned. Returns the argument."""
        ended = getattr(job, "ended", job)
        self.assertEqual(
            (ended.code, ended.errors if warned else ended.err), (0, [] if warned else ""), ended
        )
        self.expect_said(ended.said if warned else ended.out, *parts)
        return job

    def expect_one_error(self, job, code, message):
        """A run, or how it ended. message: the whole text after "error: ", a compiled pattern that the whole
        text must match, or a tuple of parts that are somewhere in it. Returns the argument."""
        ended = getattr(job, "ended", job)
        self.assertEqual((ended.code, len(ended.errors)), (code, 1), ended)
        self.assertNotIn("error: ", ended.out)
        said = ended.errors[0][len("error: ") :]
        if isinstance(message, tuple):
            self.expect_said(said, *message)
        elif isinstance(message, re.Pattern):
            self.assertRegex(said, re.compile(r"\A(?:" + message.pattern + r")\Z"))
        else:
            self.assertEqual(said, message)
        return job

    def expect_ends(self, cases, *before, at_once=3, silent=False):
        """cases: command, or what follows `before` in it -> (exit code, message as for expect_one_error,
        values of its record if there are some); of exit code 0 the message is a tuple of parts of stdout.
        silent: it was refused before it said or wrote anything. Returns command -> Run."""
        jobs = {key: Run(*before, *(key if isinstance(key, tuple) else (key,))) for key in cases}
        together(jobs.values(), at_once)
        for key, (code, message, *values) in cases.items():
            with self.subTest(command=key):
                if code:
                    self.expect_one_error(jobs[key], code, message)
                else:
                    self.expect_well(jobs[key], *message)
                for named in values:
                    self.expect_record(jobs[key], **named)
                if silent:
                    self.assertEqual((jobs[key].ended.out, os.path.exists(jobs[key].out)), ("", False))
        return jobs

    def expect_record(self, job, **values):
        self.assertEqual({key: job.record()[key] for key in values}, values)

    def expect_all_well(self, jobs, at_once=2, warned=False):
        """A dict of runs that all end well, and as predicted where they have the step that is checked: the
        second."""
        together(jobs.values(), at_once)
        for name, job in jobs.items():
            with self.subTest(run=name):
                self.expect_well(job, warned=warned)
                self.expect_record(job, as_predicted=len(job.losses()) > 1)

    def expect_same(self, job, other, since=0):
        """Two jobs end in the same file, with the same losses and norms; `job` began at step `since` of the
        other."""
        self.expect_same_file(job.weights, other.weights)
        self.assertEqual(job.losses(), other.losses()[since:])

    def on_tmpfs(self, size, disk, line):
        """The command line, where `disk` is a file system in memory of that size."""
        self.needs([*ON_TMPFS, "1M", disk, "true"], "no file system can be mounted here (unshare -rm)")
        return [*ON_TMPFS, str(size), disk, *line]

    def expect_same_file(self, one, other):
        """Two files, or those that runs end in."""
        one, other = (self.expect_well(job).weights if isinstance(job, Run) else job for job in (one, other))
        self.assertTrue(filecmp.cmp(one, other, shallow=False), f"{one} and {other} differ")

    def expect_other_file(self, one, other):
        self.assertFalse(filecmp.cmp(one, other, shallow=False), "the comparison could not fail")

    def expect_references(self, pairs, at_once=2):
        """pairs: name -> (run, reference). Both end well, as predicted and alike; and references of which
        there are several are not all alike."""
        references = list(dict.fromkeys(reference for _, reference in pairs.values()))
        jobs = {name: job for name, (job, _) in pairs.items()}
        self.expect_all_well(jobs | {reference.out: reference for reference in references}, at_once)
        for name, (job, reference) in pairs.items():
            with self.subTest(run=name):
                self.expect_same(job, reference)
        if len(references) > 1:
            self.expect_other_file(references[0].weights, references[-1].weights)

    def expect_struck(self, number, rank, lesson, ranks, text, *, at, who=r"rank \d", place=""):
        """Sends the signal to one rank of a run that would last for hours, once it trains. All of it ends,
        one message names the rank, its `place` in the mesh and what it was `at`, and nothing is left. who:
        names the rank that noticed. Returns the message."""
        job, boards = (
            Run(lesson, ranks, f"{text} --watchdog 5 --steps 1000000", sh=True, save=False),
            stale_boards(),
        )
        process = job.start(steps=8)
        os.kill(ranks_of(job.out)[rank], number)
        ended = end_struck(process)
        self.expect_nothing_left(job.out, boards)
        self.expect_record(job, exit_code=75)
        noticed, state, fix = {
            signal.SIGSTOP: (
                rf"{who} waits for its operation \d+ \(.*, train step \d+\) for more than 5\.0 s",
                r"has stopped \(no heartbeat for \d+\.\d s\)",
                r"see what it does there; a rank that is only slow needs a longer --watchdog \(now 5\.0 s\)",
            ),
            signal.SIGKILL: (
                f"noticed by {who}",
                "is gone",
                r"look above for its own last words; .*\n  killed with SIGKILL; .*",
            ),
        }[number]
        last = r"; last operation \d+ \(.*\), train step \d+, "
        said = (
            rf"lost rank {rank}{place}: {noticed}\n  rank {rank}: process \d+ {state}{last}{at}\n  fix: {fix}"
        )
        self.expect_one_error(ended, 75, re.compile(said))
        return ended.err

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
