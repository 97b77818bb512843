"""Checkpoints on the real programs: a run that goes on ends in the bits of one that never stopped; any lesson on any ranks takes any checkpoint; ranks
killed at any moment, and at every file operation of a save, leave the old checkpoint or the new one; damage is passed over by all ranks; what does not
belong together is refused by name. STAGECRAFT_KILLS=100 repeats the random kills that often, STAGECRAFT_PAIRS=0 tries all pairs of layouts (tests/soak.sh).
On threads, tests/strategy and tests/lessons/*_save_test.cpp have the lessons that ordinarily are left out here, tests/storage every damage and crash."""

import filecmp
import functools
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

import support

STEPS = 8
SAVED = 3  # of them, at the checkpoint that runs go on from; not a multiple of STEPS
PAIRS = int(os.environ.get("STAGECRAFT_PAIRS", "2"))  # of layouts; 0: all of them
KILLS = int(os.environ.get("STAGECRAFT_KILLS", "2"))
# lesson: ranks, settings. 06 keeps its states, and its parameters, on a disk.
LESSONS = support.chosen(
    {
        "00_one_device": (0, ""),
        "01_data_parallel": (3, ""),
        "02_zero1": (2, ""),
        "03_zero2": (3, "model.tied=off"),
        "04_zero3": (2, "persist_below=1000"),
        "05_offload": (2, "parameters=sharded"),
        "06_infinity": (2, "parameters=sharded params_at=disk piece=1000"),
        "07_pipeline": (2, ""),
    },
    "01_data_parallel",
    "04_zero3",
    "06_infinity",
)
ON_DISK = ("06_infinity", 1, "params_at=disk parameters=sharded")
CHAIN = support.chosen(
    [
        ("01_data_parallel", 4, ""),
        ("04_zero3", 4, "shard_ranks=2"),
        ("04_zero3", 3, ""),
        ("05_offload", 2, "update=early"),
        ON_DISK,
        ("10_tensor_parallel", 2, ""),
        ("02_zero1", 4, ""),
        ("10_tensor_parallel", 2, "tokens=whole"),
        ("11_combined", 4, "mesh=2x1x2"),
        ("07_pipeline", 2, ""),
        ("11_combined", 4, "mesh=1x2x2"),
    ],
    ("04_zero3", 3, ""),
    ("05_offload", 2, "update=early"),
    ON_DISK,
    ("10_tensor_parallel", 2, ""),
    ("07_pipeline", 2, ""),
    ("11_combined", 4, "mesh=1x2x2"),
)
CHAINED = ("01_data_parallel", "02_zero1", "03_zero2", "04_zero3", "05_offload", "06_infinity")
# Runs a command where `$2` is a file system in memory of `$1` bytes.
ON_TMPFS = [
    "unshare",
    "-rm",
    "sh",
    "-c",
    'mount -t tmpfs -o size="$1" none "$2" && shift 2 && exec "$@"',
    "sh",
]
ORACLE = os.path.join(support.ROOT, ".deps/oracle/bin/python")


def saves(folder, every, *flags):
    return ["--save-every", str(every), "--checkpoints", folder, *flags]


def step(number):
    return f"step-{number:06d}"


def settings_of(lesson, settings):
    """As flags; lesson 06 has a disk."""
    disk = []
    if lesson == "06_infinity":
        disk = ["--disk", support.new_path("disk")]
        os.mkdir(disk[1])
    return [part for s in settings.split() for part in ("--set", s)] + disk


class Job(support.Run):
    """A run that saves its weights, and perhaps checkpoints."""

    def __init__(self, lesson, ranks, settings, *flags):
        super().__init__(lesson, ranks, "", *settings_of(lesson, settings), *flags)


def command(*words):
    """build/cpu/bin/checkpoint, or rather that of the build under test."""
    return support.execute([support.program("checkpoint"), *words])


def names_in(folder):
    return sorted(os.listdir(folder)) if os.path.exists(folder) else []


@functools.cache
def sixty_steps():
    """Of lesson 04 on two ranks, saved every ten steps: what killed and ended runs must come to. (The run, its end, its checkpoints.)"""
    folder = support.new_path("checkpoints")
    quiet = Job("04_zero3", 2, "", "--steps", "60", *saves(folder, 10, "--keep", "9"))
    return quiet, quiet.job(), folder


class CheckpointTest(support.ProcessTest):
    def expect_well(self, ended):
        self.assertEqual((ended.code, ended.err), (0, ""), ended)

    def expect_same(self, one, other):
        self.assertTrue(
            filecmp.cmp(one.weights, other.weights, shallow=False),
            f"{one.weights} and {other.weights} differ",
        )


