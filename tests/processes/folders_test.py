"""What a run does with folders and files that are not its own alone: links and leftovers of other people, pipes, a second run in the same place, places
that cannot be written. A canary behind every link is unchanged whatever the exit code. STAGECRAFT_RUN_PAIRS=20 repeats the pairs that often (tests/soak.sh)."""

import hashlib
import os
import re
import resource
import shutil
import signal
import subprocess
import time
import unittest

import support

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


def step(number):
    return f"step-{number:06d}"


def command(lesson, ranks, *flags):
    return [*support.mpirun(ranks), support.program(lesson), *support.files_of(lesson), *flags]


def saves(folder, every, *more):
    return ["--save-every", str(every), "--checkpoints", folder, *more]


def tree(folder):
    """Every name below it, with a hash of what a file holds and what a link says."""
    found = {}
    for path, folders, files in os.walk(folder):
        for name in folders + files:
            at = os.path.join(path, name)
            if os.path.islink(at):
                found[at] = os.readlink(at)
            elif os.path.isfile(at):
                with open(at, "rb") as file:
                    found[at] = hashlib.sha256(file.read()).hexdigest()
            else:
                found[at] = "folder"
    return found


class FoldersTest(support.ProcessTest):
    def expect_well(self, ended):
        self.assertEqual((ended.code, ended.errors), (0, []), ended)

    def new_folder(self, name="folder"):
        path = support.new_path(name)
        os.mkdir(path)
        return path


