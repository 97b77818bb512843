"""Checkpoints on the real programs: a run that goes on ends in the bits of one that never stopped; any lesson
on any ranks takes any checkpoint; ranks killed at any moment, and at every file operation of a save, leave
the old checkpoint or the new one; damage is passed over by all ranks; what does not belong together is
refused by name. STAGECRAFT_KILLS=100 repeats the random kills that often, STAGECRAFT_PAIRS=300 tries that
many pairs of layouts (tests/soak.sh). On threads, tests/strategy and tests/lessons/*_save_test.cpp have the
lessons that ordinarily are left out here, tests/storage every damage and crash."""

import filecmp
import functools
import os
import pathlib
import random
import re
import shutil
import signal
import time

import support
from support import Run, copy_of, names_in, new_path, once, step

STEPS = 8
SAVED = 3  # of them, at the checkpoint that runs go on from; not a multiple of STEPS
PAIRS = int(os.environ.get("STAGECRAFT_PAIRS", "2"))  # of layouts, drawn by lot
KILLS = int(os.environ.get("STAGECRAFT_KILLS", "2"))
UNTIED = "model.tied=off model.layers=4"
# Runs: (lesson, ranks, settings, steps between saves). Lesson 06 keeps states and parameters on a disk. When
# a step of lesson 08 ends, micro-batches are still in the stages, with weight versions and sums of their own.
ONE = ("01_data_parallel", 3 if support.all_settings() else 2, "", SAVED)
FOUR = ("04_zero3", 2, "persist_below=1000", SAVED)
SIX = ("06_infinity", 2, "parameters=sharded params_at=disk piece=1000", SAVED)
EIGHT = ("08_weight_versions", 2, f"{UNTIED} versions=stash", 1)
EIGHT_OF_THREE = ("08_weight_versions", 3, f"{UNTIED} versions=vertical_sync", 2)
CASES = support.chosen(
    [
        ("00_one_device", 0, "", SAVED),
        ONE,
        ("02_zero1", 2, "", SAVED),
        ("03_zero2", 3, "model.tied=off", SAVED),
        FOUR,
        ("05_offload", 2, "parameters=sharded", SAVED),
        SIX,
        ("07_pipeline", 2, "", SAVED),
        EIGHT,
        EIGHT_OF_THREE,
        ("08_weight_versions", 4, f"{UNTIED} versions=two_buffers", 4),
        ("08_weight_versions", 4, f"{UNTIED} versions=stash update_every=3 batch.global=6", 3),
        ("08_weight_versions", 3, f"{UNTIED} versions=stash optim.clip=0", 5),
    ],
    ONE,
    FOUR,
    SIX,
    EIGHT,
    EIGHT_OF_THREE,
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
        ("11_combined", 4, "mesh=1x2x2x1"),
        ("12_context_parallel", 4, ""),
        ("01_data_parallel", 2, ""),
        ("11_combined", 8, "mesh=2x1x2x2"),
        ("04_zero3", 3, ""),
        ("12_context_parallel", 2, ""),
    ],
    ("04_zero3", 3, ""),
    ("05_offload", 2, "update=early"),
    ON_DISK,
    ("10_tensor_parallel", 2, ""),
    ("07_pipeline", 2, ""),
    ("11_combined", 4, "mesh=1x2x2x1"),
    ("12_context_parallel", 2, ""),
)
CHAINED = ("01_data_parallel", "02_zero1", "03_zero2", "04_zero3", "05_offload", "06_infinity")
DROPPED = "had put off is dropped, since this strategy cannot go on with it"


def quiet(lesson, ranks, settings, _):
    """The run that saves nothing."""
    return once(lesson, ranks, f"{settings} --steps {STEPS}")


@functools.cache
def saving(lesson, ranks, settings, every):
    """A run that saves; every second lesson saves while it goes on."""
    how = "off" if int(lesson[1]) % 2 else "on"
    return Run(lesson, ranks, f"{settings} --steps {STEPS} --save-every {every} --keep 8 --save-async {how}")


@functools.cache
def resumed(lesson, ranks, settings, every):
    """What goes on from its first checkpoint."""
    path = saving(lesson, ranks, settings, every).saved(every)
    return Run(lesson, ranks, f"{settings} --steps {STEPS} --resume {path}")


def sixty_steps():
    """Saved every ten of them: what killed and ended runs must come to."""
    return once("04_zero3", 2, "--steps 60 --save-every 10 --keep 9")


def checkpoint(*words):
    """build/cpu/bin/checkpoint, or rather that of the build under test."""
    return support.tool("checkpoint", *words)


def checkpoints_in(folder):
    return [name for name in names_in(folder) if name.startswith("step-")]


def steps_saved(name):
    return int(name.removeprefix("step-"))


class CheckpointTest(support.ProcessTest):
    def expect_equal(self, one, other):
        """Checkpoints."""
        ended = checkpoint("diff", one, other)
        self.assertEqual(ended.code, 0, f"{one} -> {other}: {ended}")