class EveryLesson(CheckpointTest):
    @classmethod
    def setUpClass(cls):
        cls.quiet, cls.saving, cls.resumed, cls.folders = {}, {}, {}, {}
        for turn, (lesson, (ranks, settings)) in enumerate(LESSONS.items()):
            cls.folders[lesson] = folder = support.new_path("checkpoints")
            how = ["--save-async", "off" if turn % 2 else "on"]
            steps = ["--steps", str(STEPS)]
            cls.quiet[lesson] = Job(lesson, ranks, settings, *steps)
            cls.saving[lesson] = Job(lesson, ranks, settings, *steps, *saves(folder, SAVED, *how))
            cls.resumed[lesson] = Job(
                lesson, ranks, settings, *steps, "--resume", os.path.join(folder, step(SAVED))
            )
        first = {("quiet", lesson): job.job for lesson, job in cls.quiet.items()}
        first |= {("saving", lesson): job.job for lesson, job in cls.saving.items()}
        cls.ended = support.side_by_side(first, at_once=2)
        cls.ended |= support.side_by_side(
            {("resumed", lesson): job.job for lesson, job in cls.resumed.items()}, at_once=2
        )

    def test_all_end_well_and_as_predicted(self):
        for name, ended in self.ended.items():
            with self.subTest(name=name):
                self.expect_well(ended)
        for jobs in (self.quiet, self.saving, self.resumed):
            for lesson, job in jobs.items():
                with self.subTest(lesson=lesson):
                    self.assertTrue(job.record()["as_predicted"])

    def test_saving_changes_nothing(self):
        for lesson, job in self.saving.items():
            with self.subTest(lesson=lesson):
                self.expect_same(job, self.quiet[lesson])
                self.assertEqual(job.losses(), self.quiet[lesson].losses())

    def test_a_resumed_run_ends_in_the_same_bits(self):
        for lesson, job in self.resumed.items():
            with self.subTest(lesson=lesson):
                self.expect_same(job, self.quiet[lesson])
                self.assertEqual(job.losses(), self.quiet[lesson].losses()[SAVED:])

    def test_what_is_there(self):
        for lesson, (ranks, _) in LESSONS.items():
            with self.subTest(lesson=lesson):
                folder = self.folders[lesson]
                self.assertEqual(names_in(folder), [step(SAVED), step(2 * SAVED)])
                self.assertEqual(
                    names_in(os.path.join(folder, step(SAVED))),
                    ["manifest.json"] + [f"rank-{rank:04d}.safetensors" for rank in range(max(ranks, 1))],
                )
                self.assertEqual(command("verify", folder).code, 0)

    # The saved weights are those of the model: another step's differ.
    def test_two_steps_differ(self):
        folder = self.folders["04_zero3"]
        self.assertEqual(
            command("diff", os.path.join(folder, step(SAVED)), os.path.join(folder, step(2 * SAVED))).code, 1
        )

    def test_ranks_divide_what_they_all_hold(self):
        sizes = [
            os.path.getsize(
                os.path.join(self.folders["01_data_parallel"], step(SAVED), f"rank-{rank:04d}.safetensors")
            )
            for rank in range(3)
        ]
        self.assertLess(max(sizes), 1.1 * min(sizes))

    def test_pythons_safetensors_opens_them(self):
        if (
            not os.path.exists(ORACLE)
            or subprocess.run(
                [ORACLE, "-c", "import safetensors, numpy"], capture_output=True, check=False
            ).returncode
        ):
            self.skipTest("python has no safetensors (common/setup/setup.sh --oracle installs it)")
        read = (
            "import sys; from safetensors.numpy import load_file; found = load_file(sys.argv[1]); "
            "print(sum(values.size for values in found.values()), *sorted({name.split('@')[1].split('[')[0] for name in found}))"
        )
        folder = os.path.join(self.folders["04_zero3"], step(SAVED))
        said = [
            subprocess.run(
                [ORACLE, "-c", read, os.path.join(folder, f"rank-{rank:04d}.safetensors")],
                capture_output=True,
                text=True,
                check=True,
            ).stdout.split()
            for rank in range(2)
        ]
        with open(os.path.join(folder, "manifest.json"), encoding="utf-8") as file:
            shapes = [tensor["shape"] for tensor in json.load(file)["tensors"]]
        elements = sum(shape[0] * (shape[1] if len(shape) > 1 else 1) for shape in shapes)
        self.assertEqual(
            sum(int(words[0]) for words in said), 3 * elements, "each element once for each purpose"
        )
        self.assertEqual([words[1:] for words in said], [["momentum", "parameters", "variance"]] * 2)


# A delayed update is still to come when a step ends: its gradients and scalars are saved, too.
class PutOff(CheckpointTest):
    ELSEWHERE = "update=delayed grads_at=host parameters=sharded params_at=disk piece=1000 buffers=2"

    @classmethod
    def setUpClass(cls):
        steps = ["--steps", str(STEPS)]
        cls.folder = support.new_path("checkpoints")
        cls.quiet = Job("05_offload", 2, "update=delayed", *steps)
        cls.saving = Job("05_offload", 2, "update=delayed", *steps, *saves(cls.folder, SAVED))
        cls.newest = support.new_path("checkpoints")
        cls.elsewhere = Job(
            "06_infinity", 2, cls.ELSEWHERE, *steps, *saves(cls.newest, SAVED, "--save-async", "off")
        )
        cls.ended = support.side_by_side(
            {"quiet": cls.quiet.job, "saving": cls.saving.job, "elsewhere": cls.elsewhere.job}, at_once=2
        )

    def test_saving_changes_nothing(self):
        for ended in self.ended.values():
            self.expect_well(ended)
        self.expect_same(self.saving, self.quiet)
        self.expect_same(self.elsewhere, self.quiet)

    def test_either_lesson_goes_on_with_what_either_has_saved(self):
        five, six = ("05_offload", "update=delayed"), ("06_infinity", self.ELSEWHERE)
        pairs = [(folder, *how) for folder in (self.folder, self.newest) for how in (five, six)]
        for folder, lesson, settings in support.chosen(pairs, (self.folder, *six), (self.newest, *five)):
            with self.subTest(lesson=lesson, folder=folder):
                resumed = Job(
                    lesson, 2, settings, "--steps", str(STEPS), "--resume", os.path.join(folder, step(SAVED))
                )
                self.expect_well(resumed.job())
                self.expect_same(resumed, self.quiet)

    def test_another_lesson_drops_it_and_says_so(self):
        ended = Job(
            "04_zero3", 2, "", "--steps", str(STEPS), "--resume", os.path.join(self.folder, step(SAVED))
        ).job()
        self.assertEqual(ended.code, 0, ended)
        self.assertIn(
            "what 05_offload had put off is dropped, since this strategy cannot go on with it",
            ended.out + ended.err,
        )


