"""Lessons 01-04 on the real programs: 20 steps over MPI end in the bytes of lesson 00's file with the same
order of sums; the sharded strategies run under a cap that stops data parallelism."""

import json
import os
import re

import support
from support import Run, once

STEPS = "--steps 20"
DATA_PARALLEL = ("01_data_parallel", "step", "bucket=tensor overlap=on")  # in ordinary runs, too
AS_SHIPPED = [("02_zero1", "step", ""), ("03_zero2", "micro_batch", ""), ("04_zero3", "micro_batch", "")]
# By number of ranks: (lesson, order of sums, settings); data_parallel_test.cpp and zero_test.cpp test every
# pair of settings on threads. Together these have every bucket of lesson 01 with overlap and without. Three
# ranks add in a fixed order.
SETTINGS = {
    1: AS_SHIPPED,
    2: AS_SHIPPED
    + [("03_zero2", "micro_batch", "overlap=off")]
    + [
        ("01_data_parallel", "step", settings)
        for settings in (
            "bucket=unit overlap=on",
            "bucket=tensor overlap=off",
            "bucket=model overlap=on",
            "bucket=5000 overlap=off",
        )
    ],
    3: AS_SHIPPED
    + [
        ("02_zero1", "step", "overlap=off activations=recompute"),
        ("03_zero2", "micro_batch", "bucket=5000 activations=recompute_gelu"),
        ("04_zero3", "micro_batch", "prefetch=2 activations=recompute"),
        ("04_zero3", "micro_batch", "reshard_after_forward=off model.tied=off"),
        DATA_PARALLEL,
        ("01_data_parallel", "step", "bucket=unit overlap=off"),
        ("01_data_parallel", "step", "bucket=5000 overlap=on activations=recompute"),
    ],
    4: AS_SHIPPED
    + [
        ("04_zero3", "micro_batch", "persist_below=1000 prefetch=0"),
        ("01_data_parallel", "step", "bucket=model overlap=off"),
        ("01_data_parallel", "step", "bucket=5000 overlap=on"),
        ("01_data_parallel", "step", "bucket=unit overlap=on activations=recompute_gelu"),
    ],
}
FEW = {
    2: support.chosen(SETTINGS[2], *AS_SHIPPED, SETTINGS[2][3]),
    3: support.chosen(SETTINGS[3], DATA_PARALLEL),
}
SETTINGS = support.chosen({**SETTINGS, **FEW}, 2, 3)


def trained(lesson, world, settings=""):
    return once(lesson, world, f"{settings} {STEPS}")


def reference(world, order, settings):
    model = " ".join(s for s in settings.split() if "model." in s)
    return support.lesson_00(world, f"{model} {STEPS}", order)