class EveryLesson(CheckpointTest):
    @classmethod
    def setUpClass(cls):
        support.together(which(*case) for which in (quiet, saving) for case in CASES)
        support.together(resumed(*case) for case in CASES)

    def test_saving_changes_nothing(self):
        for case in CASES:
            self.expect_all_well({("quiet", *case): quiet(*case), ("saving", *case): saving(*case)})
            with self.subTest(case=case):
                self.expect_same(saving(*case), quiet(*case))

    def test_a_resumed_run_ends_in_the_same_bits(self):
        self.expect_all_well({case: resumed(*case) for case in CASES})
        for case in CASES:
            with self.subTest(case=case):
                self.expect_same(resumed(*case), quiet(*case), since=case[-1])

    def test_what_is_there(self):
        for lesson, ranks, settings, every in CASES:
            with self.subTest(lesson=lesson, ranks=ranks):
                job = saving(lesson, ranks, settings, every)
                self.assertEqual(
                    names_in(job.checkpoints), [step(number) for number in range(every, STEPS + 1, every)]
                )
                self.assertEqual(
                    names_in(job.saved(every)),
                    ["manifest.json"] + [f"rank-{rank:04d}.safetensors" for rank in range(max(ranks, 1))],
                )
                self.expect_well(checkpoint("verify", job.checkpoints))

    # The saved weights belong to their step: those of another step differ.
    def test_two_steps_differ(self):
        self.assertEqual(
            checkpoint("diff", saving(*FOUR).saved(SAVED), saving(*FOUR).saved(2 * SAVED)).code, 1
        )

    def test_ranks_divide_what_they_all_hold(self):
        folder = pathlib.Path(saving(*ONE).saved(SAVED))
        sizes = [path.stat().st_size for path in folder.glob("rank-*.safetensors")]
        self.assertLess(max(sizes), 1.1 * min(sizes))

    def test_pythons_safetensors_opens_them(self):
        self.needs(
            [support.ORACLE, "-c", "import safetensors, numpy"],
            "python has no safetensors (common/setup/setup.sh --oracle installs it)",
        )
        read = (
            "import sys; from safetensors.numpy import load_file; found = load_file(sys.argv[1]); "
            "print(sum(values.size for values in found.values()), *sorted({name.split('@')[1].split('[')[0] "
            "for name in found}))"
        )
        folder = saving(*FOUR).saved(SAVED)
        said = [
            support.execute([support.ORACLE, "-c", read, f"{folder}/rank-{rank:04d}.safetensors"]).out.split()
            for rank in range(2)
        ]
        shapes = [tensor["shape"] for tensor in support.read_json(folder, "manifest.json")["tensors"]]
        elements = sum(shape[0] * (shape[1] if len(shape) > 1 else 1) for shape in shapes)
        self.assertEqual(
            sum(int(words[0]) for words in said), 3 * elements, "each element once for each purpose"
        )
        self.assertEqual([words[1:] for words in said], [["momentum", "parameters", "variance"]] * 2)


# A delayed update is pending when a step ends, so its gradients and scalars are saved, too.
class PutOff(CheckpointTest):
    FIVE = ("05_offload", 2, "update=delayed", SAVED)
    ELSEWHERE = (
        "06_infinity",
        2,
        "update=delayed grads_at=host parameters=sharded params_at=disk piece=1000 buffers=2",
        SAVED,
    )

    def test_saving_changes_nothing(self):
        jobs = {"quiet": quiet(*self.FIVE), "05": saving(*self.FIVE), "06": saving(*self.ELSEWHERE)}
        self.expect_all_well(jobs)
        for job in (jobs["05"], jobs["06"]):
            self.expect_same_file(job.weights, jobs["quiet"].weights)

    def test_either_lesson_goes_on_with_what_either_has_saved(self):
        pairs = [
            (saver, goer) for saver in (self.FIVE, self.ELSEWHERE) for goer in (self.FIVE, self.ELSEWHERE)
        ]
        for saver, goer in support.chosen(pairs, (self.FIVE, self.ELSEWHERE), (self.ELSEWHERE, self.FIVE)):
            with self.subTest(saver=saver, goer=goer):
                path = self.expect_well(saving(*saver)).saved(SAVED)
                job = Run(*goer[:2], f"{goer[2]} --steps {STEPS} --resume {path}")
                self.expect_same_file(job, quiet(*self.FIVE))

    def test_another_lesson_drops_it_and_says_so(self):
        path = self.expect_well(saving(*self.FIVE)).saved(SAVED)
        ended = support.run("04_zero3", 2, f"--steps {STEPS} --resume {path}")
        self.expect_well(ended, f"what 05_offload {DROPPED}", warned=True)