# When a step of lesson 08 ends, micro-batches are on their way through the stages, with versions of the weights and sums of their own.
class OnTheirWay(CheckpointTest):
    MODEL = "model.tied=off model.layers=4"
    SETTINGS = support.chosen(
        {
            (2, 1): "versions=stash",
            (3, 2): "versions=vertical_sync",
            (4, 4): "versions=two_buffers",
            (4, 3): "versions=stash update_every=3 batch.global=6",
            (3, 5): "versions=stash optim.clip=0",
        },
        (2, 1),
        (3, 2),
    )

    @classmethod
    def setUpClass(cls):
        cls.quiet, cls.saving, cls.resumed, cls.folders = {}, {}, {}, {}
        for name, settings in cls.SETTINGS.items():
            (ranks, at), steps, folder = name, ["--steps", str(STEPS)], support.new_path("checkpoints")
            cls.folders[name] = folder
            cls.quiet[name] = cls.job(ranks, settings, *steps)
            cls.saving[name] = cls.job(ranks, settings, *steps, *saves(folder, at, "--keep", "8"))
            cls.resumed[name] = cls.job(ranks, settings, *steps, "--resume", os.path.join(folder, step(at)))
        first = {("quiet", name): job.job for name, job in cls.quiet.items()} | {
            ("saving", name): job.job for name, job in cls.saving.items()
        }
        cls.ended = support.side_by_side(first, at_once=2)
        cls.ended |= support.side_by_side(
            {("resumed", name): job.job for name, job in cls.resumed.items()}, at_once=2
        )

    @staticmethod
    def job(ranks, settings, *flags):
        return Job("08_weight_versions", ranks, f"{OnTheirWay.MODEL} {settings}", *flags)

    def test_a_resumed_run_ends_in_the_same_bits(self):
        for name, ended in self.ended.items():
            with self.subTest(name=name):
                self.expect_well(ended)
        for name, quiet in self.quiet.items():
            with self.subTest(name=name):
                self.expect_same(self.saving[name], quiet)
                self.expect_same(self.resumed[name], quiet)
                self.assertTrue(self.resumed[name].record()["as_predicted"])
                self.assertEqual(self.resumed[name].losses(), quiet.losses()[name[1] :])

    # Another lesson goes on with the newest weights; the pipeline fills anew where stages or rule are others.
    def test_what_was_on_its_way_is_dropped_and_named(self):
        folder = os.path.join(self.folders[2, 1], step(7))
        last, flags = ("08_weight_versions", 2, "versions=two_buffers"), [
            "--steps",
            "9",
            "--resume-with",
            "steps",
            "--resume",
            folder,
        ]
        for lesson, ranks, settings in support.chosen(
            [
                ("04_zero3", 2, ""),
                ("08_weight_versions", 3, "versions=stash"),
                ("08_weight_versions", 2, "versions=vertical_sync"),
                last,
            ],
            ("04_zero3", 2, ""),
            last,
        ):
            ended = Job(lesson, ranks, f"{self.MODEL} {settings}", *flags).job()
            self.assertEqual(ended.code, 0, ended)
            self.assertIn(
                "what 08_weight_versions had put off is dropped, since this strategy cannot go on with it: "
                "1 micro-batch of step 6, on the way through the stages",
                ended.out + ended.err,
            )

    def test_any_lessons_checkpoint_fills_the_pipeline_anew(self):
        folder, steps = support.new_path("checkpoints"), ["--steps", str(STEPS)]
        self.expect_well(Job("04_zero3", 2, self.MODEL, *steps, *saves(folder, SAVED)).job())
        for settings in support.chosen(
            ["versions=stash", "versions=two_buffers", "versions=stash update_every=2"],
            "versions=stash update_every=2",
        ):
            with self.subTest(settings=settings):
                one = self.job(2, settings, *steps, "--resume", os.path.join(folder, step(SAVED)))
                self.expect_well(one.job())
                self.assertTrue(one.record()["as_predicted"])
                self.assertEqual(len(one.losses()), STEPS - SAVED)
                again = support.new_path("checkpoints")
                self.expect_well(
                    self.job(
                        2, settings, *steps, "--resume", os.path.join(folder, step(SAVED)), *saves(again, 5)
                    ).job()
                )
                last = self.job(2, settings, *steps, "--resume", os.path.join(again, step(5)))
                self.expect_well(last.job())
                self.expect_same(last, one)

    # What a step came to is known some steps later, in a run that goes on from a checkpoint in between, too.
    def test_a_gradient_that_is_not_finite_is_noticed_after_a_resume(self):
        folder, steps = support.new_path("checkpoints"), ["--steps", str(STEPS)]
        said = re.compile(r"step 3: the (?:gradient|loss) is not finite.*\n  fix: a smaller optim\.lr, .*")
        first = self.job(
            4, "versions=stash", *steps, "--inject", "nan@0,3", *saves(folder, 4, "--save-async", "off")
        )
        self.expect_one_error(first.job(), 70, said)
        resumed = self.job(4, "versions=stash", *steps, "--resume", os.path.join(folder, step(4)))
        self.expect_one_error(resumed.job(), 70, said)
        self.assertEqual(resumed.losses(), [])

    # They are in no checkpoint.
    def test_forwards_with_weights_that_are_gone(self):
        why = "with versions=none a micro-batch on its way has been forward with weights that are gone, and cannot be again"
        for flags, fix in (
            (("--save-every", "2"), "--save FILE writes the weights at the end"),
            (
                ("--resume", os.path.join(self.folders[2, 1], step(7))),
                "another setting goes on from it; --init FILE begins with its weights, which `checkpoint export` writes",
            ),
        ):
            self.expect_one_error(
                self.job(2, "versions=none", *flags).job(), 64, f"{flags[0]}: {why}\n  fix: {fix}"
            )


# SIGTERM to run.sh: ranks save after the step that they agree on.
class AskedToEnd(CheckpointTest):
    STEPS = ["--steps", "60"]

    @classmethod
    def setUpClass(cls):
        cls.quiet, cls.ended, _ = sixty_steps()

    def asked(self, ranks, *flags):
        """A run that is asked to end once it trains; its record."""
        out = support.new_path("out")
        process = support.start(support.run_sh("04_zero3", ranks, *flags, "--out", out))
        there = os.path.join(out, "steps.jsonl")
        self.assertTrue(support.comes_true(lambda: os.path.exists(there) and os.path.getsize(there), 60))
        process.send_signal(signal.SIGTERM)
        ended = support.end(process)
        self.assertEqual((ended.code, support.record(out)["exit_code"]), (143, 143), ended)
        return ended, support.record(out)

    def goes_on(self, *flags):
        after = Job("04_zero3", 2, "", *self.STEPS, *flags)
        self.expect_well(after.job())
        return after

    def test_a_run_saves_before_it_ends(self):
        self.expect_well(self.ended)
        for ranks in (1, 2):
            with self.subTest(ranks=ranks):
                folder = support.new_path("checkpoints")
                ended, record = self.asked(ranks, *self.STEPS, *saves(folder, 1000))
                (saved,) = names_in(folder)
                done = int(saved.removeprefix("step-"))
                self.assertIn(
                    f"{done} steps are saved: the same command with --resume {folder}/{saved} goes on;",
                    ended.out,
                )
                self.assertEqual(len(record["steps"]["loss"]), done)
                if ranks == 2:
                    self.expect_same(
                        self.goes_on(*saves(folder, 1000), "--resume", f"{folder}/{saved}"), self.quiet
                    )

    # A text that takes a minute is no reason to lose the last steps: three of them are in no checkpoint.
    def test_an_evaluation_is_not_waited_for(self):
        text, out, folder = (
            support.new_path("text") + ".txt",
            support.new_path("out"),
            support.new_path("checkpoints"),
        )
        with open(text, "w", encoding="utf-8") as file:
            file.write("a word or two\n" * 1_000_000)
        process = support.start(
            support.run_sh(
                "01_data_parallel", 2, "--steps", "3", *saves(folder, 1000), "--test", text, "--out", out
            )
        )
        there = os.path.join(out, "steps.jsonl")
        self.assertTrue(
            support.comes_true(
                lambda: os.path.exists(there) and pathlib.Path(there).read_bytes().count(b"\n") == 3, 120
            )
        )
        process.send_signal(signal.SIGTERM)
        self.assertEqual(support.end(process).code, 143)
        self.assertEqual(names_in(folder), [step(3)])

    def test_what_the_same_command_would_contradict(self):
        init, folder = support.new_path("init") + ".safetensors", support.new_path("checkpoints")
        self.expect_well(
            support.run("04_zero3", 0, "--steps", "0", "--save", init, "--out", support.new_path("out"))
        )
        ended, _ = self.asked(2, *self.STEPS, *saves(folder, 1000), "--init", init)
        (first,) = names_in(folder)
        self.assertIn(
            f" steps are saved: the same command with --resume {folder}/{first} and without --init goes on;",
            ended.out,
        )
        if support.all_settings():
            self.goes_on(*saves(folder, 1000), "--resume", f"{folder}/{first}")
        elsewhere, first = support.new_path("checkpoints"), f"{folder}/{first}"
        ended, _ = self.asked(2, *self.STEPS, *saves(elsewhere, 1000), "--resume", first)
        (second,) = names_in(elsewhere)
        self.assertIn(
            f" steps are saved: the same command with --resume {elsewhere}/{second} instead of --resume {first} goes on;",
            ended.out,
        )
        self.goes_on(*saves(elsewhere, 1000), "--resume", f"{elsewhere}/{second}")

    def test_the_same_command_may_do(self):
        folder, steps = support.new_path("checkpoints"), ["--steps", "1000000"]
        self.asked(2, *steps, *saves(folder, 1000000))
        (first,) = names_in(folder)
        for flags in (["--resume", f"{folder}/{first}"], [*saves(folder, 1000000), "--resume", "latest"]):
            with self.subTest(flags=flags):
                ended, _ = self.asked(2, *steps, *flags)
                newest = int(names_in(folder)[-1].removeprefix("step-"))
                self.assertIn(f"; {newest} steps are saved: the same command goes on;", ended.out)


