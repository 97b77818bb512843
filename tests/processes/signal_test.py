"""Ctrl-C, SIGTERM and worse, sent to run.sh or, without it, to the program: its exit code, which the record has as well, no message about lost
ranks, nothing left."""

import glob
import json
import os
import re
import signal
import time

import support

ASKED = ("SIGINT", "SIGTERM", "SIGHUP")
# 0 ranks: the program alone, without run.sh, which nothing survives that could speak after SIGKILL.
CASES = [(name, ranks) for name in ASKED for ranks in (0, 1, 2)] + [("SIGKILL", ranks) for ranks in (1, 2)]
CASES = support.chosen(
    CASES,
    ("SIGINT", 0),
    ("SIGINT", 1),
    ("SIGINT", 2),
    ("SIGTERM", 0),
    ("SIGTERM", 2),
    ("SIGHUP", 2),
    ("SIGKILL", 2),
)


def interrupted(name, ranks, out):
    """Starts a run that would last for hours, waits until it trains, sends the signal to run.sh alone."""
    flags = ["--set", "steps=1000000", "--out", out]
    command = support.run_sh("01_data_parallel", ranks, *flags)
    if ranks == 0:
        command = [support.program("01_data_parallel"), *support.files_of("01_data_parallel"), *flags]
    began = time.monotonic()
    process = support.start(command, support.environment(TMPDIR=support.scratch))
    steps = os.path.join(out, "steps.jsonl")
    trains = support.comes_true(lambda: os.path.exists(steps) and os.path.getsize(steps) > 0, 60)
    time.sleep(0.2)
    os.kill(process.pid, getattr(signal, name))
    ended = support.end(process)
    ended.trained, ended.seconds = trains, time.monotonic() - began
    return ended


class Signals(support.ProcessTest):
    @classmethod
    def setUpClass(cls):
        cls.boards = support.stale_boards()
        cls.outs = {case: support.new_path("out") for case in CASES}
        cls.ended = support.side_by_side(
            {case: lambda case=case, out=out: interrupted(*case, out) for case, out in cls.outs.items()},
            at_once=2,
        )

    def check_last_words(self, name, ended, out):
        """One line with the step and the record."""
        with open(out + "/record.json", encoding="utf-8") as file:
            record = json.load(file)
        lines = re.findall(r"\ninterrupted at step (\d+); record: (.*)\n", ended.out)
        self.assertEqual([path for _, path in lines], [out + "/record.json"], ended)
        self.assertEqual(record["message"], "interrupted at step " + lines[0][0])
        # Where run.sh itself was killed, what it started is asked to end with SIGTERM.
        self.assertEqual(record["exit_code"], 128 + getattr(signal, "SIGTERM" if name == "SIGKILL" else name))
        self.assertGreaterEqual(record["seconds"], sum(record["steps"]["seconds"]))
        self.assertLess(record["seconds"], ended.seconds)
        self.assertGreater(len(record["steps"]["loss"]), 0)
        self.assertIn(int(lines[0][0]) - len(record["steps"]["loss"]), (-1, 0, 1))

    def check(self, name, code):
        for case, ended in self.ended.items():
            if case[0] != name:
                continue
            with self.subTest(case=case):
                self.assertTrue(ended.trained, ended)
                self.assertEqual(ended.code, code, ended)
                self.assertEqual(ended.err, "")
                self.check_last_words(name, ended, self.outs[case])
                self.expect_nothing_left(self.outs[case], self.boards)
                self.assertEqual(glob.glob(support.scratch + "/stagecraft-signal-*"), [])

    def test_sigint(self):
        self.check("SIGINT", 130)

    def test_sigterm(self):
        self.check("SIGTERM", 143)

    def test_sighup(self):
        self.check("SIGHUP", 129)

    def test_a_second_sigint_leaves_nothing_of_open_mpi(self):
        """It kills mpirun, which then takes nothing away itself."""
        out = support.new_path("out")
        process = support.start(support.run_sh("01_data_parallel", 2, "--set", "steps=1000000", "--out", out))
        steps = os.path.join(out, "steps.jsonl")
        self.assertTrue(support.comes_true(lambda: os.path.exists(steps) and os.path.getsize(steps) > 0, 60))
        (contact,) = glob.glob(support.scratch + "/mpi-*/ompi.*/pid.*/contact.txt")
        with open(contact, encoding="utf-8") as file:
            memory = f"/dev/shm/vader_segment.*.{int(file.read().split('.')[0]) + 1:x}.*"
        self.assertEqual(len(glob.glob(memory)), 2)
        for rank in (0, 1):  # so that the first signal ends nothing
            os.kill(support.process_of(out, rank), signal.SIGSTOP)
        for _ in range(2):
            os.kill(process.pid, signal.SIGINT)
            time.sleep(0.1)
        self.assertEqual(support.end(process).code, 130)
        self.expect_nothing_left(out, self.boards)
        self.assertEqual(glob.glob(memory) + glob.glob(support.scratch + "/mpi-*/ompi.*/pid.*"), [])

    def test_sigkill_of_run_sh_ends_the_ranks_too(self):
        self.check("SIGKILL", 137)


if __name__ == "__main__":
    support.main()
