"""What a run shows: three lines where few were asked for, bars and one sentence else, no escape codes in a
file; and that text which nobody asked for changes no bit of a run."""
import json
import os
import pty
import re
import subprocess
import unittest

import support
from support import Run, once

LESSON = "01_data_parallel"
STEPS = "--steps 5"


class Lines(support.ProcessTest):
    def said(self, lesson, ranks, text, **more):
        return self.expect_well(Run(lesson, ranks, text, **more)).ended.out

    def test_brief_is_three_lines(self):
        job = Run(LESSON, 2, f"{STEPS} --brief", sh=True)
        lines = self.expect_well(job).ended.out.splitlines()
        self.assertIn(f'{job.record()["ranks"][0]["measured_bytes"]["total"]:,}', lines[0])
        plan = self.said("07_pipeline", 0, "batch.micro=3 --plan --world 2 --brief").splitlines()
        self.assertEqual((len(lines), len(plan)), (3, 3), lines + plan)

    def test_a_plan_says_everywhere_what_a_run_would_refuse(self):
        plan = lambda micro, how="": self.said(
            "07_pipeline", 0, f"replicas=2 batch.micro={micro} --plan --world 4 {how}"
        )
        rounded = "12 / (5 x 2) = 1.2, rounded up to 2; a real run of 4 ranks would refuse this batch"
        for how in ("", "--brief"):
            self.assertRegex(plan(5, how), rf"\n  note: .*{re.escape(rounded)}\n")
        self.assertIn(rounded, json.loads(plan(5, "--json"))["notes"][0])
        self.assertNotIn("notes", json.loads(plan(6, "--json")))

    def test_what_never_begins_is_said(self):
        keys = "verify_replicas=6 optim.warmup_steps=10"
        said = self.said(LESSON, 2, f"{keys} {STEPS} --save-every 6 --eval-every 5")
        notes = [line for line in said.splitlines() if line.startswith("  note  ")]
        self.assertEqual(
            notes,
            [
                "  note     --save-every 6: the run ends after step 5, without a checkpoint",
                "  note     verify_replicas=6: the run ends after step 5, and compares none",
                "  note     optim.warmup_steps=10: the run ends after 5 of them, at 50 % of optim.lr",
            ],
        )
        self.assertNotIn("a checkpoint every", said)

    # A test variable stands for two hosts with different processors: the difference is reported before the
    # first step. Copies of lesson 01 may or may not end with equal bits.
    def test_ranks_that_add_in_different_orders_are_named(self):
        one = Run(LESSON, 0, STEPS).line
        said = support.execute(
            [*support.mpirun(1), *one, ":", "-n", "1", "env", "ATEN_CPU_CAPABILITY=default", *one]
        ).out
        self.assertRegex(
            said,
            r"ranks add in different orders: .*\n  rank 0: CPU (AVX\S+), threads 1 on \S+\n  rank 1: CPU "
            r"(DEFAULT|NO AVX), threads 1 on \S+\n  fix: .*ATEN_CPU_CAPABILITY",
        )
        self.assertLess(said.index("ranks add in"), said.index("TRAINING"))
        self.assertNotIn("ranks add in", self.expect_well(once(LESSON, 2, STEPS)).ended.out)

    def test_brief_beside_what_is_longer_is_refused(self):
        self.expect_ends(
            {
                f"--brief {text}": (64, re.compile(rf"--brief: {text.split()[-1]} prints more.*\n  fix: .*"))
                for text in ("--verbose", "--plan --json")
            },
            LESSON,
            0,
        )

    def test_checks_of_replicas_are_counted(self):
        for lesson, settings in ((LESSON, ""), ("07_pipeline", "batch.micro=3")):
            said = self.said(lesson, 2, f"verify_replicas=2 {settings} {STEPS}")
            self.assertRegex(said, r"replicas equal bit for bit +2 checks\n")
        self.assertNotIn("replicas equal", self.said(LESSON, 2, f"verify_replicas=0 {STEPS}"))

    def test_no_escape_codes_in_a_file(self):
        """mpirun gives each rank a terminal."""
        out = support.new_path("out") + "\x1b[31m"  # nor of names that were given
        env = support.environment(TERM="xterm", LC_ALL="C.UTF-8")
        text = f"{STEPS} --trace --save-every 1"
        ended = Run(LESSON, 2, text, "--out", out, checkpoints=out + "-ck", env=env).ended
        self.assertEqual(ended.code, 0, ended)
        self.assertNotIn("\x1b", ended.said)
        self.assertTrue(ended.out.isascii(), ended)

    def test_the_next_command_runs(self):
        said = self.expect_well(once(LESSON, 2, STEPS)).ended.out
        words = re.search(r"\nNEXT  .*: lessons/(\w+)/run\.sh -n 2 (.*)\n", said)
        flags = words[2].split()
        ended = support.run(words[1], 2, "", *flags[flags.index("--set") :])
        self.assertEqual(ended.code, 0, ended)
        self.assertIn("compared with ", ended.out)