class Zero(support.ProcessTest):
    def test_files_and_losses_are_lesson_00s(self):
        self.expect_references(
            {
                (lesson, world, settings): (
                    trained(lesson, world, settings),
                    reference(world, order, settings),
                )
                for world, rows in SETTINGS.items()
                for lesson, order, settings in rows
            }
        )

    def test_another_order_is_another_file(self):
        orders = [reference(2, "step", ""), reference(2, "micro_batch", ""), reference(3, "step", "")]
        if support.all_settings():
            orders.append(reference(4, "step", ""))
        support.together(orders)
        for one, other in zip(orders, orders[1:]):
            self.expect_other_file(one.weights, other.weights)

    @support.in_all_settings  # screen_test.py counts the checks
    def test_every_step_checked_its_replicas(self):
        self.expect_well(Run("01_data_parallel", 2, "verify_replicas=1 --steps 3"))

    # Weights written by one lesson are loaded by another on any world; the step is too small to change a bit.
    def test_a_run_goes_on_from_a_file_of_another_lesson(self):
        file = self.expect_well(trained("04_zero3", 2)).weights
        for lesson, settings in support.chosen(
            [("02_zero1", ""), ("03_zero2", ""), ("04_zero3", "persist_below=1000"), ("04_zero3", "")],
            ("02_zero1", ""),
            ("04_zero3", "persist_below=1000"),
        ):
            job = self.expect_well(Run(lesson, 3, f"{settings} optim.lr=1e-30 --steps 1 --init {file}"))
            self.expect_same_file(job.weights, file)

    # A weights file equals the run's last weights, by its evaluation and by the first loss of a run that goes
    # on.
    def test_a_run_goes_on_from_what_it_ended_with(self):
        before = self.expect_well(trained("01_data_parallel", 3, DATA_PARALLEL[2]))
        still = f"optim.lr=1e-30 --steps 1 --init {before.weights}"
        one = Run("00_one_device", 0, f"{still} --virtual-ranks 3")
        two = Run("01_data_parallel", 3, f"bucket=model {still}")
        for job in (one, two):
            self.expect_same_file(job, before)
        ended_with, *found = (job.record()["validation_loss"] for job in (before, one, two))
        self.assertEqual(found[1], ended_with)
        self.assertAlmostEqual(found[0], ended_with, places=6)  # one rank adds in another order
        self.assertEqual(one.losses(), two.losses())
        self.assertLess(
            one.losses()[0][0],
            before.losses()[0][0] - 1,
            "the first loss of a trained model on the first step's rows",
        )

    # The numbers in the table of --compare are those of the two records.
    def test_compare_with_the_record_of_another_lesson(self):
        one = self.expect_well(trained("02_zero1", 2))
        compare = f"--compare {one.out}/record.json"
        job = self.expect_well(Run("04_zero3", 2, f"{STEPS} {compare}"))
        text = job.ended.out[job.ended.out.index("compared with " + one.out) :]
        before, now = (run.record()["ranks"][0]["measured_bytes"] for run in (one, job))
        for purpose in ("parameters", "gradients", "momentum", "total"):
            self.assertRegex(
                text,
                rf"\n  {purpose} +{before[purpose]:,} +{now[purpose]:,} +x "
                rf"{now[purpose] / before[purpose]:.3f}\n",
            )
        self.assertRegex(text, r"\n  reduce_scatter +4 +[\d,]+ +24 +[\d,]+\n")
        self.assertRegex(text, r"\n  step 19 +[\d.]+ +[\d.]+ +\d\.\d\de-\d\d\n")
        self.assertIn("times are compared from 25 steps on; 02_zero1 has 20, 04_zero3 has 20\n", text)
        other = ("04_zero3", 2, f"--steps 21 {compare}")
        found = self.expect_ends(
            {
                other: (
                    64,
                    f"{compare}: it did other work: steps is 21 here and 20 there\n"
                    "  fix: runs are compared that train the same; --set the keys, or use that run's "
                    "--workload",
                ),
                ("04_zero3", 0, f"--plan {compare}"): (
                    64,
                    "--compare: it belongs to a run; --plan only predicts one\n  fix: leave one of them out",
                ),
            }
        )
        self.assertNotIn("step 1/", found[other].ended.out)

    # optim.nonfinite has two values: stop, the default, and skip.
    def test_a_gradient_that_is_not_finite(self):
        said = "step 2: the gradient is not finite"
        stops = re.compile(
            said + r", first seen in unit 3; it came from rank 1's own micro-batches\n  fix: .*"
        )
        stop = (70, stops)
        skip = (0, (f"\n{said}; its update is skipped\n",), {"skipped_updates": 1})
        lessons = {"02_zero1": 2, "03_zero2": 3, "04_zero3": 3}
        jobs = self.expect_ends(
            {
                (lesson, ranks, f"optim.nonfinite={how} --steps 4 --inject nan@1,2"): ends
                for lesson, ranks in lessons.items()
                for how, ends in (("stop", stop), ("skip", skip))
                if how == "skip" or lesson == "04_zero3" or support.all_settings()
            },
            at_once=2,
        )
        for (_, _, text), job in jobs.items():
            none = [norm is None for _, norm in job.losses()]
            self.assertEqual(none, [False] * 2 if "stop" in text else [False, False, True, False])

    def test_a_cap_that_stops_01_lets_04_run(self):
        more = "model.layers=8 --steps 2"
        lessons = ("01_data_parallel", "04_zero3")
        plans = [support.run(lesson, 0, f"{more} --plan --json --world 2").out for lesson in lessons]
        high, low = (max(rank["bytes"]["device"] for rank in json.loads(plan)["ranks"]) for plan in plans)
        self.assertLess(low, 0.9 * high)
        cap = (high + low) // 2
        fits = self.expect_well(Run("04_zero3", 2, f"{more} --memory-cap {cap}"))
        self.assertEqual(max(rank["measured_bytes"]["total"] for rank in fits.record()["ranks"]), low)
        stopped = self.expect_one_error(Run("01_data_parallel", 2, f"{more} --memory-cap {cap}"), 69, ())
        self.expect_changes_fit(stopped.ended.errors[0], cap, more)

    # Every change offered in the message is tried: a plan with it must hold what the message says, below the
    # cap.
    def expect_changes_fit(self, said, cap, flags):
        changes = re.findall(r"^  (.+?) +([\d.]+ [kM]B)$", said[said.index("  fix: ") :], re.M)
        self.assertGreater(len(changes), 1, said)
        lessons = {name[:2]: name for name in os.listdir(support.ROOT + "/lessons") if name[0].isdigit()}
        named = []
        for what, holds in changes:
            other = re.match(r"[^(]+ \(lesson (\d\d)\) -n (\d+)(.*)\Z", what)
            lesson = lessons[other.group(1)] if other else "01_data_parallel"
            named.append(lesson)
            world, changed = other.group(2, 3) if other else (2, what)
            ended = support.run(lesson, 0, f"{flags} --plan --world {world} {changed}")
            self.assertEqual(ended.code, 0, ended)
            found = re.search(r"\n  total +([\d.]+ [kM]B) +([\d,]+)\n", ended.out)
            self.assertEqual(found.group(1), holds, what)
            if "--memory-cap" not in what:
                self.assertLessEqual(int(found.group(2).replace(",", "")), cap, what)
        self.assertTrue(set(named) & {"02_zero1", "03_zero2", "04_zero3"}, said)


if __name__ == "__main__":
    support.main()
