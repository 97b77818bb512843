"""Lessons 01-04 on GPUs, NCCL between them, deterministic operations: with a captured graph and without, and whatever a rank holds,
they end in the same bytes. One rank on one GPU; two on two or more. Skipped (77) without a GPU."""

import filecmp
import itertools
import os
import subprocess
import sys
import unittest

import support

STEPS = ["--steps", "8"]  # the third is captured, five are replays; evaluation and the file of weights follow them
# Attention by cuDNN, 16 bits beside a master, units that no number of ranks divides.
MODEL = ["model.width=128", "model.context=128", "batch.sequence=128", "precision.dtype=bf16", "data.validation_fraction=0.2"]


def gpus():
    try:
        said = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):
        return 0
    return len(said.splitlines())


RANKS = max(1, min(2, gpus()))
ONE, THREE = ["batch.global=12", f"batch.micro={12 // RANKS}"], ["batch.global=12", "batch.micro=2"]  # one micro-batch a rank; several
# Those of a list add up gradients in the same order.
EQUAL = {
    "one micro-batch": [("01_data_parallel", ONE), ("01_data_parallel", ["bucket=5000", *ONE]), ("02_zero1", ONE), ("02_zero1", ["overlap=off", *ONE]),
                        ("03_zero2", ONE), ("03_zero2", ["bucket=50000", *ONE]), ("04_zero3", ONE), ("04_zero3", ["prefetch=0", *ONE]),
                        ("04_zero3", ["prefetch=2", "persist_below=1000", *ONE]), ("04_zero3", ["activations=recompute", *ONE])],
    "summed once": [("01_data_parallel", THREE), ("02_zero1", THREE), ("03_zero2", ["accumulate=full", *THREE])],
    "summed each time": [("03_zero2", THREE), ("04_zero3", THREE), ("04_zero3", ["reshard_after_forward=off", *THREE])],
}


class OnGpus(support.ProcessTest):
    @classmethod
    def setUpClass(cls):
        cls.runs, jobs = {}, {}
        for order, rows in EQUAL.items():
            for lesson, settings in rows:
                for graph in ("on", "off"):
                    run = support.Run(lesson, RANKS, " ".join([*MODEL, *settings]), "--device", "cuda", "--ops", "deterministic", "--graph", graph,
                                      "--threads", "1", *STEPS)
                    cls.runs[order, lesson, " ".join(settings), graph] = run
                    jobs[order, lesson, " ".join(settings), graph] = run.job
        cls.ended = support.side_by_side(jobs, at_once=4)

    def test_all_end_well_and_as_predicted(self):
        for name, ended in self.ended.items():
            with self.subTest(name=name):
                self.assertEqual((ended.code, ended.errors), (0, []), ended)
                self.assertTrue(self.runs[name].record()["as_predicted"])
                self.assertEqual(self.runs[name].record()["device"], "cuda")

    def test_files_losses_and_evaluations_are_equal(self):
        first = {}
        for name, run in self.runs.items():
            with self.subTest(name=name):
                reference = first.setdefault(name[0], run)
                self.assertTrue(filecmp.cmp(run.weights, reference.weights, shallow=False))
                self.assertEqual([loss for loss, _ in run.losses()], [loss for loss, _ in reference.losses()])
                self.assertEqual(run.record()["validation_loss"], reference.record()["validation_loss"])

    def test_another_order_is_another_file(self):
        files = [next(run.weights for name, run in self.runs.items() if name[0] == order) for order in EQUAL]
        for a, b in itertools.combinations(files, 2):
            self.assertFalse(filecmp.cmp(a, b, shallow=False), "the comparison could not fail")

    # Where data parallelism does not fit: lesson 01 is refused, lesson 04 trains below the cap.
    @unittest.skipIf(gpus() < 2, "one GPU: nothing is sharded")
    def test_a_cap_that_stops_01_lets_04_run(self):
        settings = [part for s in [*MODEL, *ONE, "model.layers=8"] for part in ("--set", s)]
        flags = [*settings, "--device", "cuda", "--steps", "4", "--threads", "1"]
        peak = {}
        for lesson in ("01_data_parallel", "04_zero3"):
            ended = support.run(lesson, 2, *flags, "--out", (out := support.new_path("out")))
            self.assertEqual((ended.code, ended.errors), (0, []), ended)
            peak[lesson] = max(rank["measured_bytes"]["total"] for rank in support.record(out)["ranks"])
        self.assertLess(peak["04_zero3"], peak["01_data_parallel"])
        cap = str((peak["01_data_parallel"] + peak["04_zero3"]) // 2)
        fits = support.run("04_zero3", 2, *flags, "--memory-cap", cap, "--out", support.new_path("out"))
        self.assertEqual((fits.code, fits.errors), (0, []), fits)
        stopped = support.run("01_data_parallel", 2, *flags, "--memory-cap", cap, "--out", support.new_path("out"))
        self.assertEqual(stopped.code, 69, stopped)
        self.assertRegex(stopped.errors[0], r"ZeRO-\d \(lesson 0\d\) -n 2")

    # 12 d^2 elements a block: more than any GPU has.
    def test_what_is_beyond_the_gpu_is_refused_before_it_allocates(self):
        for lesson in ("01_data_parallel", "04_zero3"):
            ended = support.run(lesson, RANKS, *(part for s in ("model.layers=1024", "model.width=65536", "model.heads=512", "batch.sequence=64") for part in ("--set", s)),
                                "--device", "cuda", "--steps", "2", "--out", (out := support.new_path("out")))
            self.assertEqual(ended.code, 69, ended)
            self.assertRegex(ended.errors[0], r"[\d.]+ GB free on GPU \d: a rank would hold [\d.]+ TB, [\d.]+ TB more than that\n")
            self.assertFalse(os.path.exists(out))

    def test_they_learn(self):
        for name, run in self.runs.items():
            values = [loss for loss, _ in run.losses()]
            self.assertLess(values[-1], values[0] - 0.1, name)


if __name__ == "__main__":
    if gpus() == 0:
        print("skipped: no GPU (nvidia-smi)")
        sys.exit(77)
    support.main()