class OnTheirWay(CheckpointTest):
    # Another lesson continues from the newest weights; the pipeline fills anew if stages or rule change.
    def test_what_was_on_its_way_is_dropped_and_named(self):
        last = ("08_weight_versions", 2, "versions=two_buffers")
        others = [
            ("04_zero3", 2, ""),
            ("08_weight_versions", 3, "versions=stash"),
            ("08_weight_versions", 2, "versions=vertical_sync"),
            last,
        ]
        path = self.expect_well(saving(*EIGHT)).saved(7)
        for lesson, ranks, settings in support.chosen(others, others[0], last):
            self.expect_well(
                support.run(
                    lesson, ranks, f"{UNTIED} {settings} --steps 9 --resume-with steps --resume {path}"
                ),
                f"what 08_weight_versions {DROPPED}: 1 micro-batch of step 6, on the way through the stages",
                warned=True,
            )

    def test_any_lessons_checkpoint_fills_the_pipeline_anew(self):
        four = self.expect_well(Run("04_zero3", 2, f"{UNTIED} --steps {STEPS} --save-every {SAVED}"))
        last = "versions=stash update_every=2"
        for settings in support.chosen(["versions=stash", "versions=two_buffers", last], last):
            with self.subTest(settings=settings):
                how = f"{UNTIED} {settings} --steps {STEPS} --resume"
                one = Run("08_weight_versions", 2, f"{how} {four.saved(SAVED)}")
                again = Run("08_weight_versions", 2, f"{how} {four.saved(SAVED)} --save-every 5")
                self.expect_all_well({"one": one, "again": again})
                self.assertEqual(len(one.losses()), STEPS - SAVED)
                goes_on = self.expect_well(Run("08_weight_versions", 2, f"{how} {again.saved(5)}"))
                self.expect_same_file(goes_on.weights, one.weights)

    # A step's result is known some steps later, and also in a run that resumed in between.
    def test_a_gradient_that_is_not_finite_is_noticed_after_a_resume(self):
        said = re.compile(r"step 3: the (?:gradient|loss) is not finite.*\n  fix: a smaller optim\.lr, .*")
        how = f"{UNTIED} versions=stash --steps {STEPS}"
        first = Run("08_weight_versions", 4, f"{how} --inject nan@0,3 --save-every 4 --save-async off")
        self.expect_one_error(first, 70, said)
        goes_on = Run("08_weight_versions", 4, f"{how} --resume {first.saved(4)}")
        self.assertEqual(self.expect_one_error(goes_on, 70, said).losses(), [])

    # With versions=none, a micro-batch in flight went forward with weights that no checkpoint holds.
    def test_forwards_with_weights_that_are_gone(self):
        why = (
            "with versions=none a micro-batch on its way has been forward with weights that are gone, and "
            "cannot be again"
        )
        none = f"{UNTIED} versions=none"
        path = self.expect_well(saving(*EIGHT)).saved(7)
        self.expect_ends(
            {
                f"{none} --save-every 2": (
                    64,
                    f"--save-every: {why}\n  fix: --save FILE writes the weights at the end",
                ),
                f"{none} --resume {path}": (
                    64,
                    f"--resume: {why}\n  fix: another setting goes on from it; --init FILE begins with its "
                    "weights, which `checkpoint export` writes",
                ),
            },
            "08_weight_versions",
            2,
        )


# On SIGTERM to run.sh, ranks save after a step on which they agree.
class AskedToEnd(CheckpointTest):
    NEVER = "--save-every 1000"
    SAID = " steps are saved: the same command with --resume {}"

    def asked(self, ranks, text, checkpoints=None):
        """A run that is asked to end once it trains: how it ended, and the path of what it has saved."""
        job = Run("04_zero3", ranks, text, sh=True, save=False, checkpoints=checkpoints)
        process = job.start()
        process.send_signal(signal.SIGTERM)
        ended = support.end(process)
        self.assertEqual((ended.code, job.record()["exit_code"]), (143, 143), ended)
        *others, newest = names_in(job.checkpoints)
        self.assertTrue(checkpoints or not others, f"also there: {others}")
        return ended, job.saved(steps_saved(newest)), job

    def goes_on(self, path):
        text = f"--steps 60 {self.NEVER} --resume {path}"
        return self.expect_well(Run("04_zero3", 2, text, checkpoints=os.path.dirname(path)))

    def test_a_run_saves_before_it_ends(self):
        self.expect_well(sixty_steps())
        for ranks in (1, 2):
            with self.subTest(ranks=ranks):
                ended, path, job = self.asked(ranks, f"--steps 60 {self.NEVER}")
                done = steps_saved(os.path.basename(path))
                self.expect_said(ended.out, f"{done}{self.SAID.format(path)} goes on;")
                self.assertEqual(len(job.record()["steps"]["loss"]), done)
                if ranks == 2:
                    self.expect_same_file(self.goes_on(path).weights, sixty_steps().weights)

    # A signal does not wait for an evaluation of a minute: it is broken off, and the three steps before it,
    # which no checkpoint has yet, are saved.
    def test_an_evaluation_is_not_waited_for(self):
        text = support.new_file("text.txt", "a word or two\n" * 1_000_000)
        job = Run("01_data_parallel", 2, f"--steps 3 {self.NEVER} --test {text}", sh=True, save=False)
        process = job.start(steps=3)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(support.end(process).code, 143)
        self.assertEqual(names_in(job.checkpoints), [step(3)])

    def test_what_the_same_command_would_contradict(self):
        init = self.expect_well(Run("04_zero3", 0, "--steps 0")).weights
        ended, first, _ = self.asked(2, f"--steps 60 {self.NEVER} --init {init}")
        self.expect_said(ended.out, f"{self.SAID.format(first)} and without --init goes on;")
        if support.all_settings():
            self.goes_on(first)
        ended, second, _ = self.asked(2, f"--steps 60 {self.NEVER} --resume {first}")
        self.expect_said(ended.out, f"{self.SAID.format(second)} instead of --resume {first} goes on;")
        self.goes_on(second)

    def test_the_same_command_may_do(self):
        _, first, job = self.asked(2, "--steps 1000000 --save-every 1000000")
        for flags in (f"--resume {first}", "--save-every 1000000 --resume latest"):
            with self.subTest(flags=flags):
                ended, newest, _ = self.asked(2, f"--steps 1000000 {flags}", job.checkpoints)
                done = steps_saved(os.path.basename(newest))
                self.expect_said(ended.out, f"; {done} steps are saved: the same command goes on;")


