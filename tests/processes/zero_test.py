"""Lessons 02-04 on the real programs: 20 steps over MPI end in the bytes of lesson 00's file with the same order of sums; the sharded
strategies run under a cap that stops data parallelism."""

import filecmp
import json
import re

import support

STEPS = ["--steps", "20"]
AS_SHIPPED = [("02_zero1", "step", ""), ("03_zero2", "micro_batch", ""), ("04_zero3", "micro_batch", "")]
# ranks: (lesson, order of sums, settings); zero_test.cpp has every pair of settings on threads
SETTINGS = support.chosen(
    {
        1: AS_SHIPPED,
        2: AS_SHIPPED + [("03_zero2", "micro_batch", "overlap=off")],
        3: AS_SHIPPED
        + [
            ("02_zero1", "step", "overlap=off activations=recompute"),
            ("03_zero2", "micro_batch", "bucket=5000 activations=recompute_gelu"),
            ("04_zero3", "micro_batch", "prefetch=2 activations=recompute"),
            ("04_zero3", "micro_batch", "reshard_after_forward=off model.tied=off"),
        ],
        4: AS_SHIPPED + [("04_zero3", "micro_batch", "persist_below=1000 prefetch=0")],
    },
    2,
)


def of_model(settings):
    return " ".join(s for s in settings.split() if "model." in s)


