"""What a run does with folders and files that are not its own alone: links and leftovers of other people,
pipes, a second run in the same place, places that cannot be written. A canary behind every link is unchanged
whatever the exit code. STAGECRAFT_RUN_PAIRS=20 repeats the pairs that often (tests/soak.sh)."""

import hashlib
import os
import pathlib
import re
import shutil
import signal

import support
from support import Run, names_in, new_folder, new_path, once, step

PAIRS = int(os.environ.get("STAGECRAFT_RUN_PAIRS", "1"))
READ_ONLY = [
    "unshare",
    "-rm",
    "sh",
    "-c",
    'mount -t tmpfs -o size=1M none "$1" && mkdir "$1/ck" && mount -o remount,ro "$1" && shift && exec "$@"',
    "sh",
]
WHO = r"process \d+ on \S+ "


def tree(folder):
    """Every name below it, with a hash of what a file holds and what a link says."""
    found = {}
    for at in pathlib.Path(folder).rglob("*"):
        if at.is_symlink():
            found[at] = os.readlink(at)
        else:
            found[at] = hashlib.sha256(at.read_bytes()).hexdigest() if at.is_file() else "folder"
    return found


def one_device(text, **more):
    return Run("00_one_device", 0, text, **more)


def saved_at_4():
    """A run that others go on from: its checkpoint after the last of four steps."""
    return once("00_one_device", 0, "--save-every 4")


class FoldersTest(support.ProcessTest):
    def begin(self, job):
        """Starts the job and returns its process, which ends with the test, whatever comes."""
        process = support.start(job.line)
        self.addCleanup(support.end, process)
        self.addCleanup(lambda: process.poll() is None and os.killpg(process.pid, signal.SIGKILL))
        return process

    def expect_seen(self, condition):
        self.assertTrue(support.comes_true(condition, seconds=60))


class Links(FoldersTest):
    def setUp(self):
        self.precious = new_folder("precious")
        for name in ("keep", "manifest.json", "rank-0000.safetensors", "steps.jsonl"):
            pathlib.Path(self.precious, name).write_text(f"{name} of somebody\n", encoding="utf-8")
        os.mkdir(os.path.join(self.precious, "inner"))
        self.before = tree(self.precious)

    def tearDown(self):
        self.assertEqual(tree(self.precious), self.before)

    def link(self, path, name=""):
        os.symlink(os.path.join(self.precious, name), path)

    def test_leftovers_that_are_links(self):
        out, checkpoints, weights = (new_folder(name) for name in ("out", "checkpoints", "weights"))
        os.mkdir(f"{checkpoints}/.step-000008.tmp-0")
        for path, name in {
            f"{out}/.record.json.tmp-0": "",
            f"{out}/.steps.jsonl.tmp-0": "steps.jsonl",
            f"{checkpoints}/.step-000009.tmp-0": "",
            f"{checkpoints}/.step-000009.tmp-removed": "",
            f"{checkpoints}/.trial.tmp-0": "",
            f"{checkpoints}/.step-000008.tmp-0/rank-0000.safetensors": "keep",
            f"{weights}/.w.st.tmp-x": "",
            f"{weights}/.w.st.tmp-0": "",
        }.items():
            self.link(path, name)
        text = f"--save-every 4 --out {out} --save {weights}/w.st"
        self.expect_well(Run("01_data_parallel", 2, text, checkpoints=checkpoints), warned=True)
        self.assertTrue(os.path.isfile(f"{out}/record.json") and os.path.isfile(f"{weights}/w.st"))
        self.assertIn(step(4), names_in(checkpoints))

    def test_leftovers_that_hold_something_else(self):
        out, checkpoints = new_folder("out"), new_folder("checkpoints")
        folders = (
            f"{out}/.record.json.tmp-0",
            f"{checkpoints}/.step-000009.tmp-0",
            f"{checkpoints}/.step-000009.tmp-removed",
        )
        for folder in folders:
            shutil.copytree(self.precious, folder)
        os.mkfifo(f"{out}/.record.json.tmp-1")
        os.mkfifo(f"{checkpoints}/.step-000004.tmp-0")
        self.expect_well(one_device(f"--save-every 4 --out {out}", checkpoints=checkpoints), warned=True)
        for folder in folders:
            self.assertEqual(names_in(folder), names_in(self.precious))

    def test_generations_that_are_links(self):
        first = self.expect_well(one_device("--save-every 1 --keep 9 --steps 3"), warned=True)
        archive = os.path.join(self.precious, "archive")
        os.mkdir(archive)
        for number in (2, 3):
            shutil.move(first.saved(number), archive)
            os.symlink(f"{archive}/{step(number)}", first.saved(number))
        self.link(f"{first.saved(1)}/inner")
        self.before = tree(self.precious)
        # The newest checkpoint is read through its link, and all three links are pruned.
        text = "--save-every 1 --keep 2 --steps 6 --resume latest --resume-with steps"
        self.expect_well(one_device(text, checkpoints=first.checkpoints), warned=True)
        self.assertEqual(names_in(first.checkpoints), [step(5), step(6)])

    # An old checkpoint with somebody's notes in it is kept, and one line says so.
    def test_notes_in_a_generation(self):
        first = self.expect_well(one_device("--save-every 1 --keep 9 --steps 2"), warned=True)
        shutil.copytree(self.precious, f"{first.saved(1)}/notes")
        before = tree(first.saved(1))
        text = "--save-every 1 --keep 1 --steps 5 --resume latest --resume-with steps"
        job = self.expect_well(one_device(text, checkpoints=first.checkpoints), warned=True)
        stays = f"an old checkpoint stays: {first.saved(1)}/notes: no run has put it there"
        self.assertEqual(job.ended.said.count(stays), 1, job.ended)
        self.assertEqual(names_in(first.checkpoints), [step(1), step(5)])
        self.assertEqual(tree(first.saved(1)), before)

    def test_nothing_is_written_through_a_link(self):
        for name in ("record.json", "steps.jsonl", "trace.json", "costs.json"):
            for target in ("keep", "absent"):
                with self.subTest(name=name, target=target):
                    out = new_folder("out")
                    self.link(f"{out}/{name}", target)
                    self.expect_one_error(one_device(f"--steps 2 --out {out}"), 64, ())
                    self.assertEqual(os.listdir(out), [name])
        weights = new_path("weights")
        self.link(weights, "keep")
        self.expect_one_error(
            one_device(f"--save {weights}"),
            64,
            f"{weights}: is a symbolic link, and would be replaced\n  fix: give the path of the file that "
            "it leads to, or remove the link",
        )

    # The folders are links, as on a machine where runs/ lies on another disk.
    def test_folders_that_are_links(self):
        real = {name: new_folder(name) for name in ("out", "checkpoints")}
        links = {name: new_path("link") for name in real}
        for name, path in links.items():
            os.symlink(real[name], path)
        job = one_device(f"--save-every 4 --out {links['out']}", checkpoints=links["checkpoints"])
        self.expect_well(job, warned=True)
        self.assertIn("record.json", names_in(real["out"]))
        self.assertEqual(names_in(real["checkpoints"]), [step(4)])


