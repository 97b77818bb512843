"""Ranks that hang, die, throw, compute nonsense or meet a full disk: one message that names rank and step,
the right exit code, nothing left."""

import os
import re
import signal
import unittest

import support
from support import Run, names_in, new_path

LESSON = "01_data_parallel"
SUM = r"all_reduce of (?:(?:the embedding|the head|block \d)'s gradients|sums) \([\d,]+ f\d\d\)"
ONE_OPERATION = rf"last operation \d+ \({SUM}\), train step 2"
FIX_HANG = (
    r"\n  fix: see what it does there; a rank that is only slow needs a longer --watchdog \(now 2\.0 s\)"
)
FIX_GONE = (
    r"\n  fix: look above for its own last words; without any, the system may have killed it \(out of "
    r"memory\?\)"
)
ADVICE = (
    r"if nobody did it, memory ran out \(dmesg says so\): fewer ranks, batch\.micro smaller, or "
    r"--memory-cap to see it named"
)
FIX_NAN = r"\n  fix: a smaller optim\.lr, a longer optim\.warmup_steps, or optim\.clip=1 where it is 0"
NAN = "step 2: the gradient is not finite, first seen in unit 3; it came from rank {}'s own micro-batches"

# By (kind, ranks): the exit code under run.sh, and the message. Rank ranks // 2 has the fault, in step 2.
EXPECTED = {
    ("hang", 1): (
        75,
        r"rank 0 is stuck: nothing has moved for more than 2\.0 s in train step 2\n  "
        + ONE_OPERATION
        + FIX_HANG,
    ),
    ("hang", 2): (
        75,
        rf"lost rank 1: rank 0 waits for its operation \d+ \({SUM}, train step 2\) for more than "
        r"2\.0 s\n  rank 1: process \d+ is alive, but does not come to the next operation; "
        + ONE_OPERATION
        + FIX_HANG,
    ),
    ("kill", 1): (75, r"01_data_parallel: rank 0 was killed \(SIGKILL\)\n  fix: " + ADVICE),
    ("kill", 2): (
        75,
        r"lost rank 1: noticed by rank 0\n  rank 1: process \d+ is gone; "
        + ONE_OPERATION
        + FIX_GONE
        + r"\n  killed with SIGKILL; "
        + ADVICE,
    ),
    ("throw", 1): (70, r"rank 0: injected error: rank 0, step 2"),
    ("throw", 2): (70, r"rank 1: injected error: rank 1, step 2"),
    ("nan", 1): (70, NAN.format(0) + FIX_NAN),
    ("nan", 2): (70, NAN.format(1) + FIX_NAN),
}


class InjectedFaults(support.ProcessTest):
    @classmethod
    def setUpClass(cls):
        cls.boards = support.stale_boards()
        cls.jobs = {
            (kind, ranks, how): Run(
                LESSON, ranks, f"--watchdog 2 --inject {kind}@{ranks // 2},2", sh=how == "run.sh", save=False
            )
            for kind, ranks in EXPECTED
            for how in ("run.sh", "mpirun")
            if how == "run.sh" or ranks == 1 and (kind in ("kill", "nan") or support.all_settings())
        }
        support.together(cls.jobs.values(), at_once=3)

    def check(self, kind):
        for case, job in self.jobs.items():
            if case[0] != kind:
                continue
            with self.subTest(case=case):
                code, message = EXPECTED[case[:2]]
                if case == ("kill", 1, "mpirun"):  # nobody is left to speak, and the code is mpirun's
                    self.assertEqual((job.ended.code, job.ended.errors), (137, []), job.ended)
                else:
                    self.expect_one_error(job, code, re.compile(message))
                if case[:2] != ("kill", 1):
                    self.assertEqual(
                        re.findall(r"\nrecord: (.*)\n", job.ended.out), [job.out + "/record.json"], job.ended
                    )
                self.expect_nothing_left(job.out, self.boards)

    def test_hang(self):
        self.check("hang")

    def test_kill(self):
        self.check("kill")

    def test_throw(self):
        self.check("throw")

    def test_nan(self):
        self.check("nan")

    def test_steps_before_the_fault_are_kept(self):
        self.assertEqual(
            {case: len(support.steps_of(job.out)) for case, job in self.jobs.items()},
            dict.fromkeys(self.jobs, 2),
        )

    def test_the_record_says_how_the_run_ended(self):
        for (kind, ranks, how), job in self.jobs.items():
            with self.subTest(kind=kind, ranks=ranks, how=how):
                record = job.record()
                steps = len(record["steps"].get("loss", []))
                if ranks == 1:
                    self.assertEqual(steps, 0 if kind == "kill" else 2)
                else:  # the rank that speaks may be a step's line ahead of the one that writes them
                    self.assertIn(steps, (1, 2))
                if (kind, ranks) == ("kill", 1):  # nobody was left to write
                    self.expect_record(job, exit_code=None, message="")
                    continue
                code, message = EXPECTED[kind, ranks]
                self.expect_record(job, exit_code=code)
                self.assertGreater(record["seconds"], 0)
                self.assertGreaterEqual(record["seconds"], sum(record["steps"]["seconds"]))
                # run.sh adds advice about a killed rank; the record holds only what the remaining rank said.
                self.assertRegex(record["message"], r"\A" + message.split(r"\n  killed")[0] + r"\Z")


