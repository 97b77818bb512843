"""Ranks that hang, die, throw, compute nonsense or meet a full disk: one message that names rank and step, the right exit code, nothing left."""

import json
import os
import re
import signal
import unittest

import support

SUM = r"all_reduce of (?:(?:the embedding|the head|block \d)'s gradients|sums) \([\d,]+ f\d\d\)"
ONE_OPERATION = rf"last operation \d+ \({SUM}\), train step 2"
FIX_HANG = (
    r"\n  fix: see what it does there; a rank that is only slow needs a longer --watchdog \(now 2\.0 s\)"
)
FIX_GONE = r"\n  fix: look above for its own last words; without any, the system may have killed it \(out of memory\?\)"
ADVICE = r"if nobody did it, memory ran out \(dmesg says so\): fewer ranks, batch\.micro smaller, or --memory-cap to see it named"
FIX_NAN = r"\n  fix: a smaller optim\.lr, a longer optim\.warmup_steps, or optim\.clip=1 where it is 0"

# (kind, ranks): code under run.sh, message. The fault is rank ranks // 2's, in step 2.
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
    ("nan", 1): (
        70,
        r"step 2: the gradient is not finite, first seen in unit 3; it came from rank 0's own micro-batches"
        + FIX_NAN,
    ),
    ("nan", 2): (
        70,
        r"step 2: the gradient is not finite, first seen in unit 3; it came from rank 1's own micro-batches"
        + FIX_NAN,
    ),
}


class InjectedFaults(support.ProcessTest):
    @classmethod
    def setUpClass(cls):
        cls.boards = support.stale_boards()
        cls.outs = {
            (kind, ranks, how): support.new_path("out")
            for kind, ranks in EXPECTED
            for how in ("run.sh", "mpirun")
            if how == "run.sh" or ranks == 1 and (kind in ("kill", "nan") or support.all_settings())
        }
        cls.ended = support.side_by_side({case: cls.job(*case, out) for case, out in cls.outs.items()})

    @staticmethod
    def job(kind, ranks, how, out):
        flags = ["--out", out, "--watchdog", "2", "--inject", f"{kind}@{ranks // 2},2"]
        if how == "run.sh":
            return lambda: support.execute(support.run_sh("01_data_parallel", ranks, *flags))
        return lambda: support.run("01_data_parallel", ranks, *flags)

    def check(self, kind):
        for case, ended in self.ended.items():
            if case[0] != kind:
                continue
            with self.subTest(case=case):
                code, message = EXPECTED[case[:2]]
                if case == ("kill", 1, "mpirun"):  # nobody is left to speak, and the code is mpirun's
                    self.assertEqual((ended.code, ended.errors), (137, []), ended)
                else:
                    self.expect_one_error(ended, code, re.compile(message))
                if case[:2] != ("kill", 1):
                    self.assertEqual(
                        re.findall(r"\nrecord: (.*)\n", ended.out), [self.outs[case] + "/record.json"], ended
                    )
                self.expect_nothing_left(self.outs[case], self.boards)

    def test_hang(self):
        self.check("hang")

    def test_kill(self):
        self.check("kill")

    def test_throw(self):
        self.check("throw")

    def test_nan(self):
        self.check("nan")

    def test_steps_before_the_fault_are_kept(self):
        for case, out in self.outs.items():
            with self.subTest(case=case), open(out + "/steps.jsonl", encoding="utf-8") as file:
                self.assertEqual(len(file.readlines()), 2)

    def test_the_record_says_how_the_run_ended(self):
        for (kind, ranks, how), out in self.outs.items():
            with self.subTest(kind=kind, ranks=ranks, how=how), open(
                out + "/record.json", encoding="utf-8"
            ) as file:
                record = json.load(file)
                steps = len(record["steps"].get("loss", []))
                if ranks == 1:
                    self.assertEqual(steps, 0 if kind == "kill" else 2)
                else:  # the rank that speaks may be a step's line ahead of the one that writes them
                    self.assertIn(steps, (1, 2))
                if (kind, ranks) == ("kill", 1):
                    self.assertEqual(
                        (record["exit_code"], record["message"]), (None, ""), "nobody was left to write"
                    )
                    continue
                code, message = EXPECTED[kind, ranks]
                self.assertEqual(record["exit_code"], code)
                self.assertGreater(record["seconds"], 0)
                self.assertGreaterEqual(record["seconds"], sum(record["steps"]["seconds"]))
                # run.sh adds what it knows of a killed rank; the record has what the rank said that is left
                self.assertRegex(record["message"], r"\A" + message.split(r"\n  killed")[0] + r"\Z")


class Skipping(support.ProcessTest):
    def test_a_skipped_update_is_said_and_counted(self):
        out = support.new_path("out")
        ended = support.run(
            "01_data_parallel", 2, "--out", out, "--inject", "nan@1,2", "--set", "optim.nonfinite=skip"
        )
        self.assertEqual((ended.code, ended.err), (0, ""), ended)
        self.assertIn("\nstep 2: the gradient is not finite; its update is skipped\n", ended.out)
        self.assertIn("1 updates skipped: their gradient was not finite\n", ended.out)
        with open(out + "/record.json", encoding="utf-8") as file:
            record = json.load(file)
        self.assertEqual((record["skipped_updates"], record["exit_code"]), (1, 0))
        self.assertEqual([loss is None for loss in record["steps"]["loss"]], [False, False, False, False])
        self.assertEqual([norm is None for norm in record["steps"]["grad_norm"]], [False, False, True, False])