class AnyToAny(CheckpointTest):
    """A run that resumes at its own last step trains nothing, and writes what it took over."""

    def test_a_chain_of_lessons_and_worlds(self):
        before = None
        for turn, (lesson, ranks, settings) in enumerate(CHAIN):
            resume = f"--resume {before}" if before else ""
            how = "off" if turn % 2 else "on"
            job = Run(lesson, ranks, f"{settings} --steps 4 --save-every 4 --save-async {how} {resume}")
            manifest = support.read_json(self.expect_well(job).saved(4), "manifest.json")
            self.assertEqual(
                [manifest[key] for key in ("lesson", "world", "step", "updates")], [lesson, ranks, 4, 4]
            )
            if before:
                self.expect_equal(before, job.saved(4))
            before = job.saved(4)

    # State saved by one lesson and world and loaded by another must be equal to the bit: weights and both
    # moments.
    def test_pairs_of_layouts(self):
        worlds = {
            **dict.fromkeys(CHAINED, (1, 2, 3, 4)),
            "07_pipeline": (2, 3, 4),
            "08_weight_versions": (2, 3, 4),
            "10_tensor_parallel": (1, 2),
        }
        layouts = [("00_one_device", 0, UNTIED)]
        layouts += [(lesson, ranks, UNTIED) for lesson, some in worlds.items() for ranks in some]
        layouts += [
            ("08_weight_versions", 3, f"{UNTIED} {settings}")
            for settings in ("versions=two_buffers", "update_every=2")
        ]
        pairs = [(one, other) for one in layouts for other in layouts]
        chance = random.Random(time.time_ns())
        for one, other in chance.sample(pairs, PAIRS):
            with self.subTest(one=one, other=other):
                before = self.expect_well(once(*one, "--steps", "4", "--save-every", "3")).saved(3)
                job = Run(*other, *f"--steps 3 --resume-with steps --save-every 3 --resume {before}".split())
                self.assertEqual(job.ended.code, 0, job.ended)
                self.expect_equal(before, job.saved(3))

    # A single checkpoint is copied elsewhere and read with another number of threads: neither its neighbours
    # nor its name matters.
    def test_a_copy_elsewhere(self):
        there = self.expect_well(saving(*FOUR)).checkpoints
        elsewhere, hidden = copy_of(saving(*FOUR).saved(SAVED)), new_path("hidden")
        os.rename(there, hidden)
        self.addCleanup(os.rename, hidden, there)
        job = self.expect_well(Run("04_zero3", 2, f"prefetch=2 --steps {STEPS} --resume {elsewhere}"))
        self.expect_same_file(job.weights, quiet(*FOUR))
        self.assertNotIn("another order", job.ended.out)
        ended = support.run("04_zero3", 2, f"--steps {STEPS} --resume {elsewhere} --threads 2")
        self.assertRegex(
            ended.out,
            r"\nfrom here on sums are added in another order: by CPU (.*), threads 2, before by CPU \1, "
            r"threads 1\n",
        )


