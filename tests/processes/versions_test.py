"""Lesson 08 on the real programs: what it refuses, one stage that equals lesson 00, four rules that are four results, and ranks that stop,
die or compute nonsense while no other rank waits for them."""

import filecmp
import itertools
import math
import os
import re
import signal

import support

LESSON = "08_weight_versions"
RULES = ("none", "stash", "vertical_sync", "two_buffers")
MODEL = "model.tied=false model.layers=4 batch.micro=3"  # 4 micro-batches a step
TRAIN = f"{MODEL} optim.warmup_steps=10 optim.lr=0.003"
STAGES, MICRO_BATCHES, STEPS = 4 if support.all_settings() else 3, 4, 20
RATE, WARM_UP, LEAST = 0.003, 10, 0.1
# Of every stage, beside the newest: what the literature counts.
OLDER = {
    "none": [0] * STAGES,
    "stash": [*range(STAGES - 1, -1, -1)],
    "vertical_sync": [STAGES - 1] * STAGES,
    "two_buffers": [1] * STAGES,
}


def sets(settings):
    return [part for s in settings.split() for part in ("--set", s)]


def learning_rate(update, updates):
    if update < WARM_UP:
        return RATE * (update + 1) / WARM_UP
    done = (update - WARM_UP) / (updates - 1 - WARM_UP)
    return RATE * (LEAST + (1 - LEAST) * 0.5 * (1 + math.cos(math.pi * done)))


class BadInput(support.ProcessTest):
    GOOD = "--set model.tied=false --set batch.micro=3"
    CASES = {  # flags: message
        "--set model.tied=true": r"model\.tied: the head and the embedding would be one matrix on two stages, .*",
        "--set model.tied=false --set versions=two_buffers --set batch.micro=12": r"batch\.micro: 1 micro-batches a step are fewer than the 2 stages: .*",
        f"{GOOD} --set versions=two_buffers --set update_every=1": r"update_every: two versions are enough for an update every 2 micro-batches at least, .*",
        f"{GOOD} --set precision.dtype=fp16": r"--set precision\.dtype=fp16: precision\.dtype fp16 needs a GPU: .*",
        f"{GOOD} --set versions=none --set activations=recompute": r"activations: with versions=none backward would recompute with other weights .*",
        f"{GOOD} --set update_every=3": r"update_every: 3 does not divide the 4 micro-batches of a step",
        f"{GOOD} --set optim.nonfinite=skip": r"optim\.nonfinite: a stage has made its update before it knows of the others' gradients: .*",
        f"{GOOD} --graph on": r"--graph: it is about GPUs, and this is on the CPU",
    }

    def test_each_is_refused_with_one_message(self):
        out = support.new_path("out")
        jobs = {
            flags: lambda flags=flags: support.run(LESSON, 2, *flags.split(), "--out", out)
            for flags in self.CASES
        }
        for flags, ended in support.side_by_side(jobs, at_once=2).items():
            with self.subTest(flags=flags):
                self.expect_one_error(ended, 64, re.compile(self.CASES[flags] + r"\n  fix: .*"))
                self.assertEqual(ended.out, "")
        self.assertFalse(os.path.exists(out))

    # As on GPUs, which may be planned for from anywhere: there the lesson itself says why.
    def test_fp16_has_one_scale_for_a_step(self):
        plan = ["--plan", "--world", "2", "--device", "cuda", "--set", "precision.dtype=fp16"]
        self.expect_one_error(
            support.run(LESSON, 0, *sets(MODEL), *plan),
            64,
            re.compile(
                r"precision\.dtype: fp16 needs one loss scale for a whole step, .*\n  fix: bf16 or fp32"
            ),
        )


