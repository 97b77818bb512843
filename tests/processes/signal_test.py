"""Ctrl-C, SIGTERM and worse, sent to run.sh or, without it, to the program: its exit code, which the record
has as well, no message about lost ranks, nothing left."""

import glob
import os
import re
import signal
import time

import support
from support import Run

ASKED = ("SIGINT", "SIGTERM", "SIGHUP")
# 0 ranks means the program alone, without run.sh; after SIGKILL nothing would be left to print a message.
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


def interrupted(name, job):
    """Starts a run that would last for hours, waits until it trains, sends the signal to run.sh alone. How it
    ended, and its seconds."""
    began = time.monotonic()
    process = job.start()
    time.sleep(0.2)
    os.kill(process.pid, getattr(signal, name))
    return support.end(process), time.monotonic() - began


def endless(ranks, **more):
    return Run("01_data_parallel", ranks, "steps=1000000", sh=ranks > 0, save=False, **more)


class Signals(support.ProcessTest):
    @classmethod
    def setUpClass(cls):
        cls.boards = support.stale_boards()
        env = support.environment(TMPDIR=support.scratch)
        cls.jobs = {(name, ranks): endless(ranks, env=env) for name, ranks in CASES}
        cls.ended = support.side_by_side(
            {case: lambda case=case, job=job: interrupted(case[0], job) for case, job in cls.jobs.items()},
            at_once=2,
        )

    def check_last_words(self, name, ended, seconds, job):
        """One line with the step and the record."""
        record = job.record()
        lines = re.findall(r"\ninterrupted at step (\d+); record: (.*)\n", ended.out)
        self.assertEqual([path for _, path in lines], [job.out + "/record.json"], ended)
        self.assertEqual(record["message"], "interrupted at step " + lines[0][0])
        # If run.sh itself is killed, the program that it started receives SIGTERM.
        self.assertEqual(record["exit_code"], 128 + getattr(signal, "SIGTERM" if name == "SIGKILL" else name))
        self.assertGreaterEqual(record["seconds"], sum(record["steps"]["seconds"]))
        self.assertLess(record["seconds"], seconds)
        self.assertGreater(len(record["steps"]["loss"]), 0)
        self.assertIn(int(lines[0][0]) - len(record["steps"]["loss"]), (-1, 0, 1))

    def check(self, name, code):
        for case, (ended, seconds) in self.ended.items():
            if case[0] != name:
                continue
            with self.subTest(case=case):
                self.assertEqual((ended.code, ended.err), (code, ""), ended)
                self.check_last_words(name, ended, seconds, self.jobs[case])
                self.expect_nothing_left(self.jobs[case].out, self.boards)
                self.assertEqual(glob.glob(support.scratch + "/stagecraft-signal-*"), [])

    def test_sigint(self):
        self.check("SIGINT", 130)

    def test_sigterm(self):
        self.check("SIGTERM", 143)

    def test_sighup(self):
        self.check("SIGHUP", 129)

    def test_a_second_sigint_leaves_nothing_of_open_mpi(self):
        """It kills mpirun, which then takes nothing away itself."""
        job = endless(2)
        process = job.start()
        (contact,) = glob.glob(support.scratch + "/mpi-*/ompi.*/pid.*/contact.txt")
        memory = f"/dev/shm/vader_segment.*.{int(support.read_text(contact).split('.')[0]) + 1:x}.*"
        self.assertEqual(len(glob.glob(memory)), 2)
        ranks = support.ranks_of(job.out)
        self.assertEqual(sorted(ranks), [0, 1])
        for pid in ranks.values():  # so that the first signal ends nothing
            os.kill(pid, signal.SIGSTOP)
        for _ in range(2):
            os.kill(process.pid, signal.SIGINT)
            time.sleep(0.1)
        self.assertEqual(support.end(process).code, 130)
        self.expect_nothing_left(job.out, self.boards)
        self.assertEqual(glob.glob(memory) + glob.glob(support.scratch + "/mpi-*/ompi.*/pid.*"), [])

    def test_sigkill_of_run_sh_ends_the_ranks_too(self):
        self.check("SIGKILL", 137)


if __name__ == "__main__":
    support.main()