class Killed(CheckpointTest):
    RESTARTS = "--steps 60 --save-every 10 --save-async off --max-restarts 2 --inject kill@1,25"

    @classmethod
    def setUpClass(cls):
        cls.random = random.Random(time.time_ns())
        cls.boards = support.stale_boards()

    def setUp(self):
        self.expect_well(sixty_steps())

    def kill_a_rank(self, folder, how):
        """A run that is killed at a step of chance, and a moment of it; whether it was."""
        latest = "--resume latest" if names_in(folder) else ""
        job = Run("04_zero3", 2, f"--steps 60 --save-every 2 --save-async {how} {latest}", checkpoints=folder)
        process, many = support.start(job.line), self.random.randint(1, 40)
        support.comes_true(lambda: process.poll() is not None or len(support.steps_of(job.out)) >= many, 60)
        time.sleep(self.random.uniform(0, 0.05))
        ranks = list(support.ranks_of(job.out).values())
        if ranks:
            try:
                os.kill(self.random.choice(ranks), signal.SIGKILL)
            except ProcessLookupError:
                pass  # it ended meanwhile
        ended = support.end(process)
        self.assertTrue(support.comes_true(lambda: not support.processes_with(job.out)))
        return ended.code != 0

    def test_ranks_killed_at_any_moment(self):
        killed = support.side_by_side(
            {turn: lambda turn=turn: self.killed_twice("off" if turn % 2 else "on") for turn in range(KILLS)}
        )
        self.assertGreater(sum(killed.values()), 0, "no run was killed")

    def killed_twice(self, how):
        folder = new_path("checkpoints")
        killed = sum(self.kill_a_rank(folder, how) for _ in range(2))
        latest = "--resume latest" if checkpoints_in(folder) else ""
        after = Run("04_zero3", 2, f"--steps 60 --save-every 2 {latest}", checkpoints=folder)
        self.expect_same_file(after, sixty_steps())
        self.assertEqual(names_in(folder), [step(58), step(60)], "nothing unfinished is left")
        return killed

    def test_run_sh_goes_on_by_itself(self):
        said = (
            r"\nrestart 1 of 2: a rank was (lost|killed \(SIGKILL\)); goes on at step 20, 5 steps are "
            r"redone, \d+\.\d s are lost"
        )
        # 12 rows in micro-batches of 3 can be shared by 4 ranks and by 2, but not by 3.
        for ranks, fewer, more in (
            (2, "", "\n"),
            (
                4,
                "batch.micro=3 --min-ranks 1",
                "; on 2 ranks instead of 4: from here on sums are added in another order\n",
            ),
        ):
            with self.subTest(fewer=fewer):
                job = Run("04_zero3", ranks, f"{fewer} {self.RESTARTS}", sh=True)
                self.assertEqual(job.ended.code, 0, job.ended)
                self.assertRegex(job.ended.out, said + more)
                self.assertEqual(job.ended.out.count("\nrestart "), 1)
                self.assertEqual(filecmp.cmp(job.weights, sixty_steps().weights, shallow=False), not fewer)
                self.expect_nothing_left(job.out, self.boards)

    # The newest checkpoint of an earlier run is damaged, and has a later step than all that the first attempt
    # saves.
    def test_run_sh_goes_on_after_a_damaged_one(self):
        folder = copy_of(sixty_steps().checkpoints)
        for number in (20, 30, 50, 60):
            shutil.rmtree(os.path.join(folder, step(number)))
        os.truncate(os.path.join(folder, step(40), "rank-0001.safetensors"), 100)
        job = Run("04_zero3", 2, f"{self.RESTARTS} --resume latest", sh=True, checkpoints=folder)
        self.assertEqual(job.ended.code, 0, job.ended)
        self.assertRegex(job.ended.out, r"\nrestart 1 of 2: .*; goes on at step 20, 5 steps are redone, ")
        self.expect_same_file(job.weights, sixty_steps().weights)
        self.assertEqual(names_in(folder), [step(50), step(60)])


class CrashAt(CheckpointTest):
    """One rank is killed in place of the K-th operation of its second save, for every fifth K, or for every
    one."""

    EVERY = 1 if support.all_settings() else 5
    SMALL = (
        "model.layers=1 model.width=8 model.context=8 batch.sequence=8 batch.global=1 data.validation_rows=1"
    )

    def job(self, folder, steps, flags=""):
        latest = "--resume latest --resume-with steps" if names_in(folder) else ""
        text = f"{self.SMALL} --steps {steps} --save-every 1 --keep 1 {latest} {flags}"
        return Run("00_one_device", 0, text, checkpoints=folder)

    def crash(self, whole, number):
        """What is there after it: None if the save has fewer operations."""
        folder = copy_of(whole)
        ended = self.job(folder, 2, f"--crash-at {number} --save-async {'off' if number % 2 else 'on'}").ended
        if ended.code == 0:
            self.assertEqual(names_in(folder), [step(2)])
            return None
        self.assertEqual(ended.code, 137, ended)
        found = checkpoints_in(folder)
        self.assertIn(found, ([step(1)], [step(2)], [step(1), step(2)]), f"operation {number}")
        self.assertEqual(checkpoint("verify", folder).code, 0, f"operation {number}")
        after = self.expect_well(self.job(folder, 3))
        self.assertEqual(names_in(folder), [step(3)], f"operation {number}: something is left")
        self.expect_same_file(after.weights, self.quiet.weights)
        return found[-1]

    def test_operations_of_a_save(self):
        folder = new_path("checkpoints")
        self.expect_well(self.job(folder, 1))
        whole = copy_of(folder)
        for steps in (2, 3):  # one at a time, since the learning rate depends on `steps`
            self.quiet = self.expect_well(self.job(folder, steps))
        found = []
        while None not in found:
            first = 1 + len(found) * self.EVERY
            numbers = range(first, first + 4 * self.EVERY, self.EVERY)
            some = support.side_by_side({k: lambda k=k: self.crash(whole, k) for k in numbers}, at_once=2)
            found += some.values()
        beyond = 1 + found.index(None) * self.EVERY
        last = next(filter(None, (self.crash(whole, k) for k in range(beyond - 1, 0, -1))))
        found = [*filter(None, found), last]
        self.assertGreater(len(found) * self.EVERY, 50)
        self.assertEqual(found, sorted(found), "old, and from one operation on new")
        self.assertEqual(set(found), {step(1), step(2)})

    def test_other_ranks_notice(self):
        job = Run("04_zero3", 2, "--save-every 2 --crash-at 9 --watchdog 5")
        self.assertIn(job.ended.code, (75, 137), job.ended)
        self.assertEqual(checkpoints_in(job.checkpoints), [])


