"""Where a resumed run begins in its data, on the real programs: with other batches the rows go on where they
ended, in any chain of lessons and ranks; with other rows they begin anew, and one line says so; where the
learning rate is another one, a line says what it was.

Rows are seen by their losses: with a learning rate that moves no weight, the loss of a step is the mean of
its rows' losses, which a run of one row a step tells one by one."""

import math
import random
import re
import shutil

import support
from support import Run, once

STILL = "optim.lr=1e-30 optim.schedule=constant optim.warmup_steps=0"
ROWS = 130
ANEW = "the order of rows begins anew, at its first row: "
RATE = "the learning rate of step "


def keys_of(settings):
    return [setting.split("=")[0] for setting in settings.split()]


class ResumeTest(support.ProcessTest):
    def train(self, lesson, ranks, text, **more):
        """A run that ends well."""
        return self.expect_well(Run(lesson, ranks, text, **more), warned=True)


class Rows(ResumeTest):
    @classmethod
    def setUpClass(cls):
        letters = random.Random(1)
        cls.data = support.write_tokens(
            support.new_path("letters.bin"), [letters.randrange(97, 123) for _ in range(20000)]
        )  # no two rows are alike

    def train(self, lesson, ranks, text, **more):
        return super().train(
            lesson, ranks, text if "--data" in text else f"{text} --data {self.data}", **more
        )

    @property
    def weights(self):
        return self.expect_well(once("00_one_device", 0, "--steps 0")).weights

    def rows(self, keys="", flags=""):
        """The loss of every row, in the order of an uninterrupted run, with the same weights."""
        one = f"{STILL} batch.global=1 batch.micro=1 {keys} --steps {ROWS} --init {self.weights} {flags}"
        job = once("00_one_device", 0, one if flags else f"{one} --data {self.data}")
        return [loss for loss, _ in self.expect_well(job, warned=True).losses()]

    def expect_rows(self, job, rows, begin, batch):
        """The losses of steps of `batch` rows each, from row `begin` on. Returns where they end."""
        losses = job.losses()
        self.assertTrue(losses, job.ended)
        for loss, _ in losses:
            mean = sum(rows[begin : begin + batch]) / batch
            self.assertAlmostEqual(loss, mean, places=5, msg=f"rows {begin} to {begin + batch}")
            begin += batch
        return begin

    def begin(self, keys=""):
        """Four steps of 12 rows, saved; where more is to be saved behind them, in a copy."""
        text = f"{STILL} {keys} --steps 4 --init {self.weights} --save-every 2 --data {self.data}"
        return self.expect_well(once("00_one_device", 0, text), warned=True)

    @staticmethod
    def manifest(job, number):
        return support.read_json(job.saved(number), "manifest.json")

    # A chain of resumed runs reads every row once, in the order of a run that never stopped.
    def test_a_chain_of_batches_lessons_and_ranks(self):
        rows, folder, at, done = self.rows(), support.new_path("checkpoints"), 0, 0
        self.assertGreater(len({round(loss, 4) for loss in rows}), 0.9 * len(rows), "rows can be told apart")
        resume = f"--init {self.weights}"
        for batch, lesson, ranks in (
            (12, "01_data_parallel", 3),
            (6, "00_one_device", 0),
            (24, "04_zero3", 2),
            (6, "07_pipeline", 2),
            (12, "02_zero1", 4),
        ):
            text = f"{STILL} batch.global={batch} --steps {done + 2} --save-every 2 --keep 9 {resume}"
            job = self.train(lesson, ranks, text, checkpoints=folder)
            self.assertEqual(len(job.losses()), 2)
            self.assertNotRegex(job.ended.out, f"{ANEW}|{RATE}")
            if done:
                self.assertEqual(
                    [job.record()["resumed_from"][key] for key in ("rows", "tokens")], [at, 32 * at]
                )
            at, done = self.expect_rows(job, rows, at, batch), done + 2
            self.assertEqual([self.manifest(job, done)[key] for key in ("rows", "tokens")], [at, 32 * at])
            resume = "--resume latest --resume-with batch.global,steps"
        self.assertEqual(at, 2 * (12 + 6 + 24 + 6 + 12))

    # Lesson 08 resumes with the newest weights and the rows after those that were in the stages.
    def test_lesson_08_with_another_batch(self):
        weights = self.expect_well(Run("00_one_device", 0, "model.tied=off --steps 0")).weights
        one = f"{STILL} model.tied=off batch.global=1 --steps 72 --init {weights}"
        rows = [loss for loss, _ in self.train("00_one_device", 0, one).losses()]
        folder, at, done = support.new_path("checkpoints"), 0, 0
        resume = f"--init {weights}"
        for batch in (12, 6, 6, 12):
            text = (
                f"{STILL} model.tied=off batch.micro=2 batch.global={batch} --steps {done + 2} --save-every 2"
            )
            job = self.train("08_weight_versions", 2, f"{text} {resume}", checkpoints=folder)
            dropped = f"1 micro-batch of step {done - 1}" in job.ended.said
            self.assertEqual(dropped, done > 0 and batch != before, job.ended)
            # A record lacks a step whose result an earlier run has already produced.
            at = self.expect_rows(job, rows, at, batch)
            done, before = done + 2, batch
            resume = "--resume latest --resume-with batch.global,steps"

    def test_other_rows_begin_anew(self):
        for keys, why in support.chosen(
            {
                "seed=8": "seed is 8 now and was 7",
                "batch.sequence=16": "batch.sequence is 16 now and was 32",
                "data.validation_fraction=0.3 seed=9": "data.validation_fraction is 0.3 now and was 0.05, "
                "seed is 9 now and was 7",
            },
            "data.validation_fraction=0.3 seed=9",
        ).items():
            with self.subTest(keys=keys):
                rows, folder = self.rows(keys), support.copy_of(self.begin().checkpoints)
                again = f"--save-every 2 --resume latest --resume-with {','.join([*keys_of(keys), 'steps'])}"
                job = self.train(
                    "01_data_parallel", 2, f"{STILL} {keys} --steps 6 {again}", checkpoints=folder
                )
                self.assertIn(f"\n{ANEW}{why}\n", job.ended.out)
                self.assertEqual(self.expect_rows(job, rows, 0, 12), 24)
                self.assertEqual(self.manifest(job, 6)["rows"], 24)
                # From this checkpoint on, the stored order of rows counts, whatever the flags still say.
                text = f"{STILL} {keys} batch.global=6 --steps 8 {again},batch.global"
                job = self.train("00_one_device", 0, text, checkpoints=folder)
                self.assertNotIn(ANEW, job.ended.out)
                self.assertEqual(self.expect_rows(job, rows, 24, 6), 36)
                self.assertEqual(self.manifest(job, 8)["rows"], 36)

    # A token file is recognized by its tokens and not by its name.
    def test_a_file_that_was_moved_and_one_that_is_another(self):
        moved, other = (support.new_path(name) for name in ("moved.bin", "other.bin"))
        shutil.copy(self.data, moved)
        support.write_tokens(other, list(b"quite another text, with words of its own. " * 300))
        again = f"{STILL} --resume {self.begin().saved(4)} --resume-with data.source,steps --steps 6 --data"
        job = self.train("00_one_device", 0, f"{again} {moved}")
        self.assertNotIn(ANEW, job.ended.out)
        self.expect_rows(job, self.rows(), 48, 12)
        job = self.train("00_one_device", 0, f"{again} {other}")
        self.assertIn(f"\n{ANEW}data.source holds other tokens now\n", job.ended.out)
        self.expect_rows(job, self.rows("", f"--data {other}"), 0, 12)

    def test_what_changes_no_row(self):
        keys = "batch.micro=3 data.validation_rows=3 optim.clip=0.5 activations=recompute head_chunk=7"
        resume = f"--resume {self.begin().saved(4)} --resume-with {','.join([*keys_of(keys), 'steps'])}"
        job = self.train("00_one_device", 0, f"{STILL} {keys} --steps 6 {resume}")
        self.assertNotIn(ANEW, job.ended.out)
        self.expect_rows(job, self.rows(), 48, 12)

    def test_a_checkpoint_that_counted_its_evaluation_in_micro_batches(self):
        keys = f"{STILL} batch.micro=3 data.validation_rows=6"
        first = self.begin("batch.micro=3 data.validation_rows=6")
        support.forge(first.saved(4), "older")
        self.assertEqual(self.manifest(first, 4)["workload"]["data.validation_batches"], "2")
        resume = f"--steps 6 --resume {first.saved(4)} --resume-with steps --data {self.data}"
        self.train("00_one_device", 0, f"{keys} {resume}")
        self.expect_one_error(
            Run("00_one_device", 0, f"{keys} {resume}".replace("rows=6", "rows=4")),
            64,
            re.compile(
                r"--resume \S+: the checkpoint is of another workload: data\.validation_rows is 4 now and "
                r"was 6\n"
                r"  fix: .*--resume-with data\.validation_rows"
            ),
        )

    # Micro-batches in the stages held rows of the old order, so they are dropped.
    def test_lesson_08_drops_rows_of_another_order(self):
        keys = f"{STILL} model.tied=off versions=stash"
        first = self.train("08_weight_versions", 2, f"{keys} --steps 4 --save-every 4")
        resume = f"--steps 6 --resume {first.saved(4)} --resume-with seed,steps"
        self.assertIn(
            "what 08_weight_versions had put off is dropped, since this order of rows cannot go on with it: "
            "1 micro-batch of step 3, on the way through the stages",
            self.train("08_weight_versions", 2, f"{keys} seed=8 {resume}").ended.said,
        )