class AnyToAny(CheckpointTest):
    """A run that resumes at its own last step trains nothing, and writes what it took over."""

    def test_a_chain_of_lessons_and_worlds(self):
        before = None
        for turn, (lesson, ranks, settings) in enumerate(CHAIN):
            folder = support.new_path("checkpoints")
            resume = ["--resume", before] if before else []
            how = ["--save-async", "off" if turn % 2 else "on"]
            job = Job(lesson, ranks, settings, "--steps", "4", *saves(folder, 4, *how), *resume)
            self.expect_well(job.job())
            saved = os.path.join(folder, step(4))
            with open(os.path.join(saved, "manifest.json"), encoding="utf-8") as file:
                manifest = json.load(file)
            self.assertEqual(
                (manifest["lesson"], manifest["world"], manifest["step"], manifest["updates"]),
                (lesson, ranks, 4, 4),
            )
            if before:
                ended = command("diff", before, saved)
                self.assertEqual(ended.code, 0, f"{before} -> {lesson} on {ranks}: {ended}")
            before = saved

    # Save under one lesson and world, load under another: weights and both moments equal to the bit.
    def test_pairs_of_layouts(self):
        model = "model.tied=off model.layers=4"
        layouts = [("00_one_device", 0, model)] + [
            (lesson, ranks, model) for lesson in CHAINED for ranks in (1, 2, 3, 4)
        ]
        layouts += [
            (lesson, ranks, model) for lesson in ("07_pipeline", "08_weight_versions") for ranks in (2, 3, 4)
        ]
        layouts += [("10_tensor_parallel", ranks, model) for ranks in (1, 2)]
        layouts += [
            ("08_weight_versions", 3, f"{model} {settings}")
            for settings in ("versions=two_buffers", "update_every=2")
        ]
        pairs = [(one, other) for one in layouts for other in layouts]
        chance = random.Random(time.time_ns())
        saved = {}
        for one, other in chance.sample(pairs, PAIRS) if PAIRS else pairs:
            with self.subTest(one=one, other=other):
                if one not in saved:
                    saved[one] = support.new_path("checkpoints")
                    self.expect_well(Job(*one, "--steps", "4", *saves(saved[one], 3)).job())
                folder, steps = support.new_path("checkpoints"), ["--steps", "3", "--resume-with", "steps"]
                before = os.path.join(saved[one], step(3))
                ended = Job(*other, *steps, *saves(folder, 3), "--resume", before).job()
                self.assertEqual(ended.code, 0, ended)
                ended = command("diff", before, os.path.join(folder, step(3)))
                self.assertEqual(ended.code, 0, ended)

    # Only the directory of one step, elsewhere, and other threads: neither the folder beside it nor its name counts.
    def test_a_copy_elsewhere(self):
        folder, elsewhere = support.new_path("checkpoints"), support.new_path("elsewhere")
        quiet = Job("04_zero3", 2, "", "--steps", str(STEPS), *saves(folder, SAVED))
        self.expect_well(quiet.job())
        shutil.copytree(os.path.join(folder, step(SAVED)), elsewhere)
        shutil.rmtree(folder)
        resumed = Job(
            "04_zero3", 2, "persist_below=1000 prefetch=2", "--steps", str(STEPS), "--resume", elsewhere
        )
        ended = resumed.job()
        self.expect_well(ended)
        self.expect_same(resumed, quiet)
        self.assertNotIn("another order", ended.out)
        ended = Job("04_zero3", 2, "", "--steps", str(STEPS), "--resume", elsewhere, "--threads", "2").job()
        self.assertRegex(
            ended.out,
            r"\nfrom here on sums are added in another order: by CPU (.*), threads 2, before by CPU \1, threads 1\n",
        )


