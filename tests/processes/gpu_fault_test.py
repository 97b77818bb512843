"""Ranks that hang or die on GPUs while the others' GPUs wait for them in NCCL, in a replayed graph or without
one: one message that names rank and step, exit 75, and all processes gone within 10 s. Skipped (77) with
fewer than two GPUs."""

import os
import re
import time

import support
from support import Run

STEP = 5  # a replay of the graph that the third step captured
TEXT = (
    "model.width=128 model.context=128 batch.sequence=128 precision.dtype=bf16 data.validation_fraction=0.2 "
    "--device cuda --threads 1 --steps 8 --watchdog 3"
)
CASES = [
    (kind, lesson, graph)
    for kind in ("hang", "kill")
    for lesson in ("01_data_parallel", "04_zero3")
    for graph in ("on", "off")
]
CASES += [(kind, "07_pipeline", graph) for kind in ("hang", "kill") for graph in ("on", "off")]

OPERATION = (
    r"[a-z_]+ of (?:(?:the embedding|the head|block \d+)'s )?[a-z ]+ \([\d,]+ [a-z]+\d\d\)(?: (?:to|from) "
    r"rank \d)?"
)
# A rank of a pipeline also names its stage and action.
LAST = rf"last operation \d+ \({OPERATION}\), train step {STEP}(?:, stage \d, action \d+: \S+)?"
WAITS = rf"rank 0 waits for its operation \d+ \({OPERATION}, train step {STEP}\) for more than 3\.0 s"
# The program's message, and what run.sh adds if mpirun sees the death before the watchdog's exit code.
EXPECTED = {
    "hang": (
        rf"lost rank 1: {WAITS}\n  rank 1: process \d+ is alive, but does not come to the next operation; "
        rf"{LAST}"
        r"\n  fix: see what it does there; a rank that is only slow needs a longer --watchdog \(now 3\.0 s\)",
        "",
    ),
    "kill": (
        rf"lost rank 1: (?:noticed by rank 0|{WAITS})\n  rank 1: process \d+ is gone; {LAST}"
        r"\n  fix: look above for its own last words; without any, the system may have killed it \(out of "
        r"memory\?\)",
        r"(?:\n  killed with SIGKILL; if nobody did it, memory ran out \(dmesg says so\): fewer ranks, "
        r"batch\.micro smaller, or --memory-cap to see "
        "it named)?",
    ),
}


def broken(job):
    """How it ended, whose rank 1 breaks in STEP; seconds from the end of the step before, when rank 0 wrote
    its line, until nobody was left."""
    ended = job.ended
    support.comes_true(lambda: not support.processes_with(job.out), 15)
    steps = job.out + "/steps.jsonl"
    return ended, time.time() - os.path.getmtime(steps) if os.path.exists(steps) else None


class LostOnGpus(support.ProcessTest):
    @classmethod
    def setUpClass(cls):
        cls.boards = support.stale_boards()
        cls.jobs = {
            (kind, lesson, graph): Run(
                lesson, 2, f"{TEXT} --inject {kind}@1,{STEP} --graph {graph}", sh=True, save=False
            )
            for kind, lesson, graph in CASES
        }
        cls.ended = support.side_by_side(
            {case: lambda job=job: broken(job) for case, job in cls.jobs.items()}, at_once=4
        )

    def test_the_rank_is_named(self):
        for case, (ended, _) in self.ended.items():
            with self.subTest(case=case):
                message, added = EXPECTED[case[0]]
                self.expect_one_error(ended, 75, re.compile(message + added))

    def test_nobody_is_left_after_10_seconds(self):
        for case, (ended, seconds) in self.ended.items():
            with self.subTest(case=case):
                self.expect_nothing_left(self.jobs[case].out, self.boards)
                self.assertIsNotNone(seconds, ended)
                self.assertLess(seconds, 10, ended)

    def test_the_record_says_how_the_run_ended(self):
        for case, job in self.jobs.items():
            with self.subTest(case=case):
                self.expect_record(job, device="cuda", exit_code=75)
                self.assertRegex(job.record()["message"], r"\A" + EXPECTED[case[0]][0] + r"\Z")
                self.assertIn(f"\nrecord: {job.out}/record.json\n", job.ended.out)

    def test_steps_before_the_fault_are_kept(self):
        for case, job in self.jobs.items():
            with self.subTest(case=case):
                self.assertEqual(len(support.steps_of(job.out)), STEP)


if __name__ == "__main__":
    support.main(gpus_needed=2)