class Links(FoldersTest):
    def setUp(self):
        self.precious = self.new_folder("precious")
        for name in ("keep", "manifest.json", "rank-0000.safetensors", "steps.jsonl"):
            with open(os.path.join(self.precious, name), "w", encoding="utf-8") as file:
                file.write(f"{name} of somebody\n")
        os.mkdir(os.path.join(self.precious, "inner"))
        self.before = tree(self.precious)

    def tearDown(self):
        self.assertEqual(tree(self.precious), self.before)

    def link(self, path, name=""):
        os.symlink(os.path.join(self.precious, name), path)

    def test_leftovers_that_are_links(self):
        out, checkpoints, weights = (
            self.new_folder("out"),
            self.new_folder("checkpoints"),
            self.new_folder("weights"),
        )
        self.link(f"{out}/.record.json.tmp-0")
        self.link(f"{out}/.steps.jsonl.tmp-0", "steps.jsonl")
        self.link(f"{checkpoints}/.step-000009.tmp-0")
        self.link(f"{checkpoints}/.step-000009.tmp-removed")
        self.link(f"{checkpoints}/.trial.tmp-0")
        self.link(f"{weights}/.w.st.tmp-x")
        self.link(f"{weights}/.w.st.tmp-0")
        os.mkdir(f"{checkpoints}/.step-000008.tmp-0")
        self.link(f"{checkpoints}/.step-000008.tmp-0/rank-0000.safetensors", "keep")
        self.expect_well(
            support.run(
                "01_data_parallel", 2, *saves(checkpoints, 4), "--out", out, "--save", f"{weights}/w.st"
            )
        )
        self.assertTrue(os.path.isfile(f"{out}/record.json") and os.path.isfile(f"{weights}/w.st"))
        self.assertIn(step(4), os.listdir(checkpoints))

    def test_leftovers_that_hold_something_else(self):
        out, checkpoints = self.new_folder("out"), self.new_folder("checkpoints")
        for folder in (
            f"{out}/.record.json.tmp-0",
            f"{checkpoints}/.step-000009.tmp-0",
            f"{checkpoints}/.step-000009.tmp-removed",
        ):
            shutil.copytree(self.precious, folder)
        os.mkfifo(f"{out}/.record.json.tmp-1")
        os.mkfifo(f"{checkpoints}/.step-000004.tmp-0")
        self.expect_well(support.run("00_one_device", 0, *saves(checkpoints, 4), "--out", out))
        for folder in (
            f"{out}/.record.json.tmp-0",
            f"{checkpoints}/.step-000009.tmp-0",
            f"{checkpoints}/.step-000009.tmp-removed",
        ):
            self.assertEqual(sorted(os.listdir(folder)), sorted(os.listdir(self.precious)))

    def test_generations_that_are_links(self):
        checkpoints = self.new_folder("checkpoints")
        flags = ["--resume-with", "steps"]
        self.expect_well(
            support.run(
                "00_one_device",
                0,
                *saves(checkpoints, 1, "--keep", "9"),
                "--steps",
                "3",
                "--out",
                support.new_path("out"),
            )
        )
        archive = os.path.join(self.precious, "archive")
        os.mkdir(archive)
        for number in (2, 3):
            shutil.move(f"{checkpoints}/{step(number)}", archive)
            os.symlink(f"{archive}/{step(number)}", f"{checkpoints}/{step(number)}")
        self.link(f"{checkpoints}/{step(1)}/inner")
        self.before = tree(self.precious)
        # The newest one is read through its link, and all three are pruned.
        self.expect_well(
            support.run(
                "00_one_device",
                0,
                *saves(checkpoints, 1, "--keep", "2"),
                "--steps",
                "6",
                "--resume",
                "latest",
                *flags,
                "--out",
                support.new_path("out"),
            )
        )
        self.assertEqual(sorted(os.listdir(checkpoints)), [step(5), step(6)])

    # Of an old checkpoint somebody has written notes into: it stays, and one line says so.
    def test_notes_in_a_generation(self):
        checkpoints = self.new_folder("checkpoints")
        self.expect_well(
            support.run(
                "00_one_device",
                0,
                *saves(checkpoints, 1, "--keep", "9"),
                "--steps",
                "2",
                "--out",
                support.new_path("out"),
            )
        )
        shutil.copytree(self.precious, f"{checkpoints}/{step(1)}/notes")
        before = tree(f"{checkpoints}/{step(1)}")
        ended = support.run(
            "00_one_device",
            0,
            *saves(checkpoints, 1, "--keep", "1"),
            "--steps",
            "5",
            "--resume",
            "latest",
            "--resume-with",
            "steps",
            "--out",
            support.new_path("out"),
        )
        self.expect_well(ended)
        self.assertEqual(
            (ended.out + ended.err).count(
                f"an old checkpoint stays: {checkpoints}/{step(1)}/notes: no run has put it there"
            ),
            1,
            ended,
        )
        self.assertEqual(sorted(os.listdir(checkpoints)), [step(1), step(5)])
        self.assertEqual(tree(f"{checkpoints}/{step(1)}"), before)

    def test_nothing_is_written_through_a_link(self):
        for name in ("record.json", "steps.jsonl", "trace.json", "costs.json"):
            for target in ("keep", "absent"):
                with self.subTest(name=name, target=target):
                    out = self.new_folder("out")
                    self.link(f"{out}/{name}", target)
                    ended = support.run("00_one_device", 0, "--steps", "2", "--out", out)
                    self.assertEqual((ended.code, len(ended.errors)), (64, 1), ended)
                    self.assertEqual(os.listdir(out), [name])
        weights = support.new_path("weights")
        self.link(weights, "keep")
        self.expect_one_error(
            support.run("00_one_device", 0, "--save", weights),
            64,
            f"{weights}: is a symbolic link, and would be replaced\n  fix: give the path of the file that it leads to, or remove the link",
        )

    # As on a machine where runs/ lies on another disk.
    def test_folders_that_are_links(self):
        real = {name: self.new_folder(name) for name in ("out", "checkpoints")}
        links = {name: support.new_path("link") for name in real}
        for name, path in links.items():
            os.symlink(real[name], path)
        self.expect_well(
            support.run("00_one_device", 0, *saves(links["checkpoints"], 4), "--out", links["out"])
        )
        self.assertIn("record.json", os.listdir(real["out"]))
        self.assertEqual(os.listdir(real["checkpoints"]), [step(4)])


class Pipes(FoldersTest):
    """None of them has a writer: who opens one as a file waits for ever."""

    def test_none_is_waited_for(self):
        pipe = support.new_path("pipe")
        os.mkfifo(pipe)
        checkpoint = os.path.join(self.new_folder("checkpoints"), step(1))
        os.mkdir(checkpoint)
        os.mkfifo(os.path.join(checkpoint, "manifest.json"))
        for flag in ("--workload", "--strategy"):
            with self.subTest(flag=flag):
                ended = support.execute(
                    [support.program("00_one_device"), flag, pipe, "--out", support.new_path("out")]
                )
                self.assertEqual((ended.code, len(ended.errors)), (64, 1), ended)
        for flag, code in (
            ("--init", 65),
            ("--compare", 65),
            ("--data", 65),
            ("--validation", 65),
            ("--test", 65),
        ):
            with self.subTest(flag=flag):
                ended = support.run(
                    "00_one_device", 0, "--steps", "2", flag, pipe, "--out", support.new_path("out")
                )
                self.assertEqual((ended.code, len(ended.errors)), (code, 1), ended)
        ended = support.run("00_one_device", 0, "--resume", checkpoint, "--out", support.new_path("out"))
        self.assertEqual((ended.code, len(ended.errors)), (65, 1), ended)
        for words in (["verify", checkpoint], ["show", checkpoint]):
            ended = support.execute([support.program("checkpoint"), *words])
            self.assertEqual((ended.code, len(ended.errors)), (65, 1), ended)
        ended = support.execute([support.program("checkpoint"), "export", checkpoint, pipe, "--replace"])
        self.assertIn((ended.code, len(ended.errors)), ((65, 1), (73, 1)), ended)
        ended = support.execute(
            [support.program("prepare"), pipe, "--out", support.new_path("tokens"), "--tokenizer", "byte"]
        )
        self.assertEqual((ended.code, len(ended.errors)), (65, 1), ended)
        ended = support.execute([support.program("pipedream"), "check", "--schedule", pipe])
        self.assertEqual((ended.code, len(ended.errors)), (64, 1), ended)


