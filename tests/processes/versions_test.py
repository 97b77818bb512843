"""Lesson 08 on the real programs: what it refuses, one stage that equals lesson 00, four rules that are four
results, and ranks that stop, die or compute nonsense while no other rank waits for them."""

import itertools
import math
import os
import re
import signal

import support
from support import Run

LESSON = "08_weight_versions"
RULES = ("none", "stash", "vertical_sync", "two_buffers")
MODEL = "model.tied=false model.layers=4 batch.micro=3"  # 4 micro-batches a step
TRAIN = f"{MODEL} optim.warmup_steps=10 optim.lr=0.003"
STAGES, MICRO_BATCHES, STEPS = 4 if support.all_settings() else 3, 4, 20
RATE, WARM_UP, LEAST = 0.003, 10, 0.1
# Older weight versions that each stage holds beside the newest, as the papers count them.
OLDER = {
    "none": [0] * STAGES,
    "stash": [*range(STAGES - 1, -1, -1)],
    "vertical_sync": [STAGES - 1] * STAGES,
    "two_buffers": [1] * STAGES,
}


def learning_rate(update, updates):
    if update < WARM_UP:
        return RATE * (update + 1) / WARM_UP
    done = (update - WARM_UP) / (updates - 1 - WARM_UP)
    return RATE * (LEAST + (1 - LEAST) * 0.5 * (1 + math.cos(math.pi * done)))


class BadInput(support.ProcessTest):
    GOOD = "model.tied=false batch.micro=3"
    CASES = {  # flags: message
        "model.tied=true": r"model\.tied: the head and the embedding would be one matrix on two stages, .*",
        "model.tied=false versions=two_buffers batch.micro=12": r"batch\.micro: 1 micro-batches a step are "
        r"fewer than the 2 stages: .*",
        f"{GOOD} versions=two_buffers update_every=1": r"update_every: two versions are enough for an "
        r"update every 2 micro-batches at least, .*",
        f"{GOOD} precision.dtype=fp16": r"--set precision\.dtype=fp16: precision\.dtype fp16 needs a GPU: .*",
        f"{GOOD} versions=none activations=recompute": r"activations: with versions=none backward would "
        r"recompute with other weights .*",
        f"{GOOD} update_every=3": r"update_every: 3 does not divide the 4 micro-batches of a step",
        f"{GOOD} optim.nonfinite=skip": r"optim\.nonfinite: a stage has made its update before it knows of "
        r"the others' gradients: .*",
        f"{GOOD} --graph on": r"--graph: it is about GPUs, and this is on the CPU",
    }

    def test_each_is_refused_with_one_message(self):
        cases = {text: (64, re.compile(said + r"\n  fix: .*")) for text, said in self.CASES.items()}
        self.expect_ends(cases, LESSON, 2, at_once=2, silent=True)

    # A plan for GPUs works on any machine, and lets the lesson itself refuse fp16.
    def test_fp16_has_one_scale_for_a_step(self):
        self.expect_one_error(
            Run(LESSON, 0, f"{MODEL} precision.dtype=fp16 --plan --world 2 --device cuda"),
            64,
            re.compile(
                r"precision\.dtype: fp16 needs one loss scale for a whole step, .*\n  fix: bf16 or fp32"
            ),
        )


class OneStage(support.ProcessTest):
    # With nothing in flight, an update every n micro-batches equals lesson 00 with batches of n, which takes
    # the same rows in the same order.
    def test_is_lesson_00_with_small_batches(self):
        cases = support.chosen(
            [("none", 1), ("stash", 1), ("vertical_sync", 1), ("stash", 2)], ("stash", 1), ("stash", 2)
        )
        jobs = {
            (rule, every): Run(LESSON, 1, f"{TRAIN} versions={rule} update_every={every} --steps 10")
            for rule, every in cases
        }
        zeros = {
            every: Run("00_one_device", 0, f"{TRAIN} batch.global={3 * every} --steps {10 * 4 // every}")
            for every in (1, 2)
        }
        self.expect_all_well({**jobs, **zeros})
        for (rule, every), job in jobs.items():
            with self.subTest(rule=rule, every=every):
                self.expect_same_file(job.weights, zeros[every].weights)
                updates, a_step = zeros[every].losses(), 4 // every
                for step, (loss, norm) in enumerate(job.losses()):
                    of_step = updates[step * a_step : (step + 1) * a_step]
                    self.assertAlmostEqual(loss, sum(part for part, _ in of_step) / a_step, places=12)
                    self.assertEqual(norm, of_step[-1][1])
        self.expect_other_file(zeros[1].weights, zeros[2].weights)