def setUpModule():
    """What takes half a minute of waiting begins before the others."""
    alone = [
        support.program("01_data_parallel"),
        *support.files_of("01_data_parallel"),
        "--out",
        support.new_path("out"),
    ]
    Start.job = support.start(support.mpirun(1) + alone + [":", "-n", "1", "sleep", "90"])
    unittest.addModuleCleanup(lambda: Start.job.poll() is None and os.killpg(Start.job.pid, signal.SIGKILL))


class Start(support.ProcessTest):
    def test_ranks_that_never_meet(self):
        self.expect_one_error(
            support.end(self.job),
            75,
            re.compile(r"rank 0: the 2 ranks did not start together within 30 s\n  fix: start again; .*"),
        )


class FullDisk(support.ProcessTest):
    """A limit on the size of a file stands for a disk that is full: the write fails at the same byte, with EFBIG."""

    FIX = r"\n  fix: raise the limit of a file's size \(ulimit -f unlimited\), or use another file system"

    @staticmethod
    def limited(size):
        return [
            "env",
            "--ignore-signal=XFSZ",
            "prlimit",
            f"--fsize={size}",
            support.program("01_data_parallel"),
        ]

    def test_of_the_steps(self):
        out, boards = support.new_path("out"), support.stale_boards()
        flags = support.files_of("01_data_parallel") + ["--steps", "100", "--out", out]
        message = lambda out: re.compile(
            re.escape(out)
            + r"/steps\.jsonl: cannot write \d+ bytes at byte 5000: File too large \(EFBIG\)"
            + self.FIX
        )
        self.expect_one_error(support.execute(self.limited(5000) + flags), 73, message(out))
        # Three ranks: the first one cannot write; Open MPI's shared memory would not fit into the limit either.
        flags[-1] = out = support.new_path("out")
        three = (
            support.mpirun(1)
            + self.limited(5000)
            + flags
            + [":", "-n", "2", support.program("01_data_parallel")]
            + flags
        )
        self.expect_one_error(
            support.execute(three, support.environment(OMPI_MCA_btl="tcp,self")), 73, message(out)
        )
        self.expect_nothing_left(out, boards)

    def test_of_the_record_and_the_weights(self):
        for limit, flags, name, left in (
            (500, [], "record.json", []),
            (3000, [], "record.json", ["record.json", "steps.jsonl"]),
            (20000, ["--save", support.new_path("w")], "w-", ["record.json", "steps.jsonl"]),
        ):
            with self.subTest(file=name):
                out = support.new_path("out")
                flags = support.files_of("01_data_parallel") + flags + ["--steps", "2", "--out", out]
                self.expect_one_error(
                    support.execute(self.limited(limit) + flags),
                    73,
                    re.compile(
                        rf".*/\.{name}.*: cannot write \d+ bytes at byte {limit}: File too large \(EFBIG\)"
                        + self.FIX
                    ),
                )
                self.assertEqual(sorted(os.listdir(out)), left, "nothing unfinished is left")
                if limit == 20000:  # there was room for the record
                    with open(out + "/record.json", encoding="utf-8") as file:
                        self.assertEqual(json.load(file)["exit_code"], 73)
                self.assertEqual(
                    [
                        file
                        for file in os.listdir(support.scratch)
                        if ".tmp-" in file or file.startswith("w-")
                    ],
                    [],
                )


class SlowDisk(support.ProcessTest):
    """What a disk takes for its calls is longer than --watchdog in all, or each is."""

    def job(self, lesson, ranks, slow, *flags):
        env = support.environment(LD_PRELOAD=support.program("tests/slow_disk.so"), SLOW_DISK=slow)
        env["ASAN_OPTIONS"] += ":verify_asan_link_order=0"
        return support.run(
            lesson, ranks, "--watchdog", "1", "--out", support.new_path("out"), *flags, env=env
        )

    def test_one_that_goes_on_is_waited_for(self):
        for lesson in support.chosen(("01_data_parallel", "04_zero3"), "04_zero3"):
            with self.subTest(lesson=lesson):
                weights = support.new_path("w")
                ended = self.job(
                    lesson, 2, f"{os.path.basename(weights)} pwrite 100", "--steps", "2", "--save", weights
                )
                self.assertEqual((ended.code, ended.err), (0, ""), ended)
                self.assertTrue(os.path.exists(weights))

    def test_one_that_does_not_answer_is_named(self):
        for ranks, flag in ((2, "--save"), (2, "--checkpoints"), (0, "--save")):
            with self.subTest(ranks=ranks, flag=flag):
                path = support.new_path("w")
                flags = (
                    ["--steps", "9000", "--save-every", "2"] if flag == "--checkpoints" else ["--steps", "2"]
                )
                ended = self.job(
                    "01_data_parallel", ranks, f"{os.path.basename(path)} fsync 60000", *flags, flag, path
                )
                self.assertEqual(ended.code, 75, ended)
                self.assertRegex(
                    ended.err,
                    rf"rank \d\b.*\bwrites \S*{os.path.basename(path)}.*\n(.*\n)?  fix: see whether the disk still answers",
                )


if __name__ == "__main__":
    support.main()