class TwoRuns(FoldersTest):
    def start_two(self, one, other):
        processes = [support.start(one), support.start(other)]
        return [support.end(process) for process in processes]

    def expect_one_refused(self, ended, message):
        first, second = sorted(ended, key=lambda e: e.code)
        self.expect_well(first)
        self.expect_one_error(second, 64, re.compile(message))

    def test_one_folder_of_checkpoints(self):
        for pair in range(PAIRS):
            with self.subTest(pair=pair):
                folder, steps = support.new_path("checkpoints"), ["--steps", "40"]
                ended = self.start_two(
                    command(
                        "01_data_parallel",
                        2,
                        *saves(folder, 10, "--keep", "2"),
                        *steps,
                        "--out",
                        support.new_path("out"),
                    ),
                    command(
                        "00_one_device",
                        0,
                        *saves(folder, 8, "--keep", "2"),
                        *steps,
                        "--seed",
                        "5",
                        "--out",
                        support.new_path("out"),
                    ),
                )
                codes = sorted(e.code for e in ended)
                self.assertIn(codes, ([0, 0], [0, 64]), ended)
                self.assertIn(sorted(os.listdir(folder)), ([step(30), step(40)], [step(32), step(40)]))
                self.expect_well(support.execute([support.program("checkpoint"), "verify", folder]))
                if codes == [0, 64]:
                    self.expect_one_refused(
                        ended,
                        rf"--save-every: {re.escape(folder)} is in use: {WHO}writes there\n  fix: another directory with --checkpoints, .*"
                        rf"|--save-every: {re.escape(folder)} holds checkpoints of an earlier run[^\0]*",
                    )

    def test_who_goes_on_where_another_run_saves(self):
        folder = support.new_path("checkpoints")
        self.expect_well(support.run("00_one_device", 0, *saves(folder, 4), "--out", support.new_path("out")))
        writer = support.start(
            command(
                "00_one_device",
                0,
                *saves(folder, 100000),
                "--resume",
                "latest",
                "--resume-with",
                "steps",
                "--steps",
                "100000",
                "--out",
                support.new_path("out"),
            )
        )
        try:
            self.assertTrue(support.comes_true(lambda: ".lock" in os.listdir(folder)))
            latest = ["--resume", "latest", "--checkpoints", folder]
            for flags in support.chosen(
                (["--resume", folder], ["--resume", os.path.join(folder, step(4))], latest), latest
            ):
                ended = support.run("01_data_parallel", 2, *flags, "--out", support.new_path("out"))
                self.expect_one_error(
                    ended,
                    64,
                    re.compile(
                        rf"--resume \S+: {re.escape(folder)} is in use: {WHO}writes there\n  fix: [^\n]*--checkpoints"
                    ),
                )
        finally:
            os.killpg(writer.pid, signal.SIGKILL)
            support.end(writer)
        # What it left is nobody's.
        self.expect_well(
            support.run(
                "00_one_device",
                0,
                "--resume",
                folder,
                "--resume-with",
                "steps",
                "--steps",
                "5",
                "--out",
                support.new_path("out"),
            )
        )
        self.assertNotIn(".lock", os.listdir(folder))

    # A run on another host watched for ten seconds, and this one stood still so long.
    def test_who_was_taken_for_gone_saves_nothing_more(self):
        folder = support.new_path("checkpoints")
        run = support.start(
            command(
                "01_data_parallel",
                2,
                *saves(folder, 100),
                "--steps",
                "100000",
                "--out",
                support.new_path("out"),
            )
        )
        self.assertTrue(
            support.comes_true(lambda: os.path.isfile(f"{folder}/{step(100)}/manifest.json"), seconds=60)
        )
        named = "written by process 7 started 8 on another-host\n"
        with open(f"{folder}/.lock", "w", encoding="utf-8") as file:
            file.write(named)
        ended = support.end(run)
        self.expect_one_error(
            ended,
            73,
            re.compile(
                rf"{re.escape(folder)}: no checkpoint can be written here: rank 0: {re.escape(folder)}/\.lock: process 7 on another-host "
                r"took this run for gone, and its place\n  fix: let that run end, or stop it; .*"
            ),
        )
        with open(f"{folder}/.lock", encoding="utf-8") as file:
            self.assertEqual(file.read(), named)

    def test_two_that_only_read(self):
        folder = support.new_path("checkpoints")
        self.expect_well(support.run("00_one_device", 0, *saves(folder, 4), "--out", support.new_path("out")))
        flags = ["--resume", folder, "--resume-with", "steps", "--steps", "40", "--out"]
        for ended in self.start_two(
            command("00_one_device", 0, *flags, support.new_path("out")),
            command("00_one_device", 0, *flags, support.new_path("out")),
        ):
            self.expect_well(ended)
        self.assertEqual(os.listdir(folder), [step(4)])

    def test_one_folder_of_records(self):
        for pair in range(PAIRS):
            with self.subTest(pair=pair):
                out = support.new_path("out")
                ended = self.start_two(
                    command("00_one_device", 0, "--out", out), command("01_data_parallel", 2, "--out", out)
                )
                self.expect_one_refused(
                    ended, re.escape(f"--out {out}: it holds the record of another run") + r"\n  fix: .*"
                )
                self.assertEqual(support.record(out)["exit_code"], 0)

    def test_one_file_of_weights(self):
        weights = support.new_path("weights")
        steps = ["--steps", "60", "--save", weights, "--out"]
        ended = self.start_two(
            command("00_one_device", 0, *steps, support.new_path("out")),
            command("00_one_device", 0, *steps, support.new_path("out")),
        )
        self.expect_one_refused(
            ended, rf"--save {re.escape(weights)}: the file is in use: {WHO}writes there\n  fix: .*"
        )
        self.expect_well(
            support.run(
                "00_one_device", 0, "--steps", "1", "--init", weights, "--out", support.new_path("out")
            )
        )
        self.assertEqual([name for name in os.listdir(support.scratch) if name.endswith(".lock")], [])

    # Between two attempts no program holds the folder, but run.sh does.
    def test_a_run_that_is_started_again(self):
        folder, out = support.new_path("checkpoints"), support.new_path("out")
        first = support.start(
            support.run_sh(
                "01_data_parallel",
                2,
                *saves(folder, 2),
                "--steps",
                "60",
                "--inject",
                "kill@1,6",
                "--max-restarts",
                "1",
                "--out",
                out,
            )
        )
        self.assertTrue(support.comes_true(lambda: os.path.isfile(f"{folder}/.lock"), seconds=60))
        others = []
        while first.poll() is None:
            others.append(
                support.run(
                    "00_one_device",
                    0,
                    *saves(folder, 3),
                    "--resume",
                    "latest",
                    "--resume-with",
                    "steps",
                    "--steps",
                    "60",
                    "--seed",
                    "7",
                    "--out",
                    support.new_path("out"),
                )
            )
        self.assertEqual(support.end(first).code, 0)
        self.assertEqual(others[0].code, 64, others[0])
        for other in others:
            if other.code == 64:
                self.assertIn(" is in use: ", other.err)
            else:
                self.assertIn("resumes after 60 steps", other.out, "only when the first has ended")

    # Both write into runs/, and what it has done itself decides whether another restart is of use.
    def test_a_run_that_is_started_again_beside_another(self):
        place = support.new_path("place")
        os.mkdir(place)
        far = os.path.join(support.scratch, "far")
        self.expect_well(
            support.run(
                "00_one_device", 0, *saves(far, 60), "--steps", "60", "--out", support.new_path("out")
            )
        )
        crash = ["--steps", "40", "--max-restarts", "2", "--crash-at", "100"]
        here = f'cd {place} && exec "$@"'
        first = support.start(
            [
                "bash",
                "-c",
                here,
                "bash",
                *support.run_sh(
                    "00_one_device", 1, *saves("mine", 4), *crash, "--data", f"{support.scratch}/tokens.bin"
                ),
            ]
        )
        self.assertTrue(support.comes_true(lambda: os.path.isdir(f"{place}/runs"), seconds=60))
        other = support.start(
            [
                "bash",
                "-c",
                here,
                "bash",
                *command(
                    "00_one_device",
                    0,
                    "--resume",
                    far,
                    "--resume-with",
                    "steps,data.source",
                    "--steps",
                    "100000",
                    "--data",
                    f"{support.scratch}/tokens.bin",
                ),
            ]
        )
        try:
            ended = support.end(first)
        finally:
            os.killpg(other.pid, signal.SIGKILL)
            support.end(other)
        self.assertEqual(ended.code, 0, ended)
        self.assertRegex(
            ended.out,
            r"restart 1 of 2: a rank was killed \(SIGKILL\); goes on at step \d{1,2}, \d steps? (is|are) redone",
        )

    def test_looking_at_what_is_being_pruned(self):
        folder = support.new_path("checkpoints")
        run = support.start(
            command(
                "00_one_device",
                0,
                *saves(folder, 1, "--keep", "2"),
                "--steps",
                "60",
                "--out",
                support.new_path("out"),
            )
        )
        self.assertTrue(
            support.comes_true(
                lambda: os.path.isdir(folder) and any(name.startswith("step-") for name in os.listdir(folder))
            )
        )
        looked = 0
        while run.poll() is None:
            for word in ("verify", "show"):
                ended = support.execute([support.program("checkpoint"), word, folder])
                self.assertEqual((ended.code, ended.errors), (0, []), ended)
                self.assertNotIn("damaged", ended.out)
                looked += 1
        self.expect_well(support.end(run))
        self.assertGreater(looked, 0)


