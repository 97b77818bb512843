"""Lesson 07 on the real programs: every schedule ends in lesson 00's file, a list that deadlocks hangs where
pipedream says, paced runs take what their costs say, and a rank's memory is that of its stage."""

import json
import re

import support
from support import Run, once, tool

LESSON = "07_pipeline"
DEEP = "model.layers=8"
FAMILIES = ("naive", "gpipe", "1f1b", "interleaved", "zb_h1")
# (ranks, replicas, settings). Each must equal lesson 00 to the bit when that adds in the order they imply;
# pipeline_test.cpp tests all of them on threads, here they are processes.
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
ACTIONS = ("forward", "backward_input", "backward_weights", "step")
FOUR = "model.layers=4 batch.micro=3"


def pace_file(*seconds):
    """What one stage's actions cost."""
    return support.new_file("pace.json", json.dumps({"times": [dict(zip(ACTIONS, seconds))]}))


def rows(job):
    """name -> seconds of the table at a run's end."""
    return {row["name"]: row["seconds"] for row in job.record()["timetable"]["rows"]}


def reference(ranks, replicas, settings):
    micro = " ".join(s for s in settings.split() if s.startswith("batch."))
    split = "split" if ranks > replicas else "joint"
    text = f"{DEEP} {micro} --virtual-ranks {replicas} --tied-sum {split} --steps 20"
    return once("00_one_device", 0, text)


class Bits(support.ProcessTest):
    def test_every_schedule_ends_in_lesson_00s_file(self):
        self.expect_references(
            {
                (ranks, replicas, settings): (
                    Run(LESSON, ranks, f"{DEEP} replicas={replicas} {settings} --steps 20"),
                    reference(ranks, replicas, settings),
                )
                for ranks, replicas, settings in BITS
            }
        )


class Deadlock(support.ProcessTest):
    def test_it_hangs_in_the_ring_that_the_checker_names(self):
        path = support.new_path("deadlock.json")
        checked = tool("pipedream", *f"check --schedule deadlock_send_first --write {path}".split())
        ring = re.findall(r"\n +(stage \d, action \d+: \w+) waits until stage (\d)", checked.said)
        self.assertGreaterEqual(len(ring), 2, checked)
        listed, boards = f"{FOUR} schedule=file:{path}", support.stale_boards()
        blocking = f"{listed} unchecked=on sends=blocking --watchdog 5"
        jobs = self.expect_ends(
            {
                listed: (65, re.compile(r"schedule file:\S+: deadlock: stage \d, action \d+: (.*\n?)*")),
                blocking: (75, re.compile(r"every rank of a ring waits for the next one(.*\n?)*")),
                # The action list refused above runs where sends do not block.
                f"{listed} unchecked=on --steps 2": (0, ()),
            },
            LESSON,
            4,
            at_once=1,
        )
        found = re.findall(
            r"rank \d, (stage \d, action \d+: \w+), waits for rank (\d)", jobs[blocking].ended.err
        )
        self.assertEqual(sorted(found), sorted(ring))
        self.expect_nothing_left(jobs[blocking].out, boards)


