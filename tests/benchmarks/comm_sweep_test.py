#!/usr/bin/env python3
"""comm_sweep.py's fit, with times made of a known latency and bandwidth; its program on two ranks, and the record of that.

  tests/benchmarks/comm_sweep_test.py build/cpu/bin/tests/comm_sweep
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import comm_sweep  # noqa: E402

PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
SIZES = [1 << power for power in range(10, 31)]


def times(kind, ranks, latency, bandwidth, noise=lambda at: 1.0):
    messages, factor = comm_sweep.terms(kind, ranks)
    return [
        {"bytes": n, "seconds_median": (messages * latency + factor * n / bandwidth) * noise(at)}
        for at, n in enumerate(SIZES)
    ]


class Fit(unittest.TestCase):
    def test_finds_what_the_times_are_made_of(self):
        for kind in ("all_reduce", "reduce_scatter", "all_gather"):
            for ranks in (2, 3, 4):
                found = comm_sweep.fit(kind, ranks, times(kind, ranks, 7e-6, 150e9))
                self.assertAlmostEqual(found["latency_s"] / 7e-6, 1, 3)
                self.assertAlmostEqual(found["bytes_per_s"] / 150e9, 1, 3)
                self.assertEqual(
                    found["relative_error"], {"lowest": 0.0, "highest": 0.0, "root_mean_square": 0.0}
                )

    def test_an_all_reduce_sends_everything_twice(self):
        self.assertEqual(comm_sweep.terms("all_reduce", 4), (6, 1.5))
        self.assertEqual(comm_sweep.terms("reduce_scatter", 4), (3, 0.75))
        self.assertEqual(comm_sweep.terms("all_gather", 4), (3, 0.75))

    def test_errors_are_relative(self):
        # One size in the middle 30 % slower: neither end may move by more than a few percent.
        found = comm_sweep.fit(
            "all_gather", 2, times("all_gather", 2, 7e-6, 150e9, lambda at: 1.3 if at == 10 else 1.0)
        )
        self.assertAlmostEqual(found["latency_s"] / 7e-6, 1, 1)
        self.assertAlmostEqual(found["bytes_per_s"] / 150e9, 1, 1)
        self.assertLess(found["relative_error"]["lowest"], -0.15)

    def test_nothing_negative(self):
        sizes = [
            {"bytes": n, "seconds_median": (n / 1e9) ** 1.2} for n in SIZES
        ]  # a line through it would start below 0
        self.assertEqual(comm_sweep.fit("all_gather", 2, sizes)["latency_s"], 0.0)
        sizes = [{"bytes": n, "seconds_median": 1e-5 / (at + 1)} for at, n in enumerate(SIZES)]
        self.assertIsNone(comm_sweep.fit("all_gather", 2, sizes)["bytes_per_s"])

    def test_the_record_is_json_and_keeps_everything(self):
        sizes = times("all_reduce", 2, 1e-5, 1e9)
        record = {
            "ranks": 2,
            "link": "NV18",
            "operations": [
                {"kind": "all_reduce", "fit": comm_sweep.fit("all_reduce", 2, sizes), "sizes": sizes}
            ],
        }
        self.assertEqual(json.loads(comm_sweep.text(record)), record)


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
            for dtype in ("f32", "bf16"):
                done = start(
                    sys.executable,
                    script,
                    "--program",
                    PROGRAM,
                    "--rounds",
                    "2",
                    "--max-bytes",
                    "8192",
                    "--dtype",
                    dtype,
                    "--out",
                    out,
                )
                self.assertEqual(done.returncode, 0, done.stderr)
                record = json.loads(out.read_text())
                self.assertEqual(
                    (record["ranks"], record["dtype"], record["link"]), (2, dtype, "memory of one host")
                )
                self.assertEqual(
                    [o["kind"] for o in record["operations"]], ["all_reduce", "reduce_scatter", "all_gather"]
                )
                for operation in record["operations"]:
                    self.assertEqual([size["bytes"] for size in operation["sizes"]], [1024, 2048, 4096, 8192])
                    self.assertTrue(
                        all(
                            0 < size["seconds_p10"] <= size["seconds_median"] <= size["seconds_p90"]
                            for size in operation["sizes"]
                        )
                    )
                    self.assertIn("latency_s", operation["fit"])

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