class Skipping(support.ProcessTest):
    def test_a_skipped_update_is_said_and_counted(self):
        job = Run(LESSON, 2, "optim.nonfinite=skip --inject nan@1,2")
        self.expect_well(
            job,
            "\nstep 2: the gradient is not finite; its update is skipped\n",
            "1 updates skipped: their gradient was not finite\n",
        )
        self.expect_record(job, skipped_updates=1, exit_code=0)
        none = [(loss is None, norm is None) for loss, norm in job.losses()]
        self.assertEqual(none, [(False, step == 2) for step in range(4)])
        steps = job.record()["steps"]
        self.assertEqual(list(zip(steps["loss"], steps["grad_norm"])), job.losses())


def setUpModule():
    """What takes half a minute of waiting begins before the others."""
    alone = Run(LESSON, 1).line
    Start.job = support.start(alone + [":", "-n", "1", "sleep", "90"])
    unittest.addModuleCleanup(lambda: Start.job.poll() is None and os.killpg(Start.job.pid, signal.SIGKILL))


class Start(support.ProcessTest):
    def test_ranks_that_never_meet(self):
        self.expect_one_error(
            support.end(self.job),
            75,
            re.compile(r"rank 0: the 2 ranks did not start together within 30 s\n  fix: start again; .*"),
        )


class FullDisk(support.ProcessTest):
    """A limit on the size of a file stands for a disk that is full: the write fails at the same byte, with
    EFBIG."""

    SAID = (
        r": File too large \(EFBIG\)\n  fix: raise the limit of a file's size \(ulimit -f unlimited\), or "
        r"use another file system"
    )

    @staticmethod
    def limited(size):
        return ["env", "--ignore-signal=XFSZ", "prlimit", f"--fsize={size}"]

    def test_of_the_steps(self):
        boards = support.stale_boards()
        # Only the first of three ranks cannot write. Open MPI's shared memory would not fit into the limit
        # either, hence TCP.
        tcp = support.environment(OMPI_MCA_btl="tcp,self")
        for ranks in (0, 1):
            job = Run(LESSON, ranks, "--steps 100", each=self.limited(5000), env=tcp if ranks else None)
            if ranks:
                unlimited = job.line[len(support.mpirun(1)) + len(self.limited(5000)) :]
                job.line += [":", "-n", "2", *unlimited]
            with self.subTest(ranks=ranks):
                said = rf"{re.escape(job.out)}/steps\.jsonl: cannot write \d+ bytes at byte 5000{self.SAID}"
                self.expect_one_error(job, 73, re.compile(said))
                self.expect_nothing_left(job.out, boards)

    def test_of_the_record_and_the_weights(self):
        for limit, name, left in (
            (500, r"record\.json", []),
            (3000, r"record\.json", ["record.json", "steps.jsonl"]),
            (20000, "out-", ["record.json", "steps.jsonl"]),
        ):
            with self.subTest(limit=limit):
                job = Run(LESSON, 0, "--steps 2", each=self.limited(limit), save=name == "out-")
                said = rf".*/\.{name}.*: cannot write \d+ bytes at byte {limit}{self.SAID}"
                self.expect_one_error(job, 73, re.compile(said))
                self.assertEqual(names_in(job.out), left, "nothing unfinished is left")
                if limit == 20000:  # there was room for the record
                    self.expect_record(job, exit_code=73)
                self.assertFalse(os.path.exists(job.weights))
                self.assertEqual([file for file in os.listdir(support.scratch) if ".tmp-" in file], [])


class SlowDisk(support.ProcessTest):
    """What a disk takes for its calls is longer than --watchdog in all, or each is."""

    def job(self, lesson, ranks, slow, text):
        env = support.environment(LD_PRELOAD=support.program("tests/slow_disk.so"), SLOW_DISK=slow)
        env["ASAN_OPTIONS"] += ":verify_asan_link_order=0"
        return Run(lesson, ranks, f"{text} --watchdog 1", env=env)

    def test_one_that_goes_on_is_waited_for(self):
        for lesson in support.chosen((LESSON, "04_zero3"), "04_zero3"):
            with self.subTest(lesson=lesson):
                path = new_path("w")
                slow = f"{os.path.basename(path)} pwrite 100"
                self.expect_well(self.job(lesson, 2, slow, f"--steps 2 --save {path}"))
                self.assertTrue(os.path.exists(path))

    def test_one_that_does_not_answer_is_named(self):
        saves = "--steps 9000 --save-every 2 --checkpoints"
        for ranks, text in ((2, "--steps 2 --save"), (2, saves), (0, "--steps 2 --save")):
            with self.subTest(ranks=ranks, text=text):
                path = new_path("w")
                name = os.path.basename(path)
                ended = self.job(LESSON, ranks, f"{name} fsync 60000", f"{text} {path}").ended
                self.assertEqual(ended.code, 75, ended)
                self.assertRegex(
                    ended.err,
                    rf"rank \d\b.*\bwrites \S*{name}.*\n(.*\n)?  fix: see whether the disk still answers",
                )


if __name__ == "__main__":
    support.main()
