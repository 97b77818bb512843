"""Where a resumed run begins in its data, on the real programs: with other batches the rows go on where they ended, in any chain of lessons and ranks; with
other rows they begin anew, and one line says so; where the learning rate is another one, a line says what it was.

Rows are seen by their losses: with a learning rate that moves no weight, the loss of a step is the mean of its rows' losses, which a run of one row a step
tells one by one."""

import json
import math
import os
import random
import re
import shutil
import subprocess

import support

STILL = "optim.lr=1e-30 optim.schedule=constant optim.warmup_steps=0"
ROWS = 130
ANEW = "the order of rows begins anew, at its first row: "
RATE = "the learning rate of step "


def step(number):
    return f"step-{number:06d}"


def settings(text):
    return [part for setting in text.split() for part in ("--set", setting)]


class ResumeTest(support.ProcessTest):
    def expect_well(self, ended):
        self.assertEqual((ended.code, ended.err), (0, ""), ended)

    def train(self, lesson, ranks, keys, *flags):
        """A run; what it printed, and the losses of its steps."""
        run = support.Run(lesson, ranks, keys, *flags)
        ended = run.job()
        self.assertEqual((ended.code, ended.errors), (0, []), ended)
        return ended, [loss for loss, _ in run.losses()], run


class Rows(ResumeTest):
    @classmethod
    def setUpClass(cls):
        cls.weights = support.new_path("weights") + ".safetensors"
        cls.made = support.run(
            "00_one_device", 0, "--steps", "0", "--save", cls.weights, "--out", support.new_path("out")
        )
        cls.known = {}
        letters = random.Random(1)
        cls.data = support.write_tokens(
            support.new_path("letters") + ".bin", [letters.randrange(97, 123) for _ in range(20000)]
        )  # no two rows are alike

    def train(self, lesson, ranks, keys, *flags):
        return super().train(
            lesson, ranks, keys, *flags, *([] if "--data" in flags else ["--data", self.data])
        )

    def rows(self, keys="", *flags):
        """The loss of every row, in the order of an uninterrupted run, with the same weights."""
        self.expect_well(self.made)
        name = (keys, *flags)
        if name not in self.known:
            one = f"{STILL} batch.global=1 batch.micro=1 {keys}"
            _, self.known[name], _ = self.train(
                "00_one_device", 0, one, "--steps", str(ROWS), "--init", self.weights, *flags
            )
        return self.known[name]

    def expect_rows(self, losses, rows, begin, batch):
        """The losses of steps of `batch` rows each, from row `begin` on. Returns where they end."""
        for loss in losses:
            self.assertAlmostEqual(
                loss,
                sum(rows[begin : begin + batch]) / batch,
                places=5,
                msg=f"rows {begin} to {begin + batch}",
            )
            begin += batch
        return begin

    def begin(self, folder, keys="", *flags):
        """Four steps of 12 rows, saved."""
        return self.train(
            "00_one_device",
            0,
            f"{STILL} {keys}",
            "--steps",
            "4",
            "--init",
            self.weights,
            "--save-every",
            "2",
            "--checkpoints",
            folder,
            *flags,
        )

    @staticmethod
    def manifest(folder, number):
        with open(os.path.join(folder, step(number), "manifest.json"), encoding="utf-8") as file:
            return json.load(file)

    # Every row once, in the order of a run that never stopped.
    def test_a_chain_of_batches_lessons_and_ranks(self):
        rows, folder, at, done = self.rows(), support.new_path("checkpoints"), 0, 0
        self.assertGreater(len({round(loss, 4) for loss in rows}), 0.9 * len(rows), "rows can be told apart")
        for batch, lesson, ranks in (
            (12, "01_data_parallel", 3),
            (6, "00_one_device", 0),
            (24, "04_zero3", 2),
            (6, "07_pipeline", 2),
            (12, "02_zero1", 4),
        ):
            resume = (
                ["--resume", "latest", "--resume-with", "batch.global,steps"]
                if done
                else ["--init", self.weights]
            )
            ended, losses, run = self.train(
                lesson,
                ranks,
                f"{STILL} batch.global={batch}",
                "--steps",
                str(done + 2),
                "--save-every",
                "2",
                "--checkpoints",
                folder,
                "--keep",
                "9",
                *resume,
            )
            self.assertEqual(len(losses), 2)
            self.assertNotIn(ANEW, ended.out)
            self.assertNotIn(RATE, ended.out)
            if done:
                self.assertEqual(
                    [run.record()["resumed_from"][key] for key in ("rows", "tokens")], [at, 32 * at]
                )
            at, done = self.expect_rows(losses, rows, at, batch), done + 2
            manifest = self.manifest(folder, done)
            self.assertEqual((manifest["rows"], manifest["tokens"]), (at, 32 * at))
        self.assertEqual(at, 2 * (12 + 6 + 24 + 6 + 12))

    # Weights are the newest, and rows go on behind what was on its way.
    def test_lesson_08_with_another_batch(self):
        model = "model.tied=off batch.micro=2"
        weights, one = support.new_path("untied") + ".safetensors", f"{STILL} model.tied=off batch.global=1"
        self.expect_well(
            support.run(
                "00_one_device",
                0,
                *settings("model.tied=off"),
                "--steps",
                "0",
                "--save",
                weights,
                "--out",
                support.new_path("out"),
            )
        )
        _, rows, _ = self.train("00_one_device", 0, one, "--steps", "72", "--init", weights)
        folder, at, done = support.new_path("checkpoints"), 0, 0
        for batch in (12, 6, 6, 12):
            resume = (
                ["--resume", "latest", "--resume-with", "batch.global,steps"] if done else ["--init", weights]
            )
            ended, losses, _ = self.train(
                "08_weight_versions",
                2,
                f"{STILL} {model} batch.global={batch}",
                "--steps",
                str(done + 2),
                "--save-every",
                "2",
                "--checkpoints",
                folder,
                *resume,
            )
            dropped = "1 micro-batch of step " + str(done - 1) in ended.out + ended.err
            self.assertEqual(dropped, done > 0 and batch != before, ended)
            # A step whose result another run has made is not in this one's record.
            at = self.expect_rows(losses, rows, at, batch)
            done, before = done + 2, batch

    def test_other_rows_begin_anew(self):
        for keys, why in support.chosen(
            {
                "seed=8": "seed is 8 now and was 7",
                "batch.sequence=16": "batch.sequence is 16 now and was 32",
                "data.validation_fraction=0.3 seed=9": "data.validation_fraction is 0.3 now and was 0.05, seed is 9 now and was 7",
            },
            "data.validation_fraction=0.3 seed=9",
        ).items():
            with self.subTest(keys=keys):
                rows, folder = self.rows(keys), support.new_path("checkpoints")
                self.begin(folder)
                names = ",".join(setting.split("=")[0] for setting in keys.split()) + ",steps"
                again = [
                    "--resume",
                    "latest",
                    "--resume-with",
                    names,
                    "--save-every",
                    "2",
                    "--checkpoints",
                    folder,
                ]
                ended, losses, _ = self.train(
                    "01_data_parallel", 2, f"{STILL} {keys}", "--steps", "6", *again
                )
                self.assertIn(f"\n{ANEW}{why}\n", ended.out)
                self.assertEqual(self.expect_rows(losses, rows, 0, 12), 24)
                self.assertEqual(self.manifest(folder, 6)["rows"], 24)
                # From there on it is the order, whatever the flags still name.
                ended, losses, _ = self.train(
                    "00_one_device",
                    0,
                    f"{STILL} {keys} batch.global=6",
                    "--steps",
                    "8",
                    *again[:3],
                    names + ",batch.global",
                    *again[4:],
                )
                self.assertNotIn(ANEW, ended.out)
                self.assertEqual(self.expect_rows(losses, rows, 24, 6), 36)
                self.assertEqual(self.manifest(folder, 8)["rows"], 36)

    # It is the tokens that count, not what their file is called.
    def test_a_file_that_was_moved_and_one_that_is_another(self):
        rows, folder = self.rows(), support.new_path("checkpoints")
        self.begin(folder)
        moved, other = support.new_path("moved") + ".bin", support.new_path("other") + ".bin"
        shutil.copy(self.data, moved)
        support.write_tokens(other, list(b"quite another text, with words of its own. " * 300))
        again = [
            "--resume",
            os.path.join(folder, step(4)),
            "--resume-with",
            "data.source,steps",
            "--steps",
            "6",
        ]
        ended, losses, _ = self.train("00_one_device", 0, STILL, "--data", moved, *again)
        self.assertNotIn(ANEW, ended.out)
        self.expect_rows(losses, rows, 48, 12)
        ended, losses, _ = self.train("00_one_device", 0, STILL, "--data", other, *again)
        self.assertIn(f"\n{ANEW}data.source holds other tokens now\n", ended.out)
        self.expect_rows(losses, self.rows("", "--data", other), 0, 12)

    def test_what_changes_no_row(self):
        folder = support.new_path("checkpoints")
        self.begin(folder)
        keys = "batch.micro=3 data.validation_rows=3 optim.clip=0.5 activations=recompute head_chunk=7"
        names = ",".join(setting.split("=")[0] for setting in keys.split()) + ",steps"
        ended, losses, _ = self.train(
            "00_one_device",
            0,
            f"{STILL} {keys}",
            "--steps",
            "6",
            "--resume",
            os.path.join(folder, step(4)),
            "--resume-with",
            names,
        )
        self.assertNotIn(ANEW, ended.out)
        self.expect_rows(losses, self.rows(), 48, 12)

    def test_a_checkpoint_that_counted_its_evaluation_in_micro_batches(self):
        folder, keys = support.new_path("checkpoints"), "batch.micro=3 data.validation_rows=6"
        ended, _, _ = self.begin(folder, keys)
        self.expect_well(ended)
        checkpoint = os.path.join(folder, step(4))
        subprocess.run(
            [
                os.path.join(os.path.dirname(support.programs), "tests/storage/forge_checkpoint"),
                checkpoint,
                "older",
            ],
            check=True,
        )
        self.assertEqual(self.manifest(folder, 4)["workload"]["data.validation_batches"], "2")
        resume = ["--steps", "6", "--resume", checkpoint, "--resume-with", "steps"]
        self.train("00_one_device", 0, f"{STILL} {keys}", *resume)
        ended = support.run(
            "00_one_device",
            0,
            "--data",
            self.data,
            *settings(f"{STILL} {keys}".replace("rows=6", "rows=4")),
            *resume,
            "--out",
            support.new_path("out"),
        )
        self.expect_one_error(
            ended,
            64,
            re.compile(
                r"--resume \S+: the checkpoint is of another workload: data\.validation_rows is 4 now and was 6\n"
                r"  fix: .*--resume-with data\.validation_rows"
            ),
        )

    # What was on its way were rows of the old order.
    def test_lesson_08_drops_rows_of_another_order(self):
        keys, folder = f"{STILL} model.tied=off versions=stash", support.new_path("checkpoints")
        self.train(
            "08_weight_versions", 2, keys, "--steps", "4", "--save-every", "4", "--checkpoints", folder
        )
        ended, _, _ = self.train(
            "08_weight_versions",
            2,
            f"{keys} seed=8",
            "--steps",
            "6",
            "--resume",
            os.path.join(folder, step(4)),
            "--resume-with",
            "seed,steps",
        )
        self.assertIn(
            "what 08_weight_versions had put off is dropped, since this order of rows cannot go on with it: "
            "1 micro-batch of step 3, on the way through the stages",
            ended.out + ended.err,
        )


