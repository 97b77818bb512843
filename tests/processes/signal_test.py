"""Ctrl-C, SIGTERM and worse, sent to run.sh: its exit code, no message about lost ranks, nothing left."""

import os
import signal
import time

import support

CASES = [(name, ranks) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGKILL") for ranks in (1, 3)]


def interrupted(name, ranks, out):
    """Starts a run that would last for hours, waits until it trains, sends the signal to run.sh alone."""
    command = support.run_sh("01_data_parallel", ranks, "--set", "steps=1000000", "--out", out)
    process = support.start(command)
    steps = os.path.join(out, "steps.jsonl")
    trains = support.comes_true(lambda: os.path.exists(steps) and os.path.getsize(steps) > 0, 60)
    time.sleep(0.2)
    os.kill(process.pid, getattr(signal, name))
    ended = support.end(process)
    ended.trained = trains
    return ended


class Signals(support.ProcessTest):
    @classmethod
    def setUpClass(cls):
        cls.boards = support.stale_boards()
        cls.outs = {case: support.new_path("out") for case in CASES}
        cls.ended = support.side_by_side(
            {case: lambda case=case, out=out: interrupted(*case, out) for case, out in cls.outs.items()})

    def check(self, name, code):
        for case, ended in self.ended.items():
            if case[0] != name:
                continue
            with self.subTest(case=case):
                self.assertTrue(ended.trained, ended)
                self.assertEqual(ended.code, code, ended)
                self.assertEqual(ended.err, "")
                self.expect_nothing_left(self.outs[case], self.boards)

    def test_sigint(self):
        self.check("SIGINT", 130)

    def test_sigterm(self):
        self.check("SIGTERM", 143)

    def test_sighup(self):
        self.check("SIGHUP", 129)

    def test_sigkill_of_run_sh_ends_the_ranks_too(self):
        self.check("SIGKILL", 137)


if __name__ == "__main__":
    support.main()