class Damaged(CheckpointTest):
    @staticmethod
    def flip(folder):
        with open(folder + "/rank-0001.safetensors", "r+b") as file:
            at = file.seek(-100, os.SEEK_END)
            byte = file.read(1)
            file.seek(at)
            file.write(bytes([byte[0] ^ 1]))

    @staticmethod
    def truncate(folder):
        os.truncate(folder + "/rank-0001.safetensors", os.path.getsize(folder + "/rank-0001.safetensors") - 1)

    @staticmethod
    def swap(folder):
        for name, to in (("rank-0000.safetensors", "x"), ("rank-0001.safetensors", "rank-0000.safetensors")):
            os.rename(f"{folder}/{name}", f"{folder}/{to}")
        os.rename(f"{folder}/x", f"{folder}/rank-0001.safetensors")

    @staticmethod
    def manifest(folder):
        path = pathlib.Path(folder, "manifest.json")
        path.write_bytes(path.read_bytes().replace(b'"updates": 6', b'"updates": 5'))

    @staticmethod
    def lost(folder):
        os.remove(folder + "/rank-0000.safetensors")

    # What every reader says about the damage: the file, and the tensor where one is hit.
    SAID = {
        "flip": r"rank \d: \S+/rank-0001\.safetensors: .*[a-z]\S*@(momentum|variance|parameters)",
        "truncate": r"rank \d: \S+/rank-0001\.safetensors: ",
        "swap": r"rank \d: \S+/rank-000[01]\.safetensors: ",
        "manifest": r"rank \d: \S+/manifest\.json: ",
        "lost": r"rank \d: \S+/rank-0000\.safetensors: ",
    }
    # Manifests with right sums and wrong content: no rank crashes, and every reader takes the older
    # checkpoint.
    FORGED = {
        "empty": r"rank-0000\.safetensors: the header is damaged",
        "deep": r"manifest\.json:\d+:\d+: lists and objects are nested deeper than 64",
        "large": r"manifest\.json: is larger than 8 MiB",
        "behind": r"manifest\.json:\d+:\d+: a zero byte",
        "none": r"manifest\.json: \"workload\.batch\.sequence\": 0 is outside its range",
        "steers": r"manifest\.json: \"workload\.optim\.lr\": \"?\\x1b\[2Jx{,300}\W",
        # The wrong dtype is found by comparison with the tensor's other half, or in the file alone.
        "int": r"rank-000\d\.safetensors: \S+@momentum\S+ is (i32|f32)",
    }

    def expect_passed_over(self, case, folder, ranks, said):
        """A run that goes on from the latest checkpoint takes the older one."""
        lesson, _, settings, _ = case
        after = Run(lesson, ranks, f"{settings} --steps {STEPS} --resume latest", checkpoints=folder)
        self.expect_well(after, re.compile(rf"{step(2 * SAVED)} is passed over: {said}"), warned=True)
        self.assertEqual(after.ended.said.count("is passed over"), 1)
        self.assertEqual(len(after.losses()), STEPS - SAVED, "from the older one")
        if ranks == case[1]:
            self.expect_same_file(after.weights, quiet(*case))

    def test_the_newest_is_passed_over(self):
        for name, said in support.chosen(self.SAID, "flip", "swap").items():
            with self.subTest(damage=name):
                folder = copy_of(self.expect_well(saving(*FOUR)).checkpoints)
                getattr(self, name)(os.path.join(folder, step(2 * SAVED)))
                self.expect_passed_over(FOUR, folder, 3 if name == "swap" else 2, said)

    def test_a_forged_one_is_passed_over_by_all_ranks(self):
        for how, said in support.chosen(self.FORGED, "empty", "steers", "int").items():
            with self.subTest(forged=how):
                folder = copy_of(self.expect_well(saving(*ONE)).checkpoints)
                newest = os.path.join(folder, step(2 * SAVED))
                support.forge(newest, how)
                self.expect_one_error(
                    checkpoint("verify", newest), 65, re.compile(rf"{newest}/{said}.*\n  fix: .*")
                )
                self.expect_passed_over(ONE, folder, ONE[1], f".*{said}")

    def test_one_that_is_named_is_refused(self):
        folder = copy_of(self.expect_well(saving(*FOUR)).checkpoints)
        older, newest = (os.path.join(folder, step(number)) for number in (SAVED, 2 * SAVED))
        self.flip(newest)
        ended = support.run("04_zero3", 2, f"--steps {STEPS} --resume {newest}")
        message = rf"--resume {newest}: it is damaged: {self.SAID['flip']}.*\n  fix: an older one"
        self.expect_one_error(ended, 65, re.compile(message))
        self.flip(older)
        self.expect_one_error(
            support.run("04_zero3", 2, f"--steps {STEPS} --resume {folder}"), 65, ("none is whole",)
        )
        nothing = new_path("nothing")
        self.expect_one_error(
            support.run("04_zero3", 2, f"--resume {nothing}"),
            65,
            f"--resume {nothing}: no checkpoint in {nothing}\n  fix: leave --resume out to begin, or name "
            "where they are: --checkpoints DIR",
        )