class TooLate(FoldersTest):
    """A place where nothing can be written is named before the first step, with a fix that fits."""

    def refused(self, folder, fix, prefix=(), ranks=2):
        out = support.new_path("out")
        ended = support.execute(
            [*prefix, *command("01_data_parallel", ranks, *saves(folder, 4), "--out", out)]
        )
        self.assertEqual((ended.code, len(ended.errors)), (73, 1), ended)
        self.assertRegex(ended.errors[0], fix)
        self.assertNotRegex(ended.errors[0], "room|stands|--resume")
        self.assertFalse(os.path.exists(out), "it trains nothing")

    def test_no_folder_can_be_there(self):
        a_file = support.new_path("file")
        with open(a_file, "w", encoding="utf-8") as file:
            file.write("x")
        loop = support.new_path("loop")
        os.symlink(loop, loop)
        for folder in ("/proc/nowhere", a_file, a_file + "/below", loop):
            with self.subTest(folder=folder):
                self.refused(folder, r"\n  fix: \S", ranks=2 if folder == loop else 0)
        self.refused(a_file, "something else has that name|a part of the path is a file", ranks=0)

    def test_what_bears_a_checkpoints_name(self):
        for make in (
            lambda path: open(path, "wb").close(),
            lambda path: os.symlink("nowhere", path),
            os.mkfifo,
        ):
            folder = self.new_folder("checkpoints")
            make(f"{folder}/{step(4)}")
            self.refused(
                folder,
                rf"{folder}/{step(4)}: bears a checkpoint's name, and is no directory\n  fix: move it away; or another directory with --checkpoints",
                ranks=0,
            )
            self.assertEqual(os.listdir(folder), [step(4)])

    def test_a_file_system_that_is_read_only(self):
        disk = self.new_folder("disk")
        if support.execute([*READ_ONLY, disk, "true"]).code:
            self.skipTest("no file system can be mounted here (unshare -rm)")
        for folder in (f"{disk}/ck", f"{disk}/new"):
            with self.subTest(folder=folder):
                self.refused(
                    folder,
                    r"EROFS\)\n  fix: write to a file system that is not read-only",
                    [*READ_ONLY, disk],
                )

    def test_a_limit_of_a_files_size(self):
        folder = support.new_path("checkpoints")
        limited = ["prlimit", "--fsize=65536", "--"]
        self.refused(
            folder, r"EFBIG\)\n  fix: raise the limit of a file's size", limited, ranks=0
        )  # mpirun has large files of its own
        self.assertFalse(os.path.exists(folder))
        # What cannot be known before is no signal, either.
        weights = support.new_path("weights")
        ended = support.execute(
            [*limited, *command("00_one_device", 0, "--save", weights, "--out", support.new_path("out"))]
        )
        self.assertEqual((ended.code, len(ended.errors)), (73, 1), ended)
        self.assertIn("EFBIG", ended.errors[0])
        self.assertFalse(os.path.exists(weights))


if __name__ == "__main__":
    support.main()