class Killed(CheckpointTest):
    LONG = ["--steps", "60"]

    @classmethod
    def setUpClass(cls):
        cls.quiet, cls.ended, cls.saved = sixty_steps()
        cls.random = random.Random(time.time_ns())
        cls.boards = support.stale_boards()

    def kill_a_rank(self, folder, how):
        """A run that is killed at a step of chance, and a moment of it; whether it was."""
        out = support.new_path("out")
        program = support.program("04_zero3")
        flags = [
            *support.files_of("04_zero3"),
            *self.LONG,
            *saves(folder, 2, "--save-async", how),
            "--out",
            out,
        ]
        process = support.start(
            [*support.mpirun(2), program, *flags, *(["--resume", "latest"] if names_in(folder) else [])]
        )
        steps, many = pathlib.Path(out, "steps.jsonl"), self.random.randint(1, 40)
        support.comes_true(
            lambda: process.poll() is not None
            or (steps.exists() and steps.read_bytes().count(b"\n") >= many),
            60,
        )
        time.sleep(self.random.uniform(0, 0.05))
        ranks = [pid for pid in support.processes_with(out) if self.runs(pid, program)]
        if ranks:
            try:
                os.kill(self.random.choice(ranks), signal.SIGKILL)
            except ProcessLookupError:
                pass  # it ended meanwhile
        ended = support.end(process)
        self.assertTrue(support.comes_true(lambda: not support.processes_with(out)))
        return ended.code != 0

    @staticmethod
    def runs(pid, program):
        try:
            return os.path.realpath(f"/proc/{pid}/exe") == os.path.realpath(program)
        except OSError:
            return False

    def test_ranks_killed_at_any_moment(self):
        self.expect_well(self.ended)
        killed = support.side_by_side(
            {turn: lambda turn=turn: self.killed_twice("off" if turn % 2 else "on") for turn in range(KILLS)}
        )
        self.assertGreater(sum(killed.values()), 0, "no run was killed")

    def killed_twice(self, how):
        folder = support.new_path("checkpoints")
        killed = sum(self.kill_a_rank(folder, how) for _ in range(2))
        resume = ["--resume", "latest"] if any(name.startswith("step-") for name in names_in(folder)) else []
        after = Job("04_zero3", 2, "", *self.LONG, *saves(folder, 2), *resume)
        self.expect_well(after.job())
        self.expect_same(after, self.quiet)
        self.assertEqual(names_in(folder), [step(58), step(60)], "nothing unfinished is left")
        return killed

    def test_run_sh_goes_on_by_itself(self):
        # 12 rows in micro-batches of 3: 4 ranks share them, and 2, but not 3.
        for fewer in ([], ["--min-ranks", "1", "--set", "batch.micro=3"]):
            with self.subTest(fewer=fewer):
                folder, out = support.new_path("checkpoints"), support.new_path("out")
                weights = out + ".safetensors"
                flags = [
                    *self.LONG,
                    *saves(folder, 10, "--save-async", "off"),
                    "--max-restarts",
                    "2",
                    *fewer,
                    "--inject",
                    "kill@1,25",
                    "--out",
                    out,
                    "--save",
                    weights,
                ]
                ended = support.execute(support.run_sh("04_zero3", 4 if fewer else 2, *flags))
                self.assertEqual(ended.code, 0, ended)
                said = r"\nrestart 1 of 2: a rank was (lost|killed \(SIGKILL\)); goes on at step 20, 5 steps are redone, \d+\.\d s are lost"
                said += (
                    "; on 2 ranks instead of 4: from here on sums are added in another order\n"
                    if fewer
                    else "\n"
                )
                self.assertRegex(ended.out, said)
                self.assertEqual(len(re.findall(r"\nrestart ", ended.out)), 1)
                self.assertEqual(filecmp.cmp(weights, self.quiet.weights, shallow=False), not fewer)
                self.expect_nothing_left(out, self.boards)

    # The newest of before is damaged, and lies ahead of all that the first attempt saves.
    def test_run_sh_goes_on_after_a_damaged_one(self):
        folder, out = support.new_path("checkpoints"), support.new_path("out")
        shutil.copytree(self.saved, folder)
        for number in (20, 30, 50, 60):
            shutil.rmtree(os.path.join(folder, step(number)))
        os.truncate(os.path.join(folder, step(40), "rank-0001.safetensors"), 100)
        weights = out + ".safetensors"
        flags = [
            *self.LONG,
            *saves(folder, 10, "--save-async", "off"),
            "--resume",
            "latest",
            "--max-restarts",
            "2",
            "--inject",
            "kill@1,25",
            "--out",
            out,
            "--save",
            weights,
        ]
        ended = support.execute(support.run_sh("04_zero3", 2, *flags))
        self.assertEqual(ended.code, 0, ended)
        self.assertRegex(ended.out, r"\nrestart 1 of 2: .*; goes on at step 20, 5 steps are redone, ")
        self.assertTrue(filecmp.cmp(weights, self.quiet.weights, shallow=False))
        self.assertEqual(names_in(folder), [step(50), step(60)])


class CrashAt(CheckpointTest):
    """One rank is killed in place of the K-th operation of its second save, for every fifth K, or for every one."""

    EVERY = 1 if support.all_settings() else 5
    SMALL = (
        "model.layers=1 model.width=8 model.context=8 batch.sequence=8 batch.global=1 data.validation_rows=1"
    )

    def job(self, folder, steps, *flags):
        return Job(
            "00_one_device", 0, self.SMALL, "--steps", str(steps), *saves(folder, 1, "--keep", "1", *flags)
        )

    def crash(self, whole, number):
        """What is there after it: None if the save has fewer operations."""
        folder = support.new_path("checkpoints")
        shutil.copytree(whole, folder)
        resume = ["--resume", "latest", "--resume-with", "steps"]
        ended = self.job(
            folder, 2, *resume, "--crash-at", str(number), "--save-async", "off" if number % 2 else "on"
        ).job()
        if ended.code == 0:
            self.assertEqual(names_in(folder), [step(2)])
            return None
        self.assertEqual(ended.code, 137, ended)
        found = [name for name in names_in(folder) if name.startswith("step-")]
        self.assertIn(found, ([step(1)], [step(2)], [step(1), step(2)]), f"operation {number}")
        self.assertEqual(command("verify", folder).code, 0, f"operation {number}")
        after = self.job(folder, 3, *resume)
        self.expect_well(after.job())
        self.assertEqual(names_in(folder), [step(3)], f"operation {number}: something is left")
        self.expect_same(after, self.quiet)
        return found[-1]

    def test_operations_of_a_save(self):
        whole = support.new_path("checkpoints")
        first = self.job(whole, 1)
        self.expect_well(first.job())
        self.quiet = self.one_step_at_a_time()
        found, number = [], 1
        while True:
            some = support.side_by_side(
                {
                    k: lambda k=k: self.crash(whole, k)
                    for k in range(number, number + 4 * self.EVERY, self.EVERY)
                },
                at_once=2,
            )
            found += [some[k] for k in sorted(some) if some[k]]
            if None in some.values():
                break
            number += 4 * self.EVERY
        self.assertGreater(len(found) * self.EVERY, 50)
        self.assertEqual(found, sorted(found), "old, and from one operation on new")
        self.assertEqual(set(found), {step(1), step(2)})

    # The learning rate depends on `steps`.
    def one_step_at_a_time(self):
        folder = support.new_path("checkpoints")
        for steps in (1, 2, 3):
            job = self.job(
                folder, steps, *(["--resume", "latest", "--resume-with", "steps"] if steps > 1 else [])
            )
            self.expect_well(job.job())
        return job

    def test_other_ranks_notice(self):
        folder = support.new_path("checkpoints")
        ended = support.run("04_zero3", 2, *saves(folder, 2), "--crash-at", "9", "--watchdog", "5")
        self.assertIn(ended.code, (75, 137), ended)
        self.assertEqual([name for name in names_in(folder) if name.startswith("step-")], [])

    def test_a_run_that_saves_nothing(self):
        self.expect_one_error(
            support.run("00_one_device", 0, "--crash-at", "1"),
            64,
            "--crash-at: this run saves nothing\n  fix: add --save-every STEPS",
        )


