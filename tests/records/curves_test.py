"""lessons/curves.sh: what its event files hold, read back by the tensorboard package; what it does while a
run goes on; what it refuses. curves_test.sh starts it with .deps/curves and the folder of the programs."""

import contextlib
import glob
import io
import json
import math
import os
import signal
import struct
import subprocess
import sys
import time
import unittest

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fake_runs import FolderCase, ROOT, begun_run, ended_run, lines, record, step, write

sys.path.insert(0, f"{ROOT}/common/records/curves")
import curves  # noqa: E402
import run_files  # noqa: E402

STARTED = 1738324800  # 2025-01-31T12:00:00Z
WANDB = """import json, os, types
Settings = dict
def init(**given):
    os.makedirs(given["dir"], exist_ok=True)
    file = open(given["dir"] + "/said.jsonl", "w")
    say = lambda value: print(json.dumps(value), file=file, flush=True)
    say({**given, "WANDB_MODE": os.environ["WANDB_MODE"]})
    return types.SimpleNamespace(log=lambda values, step: say([step, values]), finish=lambda: say("finished"))
"""
COLUMNS = {
    "loss": "loss",
    "lr": "lr",
    "grad_norm": "grad_norm",
    "step_seconds": "seconds",
}  # of a run's steps, by tag
programs = ""


def steps_of(path):
    return run_files.StepFile(path).read()


def f32(value):
    """An event file's scalars are single precision."""
    return struct.unpack("f", struct.pack("f", value))[0]


def events(folder):
    """{tag: [(step, wall time, value)]} of the one event file there."""
    files = glob.glob(f"{folder}/events.out.tfevents.*")
    assert len(files) == 1, files
    found = EventAccumulator(files[0], size_guidance={"scalars": 0})
    found.Reload()
    return {
        tag: [(one.step, one.wall_time, one.value) for one in found.Scalars(tag)]
        for tag in found.Tags()["scalars"]
    }


def expected(steps, validation=None):
    """The expected event file, computed from the steps."""
    walls = [STARTED + sum(one["seconds"] for one in steps[: i + 1]) for i in range(len(steps))]
    found = {
        tag: [(one["step"], wall, f32(one[key])) for one, wall in zip(steps, walls)]
        for tag, key in COLUMNS.items()
    }
    found["tokens_per_second"] = [
        (one["step"], wall, f32(one["tokens"] / one["seconds"])) for one, wall in zip(steps, walls)
    ]
    if validation is not None:
        found["validation_loss"] = [(steps[-1]["step"], walls[-1], f32(validation))]
    return found


class Case(FolderCase):
    name = "curves"

    def curves(self, *arguments):
        """In this process, where tensorboard has been loaded."""
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(io.StringIO()) as out:
            self.assertEqual(curves.main(arguments), 0)
        return out.getvalue()

    def same(self, found, wanted):
        """Equal, but for the last digits of sums of times."""
        self.assertEqual(sorted(found), sorted(wanted))
        for tag, points in wanted.items():
            self.assertEqual(
                [(number, value) for number, _, value in found[tag]],
                [(number, value) for number, _, value in points],
                tag,
            )
            for (_, wall, _), (_, wanted_wall, _) in zip(found[tag], points):
                self.assertAlmostEqual(wall, wanted_wall, places=3)