class Pace(support.ProcessTest):
    STEADY = (0.02, 0.02, 0.02, 0.02)

    def run_with(self, settings, flags):
        return self.expect_well(Run(LESSON, 2, f"{FOUR} {settings} --steps 4 {flags}"))

    def names(self, job):
        return [" ".join(span[0] for span in rank) for rank in job.record()["timetable"]["ranks"]]

    # Only lower bounds of times are tested, since a busy machine is slow.
    def test_every_action_takes_its_cost(self):
        job = self.run_with("", f"--pace {pace_file(*self.STEADY)}")
        found = rows(job)
        self.assertAlmostEqual(found["paced"], 5 * 0.06 + 0.02, places=9)  # (M + S - 1)(f + b), and the step
        self.assertGreaterEqual(found["measured"], found["paced"])
        self.assertGreaterEqual(found["simulated"], found["paced"])
        for name in ("measured", "simulated", "paced", "formula"):
            self.assertRegex(job.ended.out, rf"\n  {name} +{1e3 * found[name]:.2f} ms +\d+\.\d %")
        self.assertEqual(
            self.names(job), ["F0 F1 B0 F2 B1 F3 B2 B3 step@1", "F0 B0 F1 B1 F2 B2 F3 B3 step@1"]
        )
        for rank in job.record()["timetable"]["ranks"]:
            for name, begin, end, _, _ in rank:
                self.assertGreaterEqual(end - begin, 0.04 - 1e-6 if name.startswith("B") else 0.02 - 1e-6)

    def test_messages_arrive_late(self):
        late = f"--link-ms 30 --pace {pace_file(*self.STEADY)}"
        found = rows(self.run_with("", late))
        self.assertGreater(found["paced"], 5 * 0.06 + 0.02 + 2 * 0.03 - 1e-9)
        self.assertGreaterEqual(found["measured"], found["paced"])
        # One additional forward before the first backward hides the late messages.
        job = self.run_with("warmup=1", late)
        self.assertLess(rows(job)["paced"], found["paced"] - 0.02)
        self.assertGreaterEqual(rows(job)["measured"], rows(job)["paced"])
        self.assertEqual(self.names(job)[0], "F0 F1 F2 B0 F3 B1 B2 B3 step@1")

    # The costs that one run measured predict the time of the next run.
    def test_costs_of_a_run(self):
        job = self.run_with("schedule=gpipe", f"--pace {pace_file(*self.STEADY)}")
        costs, simulated = job.out + "/costs.json", rows(job)["simulated"]
        gpipe = "simulate --schedule gpipe --stages 2 --microbatches 4 --costs"
        said = self.expect_well(tool("pipedream", *gpipe.split(), costs)).out
        makespan = float(re.search(r"\nmakespan ([\d.]+),", said)[1])
        self.assertAlmostEqual(makespan, simulated, places=3)
        plan = support.run(LESSON, 0, f"{FOUR} schedule=gpipe --plan --world 2 --costs {costs}")
        said = re.search(
            r"\ntime of a step, by (\S+)\n  makespan ([\d.]+) ms, idle [\d.]+ %, ([\d,]+) tokens a second\n",
            self.expect_well(plan).out,
        )
        self.assertEqual(said[1], costs)
        self.assertAlmostEqual(float(said[2]) / 1e3, makespan, places=3)
        self.assertAlmostEqual(int(said[3].replace(",", "")) * simulated, 12 * 32, delta=1)

    def test_a_cost_that_the_machine_cannot_keep(self):
        self.expect_one_error(
            Run(LESSON, 2, f"model.layers=4 --steps 4 --pace {pace_file(1e-6, 0.1, 0.1, 0.1)}"),
            64,
            re.compile(
                r"pace: stage [01] computes \d+\.\d\d ms in one forward, whose cost is 0\.00 ms: it has to "
                r"be "
                r"twice as much at least\n  fix: multiply all costs by [\d.]+, or train a smaller model"
            ),
        )


class Memory(support.ProcessTest):
    """The memory of a model of 40 M parameters, as the kernel counts it: VmHWM of every rank."""

    MODEL = (
        "model.layers=12 model.width=512 model.heads=8 model.vocab=4096 model.context=128 "
        "batch.sequence=128 batch.global=6 data.validation_fraction=0 {} --steps 1 --sample 0 --page off"
    )

    def test_a_rank_holds_its_stage(self):
        peaks, planned = {}, {}
        for name, lesson, ranks, settings in (
            ("01", "01_data_parallel", 1, ""),
            ("1f1b", LESSON, 4, ""),
            ("gpipe", LESSON, 4, "schedule=gpipe"),
        ):
            ended, plans, peaks[name] = support.peak_memory(lesson, ranks, self.MODEL.format(settings))
            self.expect_well(ended)
            planned[name] = [plan["total"] for plan in plans]
        for rank in range(4):
            self.assertLess(peaks["1f1b"][rank], peaks["01"][0] / 2)
            # GPipe keeps 6 micro-batches and 1F1B 4, 3, 2, 1; the difference in peak memory must be the
            # plan's.
            more, expected = (which["gpipe"][rank] - which["1f1b"][rank] for which in (peaks, planned))
            self.assertAlmostEqual(more / expected, 1, delta=0.05, msg=f"rank {rank}")


if __name__ == "__main__":
    support.main()
