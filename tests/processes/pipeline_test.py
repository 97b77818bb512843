"""Lesson 07 on the real programs: every schedule ends in lesson 00's file, a list that deadlocks hangs where pipedream says, paced runs take
what their costs say, and a rank's memory is that of its stage."""

import filecmp
import json
import re

import support

LESSON = "07_pipeline"
DEEP = "model.layers=8"
FAMILIES = ("naive", "gpipe", "1f1b", "interleaved", "zb_h1")
# (ranks, replicas, settings): lesson 00's order of sums follows from them; pipeline_test.cpp has all of them on threads
BITS = [(4, 1, f"schedule={family} batch.micro=4") for family in FAMILIES]  # M = 3
BITS += [(4, 1, "warmup=1 batch.micro=4"), (2, 1, "warmup=1 activations=recompute batch.micro=4")]
BITS += [
    (4, 2, "schedule=interleaved activations=recompute"),
    (4, 2, "schedule=1f1b states=sharded"),
    (1, 1, "schedule=gpipe"),
]
BITS = support.chosen(
    BITS,
    (2, 1, "warmup=1 activations=recompute batch.micro=4"),
    (4, 2, "schedule=interleaved activations=recompute"),
)
PACE = {"times": [{"forward": 0.02, "backward_input": 0.02, "backward_weights": 0.02, "step": 0.02}]}


def pipedream(*arguments):
    return support.execute([support.program("pipedream"), *arguments])


def write(name, value):
    path = support.new_path(name) + ".json"
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file)
    return path


def rows(run):
    """name -> seconds of the table at a run's end."""
    return {row["name"]: row["seconds"] for row in run.record()["timetable"]["rows"]}


class Bits(support.ProcessTest):
    def test_every_schedule_ends_in_lesson_00s_file(self):
        steps = ["--steps", "20"]
        references = {
            (replicas, split, micro): support.Run(
                "00_one_device",
                0,
                f"{DEEP} {micro}",
                "--virtual-ranks",
                str(replicas),
                "--tied-sum",
                split,
                *steps,
            )
            for replicas, split, micro in {self.order(*case) for case in BITS}
        }
        runs = {
            case: support.Run(LESSON, case[0], f"{DEEP} replicas={case[1]} {case[2]}", *steps)
            for case in BITS
        }
        jobs = {name: run.job for name, run in {**references, **runs}.items()}
        for name, ended in support.side_by_side(jobs, at_once=2).items():
            with self.subTest(name=name):
                self.assertEqual((ended.code, ended.err), (0, ""), ended)
        for case, run in runs.items():
            with self.subTest(case=case):
                self.assertTrue(run.record()["as_predicted"])
                reference = references[self.order(*case)]
                self.assertTrue(filecmp.cmp(run.weights, reference.weights, shallow=False))
                self.assertEqual(run.losses(), reference.losses())
        a, b = (references[key] for key in list(references)[:2])
        self.assertFalse(filecmp.cmp(a.weights, b.weights, shallow=False), "the comparison could not fail")

    @staticmethod
    def order(ranks, replicas, settings):
        micro = " ".join(s for s in settings.split() if s.startswith("batch."))
        return replicas, "split" if ranks > replicas else "joint", micro


class Deadlock(support.ProcessTest):
    def test_it_hangs_in_the_ring_that_the_checker_names(self):
        path = support.new_path("deadlock") + ".json"
        checked = pipedream("check", "--schedule", "deadlock_send_first", "--write", path)
        ring = re.findall(
            r"\n +(stage \d, action \d+: \w+) waits until stage (\d)", checked.out + checked.err
        )
        self.assertGreaterEqual(len(ring), 2, checked)
        flags = [f"--set=model.layers=4", "--set=batch.micro=3", f"--set=schedule=file:{path}"]
        boards, out = support.stale_boards(), support.new_path("out")
        refused = support.run(LESSON, 4, *flags, "--out", out)
        self.expect_one_error(
            refused, 65, re.compile(r"schedule file:\S+: deadlock: stage \d, action \d+: (.*\n?)*")
        )
        hung = support.run(
            LESSON, 4, *flags, "--set=unchecked=on", "--set=sends=blocking", "--watchdog", "5", "--out", out
        )
        self.expect_one_error(hung, 75, re.compile(r"every rank of a ring waits for the next one(.*\n?)*"))
        found = re.findall(r"rank \d, (stage \d, action \d+: \w+), waits for rank (\d)", hung.err)
        self.assertEqual(sorted(found), sorted(ring))
        self.expect_nothing_left(out, boards)
        # The same list goes through where sends do not block.
        run = support.Run(
            LESSON, 4, f"model.layers=4 batch.micro=3 unchecked=on schedule=file:{path}", "--steps", "2"
        )
        ended = run.job()
        self.assertEqual((ended.code, ended.err), (0, ""), ended)


