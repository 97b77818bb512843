"""Lessons that do not hold what they predict (tests/run/broken_lesson.cpp): exit 70, one message that says
what differs."""

import re

import support
from support import Run

RANKS = 2
SOMETHING = r"(?:.*\n)*"
# By fault: the message. Every rank, or the last one, does the wrong thing in step 1, which is checked.
EXPECTED = {
    "allocation": r"rank \d: LibTorch's allocator handed out [\d]+ bytes in step 1; the ledger knows \d+, "
    r"one operation may take \d+ "
    r"for itself: \d{7} bytes went beside the ledger",
    "buffer": r"rank \d: step 1 did not hold what was predicted\n"
    + SOMETHING
    + r"  older weights  +0  1,048,576  DIFFERENT\n    kept  +0  1,048,576  DIFFERENT\n"
    + SOMETHING
    + r".*",
    "broadcast": r"rank \d: step 1 did not hold what was predicted\n"
    + SOMETHING
    + r"  broadcast of 1 f32  +0  +1  DIFFERENT\n"
    + SOMETHING
    + r".*",
    "purpose": r"rank \d: step 1 did not hold what was predicted\n"
    + SOMETHING
    + r"  all_reduce of unit 0's parameters \([\d,]+ f32\) +1 +0  DIFFERENT\n"
    r"  all_reduce of unit 0's gradients \([\d,]+ f32\) +0 +1  DIFFERENT\n" + SOMETHING + r".*",
    "unit": r"rank \d: step 1 did not hold what was predicted\n"
    + SOMETHING
    + r"  all_reduce of unit 1's gradients \([\d,]+ f32\) +0 +1  DIFFERENT\n"
    r"  all_reduce of unit 2's gradients \([\d,]+ f32\) +2 +1  DIFFERENT\n" + SOMETHING + r".*",
    "ticket": r"rank \d: 4 operations were never waited for",  # one a step
    "replica": r"step 1: rank 1's parameters differ from rank 0's: replicas must stay equal to the bit",
}


def broken(fault, ranks, text=""):
    """The lesson that does this wrong."""
    return Run("tests/broken_lesson", ranks, f"fault={fault} {text}", save=False)


class Claims(support.ProcessTest):
    @classmethod
    def setUpClass(cls):
        cls.boards = support.stale_boards()
        cls.jobs = {
            (fault, ranks): broken(fault, ranks)
            for fault in ("nothing", *EXPECTED)
            for ranks in (0, RANKS)
            if (fault, ranks) != ("replica", 0)
            and (support.all_settings() or ranks == RANKS or fault in ("nothing", "ticket"))
        }
        support.together(cls.jobs.values(), at_once=3)

    def test_what_does_not_hold_is_said_once(self):
        for (fault, ranks), job in self.jobs.items():
            if fault == "nothing":
                continue
            with self.subTest(fault=fault, ranks=ranks):
                self.expect_one_error(job, 70, re.compile(EXPECTED[fault]))
                self.expect_nothing_left(job.out, self.boards)

    def test_the_same_lesson_without_a_fault_holds(self):
        for ranks in (0, RANKS):
            self.expect_well(self.jobs["nothing", ranks])

    def test_ten_skipped_updates_in_a_row_stop(self):
        for ranks in support.chosen((0, RANKS), RANKS):
            with self.subTest(ranks=ranks):
                said = r"step 9: the gradient is not finite; no rank's last micro-batch .*\n  fix: .*"
                job = broken("nonfinite", ranks, "optim.nonfinite=skip --steps 20")
                self.expect_one_error(job, 70, re.compile(said))
                self.assertEqual(
                    re.findall(
                        r"step (\d+): the gradient is not finite; its update is skipped\n", job.ended.out
                    ),
                    [str(step) for step in range(9)],
                )


if __name__ == "__main__":
    support.main()