class Pipes(FoldersTest):
    """Named pipes in place of files. None has a writer, so a program that opens one as a file waits for
    ever."""

    def test_none_is_waited_for(self):
        pipe, checkpoint = new_path("pipe"), os.path.join(new_folder("checkpoints"), step(1))
        os.mkdir(checkpoint)
        for path in (pipe, os.path.join(checkpoint, "manifest.json")):
            os.mkfifo(path)
        flags = ("--init", "--compare", "--data", "--validation", "--test")
        cases = {f"--steps 2 {flag} {pipe}": (65, ()) for flag in flags}
        self.expect_ends({**cases, f"--resume {checkpoint}": (65, ())}, "00_one_device", 0)
        for code, line in (
            (64, f"00_one_device --workload {pipe} --out {new_path('out')}"),
            (64, f"00_one_device --strategy {pipe} --out {new_path('out')}"),
            (65, f"checkpoint verify {checkpoint}"),
            (65, f"checkpoint show {checkpoint}"),
            (65, f"checkpoint export {checkpoint} {pipe} --replace"),
            (65, f"prepare {pipe} --out {new_path('tokens')} --tokenizer byte"),
            (64, f"pipedream check --schedule {pipe}"),
        ):
            with self.subTest(line=line):
                ended = support.tool(*line.split())
                self.expect_one_error(ended, 73 if "export" in line and ended.code == 73 else code, ())