class OneStage(support.ProcessTest):
    # Nothing is in flight: an update every n micro-batches is lesson 00 with batches of n, which takes the same rows in the same order.
    def test_is_lesson_00_with_small_batches(self):
        cases = support.chosen(
            [("none", 1), ("stash", 1), ("vertical_sync", 1), ("stash", 2)], ("stash", 1), ("stash", 2)
        )
        runs = {
            (rule, every): support.Run(
                LESSON, 1, f"{TRAIN} versions={rule} update_every={every}", "--steps", "10"
            )
            for rule, every in cases
        }
        zeros = {
            every: support.Run(
                "00_one_device", 0, f"{TRAIN} batch.global={3 * every}", "--steps", str(10 * 4 // every)
            )
            for every in (1, 2)
        }
        jobs = {name: run.job for name, run in {**runs, **zeros}.items()}
        for name, ended in support.side_by_side(jobs, at_once=2).items():
            with self.subTest(name=name):
                self.assertEqual((ended.code, ended.err), (0, ""), ended)
        for (rule, every), run in runs.items():
            with self.subTest(rule=rule, every=every):
                self.assertTrue(filecmp.cmp(run.weights, zeros[every].weights, shallow=False))
                updates, a_step = zeros[every].losses(), 4 // every
                for step, (loss, norm) in enumerate(run.losses()):
                    of_step = updates[step * a_step : (step + 1) * a_step]
                    self.assertAlmostEqual(loss, sum(part for part, _ in of_step) / a_step, places=12)
                    self.assertEqual(norm, of_step[-1][1])
        self.assertFalse(
            filecmp.cmp(zeros[1].weights, zeros[2].weights, shallow=False), "the comparison could not fail"
        )


class Rules(support.ProcessTest):
    @classmethod
    def setUpClass(cls):
        steps = ["--steps", str(STEPS)]
        cls.runs = {rule: support.Run(LESSON, STAGES, f"{TRAIN} versions={rule}", *steps) for rule in RULES}
        # The same again, but every message is late.
        late = support.chosen(RULES, "stash")
        cls.again = {
            rule: support.Run(LESSON, STAGES, f"{TRAIN} versions={rule}", *steps, "--link-ms", "2")
            for rule in late
        }
        jobs = {
            (name, rule): run.job
            for name, runs in (("runs", cls.runs), ("again", cls.again))
            for rule, run in runs.items()
        }
        cls.ended = support.side_by_side(jobs, at_once=2)

    def test_all_end_well(self):
        for name, ended in self.ended.items():
            with self.subTest(name=name):
                self.assertEqual((ended.code, ended.err), (0, ""), ended)

    def test_four_rules_are_four_results(self):
        for a, b in itertools.combinations(RULES, 2):
            with self.subTest(a=a, b=b):
                self.assertFalse(filecmp.cmp(self.runs[a].weights, self.runs[b].weights, shallow=False))

    def test_a_rule_gives_the_same_bits_however_late_messages_are(self):
        for rule in self.again:
            with self.subTest(rule=rule):
                self.assertTrue(filecmp.cmp(self.runs[rule].weights, self.again[rule].weights, shallow=False))
                self.assertEqual(self.runs[rule].losses(), self.again[rule].losses())

    def test_the_record_has_every_step_once(self):
        for rule, run in self.runs.items():
            with self.subTest(rule=rule):
                record, losses = run.record(), [loss for loss, _ in run.losses()]
                self.assertTrue(record["as_predicted"])
                self.assertEqual([rank["rank"] for rank in record["ranks"]], list(range(STAGES)))
                self.assertEqual(record["steps"]["step"], list(range(STEPS)))
                self.assertEqual(record["steps"]["loss"], losses)
                self.assertEqual(len(losses), STEPS)
                self.assertTrue(all(map(math.isfinite, losses)), losses)
                early, late = sum(losses[:5]) / 5, sum(losses[-5:]) / 5
                self.assertLess(late, 0.8 * early, losses)

    # A step has one learning rate in the record: its last update's. Warm-up and decay count updates.
    def test_learning_rates_count_updates(self):
        for rule, run in self.runs.items():
            a_step = 1 if rule == "two_buffers" else MICRO_BATCHES
            for step, rate in enumerate(run.record()["steps"]["lr"]):
                with self.subTest(rule=rule, step=step):
                    self.assertAlmostEqual(
                        rate / learning_rate((step + 1) * a_step - 1, STEPS * a_step), 1, delta=1e-6
                    )

    def test_older_versions_are_measured(self):
        for rule, run in self.runs.items():
            with self.subTest(rule=rule):
                held = [rank["measured_bytes"] for rank in run.record()["ranks"]]
                self.assertEqual(
                    [bytes_of.get("stash", 0) / bytes_of["parameters"] for bytes_of in held], OLDER[rule]
                )
                versions = ", ".join(str(1 + older) for older in OLDER[rule])
                planned = support.run(
                    LESSON, 0, "--plan", "--world", str(STAGES), *sets(f"{TRAIN} versions={rule}")
                )
                self.assertIn(f"\nversions of the weights, by stage: {versions}\n", planned.out)


class Faults(support.ProcessTest):
    SLOW = (
        r"\n  fix: see what it does there; a rank that is only slow needs a longer --watchdog \(now 5\.0 s\)"
    )
    WAITS = r"rank \d waits for its operation \d+ \(.*, train step \d+\) for more than 5\.0 s"
    AT = r"; last operation \d+ \(.*\), train step \d+, stage {0}, action \d+: \S+"

    def struck_rank(self, number, rank):
        return self.struck(number, rank, LESSON, STAGES, *sets(MODEL), "--watchdog", "5")

    # No stage waits for the others between updates; but each waits for the next message sooner or later.
    def test_a_stopped_rank_is_named(self):
        stopped = r"\n  rank 0: process \d+ has stopped \(no heartbeat for \d+\.\d s\)"
        self.expect_one_error(
            self.struck_rank(signal.SIGSTOP, 0),
            75,
            re.compile("lost rank 0: " + self.WAITS + stopped + self.AT.format(0) + self.SLOW),
        )

    def test_a_killed_rank_is_named(self):
        self.expect_one_error(
            self.struck_rank(signal.SIGKILL, 2),
            75,
            re.compile(
                r"lost rank 2: noticed by rank \d\n  rank 2: process \d+ is gone"
                + self.AT.format(2)
                + r"\n  fix: look above for its own last words; .*\n  killed with SIGKILL; .*"
            ),
        )

    def test_a_rank_that_hangs_is_named(self):
        flags = [
            "--steps",
            "8",
            "--watchdog",
            "5",
            "--inject",
            f"hang@{STAGES - 1},4",
            "--out",
            support.new_path("out"),
        ]
        job = support.start(
            support.mpirun(STAGES)
            + [support.program(LESSON), *support.files_of(LESSON), *sets(MODEL), *flags]
        )
        alive = rf"\n  rank {STAGES - 1}: process \d+ is alive, but does not come to the next operation"
        self.expect_one_error(
            support.end_struck(job),
            75,
            re.compile(
                f"lost rank {STAGES - 1}: " + self.WAITS + alive + self.AT.format(STAGES - 1) + self.SLOW
            ),
        )


class NotFinite(support.ProcessTest):
    # In the last step too, whose result comes when nobody trains any more.
    def test_it_ends_on_all_ranks(self):
        cases = support.chosen(
            [
                (4, "none", "0,3"),
                (4, "stash", "0,3"),
                (4, "two_buffers", "2,3"),
                (3, "vertical_sync", "2,7"),
                (1, "stash", "0,3"),
            ],
            (3, "vertical_sync", "2,7"),
            (1, "stash", "0,3"),
        )
        boards = support.stale_boards()
        runs = {
            case: support.Run(
                LESSON, case[0], f"{MODEL} versions={case[1]}", "--steps", "8", "--inject", "nan@" + case[2]
            )
            for case in cases
        }
        for case, ended in support.side_by_side(
            {case: run.job for case, run in runs.items()}, at_once=2
        ).items():
            with self.subTest(case=case):
                step = int(case[2][2:])
                self.expect_one_error(
                    ended,
                    70,
                    re.compile(
                        rf"step {step}: the (?:gradient|loss) is not finite.*\n  fix: a smaller optim\.lr, .*"
                    ),
                )
                self.assertEqual(len(runs[case].losses()), step)
                self.assertEqual(runs[case].record()["exit_code"], 70)
                self.assertFalse(os.path.exists(runs[case].weights))
                self.expect_nothing_left(runs[case].out, boards)


if __name__ == "__main__":
    support.main()
