"""What a run shows: three lines where few were asked for, bars and one sentence else, no escape codes in a file; and that text which nobody
asked for changes no bit of a run."""
import filecmp
import json
import os
import pty
import re
import subprocess
import unittest

import support

LESSON = "01_data_parallel"
STEPS = ("--steps", "5")


class Lines(support.ProcessTest):
    def said(self, lesson, ranks, *flags):
        ended = support.run(lesson, ranks, *flags)
        self.assertEqual((ended.code, ended.err), (0, ""), ended)
        return ended.out

    def test_brief_is_three_lines(self):
        out = support.new_path("out")
        lines = self.said(LESSON, 2, *STEPS, "--brief", "--out", out).splitlines()
        self.assertEqual(len(lines), 3, lines)
        self.assertIn(f'{support.record(out)["ranks"][0]["measured_bytes"]["total"]:,}', lines[0])
        self.assertEqual(
            len(
                self.said(
                    "07_pipeline", 0, "--plan", "--world", "2", "--brief", "--set", "batch.micro=3"
                ).splitlines()
            ),
            3,
        )
        started = support.execute(
            support.run_sh(LESSON, 2, *STEPS, "--brief", "--out", support.new_path("out"))
        )
        self.assertEqual((started.code, len(started.out.splitlines())), (0, 3), started)

    def test_a_plan_says_everywhere_what_a_run_would_refuse(self):
        plan = ("07_pipeline", 0, "--plan", "--world", "4", "--set", "replicas=2")
        rounded = "12 / (5 x 2) = 1.2, rounded up to 2; a real run of 4 ranks would refuse this batch"
        uneven, even = ("--set", "batch.micro=5"), ("--set", "batch.micro=6")
        for how in ((), ("--brief",)):
            self.assertRegex(self.said(*plan, *uneven, *how), rf"\n  note: .*{re.escape(rounded)}\n")
        self.assertIn(rounded, json.loads(self.said(*plan, *uneven, "--json"))["notes"][0])
        self.assertNotIn("notes", json.loads(self.said(*plan, *even, "--json")))

    def test_what_never_begins_is_said(self):
        out = support.new_path("out")
        said = self.said(
            LESSON,
            2,
            *STEPS,
            "--save-every",
            "6",
            "--checkpoints",
            support.new_path("none"),
            "--eval-every",
            "5",
            "--set",
            "verify_replicas=6",
            "--set",
            "optim.warmup_steps=10",
            "--out",
            out,
        )
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

    # As of two hosts with unlike processors: told before the first step. The copies of lesson 01 may or may not end alike.
    def test_ranks_that_add_in_different_orders_are_named(self):
        one = [support.program(LESSON), *support.files_of(LESSON), *STEPS, "--out", support.new_path("out")]
        said = support.execute(
            [*support.mpirun(1), *one, ":", "-n", "1", "env", "ATEN_CPU_CAPABILITY=default", *one]
        ).out
        self.assertRegex(
            said,
            r"ranks add in different orders: .*\n  rank 0: CPU (AVX\S+), threads 1 on \S+\n  rank 1: CPU (DEFAULT|NO AVX), threads 1 on \S+\n  fix: .*ATEN_CPU_CAPABILITY",
        )
        self.assertLess(said.index("ranks add in"), said.index("TRAINING"))
        self.assertNotIn(
            "ranks add in", self.said(LESSON, 2, "--steps", "2", "--out", support.new_path("out"))
        )

    def test_brief_beside_what_is_longer_is_refused(self):
        for other in (("--verbose",), ("--plan", "--json")):
            self.expect_one_error(
                support.run(LESSON, 0, "--brief", *other),
                64,
                re.compile(rf"--brief: {other[-1]} prints more.*\n  fix: .*"),
            )

    def test_checks_of_replicas_are_counted(self):
        for lesson, ranks, settings in ((LESSON, 2, ()), ("07_pipeline", 2, ("--set", "batch.micro=3"))):
            said = self.said(
                lesson,
                ranks,
                *STEPS,
                "--set",
                "verify_replicas=2",
                *settings,
                "--out",
                support.new_path("out"),
            )
            self.assertRegex(said, r"replicas equal bit for bit +2 checks\n")
        self.assertNotIn(
            "replicas equal",
            self.said(LESSON, 2, *STEPS, "--set", "verify_replicas=0", "--out", support.new_path("out")),
        )

    def test_no_escape_codes_in_a_file(self):
        """mpirun gives each rank a terminal."""
        out = support.new_path("out") + "\x1b[31m"  # nor of names that were given
        ended = support.run(
            LESSON,
            2,
            *STEPS,
            "--out",
            out,
            "--trace",
            "--save-every",
            "1",
            "--checkpoints",
            out + "-ck",
            env=support.environment(TERM="xterm", LC_ALL="C.UTF-8"),
        )
        self.assertEqual(ended.code, 0, ended)
        self.assertNotIn("\x1b", ended.out + ended.err)
        self.assertTrue(ended.out.isascii(), ended)

    def test_the_next_command_runs(self):
        said = self.said(LESSON, 2, *STEPS, "--out", support.new_path("out"))
        words = re.search(r"\nNEXT  .*: lessons/(\w+)/run\.sh -n 2 (.*)\n", said)
        flags = words[2].split()
        ended = support.run(words[1], 2, *flags[flags.index("--set") :], "--out", support.new_path("out"))
        self.assertEqual(ended.code, 0, ended)
        self.assertIn("compared with ", ended.out)


class Unasked(support.ProcessTest):
    """The text at the end of a run."""

    def test_no_bit_of_the_run_depends_on_it(self):
        late, last = ("05_offload", 2, "update=delayed"), (
            "08_weight_versions",
            2,
            "batch.micro=3 model.tied=off",
        )
        runs = (
            (LESSON, 2, ""),
            ("04_zero3", 2, ""),
            late,
            ("07_pipeline", 2, "batch.micro=3"),
            last,
            ("10_tensor_parallel", 2, "batch.micro=3"),
        )
        for lesson, ranks, settings in support.chosen(runs, late, last):
            with self.subTest(lesson=lesson):
                runs = [
                    support.Run(lesson, ranks, settings, *STEPS, *more) for more in ((), ("--sample", "0"))
                ]
                texts = [run.job().out for run in runs]
                self.assertEqual(["it writes: " in text for text in texts], [True, False], texts)
                self.assertEqual(runs[0].losses(), runs[1].losses())
                self.assertTrue(filecmp.cmp(runs[0].weights, runs[1].weights, shallow=False))
                records = [run.record() for run in runs]
                for key in ("ranks", "as_predicted", "validation_loss"):
                    self.assertEqual(records[0][key], records[1][key])

    def test_not_where_nothing_can_be_said(self):
        for flags in (
            ("--set", "data.validation_fraction=0"),
            ("--memory-cap", "1GB"),
            ("--verbose",),
            ("--steps", "0"),
        ):
            ended = support.run(
                LESSON,
                0,
                *(STEPS if "--steps" not in flags else ()),
                *flags,
                "--out",
                support.new_path("out"),
            )
            self.assertEqual(ended.code, 0, ended)
            self.assertNotIn("it writes: ", ended.out)


class Terminal(unittest.TestCase):
    def shown(self, **variables):
        """On a terminal of 24 lines."""
        main, end = pty.openpty()
        command = [
            support.program(LESSON),
            *support.files_of(LESSON),
            *STEPS,
            "--out",
            support.new_path("out"),
        ]
        env = {**support.environment(), "TERM": "xterm", **variables}
        with subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=end, stderr=end, cwd=support.scratch
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