class TwoRuns(FoldersTest):
    def ends_of(self, one, other):
        """The ends of two jobs that begin at the same time, the one with the lower exit code first."""
        processes = [support.start(job.line) for job in (one, other)]
        return sorted((support.end(process) for process in processes), key=lambda ended: ended.code)

    def expect_one_refused(self, ends, message):
        self.expect_well(ends[0], warned=True)
        self.expect_one_error(ends[1], 64, re.compile(message))

    def test_one_folder_of_checkpoints(self):
        for pair in range(PAIRS):
            with self.subTest(pair=pair):
                folder = new_path("checkpoints")
                ends = self.ends_of(
                    Run("01_data_parallel", 2, "--save-every 10 --keep 2 --steps 40", checkpoints=folder),
                    one_device("--save-every 8 --keep 2 --steps 40 --seed 5", checkpoints=folder),
                )
                codes = [ended.code for ended in ends]
                self.assertIn(codes, ([0, 0], [0, 64]), ends)
                self.assertIn(names_in(folder), ([step(30), step(40)], [step(32), step(40)]))
                self.expect_well(support.tool("checkpoint", "verify", folder), warned=True)
                if codes == [0, 64]:
                    self.expect_one_refused(
                        ends,
                        rf"--save-every: {re.escape(folder)} is in use: {WHO}writes there\n  fix: another "
                        r"directory with --checkpoints, .*"
                        rf"|--save-every: {re.escape(folder)} holds checkpoints of an earlier run[^\0]*",
                    )

    def test_who_goes_on_where_another_run_saves(self):
        folder = support.copy_of(self.expect_well(saved_at_4(), warned=True).checkpoints)
        text = "--save-every 100000 --resume latest --resume-with steps --steps 100000"
        writer = self.begin(one_device(text, checkpoints=folder))
        self.expect_seen(lambda: ".lock" in names_in(folder))
        message = (
            rf"--resume \S+: {re.escape(folder)} is in use: {WHO}writes there\n  fix: [^\n]*--checkpoints"
        )
        latest = f"latest --checkpoints {folder}"
        for which in support.chosen((folder, os.path.join(folder, step(4)), latest), latest):
            self.expect_one_error(Run("01_data_parallel", 2, f"--resume {which}"), 64, re.compile(message))
        os.killpg(writer.pid, signal.SIGKILL)
        writer.wait()
        # The lock left by a killed run belongs to nobody, so the next run takes it.
        self.expect_well(one_device(f"--resume {folder} --resume-with steps --steps 5"), warned=True)
        self.assertNotIn(".lock", names_in(folder))

    # A run on another host saw this run stand still for ten seconds and took the lock, so this run must save
    # nothing more.
    def test_who_was_taken_for_gone_saves_nothing_more(self):
        job = Run("01_data_parallel", 2, "--save-every 100 --steps 100000")
        process, lock = self.begin(job), pathlib.Path(job.checkpoints, ".lock")
        self.expect_seen(lambda: os.path.isfile(f"{job.saved(100)}/manifest.json"))
        named = "written by process 7 started 8 on another-host\n"
        lock.write_text(named, encoding="utf-8")
        folder = re.escape(job.checkpoints)
        self.expect_one_error(
            support.end(process),
            73,
            re.compile(
                rf"{folder}: no checkpoint can be written here: rank 0: {folder}/\.lock: process 7 on "
                r"another-host "
                r"took this run for gone, and its place\n  fix: let that run end, or stop it; .*"
            ),
        )
        self.assertEqual(lock.read_text(encoding="utf-8"), named)

    def test_two_that_only_read(self):
        folder = self.expect_well(saved_at_4(), warned=True).checkpoints
        text = f"--resume {folder} --resume-with steps --steps 40"
        for ended in self.ends_of(one_device(text), one_device(text)):
            self.expect_well(ended, warned=True)
        self.assertEqual(names_in(folder), [step(4)])

    def test_one_folder_of_records(self):
        for pair in range(PAIRS):
            with self.subTest(pair=pair):
                out = new_path("out")
                ends = self.ends_of(one_device(f"--out {out}"), Run("01_data_parallel", 2, f"--out {out}"))
                message = re.escape(f"--out {out}: it holds the record of another run") + r"\n  fix: .*"
                self.expect_one_refused(ends, message)
                self.assertEqual(support.record(out)["exit_code"], 0)

    def test_one_file_of_weights(self):
        weights = new_path("weights")
        text = f"--steps 60 --save {weights}"
        self.expect_one_refused(
            self.ends_of(one_device(text), one_device(text)),
            rf"--save {re.escape(weights)}: the file is in use: {WHO}writes there\n  fix: .*",
        )
        self.expect_well(one_device(f"--steps 1 --init {weights}"), warned=True)
        self.assertEqual([name for name in os.listdir(support.scratch) if name.endswith(".lock")], [])

    # Between two attempts no program locks the folder, but run.sh does.
    def test_a_run_that_is_started_again(self):
        job = Run(
            "01_data_parallel", 2, "--save-every 2 --steps 60 --inject kill@1,6 --max-restarts 1", sh=True
        )
        first, others = self.begin(job), []
        self.expect_seen(lambda: os.path.isfile(f"{job.checkpoints}/.lock"))
        text = "--save-every 3 --resume latest --resume-with steps --steps 60 --seed 7"
        while first.poll() is None:
            others.append(one_device(text, checkpoints=job.checkpoints).ended)
        self.assertEqual((first.wait(), others[0].code), (0, 64), others[0])
        for other in others:
            if other.code == 64:
                self.assertIn(" is in use: ", other.err)
            else:
                self.assertIn("resumes after 60 steps", other.out, "only when the first has ended")

    # Two restarted runs both write to runs/; each must judge by its own steps whether another restart is of
    # use.
    def test_a_run_that_is_started_again_beside_another(self):
        place, data = new_folder("place"), f"--data {support.scratch}/tokens.bin"
        here = ["env", "-C", place]
        far = self.expect_well(one_device("--save-every 60 --steps 60"), warned=True).checkpoints
        crash = "--save-every 4 --checkpoints mine --steps 40 --max-restarts 2 --crash-at 100"
        first = support.start([*here, *support.run_sh("00_one_device", 1, f"{crash} {data}")])
        self.expect_seen(lambda: os.path.isdir(f"{place}/runs"))
        text = f"--resume {far} --resume-with steps,data.source --steps 100000 {data}"
        other = support.start([*here, *support.command("00_one_device", 0, text)])
        try:
            ended = support.end(first)
        finally:
            os.killpg(other.pid, signal.SIGKILL)
            support.end(other)
        self.assertEqual(ended.code, 0, ended)
        self.assertRegex(
            ended.out,
            r"restart 1 of 2: a rank was killed \(SIGKILL\); goes on at step \d{1,2}, \d steps? (is|are) "
            r"redone",
        )

    def test_looking_at_what_is_being_pruned(self):
        job = one_device("--save-every 1 --keep 2 --steps 60")
        process, looked = support.start(job.line), 0
        self.expect_seen(lambda: any(name.startswith("step-") for name in names_in(job.checkpoints)))
        while process.poll() is None:
            for word in ("verify", "show"):
                ended = support.tool("checkpoint", word, job.checkpoints)
                self.assertNotIn("damaged", self.expect_well(ended, warned=True).out)
                looked += 1
        self.expect_well(support.end(process), warned=True)
        self.assertGreater(looked, 0)