class Ended(Case):
    def test_equal_the_record(self):
        steps = [
            step(i, seconds=0.4 + 0.01 * i) for i in range(7, 40)
        ]  # a run that went on from a checkpoint
        ended_run(self.path("a"), steps)
        out = self.said("a")
        self.assertIn("33 steps of 01_data_parallel/a\nevent file in a; to see it: ", out)
        self.same(events(self.path("a")), expected(steps, 2.25))

    def test_below_a_folder(self):
        steps = [step(0), step(1)]
        ended_run(self.path("runs/01/x"), steps)
        write(self.path("kept.json"), json.dumps(record(steps)))
        for run in ("runs/01/x", "runs/01/x/record.json", "runs/01/x/steps.jsonl", "kept.json"):
            self.assertIn("--logdir tb\n", self.curves(run, "--tensorboard", "tb"))
        self.same(events(self.path("tb/01_data_parallel/x")), expected(steps, 2.25))
        self.same(events(self.path("tb/01_data_parallel/kept")), expected(steps, 2.25))

    def test_a_second_call_replaces_its_own(self):
        ended_run(self.path("a"), [step(0)])
        write(self.path("a/events.out.tfevents.1.other.2.0"), "")
        for _ in range(2):
            self.curves("a")
        self.assertEqual(len(glob.glob(self.path("a/events*.stagecraft"))), 1)
        self.assertTrue(
            os.path.exists(self.path("a/events.out.tfevents.1.other.2.0")), "another program's stays"
        )

    def test_what_is_not_finite_and_what_is_not_there(self):
        steps = [step(0, loss=math.nan), {**step(1), "seconds": 0}]
        ended_run(self.path("a"), steps, validation_loss=None, exit_code=70)
        self.curves("a")
        found = events(self.path("a"))
        self.assertNotIn("validation_loss", found)
        self.assertTrue(math.isnan(found["loss"][0][2]))
        self.assertEqual([one[0] for one in found["tokens_per_second"]], [0])

    def test_validation_on_the_way(self):
        begun_run(self.path("a"), lines([step(0), step(1, validation_loss=3.5), step(2)]))
        self.curves("a")
        self.assertEqual(
            [(number, value) for number, _, value in events(self.path("a"))["validation_loss"]], [(1, 3.5)]
        )

    def test_no_step_and_a_validation_loss(self):
        ended_run(self.path("a"), [])
        self.curves("a")
        self.assertEqual(events(self.path("a")), {"validation_loss": [(0, STARTED, 2.25)]})

    def test_a_torn_last_line(self):
        begun_run(self.path("a"), lines([step(0), step(1)]) + '{"step": 2, "lo')
        self.assertIn(
            "2 steps of 01_data_parallel/a; the run has not ended, or was killed: --follow waits for more; "
            "a/steps.jsonl:3: the last line is cut off and left out\n",
            self.curves("a"),
        )
        self.same(events(self.path("a")), expected([step(0), step(1)]))