class Pace(support.ProcessTest):
    def run_with(self, settings, *flags):
        run = support.Run(LESSON, 2, f"model.layers=4 batch.micro=3 {settings}", "--steps", "4", *flags)
        ended = run.job()
        self.assertEqual((ended.code, ended.err), (0, ""), ended)
        return run, ended

    # Bounds from below alone: a busy machine is slow.
    def test_every_action_takes_its_cost(self):
        pace = write("pace", PACE)
        run, ended = self.run_with("", "--pace", pace)
        found = rows(run)
        self.assertAlmostEqual(found["paced"], 5 * 0.06 + 0.02, places=9)  # (M + S - 1)(f + b), and the step
        self.assertGreaterEqual(found["measured"], found["paced"])
        self.assertGreaterEqual(found["simulated"], found["paced"])
        for name in ("measured", "simulated", "paced", "formula"):
            self.assertRegex(ended.out, rf"\n  {name} +{1e3 * found[name]:.2f} ms +\d+\.\d %")
        names = [[span[0] for span in rank] for rank in run.record()["timetable"]["ranks"]]
        self.assertEqual(
            names,
            [
                ["F0", "F1", "B0", "F2", "B1", "F3", "B2", "B3", "step@1"],
                ["F0", "B0", "F1", "B1", "F2", "B2", "F3", "B3", "step@1"],
            ],
        )
        for rank in run.record()["timetable"]["ranks"]:
            for name, begin, end, _, _ in rank:
                self.assertGreaterEqual(end - begin, 0.04 - 1e-6 if name.startswith("B") else 0.02 - 1e-6)

    def test_messages_arrive_late(self):
        pace = write("pace", PACE)
        found = rows(self.run_with("", "--pace", pace, "--link-ms", "30")[0])
        self.assertGreater(found["paced"], 5 * 0.06 + 0.02 + 2 * 0.03 - 1e-9)
        self.assertGreaterEqual(found["measured"], found["paced"])
        # One more forward before the first backward hides them.
        run, _ = self.run_with("warmup=1", "--pace", pace, "--link-ms", "30")
        self.assertLess(rows(run)["paced"], found["paced"] - 0.02)
        self.assertGreaterEqual(rows(run)["measured"], rows(run)["paced"])
        self.assertEqual(
            [span[0] for span in run.record()["timetable"]["ranks"][0]],
            ["F0", "F1", "F2", "B0", "F3", "B1", "B2", "B3", "step@1"],
        )

    # What a run has measured predicts the next one.
    def test_costs_of_a_run(self):
        run, _ = self.run_with("schedule=gpipe", "--pace", write("pace", PACE))
        costs = run.out + "/costs.json"
        simulated = pipedream(
            "simulate", "--schedule", "gpipe", "--stages", "2", "--microbatches", "4", "--costs", costs
        )
        self.assertEqual((simulated.code, simulated.err), (0, ""), simulated)
        makespan = float(re.search(r"\nmakespan ([\d.]+),", simulated.out)[1])
        self.assertAlmostEqual(makespan, rows(run)["simulated"], places=3)
        plan = support.run(
            LESSON,
            0,
            "--plan",
            "--world",
            "2",
            "--set=model.layers=4",
            "--set=batch.micro=3",
            "--set=schedule=gpipe",
            "--costs",
            costs,
        )
        self.assertEqual((plan.code, plan.err), (0, ""), plan)
        said = re.search(
            r"\ntime of a step, by (\S+)\n  makespan ([\d.]+) ms, idle [\d.]+ %, ([\d,]+) tokens a second\n",
            plan.out,
        )
        self.assertEqual(said[1], costs)
        self.assertAlmostEqual(float(said[2]) / 1e3, makespan, places=3)
        self.assertAlmostEqual(int(said[3].replace(",", "")) * rows(run)["simulated"], 12 * 32, delta=1)

    def test_a_cost_that_the_machine_cannot_keep(self):
        small = write(
            "pace",
            {"times": [{"forward": 1e-6, "backward_input": 0.1, "backward_weights": 0.1, "step": 0.1}]},
        )
        ended = support.run(
            LESSON,
            2,
            "--set=model.layers=4",
            "--steps",
            "4",
            "--pace",
            small,
            "--out",
            support.new_path("out"),
        )
        self.expect_one_error(
            ended,
            64,
            re.compile(
                r"pace: stage [01] computes \d+\.\d\d ms in one forward, whose cost is 0\.00 ms: it has to be "
                r"twice as much at least\n  fix: multiply all costs by [\d.]+, or train a smaller model"
            ),
        )


class Memory(support.ProcessTest):
    """Of a model of 40 M parameters, as the kernel counts it: VmHWM of every rank."""

    MODEL = (
        "--set=model.layers=12 --set=model.width=512 --set=model.heads=8 --set=model.vocab=4096 --set=model.context=128 "
        "--set=batch.sequence=128 --set=batch.global=6 --set=data.validation_fraction=0 --steps=1 --sample=0 --page=off"
    ).split()

    def test_a_rank_holds_its_stage(self):
        peaks, planned = {}, {}
        for name, lesson, ranks, *flags in (
            ("01", "01_data_parallel", 1),
            ("1f1b", LESSON, 4),
            ("gpipe", LESSON, 4, "--set=schedule=gpipe"),
        ):
            ended, plans, peaks[name] = support.peak_memory(lesson, ranks, *self.MODEL, *flags)
            self.assertEqual((ended.code, ended.err), (0, ""), ended)
            planned[name] = [plan["total"] for plan in plans]
        for rank in range(4):
            self.assertLess(peaks["1f1b"][rank], peaks["01"][0] / 2)
            # GPipe keeps 6 micro-batches, 1F1B 4, 3, 2, 1: the kernel sees what the plan says.
            more, expected = (which["gpipe"][rank] - which["1f1b"][rank] for which in (peaks, planned))
            self.assertAlmostEqual(more / expected, 1, delta=0.05, msg=f"rank {rank}")


if __name__ == "__main__":
    support.main()