def learning_rate(number, steps, peak=0.01, warmup=2, least=0.1):
    """Cosine; common/optim/lr_schedule.h."""
    if number < warmup:
        return peak * (number + 1) / warmup
    falling = steps - 1 - warmup
    done = 1 if falling <= 0 else min(1, (number - warmup) / falling)
    return peak * (least + (1 - least) * 0.5 * (1 + math.cos(math.pi * done)))


class LearningRate(ResumeTest):
    def resumed(self, number, text, lesson="00_one_device", ranks=0):
        """What is said of the rate of a run that goes on there, and its rates."""
        first = self.expect_well(once("00_one_device", 0, "--steps 10 --save-every 5"))
        job = self.train(lesson, ranks, f"{text} --resume {first.saved(number)}")
        lines = [line for line in job.ended.out.splitlines() if line.startswith(RATE)]
        return lines, job.record()["steps"]["lr"]

    def expect_line(self, found, number, now, was, why):
        lines, rates = found
        self.assertEqual(len(lines), 1, lines)
        said, _, reason = lines[0].removeprefix(RATE).partition(": ")
        self.assertEqual(reason, why)
        words = said.split()
        self.assertEqual(
            (words[0], words[1], words[3:7]), (str(number), "is", ["where", "the", "checkpoint's", "keys"])
        )
        self.assertLess(abs(float(words[2].rstrip(",")) / now - 1), 0.01)
        self.assertLess(abs(float(words[-1]) / was - 1), 0.01)
        self.assertNotEqual(words[2].rstrip(","), words[-1])
        self.assertAlmostEqual(rates[0], now, places=7, msg="and it is what the step has")

    def test_both_values_and_why(self):
        steps, four = "steps is 20 now and was 10", ("04_zero3", 2)
        for number, keys, total, now, why, *which in (
            (10, "", 20, learning_rate(10, 20), steps),
            (5, "", 20, learning_rate(5, 20), steps, *four),
            (5, "optim.lr=0.02", 10, learning_rate(5, 10, peak=0.02), "optim.lr is 0.02 now and was 0.01"),
            (
                5,
                "optim.warmup_steps=8",
                10,
                learning_rate(5, 10, warmup=8),
                "optim.warmup_steps is 8 now and was 2",
            ),
            (5, "optim.schedule=constant", 10, 0.01, "optim.schedule is constant now and was cosine"),
            (
                5,
                "optim.min_lr_fraction=0.5",
                10,
                learning_rate(5, 10, least=0.5),
                "optim.min_lr_fraction is 0.5 now and was 0.1",
            ),
            (
                5,
                "optim.lr=0.0100001",
                10,
                learning_rate(5, 10, peak=0.0100001),
                "optim.lr is 0.0100001 now and was 0.01",
            ),
            (
                5,
                "optim.lr=0.02 optim.clip=0.5",
                20,
                learning_rate(5, 20, peak=0.02),
                f"optim.lr is 0.02 now and was 0.01, {steps}",
            ),
        ):
            with self.subTest(keys=keys, number=number):
                resume_with = ",".join(["steps", *keys_of(keys)])
                found = self.resumed(number, f"{keys} --steps {total} --resume-with {resume_with}", *which)
                was = 0.001 if number == 10 else learning_rate(5, 10)
                self.expect_line(found, number, now, was, why)

    # Lesson 08's schedule of learning rates counts updates, and a step of a smaller batch has fewer of them.
    def test_lesson_08_counts_updates(self):
        keys = "model.tied=off optim.warmup_steps=100"
        first = self.train("08_weight_versions", 2, f"{keys} --steps 10 --save-every 4 --keep 9")
        resume = f"--steps 10 --resume {first.saved(4)} --resume-with batch.global"
        self.assertIn(
            f"\n{RATE}4 is 0.0025, where the checkpoint's keys gave 0.0049: batch.global is 6 now and was "
            "12\n",
            self.train("08_weight_versions", 2, f"{keys} batch.global=6 {resume}").ended.out,
        )

    def test_nothing_is_said_where_it_is_the_same(self):
        for number, text in (
            (5, "--steps 10"),
            (5, "optim.clip=0.5 --steps 10 --resume-with optim.clip"),
            (5, "batch.global=6 --steps 10 --resume-with batch.global"),
            (10, "optim.lr=0.02 --steps 10 --resume-with optim.lr"),  # it has no step left
        ):
            with self.subTest(text=text):
                self.assertEqual(self.resumed(number, text)[0], [])


if __name__ == "__main__":
    support.main()