class Following(Case):
    def setUp(self):
        super().setUp()
        self.run_folder = begun_run(self.path("a"), "")
        self.steps = [step(i) for i in range(6)]

    @contextlib.contextmanager
    def following(self, *flags):
        with subprocess.Popen(
            [f"{ROOT}/lessons/curves.sh", "a", "--follow", *flags],
            cwd=self.folder,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def append(self, text):
        with open(f"{self.run_folder}/steps.jsonl", "a", encoding="utf-8") as file:
            file.write(text)

    def wait_for(self, count):
        """Until so many steps can be read back."""
        for _ in range(200):
            if (
                glob.glob(f"{self.run_folder}/events*")
                and len(events(self.run_folder).get("loss", [])) >= count
            ):
                return
            time.sleep(0.05)
        self.fail(f"{count} steps did not come")

    def end(self, **more):
        write(f"{self.run_folder}/record.json.new", json.dumps(record(self.steps, **more)))
        os.replace(f"{self.run_folder}/record.json.new", f"{self.run_folder}/record.json")

    def test_a_file_that_grows(self):
        text = lines(self.steps)
        cut = text.index("\n") + 30  # within the second line
        with self.following() as process:
            self.append(text[:cut])
            self.wait_for(1)
            self.same(events(self.run_folder), expected(self.steps[:1]))
            self.append(text[cut:])
            self.wait_for(6)
            self.end()
            out, err = process.communicate(timeout=30)
        self.assertEqual((process.returncode, err), (0, ""))
        self.assertIn("6 steps of 01_data_parallel/a; the run ended with exit code 0\n", out)
        self.same(events(self.run_folder), expected(self.steps, 2.25))

    def test_a_run_that_fails(self):
        self.append(lines(self.steps))
        self.end(exit_code=75, validation_loss=None)
        self.assertIn(
            "6 steps of 01_data_parallel/a; the run ended with exit code 75\n", self.curves("a", "--follow")
        )
        self.same(events(self.run_folder), expected(self.steps))

    def test_a_run_that_is_killed(self):
        holds = (
            "import sys, time; f = open(sys.argv[1], 'a'); f.write(sys.argv[2]); f.flush(); time.sleep(60)"
        )
        with subprocess.Popen(
            [sys.executable, "-c", holds, f"{self.run_folder}/steps.jsonl", lines(self.steps) + "{"]
        ) as holder:
            try:
                while not os.path.getsize(f"{self.run_folder}/steps.jsonl"):
                    time.sleep(0.02)
                with self.following() as process:
                    self.wait_for(6)
                    holder.send_signal(signal.SIGKILL)
                    holder.wait()
                    out, err = process.communicate(timeout=30)
            finally:
                holder.kill()
        self.assertEqual((process.returncode, err), (0, ""))
        self.assertIn("; the run was killed; a/steps.jsonl:7: the last line is cut off and left out\n", out)
        self.same(events(self.run_folder), expected(self.steps))

    def test_patience(self):
        self.append(lines(self.steps))
        out = self.curves("a", "--follow", "--patience", "0.5")
        self.assertIn(
            "6 steps of 01_data_parallel/a; no step came for 0.5 s and no process of this machine", out
        )

    def test_interrupted(self):
        self.append(lines(self.steps))
        with self.following() as process:
            self.wait_for(6)
            process.send_signal(signal.SIGINT)
            self.assertEqual((process.communicate(timeout=30)[1], process.returncode), ("", 130))
        self.same(events(self.run_folder), expected(self.steps))

    def test_a_real_run(self):
        words = (
            "--workload configs/tiny.json --strategy lessons/00_one_device/config.json --steps 40 --set "
            "model.layers=1 --set model.width=32 --set batch.sequence=32 --set batch.global=2 --set "
            "data.validation_rows=1"
        )
        with subprocess.Popen(
            [f"{programs}/00_one_device", *words.split(), "--out", self.path("real")],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        ) as run:
            try:
                while not os.path.exists(self.path("real/record.json")) and run.poll() is None:
                    time.sleep(0.02)
                out = self.curves("real", "--follow")
                self.assertEqual(run.wait(timeout=60), 0)
            finally:
                run.kill()
        self.assertIn("40 steps of 00_one_device/real; the run ended with exit code 0\n", out)
        found = json.loads(self.text("real/record.json"))
        wanted, read = found["steps"], events(self.path("real"))
        for tag, column in COLUMNS.items():
            self.assertEqual(
                [(number, value) for number, _, value in read[tag]],
                list(zip(wanted["step"], map(f32, wanted[column]))),
                tag,
            )
        self.assertEqual([value for *_, value in read["validation_loss"]], [f32(found["validation_loss"])])


class WeightsAndBiases(Case):
    def setUp(self):
        super().setUp()
        ended_run(self.path("a"), [step(0), step(1)])

    # A stand-in for the package wandb, which the tests do not install.
    def test_an_offline_run(self):
        write(self.path("site/wandb/__init__.py"), WANDB)
        out = self.said("a", "--wandb", "w", PYTHONPATH=self.path("site"))
        self.assertIn("offline run in w/wandb", out)
        first, *points, last = map(json.loads, self.text("w/said.jsonl").splitlines())
        self.assertEqual(
            (
                first["mode"],
                first["WANDB_MODE"],
                first["name"],
                first["config"]["workload"]["batch.global"],
                last,
            ),
            ("offline", "offline", "01_data_parallel/a", "12", "finished"),
        )
        self.assertEqual([number for number, _ in points], [0, 1, 1])
        self.assertEqual((points[0][1]["loss"], points[2][1]), (5.0, {"validation_loss": 2.25}))
        self.assertEqual(glob.glob(self.path("a/events*")), [], "an event file only if it is asked for")
        self.said("a", "--wandb", "w", "--tensorboard", "tb", PYTHONPATH=self.path("site"))
        self.same(events(self.path("tb/01_data_parallel/a")), expected([step(0), step(1)], 2.25))

    def test_without_the_package(self):
        write(
            self.path("bin/python3"), f'#!/bin/sh\nexec {sys.executable} -S "$@"\n'
        )  # a Python without packages
        os.chmod(self.path("bin/python3"), 0o755)
        os.mkdir(self.path("wandb"))  # of earlier runs: no package
        said = "--wandb: python3 has no package wandb\n  fix: python3 -m pip install wandb"
        for also in ([], ["--tensorboard", "tb"]):
            self.refused(
                69, said, "a", "--wandb", "w", *also, PATH=f"{self.path('bin')}:{os.environ['PATH']}"
            )
            self.assertFalse({"w", "tb"} & set(os.listdir(self.folder)))

    def test_one_that_fails(self):
        write(
            self.path("site/wandb/__init__.py"), "def init(**_): raise OSError('no space')\nSettings = dict\n"
        )
        code, _, err = self.ended("a", "--wandb", "w", PYTHONPATH=self.path("site"))
        self.assertEqual(code, 73)
        self.assertIn(
            "OSError: no space\nerror: --wandb w: wandb ended, its message is above\n  fix: mend", err
        )
        said = f"a/record.json: File exists\n  fix: {OTHER_FOLDER}"
        self.refused(73, said, "a", "--wandb", "a/record.json", PYTHONPATH=self.path("site"))


OTHER_FOLDER = "name another folder: --tensorboard DIR or --wandb DIR"
WAITS = "\n  fix: --follow waits for its steps"


class BadInput(Case):
    def test_bad_input(self):
        name = (
            "name the folder of a run or its record.json, such as runs/01_data_parallel/2025-01-31T12-00-00"
        )
        for more in ((), ("--follow",)):
            self.refused(65, f"a: there is no such run\n  fix: {name}", "a", *more)
        for steps, said in (
            ("", ""),
            ('{"step"', " (a/steps.jsonl:1: the last line is cut off and left out)"),
        ):
            begun_run(self.path("a"), steps)
            self.refused(65, f"a: has no finished step{said}{WAITS}", "a")
        ended_run(self.path("a"), [], validation_loss=None, exit_code=69)
        write(self.path("b.json"), json.dumps(record([step(0)])))
        write(self.path("full"), "")
        for code, said, *arguments in (
            (65, "a: has no finished step\n  fix: take a run that trained", "a"),
            (
                64,
                "--follow b.json: is the copy of a record, which does not grow\n  fix: name the folder of "
                "the run",
                *("b.json", "--follow"),
            ),
            (
                73,
                f"full/01_data_parallel: Not a directory\n  fix: {OTHER_FOLDER}",
                *("b.json", "--tensorboard", "full"),
            ),
        ):
            self.refused(code, said, *arguments)

    def test_a_name_that_is_no_utf8(self):
        ended_run(self.path("a"), [step(0)])
        os.rename(self.path("a"), os.fsencode(self.path("a")) + b"\xff")
        fault = "a\\udcff: its name is no UTF-8, and tensorboard writes no other\n  fix: rename it"
        self.refused(73, fault, b"a\xff")

    def test_a_lesson_that_is_no_folders_name(self):
        write(self.path("other/a/events.out.tfevents.1.stagecraft"), "kept")
        for name in ("../other", self.path("other"), "other\x1b[31m"):
            ended_run(self.path("a"), [step(0)], lesson=name)
            said = f'a/record.json: "lesson" is not what a run writes\n  fix: {run_files.WHOLE}'
            self.refused(65, said, "a", "--tensorboard", "tb")
        self.assertEqual(os.listdir(self.path("other/a")), ["events.out.tfevents.1.stagecraft"])

    def test_a_start_that_is_no_time(self):
        ended_run(self.path("a"), [step(0)], started="yesterday")
        self.refused(65, f'a/record.json: "started" is no time\n  fix: {run_files.WHOLE}', "a")

    def test_damage(self):
        damaged = (
            "a run writes it whole or not at all, so it was damaged later: take another run, or train again"
        )
        write(self.path("a/record.json"), "")
        self.refused(65, f"a/record.json: is empty\n  fix: {damaged}", "a")
        begun_run(self.path("a"), lines([step(0)]) + "{}\n")
        said = f'a/steps.jsonl:2: "step" is missing\n  fix: {run_files.A_LINE}'
        self.refused(65, said, "a")
        code, _, err = self.ended("a", "--follow")
        self.assertEqual((code, err), (65, f"error: {said}\n"))

    # A deep or large file must cause no Python traceback, and take no more memory than a record of its size
    # needs.
    def test_deep_and_large(self):
        deep = "[" * 100000 + "]" * 100000
        begun_run(self.path("a"), lines([step(0)]) + deep[:10000] + "\n")
        write(self.path("a/deep.json"), deep)
        begun_run(self.path("b"), lines([step(0)]) + " " * 20000)
        begun_run(self.path("c"), "")
        for name in ("record.json", "steps.jsonl"):
            os.truncate(self.path(f"c/{name}"), 1 << 33)
        for read, file, said in (
            (run_files.load_record, "a/deep.json", ":1: lists and objects are nested too deep"),
            (run_files.load_record, "c/record.json", ": is larger than 32768 KiB"),
            (steps_of, "a/steps.jsonl", ":2: lists and objects are nested too deep"),
            (steps_of, "b/steps.jsonl", ":2: is larger than 16 KiB"),
            (steps_of, "c/steps.jsonl", ":1: is larger than 16 KiB"),
        ):
            with self.subTest(file=file):
                with self.assertRaises(run_files.Refused) as refused:
                    read(self.path(file))
                self.assertEqual(refused.exception.code, 65)
                self.assertTrue(
                    str(refused.exception).startswith(f"error: {self.path(file)}{said}"), refused.exception
                )

    def test_usage(self):
        no_seconds = "argument --patience: '{}' is no number of seconds"
        for said, *arguments in (
            ("RUN is missing",),
            ("unrecognized arguments: --nonsense", "a", "--nonsense"),
            *(  # nan is never over
                (no_seconds.format(word), "a", f"--patience={word}")
                for word in ("long", "nan", "inf", "-1", "1e400")
            ),
        ):
            self.refused(64, f"lessons/curves.sh: {said}\n  fix: lessons/curves.sh --help", *arguments)
        self.assertIn("--follow", self.said("--help"))


if __name__ == "__main__":
    programs = os.path.abspath(sys.argv.pop(1))
    unittest.main()