class Damaged(CheckpointTest):
    @classmethod
    def setUpClass(cls):
        cls.whole = support.new_path("checkpoints")
        cls.quiet = Job("04_zero3", 3, "", "--steps", str(STEPS), *saves(cls.whole, 4))
        cls.ended = cls.quiet.job()

    @staticmethod
    def flip(folder):
        with open(folder + "/rank-0001.safetensors", "r+b") as file:
            size = file.seek(0, 2)
            file.seek(size - 100)
            byte = file.read(1)
            file.seek(size - 100)
            file.write(bytes([byte[0] ^ 1]))

    @staticmethod
    def truncate(folder):
        os.truncate(folder + "/rank-0002.safetensors", os.path.getsize(folder + "/rank-0002.safetensors") - 1)

    @staticmethod
    def swap(folder):
        os.rename(folder + "/rank-0000.safetensors", folder + "/x")
        os.rename(folder + "/rank-0001.safetensors", folder + "/rank-0000.safetensors")
        os.rename(folder + "/x", folder + "/rank-0001.safetensors")

    @staticmethod
    def manifest(folder):
        with open(folder + "/manifest.json", "r+b") as file:
            text = file.read().replace(b'"updates": 8', b'"updates": 7')
            file.seek(0)
            file.write(text)

    @staticmethod
    def lost(folder):
        os.remove(folder + "/rank-0000.safetensors")

    # What all say of it: the file, and the tensor where one is hit.
    SAID = {
        "flip": r"rank \d: \S+/rank-0001\.safetensors: .*[a-z]\S*@(momentum|variance|parameters)",
        "truncate": r"rank \d: \S+/rank-0002\.safetensors: ",
        "swap": r"rank \d: \S+/rank-000[01]\.safetensors: ",
        "manifest": r"rank \d: \S+/manifest\.json: ",
        "lost": r"rank \d: \S+/rank-0000\.safetensors: ",
    }

    def test_the_newest_is_passed_over(self):
        self.expect_well(self.ended)
        for name in support.chosen(self.SAID, "flip", "swap"):
            with self.subTest(damage=name):
                folder = support.new_path("checkpoints")
                shutil.copytree(self.whole, folder)
                getattr(self, name)(os.path.join(folder, step(8)))
                after = Job(
                    "04_zero3",
                    2 if name == "swap" else 3,
                    "",
                    "--steps",
                    str(STEPS),
                    "--resume",
                    "latest",
                    "--checkpoints",
                    folder,
                )
                ended = after.job()
                self.assertEqual((ended.code, ended.errors), (0, []), ended)
                self.assertRegex(ended.out + ended.err, rf"{step(8)} is passed over: {self.SAID[name]}")
                self.assertEqual(len(re.findall("is passed over", ended.out + ended.err)), 1)
                if name != "swap":
                    self.expect_same(after, self.quiet)
                self.assertEqual(len(after.losses()), 4, "from the older one")

    def test_one_that_is_named_is_refused(self):
        folder = support.new_path("checkpoints")
        shutil.copytree(self.whole, folder)
        self.flip(os.path.join(folder, step(8)))
        named = os.path.join(folder, step(8))
        ended = support.run("04_zero3", 2, "--steps", str(STEPS), "--resume", named)
        self.expect_one_error(
            ended,
            65,
            re.compile(rf"--resume {named}: it is damaged: {self.SAID['flip']}.*\n  fix: an older one"),
        )
        self.flip(os.path.join(folder, step(4)))
        ended = support.run("04_zero3", 2, "--steps", str(STEPS), "--resume", folder)
        self.assertEqual((ended.code, len(ended.errors)), (65, 1), ended)
        self.assertIn("none is whole", ended.errors[0])
        nothing = support.new_path("nothing")
        ended = support.run("04_zero3", 2, "--resume", nothing)
        self.expect_one_error(
            ended,
            65,
            f"--resume {nothing}: no checkpoint in {nothing}\n  fix: leave --resume out to begin, or name where they are: --checkpoints DIR",
        )


class Forged(CheckpointTest):
    """Manifests whose sums are right and nothing else: no rank dies of one, and all take the older checkpoint."""

    SAID = {
        "empty": r"rank-0000\.safetensors: the header is damaged",
        "deep": r"manifest\.json:\d+:\d+: lists and objects are nested deeper than 64",
        "large": r"manifest\.json: is larger than 8 MiB",
        "behind": r"manifest\.json:\d+:\d+: a zero byte",
        "none": r"manifest\.json: \"workload\.batch\.sequence\": 0 is outside its range",
        "steers": r"manifest\.json: \"workload\.optim\.lr\": \"?\\x1b\[2Jx{,300}\W",
        "int": r"rank-000\d\.safetensors: \S+@momentum\S+ is (i32|f32)",  # against its other half, or by itself
    }

    def test_each_is_passed_over_by_all_ranks(self):
        whole = support.new_path("checkpoints")
        quiet = Job("01_data_parallel", 2, "", "--steps", str(STEPS), *saves(whole, 4))
        self.expect_well(quiet.job())
        forge = os.path.join(os.path.dirname(support.programs), "tests/storage/forge_checkpoint")
        for how, said in support.chosen(self.SAID, "empty", "steers", "int").items():
            with self.subTest(forged=how):
                folder = support.new_path("checkpoints")
                shutil.copytree(whole, folder)
                newest = os.path.join(folder, step(8))
                subprocess.run([forge, newest, how], check=True)
                self.expect_one_error(
                    command("verify", newest), 65, re.compile(rf"{newest}/{said}.*\n  fix: .*")
                )
                after = Job(
                    "01_data_parallel",
                    2,
                    "",
                    "--steps",
                    str(STEPS),
                    "--resume",
                    "latest",
                    "--checkpoints",
                    folder,
                )
                ended = after.job()
                self.assertEqual((ended.code, ended.errors), (0, []), ended)
                self.assertRegex(ended.out + ended.err, rf"{step(8)} is passed over: .*{said}")
                self.expect_same(after, quiet)