def learning_rate(number, steps, peak=0.01, warmup=2, least=0.1):
    """Cosine; common/optim/lr_schedule.h."""
    if number < warmup:
        return peak * (number + 1) / warmup
    falling = steps - 1 - warmup
    done = 1 if falling <= 0 else min(1, (number - warmup) / falling)
    return peak * (least + (1 - least) * 0.5 * (1 + math.cos(math.pi * done)))


class LearningRate(ResumeTest):
    @classmethod
    def setUpClass(cls):
        cls.folder = support.new_path("checkpoints")
        cls.ended = support.run(
            "00_one_device",
            0,
            "--steps",
            "10",
            "--save-every",
            "5",
            "--checkpoints",
            cls.folder,
            "--out",
            support.new_path("out"),
        )

    def resumed(self, number, keys, *flags, lesson="00_one_device", ranks=0):
        self.expect_well(self.ended)
        ended, _, run = self.train(
            lesson, ranks, keys, "--resume", os.path.join(self.folder, step(number)), *flags
        )
        lines = [line for line in ended.out.splitlines() if line.startswith(RATE)]
        return lines, run.record()["steps"]["lr"]

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
        longer = ["--steps", "20", "--resume-with", "steps"]
        self.expect_line(
            self.resumed(10, "", *longer), 10, learning_rate(10, 20), 0.001, "steps is 20 now and was 10"
        )
        self.expect_line(
            self.resumed(5, "", *longer, lesson="04_zero3", ranks=2),
            5,
            learning_rate(5, 20),
            learning_rate(5, 10),
            "steps is 20 now and was 10",
        )
        for keys, now, why in (
            ("optim.lr=0.02", learning_rate(5, 10, peak=0.02), "optim.lr is 0.02 now and was 0.01"),
            ("optim.warmup_steps=8", learning_rate(5, 10, warmup=8), "optim.warmup_steps is 8 now and was 2"),
            ("optim.schedule=constant", 0.01, "optim.schedule is constant now and was cosine"),
            (
                "optim.min_lr_fraction=0.5",
                learning_rate(5, 10, least=0.5),
                "optim.min_lr_fraction is 0.5 now and was 0.1",
            ),
            (
                "optim.lr=0.0100001",
                learning_rate(5, 10, peak=0.0100001),
                "optim.lr is 0.0100001 now and was 0.01",
            ),
        ):
            with self.subTest(keys=keys):
                found = self.resumed(5, keys, "--steps", "10", "--resume-with", "steps," + keys.split("=")[0])
                self.expect_line(found, 5, now, learning_rate(5, 10), why)
        both = self.resumed(5, "optim.lr=0.02 optim.clip=0.5", *longer[:-1], "steps,optim.lr,optim.clip")
        self.expect_line(
            both,
            5,
            learning_rate(5, 20, peak=0.02),
            learning_rate(5, 10),
            "optim.lr is 0.02 now and was 0.01, steps is 20 now and was 10",
        )

    # Its schedule counts updates, of which a smaller batch has fewer a step.
    def test_lesson_08_counts_updates(self):
        keys, folder = "model.tied=off optim.warmup_steps=100", support.new_path("checkpoints")
        self.train(
            "08_weight_versions",
            2,
            keys,
            "--steps",
            "10",
            "--save-every",
            "4",
            "--keep",
            "9",
            "--checkpoints",
            folder,
        )
        ended, _, _ = self.train(
            "08_weight_versions",
            2,
            f"{keys} batch.global=6",
            "--steps",
            "10",
            "--resume",
            os.path.join(folder, step(4)),
            "--resume-with",
            "batch.global",
        )
        self.assertIn(
            f"\n{RATE}4 is 0.0025, where the checkpoint's keys gave 0.0049: batch.global is 6 now and was 12\n",
            ended.out,
        )

    def test_nothing_is_said_where_it_is_the_same(self):
        for number, keys, flags in (
            (5, "", ["--steps", "10"]),
            (5, "optim.clip=0.5", ["--steps", "10", "--resume-with", "optim.clip"]),
            (5, "batch.global=6", ["--steps", "10", "--resume-with", "batch.global"]),
            (10, "optim.lr=0.02", ["--steps", "10", "--resume-with", "optim.lr"]),
        ):  # it has no step left
            with self.subTest(keys=keys):
                self.assertEqual(self.resumed(number, keys, *flags)[0], [])


if __name__ == "__main__":
    support.main()
