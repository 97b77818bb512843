#!/usr/bin/env python3
"""comm_sweep.py's fit, with times made of a known latency and bandwidth; its program on two ranks, and the
record of that.

  tests/benchmarks/comm_sweep_test.py build/cpu/bin/tests/comm_sweep
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import comm_sweep

PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
KINDS = {"all_reduce": (6, 1.5), "reduce_scatter": (3, 0.75), "all_gather": (3, 0.75)}  # terms of 4 ranks
SIZES = [1 << power for power in range(10, 31)]


def times(kind, ranks, latency, bandwidth, noise=lambda at: 1.0):
    messages, factor = comm_sweep.terms(kind, ranks)
    return [
        {"bytes": n, "seconds_median": (messages * latency + factor * n / bandwidth) * noise(at)}
        for at, n in enumerate(SIZES)
    ]


class Fit(unittest.TestCase):
    def near(self, found, latency, bandwidth, digits):
        self.assertAlmostEqual(found["latency_s"] / latency, 1, digits)
        self.assertAlmostEqual(found["bytes_per_s"] / bandwidth, 1, digits)

    def test_finds_what_the_times_are_made_of(self):
        for kind, terms_of_4 in KINDS.items():  # an all-reduce sends everything twice
            self.assertEqual(comm_sweep.terms(kind, 4), terms_of_4)
            for ranks in (2, 3, 4):
                found = comm_sweep.fit(kind, ranks, times(kind, ranks, 7e-6, 150e9))
                self.near(found, 7e-6, 150e9, 3)
                self.assertEqual(set(found["relative_error"].values()), {0.0})

    def test_errors_are_relative(self):
        # If one size in the middle is 30 % slower, latency and bandwidth may each move by only a few percent.
        slower = times("all_gather", 2, 7e-6, 150e9, lambda at: 1.3 if at == 10 else 1.0)
        found = comm_sweep.fit("all_gather", 2, slower)
        self.near(found, 7e-6, 150e9, 1)
        self.assertLess(found["relative_error"]["lowest"], -0.15)

    def test_nothing_negative(self):
        for key, expected, seconds in (
            ("latency_s", 0.0, lambda at, n: (n / 1e9) ** 1.2),  # a line through it would start below 0
            ("bytes_per_s", None, lambda at, n: 1e-5 / (at + 1)),
        ):
            sizes = [{"bytes": n, "seconds_median": seconds(at, n)} for at, n in enumerate(SIZES)]
            self.assertEqual(comm_sweep.fit("all_gather", 2, sizes)[key], expected)


def start(*words):
    return subprocess.run(
        [str(word) for word in words],
        env={**os.environ, **comm_sweep.ENVIRONMENT},
        capture_output=True,
        text=True,
        check=False,
    )


class Program(unittest.TestCase):
    def test_every_kind_and_size_on_two_ranks(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "record.json"
            script = pathlib.Path(comm_sweep.__file__)
            small = ("--program", PROGRAM, "--rounds", "2", "--max-bytes", "8192", "--out", out)
            for dtype in ("f32", "bf16"):
                done = start(sys.executable, script, *small, "--dtype", dtype)
                self.assertEqual(done.returncode, 0, done.stderr)
                record = json.loads(out.read_text())
                self.assertEqual(json.loads(comm_sweep.text(record)), record)  # it keeps everything
                said = (record["ranks"], record["dtype"], record["link"])
                self.assertEqual(said, (2, dtype, "memory of one host"))
                self.assertEqual([one["kind"] for one in record["operations"]], list(KINDS))
                for operation in record["operations"]:
                    sizes = operation["sizes"]
                    self.assertEqual([size["bytes"] for size in sizes], [1024, 2048, 4096, 8192])
                    self.assertIn("latency_s", operation["fit"])
                    for size in sizes:
                        ordered = [size[f"seconds_{at}"] for at in ("p10", "median", "p90")]
                        self.assertTrue(0 < ordered[0] and ordered == sorted(ordered), ordered)

    def test_refuses_what_it_cannot_measure(self):
        for words, said in (
            (["--rounds", "1"], "at least two ranks"),
            (["--dtype", "f64"], "neither f32 nor bf16"),
            (["--device", "tpu"], "neither cpu nor cuda"),
            (["--max-bytes", "10"], "1 <= min <= max"),
        ):
            done = start(PROGRAM, *words)
            self.assertEqual(done.returncode, 64, done.stderr)
            self.assertIn(said, done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=0)