class Refused(CheckpointTest):
    OF_ANOTHER = "the checkpoint is of another workload:"

    @classmethod
    def setUpClass(cls):
        cls.first = Run("00_one_device", 0, "--save-every 2")
        cls.folder, cls.saved = cls.first.checkpoints, cls.first.saved(4)

    def setUp(self):
        self.expect_well(self.first)

    def test_each_with_its_words(self):
        lr = f"optim.lr=0.02 --resume {self.saved} --steps 6"
        fix = "fix: the same workload; or, if that is meant, --resume-with"
        # After a second run, the newest checkpoint would be that of whichever run got further, so it is
        # refused. The case runs alone, because a run locks the folder until it has looked.
        self.expect_one_error(
            Run("00_one_device", 0, f"--save-every 2 --checkpoints {self.folder}"),
            64,
            f"--save-every: {self.folder} holds checkpoints of an earlier run, up to {step(4)}\n  fix: "
            "--resume latest goes on from there; to begin again, remove them or name another directory "
            "with --checkpoints",
        )
        self.expect_ends(
            {
                lr: (
                    64,
                    f"--resume {self.saved}: {self.OF_ANOTHER} optim.lr is 0.02 now and was 0.01, steps is "
                    "6 now and was 4\n"
                    f"  {fix} optim.lr,steps",
                ),
                f"{lr} --resume-with optim.lr": (
                    64,
                    f"--resume {self.saved}: {self.OF_ANOTHER} steps is 6 now and was 4\n  {fix} steps",
                ),
                f"{lr} --resume-with optim.lr,steps": (0, ()),
                f"--resume {self.saved} --resume-with optim.rl": (
                    64,
                    "--resume-with optim.rl: no key of the workload has that name\n"
                    "  fix: --explain all lists them; the strategy's own keys may differ anyway",
                ),
                f"--resume {self.saved} --resume-with steps --steps 3": (
                    64,
                    f"--resume {self.saved}: 4 steps are done, and the run has 3\n  fix: --steps 4 or more, "
                    "with --resume-with steps",
                ),
                f"model.width=64 --resume {self.saved}": (64, ("model.width is 64 now and was 32",)),
                "--resume-with steps": (
                    64,
                    "--resume-with: this run does not resume\n  fix: add --resume DIR or --resume latest",
                ),
                "--keep 3": (64, "--keep: this run saves nothing\n  fix: add --save-every STEPS"),
                "--crash-at 1": (64, "--crash-at: this run saves nothing\n  fix: add --save-every STEPS"),
                "--checkpoints x": (
                    64,
                    "--checkpoints: this run neither saves nor resumes\n  fix: add --save-every STEPS, or "
                    "--resume latest",
                ),
                "--resume latest --init w": (
                    64,
                    "--init: the checkpoint has the weights already\n  fix: leave out --init or --resume",
                ),
                "--plan --save-every 2": (
                    64,
                    "--save-every: it belongs to a run; --plan only predicts one\n  fix: leave one of them "
                    "out",
                ),
            },
            "00_one_device",
            0,
        )

    # A run resuming from elsewhere would prune this folder's checkpoints, or leave later ones as the newest.
    def test_going_on_from_another_one_than_the_newest_there(self):
        elsewhere = os.path.join(copy_of(self.folder), step(4))
        how = "--save-every 2 --steps 6 --resume-with steps --resume"
        for ranks, lesson, path in ((0, "00_one_device", self.first.saved(2)), (2, "02_zero1", elsewhere)):
            with self.subTest(path=path):
                self.expect_one_error(
                    Run(lesson, ranks, f"{how} {path}", checkpoints=self.folder),
                    64,
                    f"--save-every: {self.folder} holds checkpoints up to {step(4)}, and this run goes on "
                    f"from {path}\n"
                    f"  fix: --resume latest goes on from {step(4)}; otherwise name another directory with "
                    "--checkpoints, or move away those that this run does not go on from",
                )
                self.assertEqual(names_in(self.folder), [step(2), step(4)])
        for path in (self.saved + "/", "latest", self.folder):
            with self.subTest(path=path):
                there = copy_of(self.folder)
                path = path.replace(self.folder, there)
                self.expect_well(Run("00_one_device", 0, f"{how} {path}", checkpoints=there))
                self.assertEqual(names_in(there), [step(4), step(6)])

    def test_what_was_passed_over_as_damaged_is_no_other_runs(self):
        folder = copy_of(self.folder)
        os.truncate(os.path.join(folder, step(4), "rank-0000.safetensors"), 100)
        job = Run("00_one_device", 0, "--save-every 2 --resume latest", checkpoints=folder)
        self.expect_well(job, f"{step(4)} is passed over", warned=True)
        self.assertEqual(checkpoint("verify", folder).code, 0, "it was written again")

    def test_other_tokens_of_the_same_name(self):
        content = bytearray(pathlib.Path(support.scratch, "tokens.bin").read_bytes())
        content[-2] ^= 1
        there = support.new_folder("there")
        pathlib.Path(there, "tokens.bin").write_bytes(content)
        here = ["env", "-C", there]
        text = f"--resume {self.saved} --steps 5 --resume-with"
        self.expect_one_error(
            Run("00_one_device", 0, f"{text} steps", each=here),
            65,
            re.compile(
                r"tokens\.bin: it holds other tokens than the file that was trained on: (\d+) bytes with "
                r"the sum [0-9a-f]{16}, which was \1 with [0-9a-f]{16}\n"
                r"  fix: that file; or, if other data are meant, --resume-with data\.source"
            ),
        )
        self.expect_well(Run("00_one_device", 0, f"{text} steps,data.source", each=here))