class TooLate(FoldersTest):
    """A place where nothing can be written is named before the first step, with a fix that fits."""

    def refused(self, folder, fix, prefix=(), ranks=2):
        job = Run("01_data_parallel", ranks, "--save-every 4", checkpoints=folder)
        ended = support.execute([*prefix, *job.line])
        self.expect_one_error(ended, 73, (re.compile(fix),))
        self.assertNotRegex(ended.errors[0], "room|stands|--resume")
        self.assertFalse(os.path.exists(job.out), "it trains nothing")

    def test_no_folder_can_be_there(self):
        a_file, loop = support.new_file("file", "x"), new_path("loop")
        os.symlink(loop, loop)
        other = r"\n  fix: [^\0]*(something else has that name|a part of the path is a file)"
        for folder, fix, ranks in (
            ("/proc/nowhere", r"\n  fix: \S", 0),
            (a_file, other, 0),
            (a_file + "/below", r"\n  fix: \S", 0),
            (loop, r"\n  fix: \S", 2),
        ):
            with self.subTest(folder=folder):
                self.refused(folder, fix, ranks=ranks)

    def test_what_bears_a_checkpoints_name(self):
        for make in (
            lambda path: open(path, "wb").close(),
            lambda path: os.symlink("nowhere", path),
            os.mkfifo,
        ):
            folder = new_folder("checkpoints")
            make(f"{folder}/{step(4)}")
            self.refused(
                folder,
                rf"{folder}/{step(4)}: bears a checkpoint's name, and is no directory\n  fix: move it away; "
                r"or another directory with --checkpoints",
                ranks=0,
            )
            self.assertEqual(names_in(folder), [step(4)])

    def test_a_file_system_that_is_read_only(self):
        disk = new_folder("disk")
        self.needs([*READ_ONLY, disk, "true"], "no file system can be mounted here (unshare -rm)")
        fix = r"EROFS\)\n  fix: write to a file system that is not read-only"
        for folder in (f"{disk}/ck", f"{disk}/new"):
            with self.subTest(folder=folder):
                self.refused(folder, fix, [*READ_ONLY, disk])

    def test_a_limit_of_a_files_size(self):
        folder, limited = new_path("checkpoints"), ["prlimit", "--fsize=65536", "--"]
        # The limit is tested without mpirun, which writes large files of its own.
        self.refused(folder, r"EFBIG\)\n  fix: raise the limit of a file's size", limited, ranks=0)
        self.assertFalse(os.path.exists(folder))
        # A limit that cannot be known before the run is an error message as well, and no signal.
        job = self.expect_one_error(one_device("", each=limited), 73, ("EFBIG",))
        self.assertFalse(os.path.exists(job.weights))


if __name__ == "__main__":
    support.main()