class Zero(support.ProcessTest):
    @classmethod
    def setUpClass(cls):
        cls.references, cls.runs = {}, {}
        for world, rows in SETTINGS.items():
            for lesson, order, settings in rows:
                key = (world, order, of_model(settings))
                cls.references[key] = support.Run(
                    "00_one_device",
                    0,
                    of_model(settings),
                    "--virtual-ranks",
                    str(world),
                    "--reduce-every",
                    order,
                    *STEPS,
                )
                cls.runs[world, lesson, settings] = (support.Run(lesson, world, settings, *STEPS), key)
        jobs = {name: run.job for name, (run, _) in cls.runs.items()}
        cls.ended = support.side_by_side(
            {**jobs, **{key: run.job for key, run in cls.references.items()}}, at_once=2
        )

    def test_all_end_well_and_as_predicted(self):
        for name, ended in self.ended.items():
            with self.subTest(name=name):
                self.assertEqual((ended.code, ended.err), (0, ""), ended)
        for name, (run, _) in self.runs.items():
            with self.subTest(name=name):
                self.assertTrue(run.record()["as_predicted"])

    def test_files_and_losses_are_equal(self):
        for name, (run, key) in self.runs.items():
            with self.subTest(name=name):
                self.assertTrue(filecmp.cmp(run.weights, self.references[key].weights, shallow=False))
                self.assertEqual(run.losses(), self.references[key].losses())

    def test_another_order_is_another_file(self):
        one, other = self.references[2, "step", ""], self.references[2, "micro_batch", ""]
        self.assertFalse(
            filecmp.cmp(one.weights, other.weights, shallow=False), "the comparison could not fail"
        )

    # What 04 wrote is what 02 goes on from, and the other way round.
    def test_a_run_goes_on_from_a_file_of_another_lesson(self):
        trained = self.runs[2, "04_zero3", ""][0]
        still = ["--set", "optim.lr=1e-30", "--steps", "1", "--init", trained.weights]
        for lesson, settings in support.chosen(
            [("02_zero1", ""), ("03_zero2", ""), ("04_zero3", "persist_below=1000"), ("04_zero3", "")],
            ("02_zero1", ""),
            ("04_zero3", "persist_below=1000"),
        ):
            run = support.Run(lesson, 3, settings, *still)
            ended = run.job()
            self.assertEqual((ended.code, ended.err), (0, ""), ended)
            self.assertTrue(
                filecmp.cmp(run.weights, trained.weights, shallow=False), "a step too small to change a bit"
            )

    # The table's numbers are those of the two records.
    def test_compare_with_the_record_of_another_lesson(self):
        one = self.runs[2, "02_zero1", ""][0]
        out = support.new_path("out")
        ended = support.run("04_zero3", 2, *STEPS, "--compare", one.out + "/record.json", "--out", out)
        self.assertEqual((ended.code, ended.err), (0, ""), ended)
        text = ended.out[ended.out.index("compared with " + one.out) :]
        before, now = (
            one.record()["ranks"][0]["measured_bytes"],
            support.record(out)["ranks"][0]["measured_bytes"],
        )
        for purpose in ("parameters", "gradients", "momentum", "total"):
            self.assertRegex(
                text,
                rf"\n  {purpose} +{before[purpose]:,} +{now[purpose]:,} +x {now[purpose] / before[purpose]:.3f}\n",
            )
        self.assertRegex(text, r"\n  reduce_scatter +4 +[\d,]+ +24 +[\d,]+\n")
        self.assertRegex(text, r"\n  step 19 +[\d.]+ +[\d.]+ +\d\.\d\de-\d\d\n")
        self.assertIn("times are compared from 25 steps on; 02_zero1 has 20, 04_zero3 has 20\n", text)
        other = support.run(
            "04_zero3",
            2,
            "--steps",
            "21",
            "--compare",
            one.out + "/record.json",
            "--out",
            support.new_path("out"),
        )
        self.expect_one_error(
            other,
            64,
            f"--compare {one.out}/record.json: it did other work: steps is 21 here and 20 there\n"
            "  fix: runs are compared that train the same; --set the keys, or use that run's --workload",
        )
        self.assertNotIn("step 1/", other.out)
        plan = support.run("04_zero3", 0, "--plan", "--compare", one.out + "/record.json")
        self.expect_one_error(
            plan, 64, "--compare: it belongs to a run; --plan only predicts one\n  fix: leave one of them out"
        )

    # optim.nonfinite: stop, the default, and skip.
    def test_a_gradient_that_is_not_finite(self):
        poisoned = ["--steps", "4", "--inject", "nan@1,2"]
        runs = {
            (lesson, how): support.Run(lesson, ranks, f"optim.nonfinite={how}", *poisoned)
            for lesson, ranks in (("02_zero1", 2), ("03_zero2", 3), ("04_zero3", 3))
            for how in ("stop", "skip")
            if how == "skip" or lesson == "04_zero3" or support.all_settings()
        }
        for (lesson, how), ended in support.side_by_side(
            {key: run.job for key, run in runs.items()}, at_once=2
        ).items():
            run = runs[lesson, how]
            with self.subTest(lesson=lesson, how=how):
                if how == "stop":
                    message = "step 2: the gradient is not finite, first seen in unit 3; it came from rank 1's own micro-batches\n  fix: "
                    self.expect_one_error(ended, 70, re.compile(re.escape(message) + ".*"))
                    self.assertEqual(len(run.losses()), 2)
                    continue
                self.assertEqual((ended.code, ended.err), (0, ""), ended)
                self.assertIn("\nstep 2: the gradient is not finite; its update is skipped\n", ended.out)
                self.assertEqual(run.record()["skipped_updates"], 1)
                self.assertEqual([norm is None for _, norm in run.losses()], [False, False, True, False])

    def test_a_cap_that_stops_01_lets_04_run(self):
        more = ["--set", "model.layers=8", "--steps", "2"]
        plans = {
            lesson: support.run(lesson, 0, *more, "--plan", "--json", "--world", "2")
            for lesson in ("01_data_parallel", "04_zero3")
        }
        peak = {
            lesson: max(rank["bytes"]["device"] for rank in json.loads(plan.out)["ranks"])
            for lesson, plan in plans.items()
        }
        self.assertLess(peak["04_zero3"], 0.9 * peak["01_data_parallel"])
        cap = str((peak["01_data_parallel"] + peak["04_zero3"]) // 2)
        fits = support.run(
            "04_zero3", 2, *more, "--memory-cap", cap, "--out", (out := support.new_path("out"))
        )
        self.assertEqual((fits.code, fits.err), (0, ""), fits)
        self.assertEqual(
            max(rank["measured_bytes"]["total"] for rank in support.record(out)["ranks"]), peak["04_zero3"]
        )
        stopped = support.run(
            "01_data_parallel", 2, *more, "--memory-cap", cap, "--out", support.new_path("out")
        )
        self.assertEqual(stopped.code, 69, stopped)
        self.assertEqual(len(stopped.errors), 1, stopped)
        self.expect_changes_fit(stopped.errors[0], int(cap), more)

    # Every change that the message offers is tried: the plan with it holds what the message says, below the cap.
    def expect_changes_fit(self, said, cap, flags):
        changes = re.findall(r"^  (.+?) +([\d.]+ [kM]B)$", said[said.index("  fix: ") :], re.M)
        self.assertGreater(len(changes), 1, said)
        lessons = {"02": "02_zero1", "03": "03_zero2", "04": "04_zero3"}
        named = []
        for what, holds in changes:
            other = re.match(r"ZeRO-\d \(lesson (\d\d)\) -n (\d+)(.*)\Z", what)
            lesson = lessons[other.group(1)] if other else "01_data_parallel"
            named.append(lesson)
            changed = (other.group(3) if other else what).split()
            ended = support.run(
                lesson, 0, *flags, "--plan", "--world", other.group(2) if other else "2", *changed
            )
            self.assertEqual(ended.code, 0, ended)
            found = re.search(r"\n  total +([\d.]+ [kM]B) +([\d,]+)\n", ended.out)
            self.assertEqual(found.group(1), holds, what)
            if "--memory-cap" not in what:
                self.assertLessEqual(int(found.group(2).replace(",", "")), cap, what)
        self.assertTrue(set(named) & set(lessons.values()), said)


if __name__ == "__main__":
    support.main()