class Unasked(support.ProcessTest):
    """The text at the end of a run."""

    def test_no_bit_of_the_run_depends_on_it(self):
        late = ("05_offload", "update=delayed")
        last = ("08_weight_versions", "batch.micro=3 model.tied=off")
        runs = (
            (LESSON, ""),
            ("04_zero3", ""),
            late,
            ("07_pipeline", "batch.micro=3"),
            last,
            ("10_tensor_parallel", "batch.micro=3"),
        )
        for lesson, settings in support.chosen(runs, late, last):
            with self.subTest(lesson=lesson):
                one, other = (Run(lesson, 2, f"{settings} {STEPS} {more}") for more in ("", "--sample 0"))
                support.together([one, other])
                self.assertEqual(["it writes: " in job.ended.out for job in (one, other)], [True, False])
                self.expect_same(one, other)
                record = other.record()
                same = {key: record[key] for key in ("ranks", "as_predicted", "validation_loss")}
                self.expect_record(one, **same)

    def test_not_where_nothing_can_be_said(self):
        for text in (
            f"data.validation_fraction=0 {STEPS}",
            f"{STEPS} --memory-cap 1GB",
            f"{STEPS} --verbose",
            "--steps 0",
        ):
            ended = support.run(LESSON, 0, text)
            self.assertEqual(ended.code, 0, ended)
            self.assertNotIn("it writes: ", ended.out)


class Terminal(unittest.TestCase):
    def shown(self, **variables):
        """On a terminal of 24 lines."""
        main, end = pty.openpty()
        line = Run(LESSON, 0, STEPS).line
        env = support.environment(**{"TERM": "xterm", **variables})
        with subprocess.Popen(
            line, env=env, stdin=subprocess.DEVNULL, stdout=end, stderr=end, cwd=support.scratch
        ) as process:
            os.close(end)
            text = b""
            while True:
                try:
                    part = os.read(main, 65536)
                except OSError:
                    break  # the other end is closed
                if not part:
                    break
                text += part
            self.assertEqual(process.wait(), 0, text)
        os.close(main)
        return text

    def test_colours_and_blocks_where_they_are_wanted(self):
        plain = {"LC_ALL": "C", "NO_COLOR": "1"}
        for variables, colour, blocks in (
            (plain, False, False),
            ({"LC_ALL": "C"}, True, False),
            ({"LC_ALL": "C.UTF-8", "NO_COLOR": "1"}, False, True),
        ):
            text = self.shown(**variables)
            self.assertEqual((b"\x1b" in text, "\u2588".encode() in text), (colour, blocks), text)
            self.assertRegex(text, rb"\r  5/5 \[")
        with self.assertRaises(UnicodeDecodeError):
            self.shown(LC_ALL="C.UTF-8").decode("ascii")


if __name__ == "__main__":
    support.main()
