"""Ranks that hang or die on GPUs while the others' GPUs wait for them in NCCL, in a replayed graph or without one: one message that names rank and
step, exit 75, and all processes gone within 10 s. Skipped (77) with fewer than two GPUs."""

import os
import re
import time

import support

STEP = 5  # a replay of the graph that the third step captured
SETTINGS = (
    "model.width=128",
    "model.context=128",
    "batch.sequence=128",
    "precision.dtype=bf16",
    "data.validation_fraction=0.2",
)
FLAGS = [
    *(part for s in SETTINGS for part in ("--set", s)),
    "--device",
    "cuda",
    "--threads",
    "1",
    "--steps",
    "8",
    "--watchdog",
    "3",
    "--inject",
]
CASES = [
    (kind, lesson, graph)
    for kind in ("hang", "kill")
    for lesson in ("01_data_parallel", "04_zero3")
    for graph in ("on", "off")
]
CASES += [(kind, "07_pipeline", graph) for kind in ("hang", "kill") for graph in ("on", "off")]

OPERATION = r"[a-z_]+ of (?:(?:the embedding|the head|block \d+)'s )?[a-z ]+ \([\d,]+ [a-z]+\d\d\)(?: (?:to|from) rank \d)?"
LAST = rf"last operation \d+ \({OPERATION}\), train step {STEP}(?:, stage \d, action \d+: \S+)?"  # a pipeline says what it does
WAITS = rf"rank 0 waits for its operation \d+ \({OPERATION}, train step {STEP}\) for more than 3\.0 s"
# What the program says, and what run.sh adds where mpirun sees the death before it sees the watchdog's code.
EXPECTED = {
    "hang": (
        rf"lost rank 1: {WAITS}\n  rank 1: process \d+ is alive, but does not come to the next operation; {LAST}"
        r"\n  fix: see what it does there; a rank that is only slow needs a longer --watchdog \(now 3\.0 s\)",
        "",
    ),
    "kill": (
        rf"lost rank 1: (?:noticed by rank 0|{WAITS})\n  rank 1: process \d+ is gone; {LAST}"
        r"\n  fix: look above for its own last words; without any, the system may have killed it \(out of memory\?\)",
        r"(?:\n  killed with SIGKILL; if nobody did it, memory ran out \(dmesg says so\): fewer ranks, batch\.micro smaller, or --memory-cap to see "
        "it named)?",
    ),
}


def broken(kind, lesson, graph, out):
    """A run whose rank 1 breaks in STEP; `seconds` from the end of the step before, when rank 0 wrote its line, until nobody was left."""
    ended = support.execute(
        support.run_sh(lesson, 2, *FLAGS, f"{kind}@1,{STEP}", "--graph", graph, "--out", out)
    )
    support.comes_true(lambda: not support.processes_with(out), 15)
    steps = out + "/steps.jsonl"
    ended.seconds = time.time() - os.path.getmtime(steps) if os.path.exists(steps) else None
    return ended


class LostOnGpus(support.ProcessTest):
    @classmethod
    def setUpClass(cls):
        cls.boards = support.stale_boards()
        cls.outs = {case: support.new_path("out") for case in CASES}
        cls.ended = support.side_by_side(
            {case: lambda case=case, out=out: broken(*case, out) for case, out in cls.outs.items()}, at_once=4
        )

    def test_the_rank_is_named(self):
        for case, ended in self.ended.items():
            with self.subTest(case=case):
                message, added = EXPECTED[case[0]]
                self.expect_one_error(ended, 75, re.compile(message + added))

    def test_nobody_is_left_after_10_seconds(self):
        for case, ended in self.ended.items():
            with self.subTest(case=case):
                self.expect_nothing_left(self.outs[case], self.boards)
                self.assertIsNotNone(ended.seconds, ended)
                self.assertLess(ended.seconds, 10, ended)

    def test_the_record_says_how_the_run_ended(self):
        for case, out in self.outs.items():
            with self.subTest(case=case):
                record = support.record(out)
                self.assertEqual((record["device"], record["exit_code"]), ("cuda", 75))
                self.assertRegex(record["message"], r"\A" + EXPECTED[case[0]][0] + r"\Z")
                self.assertIn(f"\nrecord: {out}/record.json\n", self.ended[case].out)

    def test_steps_before_the_fault_are_kept(self):
        for case, out in self.outs.items():
            with self.subTest(case=case), open(out + "/steps.jsonl", encoding="utf-8") as file:
                self.assertEqual(len(file.readlines()), STEP)


if __name__ == "__main__":
    support.main(gpus_needed=2)