class Refused(CheckpointTest):
    @classmethod
    def setUpClass(cls):
        cls.folder = support.new_path("checkpoints")
        cls.saved = os.path.join(cls.folder, step(4))
        cls.ended = Job("00_one_device", 0, "", *saves(cls.folder, 4)).job()

    # The newest one would be that of whichever run got further.
    def test_two_runs_in_one_directory(self):
        self.expect_one_error(
            support.run("00_one_device", 0, *saves(self.folder, 2)),
            64,
            f"--save-every: {self.folder} holds checkpoints of an earlier run, up to {step(4)}\n  fix: --resume latest goes on from "
            "there; to begin again, remove them or name another directory with --checkpoints",
        )

    # It would prune that run's, and those after it would stay the newest.
    def test_going_on_from_another_one_than_the_newest_there(self):
        folder, more = support.new_path("checkpoints"), ["--steps", "6", "--resume-with", "steps"]
        self.expect_well(support.run("00_one_device", 0, *saves(folder, 2), "--out", support.new_path("out")))
        for ranks, lesson, resumed in (
            (0, "00_one_device", os.path.join(folder, step(2))),
            (2, "02_zero1", self.saved),
        ):
            with self.subTest(resumed=resumed):
                self.expect_one_error(
                    support.run(lesson, ranks, *saves(folder, 2), "--resume", resumed, *more),
                    64,
                    f"--save-every: {folder} holds checkpoints up to {step(4)}, and this run goes on from {resumed}\n"
                    f"  fix: --resume latest goes on from {step(4)}; otherwise name another directory with --checkpoints, or move away "
                    "those that this run does not go on from",
                )
                self.assertEqual(names_in(folder), [step(2), step(4)])
        for resumed in (os.path.join(folder, step(4)) + "/", "latest", folder):
            with self.subTest(resumed=resumed):
                there = support.new_path("checkpoints")
                shutil.copytree(folder, there)
                resumed = resumed.replace(folder, there)
                self.expect_well(
                    support.run(
                        "00_one_device",
                        0,
                        *saves(there, 2),
                        "--resume",
                        resumed,
                        *more,
                        "--out",
                        support.new_path("out"),
                    )
                )
                self.assertEqual(names_in(there), [step(4), step(6)])

    def test_what_was_passed_over_as_damaged_is_no_other_runs(self):
        folder = support.new_path("checkpoints")
        self.expect_well(support.run("00_one_device", 0, *saves(folder, 2), "--out", support.new_path("out")))
        os.truncate(os.path.join(folder, step(4), "rank-0000.safetensors"), 100)
        ended = support.run(
            "00_one_device", 0, *saves(folder, 2), "--resume", "latest", "--out", support.new_path("out")
        )
        self.assertEqual((ended.code, ended.errors), (0, []), ended)
        self.assertIn(f"{step(4)} is passed over", ended.out + ended.err)
        self.assertEqual(command("verify", folder).code, 0, "it was written again")

    def test_another_learning_rate(self):
        self.expect_well(self.ended)
        flags = ["--resume", self.saved, "--steps", "6", "--set", "optim.lr=0.02"]
        self.expect_one_error(
            support.run("00_one_device", 0, *flags),
            64,
            f"--resume {self.saved}: the checkpoint is of another workload: optim.lr is 0.02 now and was 0.01, steps is 6 now and was 4\n"
            "  fix: the same workload; or, if that is meant, --resume-with optim.lr,steps",
        )
        ended = support.run("00_one_device", 0, *flags, "--resume-with", "optim.lr")
        self.expect_one_error(
            ended,
            64,
            f"--resume {self.saved}: the checkpoint is of another workload: steps is 6 now and was 4\n"
            "  fix: the same workload; or, if that is meant, --resume-with steps",
        )
        self.expect_well(support.run("00_one_device", 0, *flags, "--resume-with", "optim.lr,steps"))

    def test_no_such_key(self):
        self.expect_one_error(
            support.run("00_one_device", 0, "--resume", self.saved, "--resume-with", "optim.rl"),
            64,
            "--resume-with optim.rl: no key of the workload has that name\n"
            "  fix: --explain all lists them; the strategy's own keys may differ anyway",
        )

    def test_fewer_steps_than_are_done(self):
        self.expect_one_error(
            support.run("00_one_device", 0, "--resume", self.saved, "--resume-with", "steps", "--steps", "3"),
            64,
            f"--resume {self.saved}: 4 steps are done, and the run has 3\n  fix: --steps 4 or more, with --resume-with steps",
        )

    def test_another_model(self):
        ended = support.run("00_one_device", 0, "--resume", self.saved, "--set", "model.width=64")
        self.assertEqual((ended.code, len(ended.errors)), (64, 1), ended)
        self.assertIn("model.width is 64 now and was 32", ended.errors[0])

    def test_other_tokens_of_the_same_name(self):
        tokens = os.path.join(support.scratch, "tokens.bin")
        there = support.new_path("there")
        os.mkdir(there)
        with open(tokens, "rb") as file:
            content = bytearray(file.read())
        content[-2] ^= 1
        with open(there + "/tokens.bin", "wb") as file:
            file.write(content)
        flags = [
            *support.files_of("00_one_device"),
            "--resume",
            self.saved,
            "--resume-with",
            "steps",
            "--steps",
            "5",
            "--out",
            support.new_path("out"),
        ]
        here = ["env", "-C", there, support.program("00_one_device")]
        self.expect_one_error(
            support.execute([*here, *flags]),
            65,
            re.compile(
                r"tokens\.bin: it holds other tokens than the file that was trained on: (\d+) bytes with the sum [0-9a-f]{16}, which was \1 with [0-9a-f]{16}\n"
                r"  fix: that file; or, if other data are meant, --resume-with data\.source"
            ),
        )
        flags[flags.index("--resume-with") + 1] = "steps,data.source"
        self.expect_well(support.execute([*here, *flags]))

    def test_what_contradicts_itself(self):
        for flags, said in {
            (
                "--resume-with",
                "steps",
            ): "--resume-with: this run does not resume\n  fix: add --resume DIR or --resume latest",
            ("--keep", "3"): "--keep: this run saves nothing\n  fix: add --save-every STEPS",
            (
                "--checkpoints",
                "x",
            ): "--checkpoints: this run neither saves nor resumes\n  fix: add --save-every STEPS, or --resume latest",
            (
                "--resume",
                "latest",
                "--init",
                "w",
            ): "--init: the checkpoint has the weights already\n  fix: leave out --init or --resume",
            (
                "--plan",
                "--save-every",
                "2",
            ): "--save-every: it belongs to a run; --plan only predicts one\n  fix: leave one of them out",
        }.items():
            with self.subTest(flags=flags):
                self.expect_one_error(support.run("00_one_device", 0, *flags), 64, said)