class Disk(CheckpointTest):
    def test_no_room_for_the_second_one(self):
        disk = support.new_folder("disk")
        for ranks, how in ((0, "on"), (2, "off")):
            with self.subTest(ranks=ranks):
                job = Run("04_zero3", ranks, f"--save-every 2 --steps 8 --save-async {how}", checkpoints=disk)
                # The disk has 560 kB, of which the first checkpoint takes half.
                script = (
                    f"{' '.join(job.line)}; code=$?; ls -A {disk} >&2; {support.program('checkpoint')} "
                    f"verify {disk} >&2 || exit 1; exit $code"
                )
                ended = support.execute(self.on_tmpfs("560k", disk, ["sh", "-c", script]))
                message = (
                    rf"\A{disk}: a checkpoint was not written: rank \d: .*\n  fix: make room .*; then "
                    r"--resume latest goes on, or "
                    rf"--resume {disk} with another directory: --checkpoints DIR\. {step(2)} stands\n"
                )
                self.expect_one_error(ended, 73, (re.compile(message),))
                self.assertIn(f"\n{step(2)}\n", ended.err, "the old one stands, and nothing else is there")
                self.assertNotIn(".tmp-", ended.err.split(f"{step(2)} stands")[-1])

    def test_no_room_for_one(self):
        disk = support.new_folder("disk")
        for size, said in (
            (
                "160k",
                r": no checkpoint can be written here: rank 0: .*a checkpoint takes \d+.*, \d+.* are "
                r"free[^\0]*",
            ),
            (
                "64M,nr_inodes=12",
                r": no checkpoint can be written here: rank 0: .*: checkpoints take 16 new files and "
                r"folders, 10 can be made \(df -i\)\n  fix: make room .*",
            ),
            (
                "64M,nr_inodes=1",
                r"/\.lock: cannot create: No space left on device \(ENOSPC\)\n  fix: remove files: no more "
                r"can be made there \(df -i\), .*",
            ),
        ):
            with self.subTest(size=size):
                more = "--keep 3 --steps 20" if "inodes" in size else ""
                job = Run("04_zero3", 2, f"--save-every 2 {more}", checkpoints=disk)
                ended = support.execute(self.on_tmpfs(size, disk, job.line))
                self.expect_one_error(ended, 73, re.compile(re.escape(disk) + said))
                self.assertFalse(os.path.exists(job.out), "it trains nothing")

    def traced(self, *flags):
        """What starts a program under strace."""
        self.needs(["strace", "-f", "-o", "/dev/null", "true"], "strace cannot trace here")
        return ["strace", "-f", *flags]

    def test_what_reaches_the_device_and_in_which_order(self):
        log = new_path("log")
        calls = "trace=fsync,fdatasync,rename,renameat,renameat2"
        job = Run("00_one_device", 0, "--save-every 4", each=self.traced("-y", "-o", log, "-e", calls))
        folder = re.escape(self.expect_well(job).checkpoints)
        said = "\n".join(line for line in support.read_text(log).splitlines() if job.checkpoints in line)
        temporary = folder + rf"/\.{step(4)}\.tmp-0"
        at = 0
        for pattern in (
            rf"f(data)?sync\(\d+<{temporary}/rank-0000\.safetensors>\) += 0",
            rf"f(data)?sync\(\d+<{temporary}/manifest\.json>\) += 0",
            rf"fsync\(\d+<{temporary}>\) += 0",
            rf'rename\w*\(.*"{temporary}".*"{folder}/{step(4)}".*\) += 0',
            rf"fsync\(\d+<{folder}>\) += 0",
        ):
            found = re.compile(pattern).search(said, at)
            self.assertTrue(found, f"{pattern} is not among\n{said[at:]}")
            at = found.end()

    def delayed(self, cases, call, microseconds):
        """Runs on which rank 0's file of the first checkpoint is written with `call` so much slower. (ranks,
        text) -> how it ended"""

        def job(ranks, text):
            folder = new_path("checkpoints")
            late = self.traced(
                *f"--seccomp-bpf -o /dev/null -P {folder}/.{step(2)}.tmp-0/rank-0000.safetensors".split(),
                *f"-e trace={call} -e inject={call}:delay_enter={microseconds}".split(),
            )
            one = Run("04_zero3", 0, f"--save-every 2 --watchdog 5 {text}", checkpoints=folder)
            others = [":", "-n", str(ranks - 1), *one.line] if ranks > 1 else []
            return support.execute([*support.mpirun(1), *late, *one.line, *others])

        jobs = {case: lambda case=case: job(*case) for case in cases}
        return support.side_by_side(jobs).items()

    def test_a_slow_disk_is_no_hang(self):
        cases = ((2, "--save-async on"), (2, "--save-async off"), (1, "--save-async off"))
        for case, ended in self.delayed(cases, "pwrite64", 140000):
            with self.subTest(case=case):
                self.expect_well(ended)

    def test_one_that_does_not_answer_is(self):
        last = "--save-async on --steps 2"  # the run has no step after that save
        cases = ((1, "--save-async on"), (2, "--save-async off"), (1, last))
        for case, ended in self.delayed(cases, "fsync", 12000000):
            with self.subTest(case=case):
                self.assertNotEqual(ended.code, 0, ended)
                self.assertRegex(ended.err, "error: (rank 0, writes .*, is stuck|lost rank 0)")


if __name__ == "__main__":
    support.main()