class Rules(support.ProcessTest):
    @classmethod
    def setUpClass(cls):
        run = lambda rule, late="": Run(LESSON, STAGES, f"{TRAIN} versions={rule} --steps {STEPS} {late}")
        cls.runs = {rule: run(rule) for rule in RULES}
        # Each run is repeated with every message late, and must end in the same bits.
        cls.again = {rule: run(rule, "--link-ms 2") for rule in support.chosen(RULES, "stash")}
        support.together([*cls.runs.values(), *cls.again.values()])

    def test_four_rules_are_four_results(self):
        self.expect_all_well(self.runs)
        for a, b in itertools.combinations(RULES, 2):
            self.expect_other_file(self.runs[a].weights, self.runs[b].weights)

    def test_a_rule_gives_the_same_bits_however_late_messages_are(self):
        self.expect_references({rule: (job, self.runs[rule]) for rule, job in self.again.items()})

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

    # A record has one learning rate for a step, that of its last update. Warm-up and decay count updates.
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
                planned = support.run(LESSON, 0, f"{TRAIN} versions={rule} --plan --world {STAGES}")
                self.assertIn(f"\nversions of the weights, by stage: {versions}\n", planned.out)


class Faults(support.ProcessTest):
    # Between updates no stage waits for all others, but each waits for its next message sooner or later.
    def test_a_stopped_rank_is_named(self):
        self.expect_struck(signal.SIGSTOP, 0, LESSON, STAGES, MODEL, at=r"stage 0, action \d+: \S+")

    def test_a_killed_rank_is_named(self):
        self.expect_struck(signal.SIGKILL, 2, LESSON, STAGES, MODEL, at=r"stage 2, action \d+: \S+")

    def test_a_rank_that_hangs_is_named(self):
        last = STAGES - 1
        job = Run(LESSON, STAGES, f"{MODEL} --steps 8 --watchdog 5 --inject hang@{last},4")
        self.expect_one_error(
            support.end_struck(support.start(job.line)),
            75,
            re.compile(
                rf"lost rank {last}: rank \d waits for its operation \d+ \(.*, train step \d+\) for more "
                r"than 5\.0 s"
                rf"\n  rank {last}: process \d+ is alive, but does not come to the next operation"
                rf"; last operation \d+ \(.*\), train step \d+, stage {last}, action \d+: \S+"
                r"\n  fix: see what it does there; a rank that is only slow needs a longer --watchdog \(now "
                r"5\.0 s\)"
            ),
        )


class NotFinite(support.ProcessTest):
    # A fault in the last step is noticed, too, although its result comes after training has ended.
    def test_it_ends_on_all_ranks(self):
        cases = support.chosen(
            [
                (4, "none", 0, 3),
                (4, "stash", 0, 3),
                (4, "two_buffers", 2, 3),
                (3, "vertical_sync", 2, 7),
                (1, "stash", 0, 3),
            ],
            (3, "vertical_sync", 2, 7),
            (1, "stash", 0, 3),
        )
        boards = support.stale_boards()
        jobs = self.expect_ends(
            {
                (LESSON, ranks, f"{MODEL} versions={rule} --steps 8 --inject nan@{rank},{step}"): (
                    70,
                    re.compile(
                        rf"step {step}: the (?:gradient|loss) is not finite.*\n  fix: a smaller optim\.lr, .*"
                    ),
                    {"exit_code": 70},
                )
                for ranks, rule, rank, step in cases
            },
            at_once=2,
        )
        self.assertEqual([len(job.losses()) for job in jobs.values()], [case[-1] for case in cases])
        for job in jobs.values():
            self.assertFalse(os.path.exists(job.weights))
            self.expect_nothing_left(job.out, boards)


if __name__ == "__main__":
    support.main()