class Disk(CheckpointTest):
    def test_no_room_for_the_second_one(self):
        disk = support.new_path("disk")
        os.mkdir(disk)
        if support.execute([*ON_TMPFS, "1M", disk, "true"]).code:
            self.skipTest("no file system can be mounted here (unshare -rm)")
        flags = [*support.files_of("04_zero3"), *saves(disk, 2), "--steps", "8"]
        for ranks, how in ((0, "on"), (2, "off")):
            with self.subTest(ranks=ranks):
                run = " ".join(
                    [
                        *support.mpirun(ranks),
                        support.program("04_zero3"),
                        *flags,
                        "--save-async",
                        how,
                        "--out",
                        support.new_path("out"),
                    ]
                )
                # The first one takes half of it.
                script = f"{run}; code=$?; ls -A {disk} >&2; {support.program('checkpoint')} verify {disk} >&2 || exit 1; exit $code"
                ended = support.execute([*ON_TMPFS, "560k", disk, "sh", "-c", script])
                self.assertEqual((ended.code, len(ended.errors)), (73, 1), ended)
                self.assertRegex(
                    ended.errors[0],
                    r"\Aerror: "
                    + re.escape(disk)
                    + r": a checkpoint was not written: rank \d: .*\n  fix: make room .*; "
                    r"then --resume latest goes on, or --resume "
                    + re.escape(disk)
                    + r" with another directory: --checkpoints DIR\. "
                    + step(2)
                    + r" stands\n",
                )
                self.assertIn(f"\n{step(2)}\n", ended.err, "the old one stands, and nothing else is there")
                self.assertNotIn(".tmp-", ended.err.split(f"{step(2)} stands")[-1])

    def test_no_room_for_one(self):
        disk = support.new_path("disk")
        os.mkdir(disk)
        if support.execute([*ON_TMPFS, "1M", disk, "true"]).code:
            self.skipTest("no file system can be mounted here (unshare -rm)")
        out = support.new_path("out")
        ended = support.execute(
            [
                *ON_TMPFS,
                "160k",
                disk,
                *support.mpirun(2),
                support.program("04_zero3"),
                *support.files_of("04_zero3"),
                *saves(disk, 2),
                "--out",
                out,
            ]
        )
        self.assertEqual((ended.code, len(ended.errors)), (73, 1), ended)
        self.assertRegex(
            ended.errors[0],
            re.escape(disk)
            + r": no checkpoint can be written here: rank 0: .*a checkpoint takes \d+.*, \d+.* are free",
        )
        self.assertFalse(os.path.exists(out), "it trains nothing")
        for inodes, said in (
            (
                12,
                r": no checkpoint can be written here: rank 0: .*: checkpoints take 16 new files and folders, 10 can be made \(df -i\)\n  fix: make room .*",
            ),
            (
                1,
                r"/\.lock: cannot create: No space left on device \(ENOSPC\)\n  fix: remove files: no more can be made there \(df -i\), .*",
            ),
        ):
            ended = support.execute(
                [
                    *ON_TMPFS,
                    f"64M,nr_inodes={inodes}",
                    disk,
                    *support.mpirun(2),
                    support.program("04_zero3"),
                    *support.files_of("04_zero3"),
                    *saves(disk, 2, "--keep", "3"),
                    "--steps",
                    "20",
                    "--out",
                    out,
                ]
            )
            self.expect_one_error(ended, 73, re.compile(re.escape(disk) + said))

    def test_what_reaches_the_device_and_in_which_order(self):
        if not shutil.which("strace"):
            self.skipTest("no strace here")
        log, folder = support.new_path("log"), support.new_path("checkpoints")
        traced = [
            "strace",
            "-f",
            "-y",
            "-o",
            log,
            "-e",
            "trace=fsync,fdatasync,rename,renameat,renameat2",
            support.program("00_one_device"),
        ]
        ended = support.execute(
            [*traced, *support.files_of("00_one_device"), *saves(folder, 4), "--out", support.new_path("out")]
        )
        if "ptrace" in ended.err:
            self.skipTest("strace may not trace here")
        self.expect_well(ended)
        with open(log, encoding="utf-8") as file:
            said = [line for line in file if folder in line]
        temporary = re.escape(folder) + rf"/\.{step(4)}\.tmp-0"
        wanted = [
            rf"f(data)?sync\(\d+<{temporary}/rank-0000\.safetensors>\) += 0",
            rf"f(data)?sync\(\d+<{temporary}/manifest\.json>\) += 0",
            rf"fsync\(\d+<{temporary}>\) += 0",
            rf'rename\w*\(.*"{temporary}".*"{re.escape(folder)}/{step(4)}".*\) += 0',
            rf"fsync\(\d+<{re.escape(folder)}>\) += 0",
        ]
        at = 0
        for pattern in wanted:
            found = next((i for i in range(at, len(said)) if re.search(pattern, said[i])), None)
            self.assertIsNotNone(found, f"{pattern} is not among\n" + "".join(said[at:]))
            at = found + 1

    @staticmethod
    def delayed(folder, ranks, how, call, microseconds, *flags):
        """A run on which rank 0's file of the first checkpoint is written with `call` so much slower."""
        late = [
            "strace",
            "--seccomp-bpf",
            "-f",
            "-o",
            "/dev/null",
            "-P",
            f"{folder}/.{step(2)}.tmp-0/rank-0000.safetensors",
            "-e",
            f"trace={call}",
            "-e",
            f"inject={call}:delay_enter={microseconds}",
        ]
        program = [
            support.program("04_zero3"),
            *support.files_of("04_zero3"),
            *saves(folder, 2, "--save-async", how),
            "--watchdog",
            "5",
            "--out",
            support.new_path("out"),
            *flags,
        ]
        return support.execute(
            [
                *support.mpirun(1),
                *late,
                *program,
                *([":", "-n", str(ranks - 1), *program] if ranks > 1 else []),
            ]
        )

    def test_a_slow_disk_is_no_hang(self):
        if not shutil.which("strace"):
            self.skipTest("no strace here")
        jobs = {
            (ranks, how): lambda ranks=ranks, how=how: self.delayed(
                support.new_path("checkpoints"), ranks, how, "pwrite64", 140000
            )
            for ranks, how in ((2, "on"), (2, "off"), (1, "off"))
        }
        for name, ended in support.side_by_side(jobs).items():
            with self.subTest(name=name):
                if "ptrace" in ended.err:
                    self.skipTest("strace may not trace here")
                self.expect_well(ended)

    def test_one_that_does_not_answer_is(self):
        if not shutil.which("strace"):
            self.skipTest("no strace here")
        last = ("--steps", "2")  # the run has no step after that save
        jobs = {
            (ranks, how, flags): lambda ranks=ranks, how=how, flags=flags: self.delayed(
                support.new_path("checkpoints"), ranks, how, "fsync", 12000000, *flags
            )
            for ranks, how, flags in ((1, "on", ()), (2, "off", ()), (1, "on", last))
        }
        for name, ended in support.side_by_side(jobs).items():
            with self.subTest(name=name):
                if "ptrace" in ended.err:
                    self.skipTest("strace may not trace here")
                self.assertNotEqual(ended.code, 0, ended)
                self.assertRegex(ended.err, "error: (rank 0, writes .*, is stuck|lost rank 0)")


if __name__ == "__main__":
    support.main()
