"""Lesson 07 on GPUs, deterministic operations: every schedule, and two replicas of one stage, end in the bytes of lesson 00 in the same order of
sums; with --trace a run says what its step took. On two GPUs with one graph per step or none; on one GPU that two ranks share, whose messages
go through the host's memory. Skipped (77) without a GPU."""

import filecmp
import unittest

import support

SETTINGS = "model.width=128 model.context=128 batch.sequence=128 precision.dtype=bf16 data.validation_fraction=0.2 model.layers=8 batch.micro=2"
FLAGS = ["--device", "cuda", "--ops", "deterministic", "--threads", "1", "--steps", "8"]
SCHEDULES = [
    *(f"schedule={schedule}" for schedule in ("naive", "gpipe", "1f1b", "interleaved", "zb_h1")),
    "warmup=1",
]
REPLICAS = ["replicas=2", "replicas=2 states=sharded"]


class OnGpus:
    ROWS: list  # settings, flags
    COMM: str
    ENV = None

    @classmethod
    def setUpClass(cls):
        orders = {"stages": ["--tied-sum", "split"], "replicas": ["--virtual-ranks", "2"]}
        cls.references = {
            name: support.Run("00_one_device", 0, SETTINGS, *order, *FLAGS, env=support.one_gpu())
            for name, order in orders.items()
        }
        cls.runs = {
            row: support.Run("07_pipeline", 2, f"{SETTINGS} {row[0]}", *FLAGS, *row[1], env=cls.ENV)
            for row in cls.ROWS
        }
        jobs = {name: run.job for name, run in {**cls.references, **cls.runs}.items()}
        cls.ended = support.side_by_side(jobs, at_once=4)

    def test_all_end_well_and_as_predicted(self):
        for name, ended in self.ended.items():
            with self.subTest(name=name):
                self.assertEqual((ended.code, ended.errors), (0, []), ended)
        for row, run in self.runs.items():
            with self.subTest(row=row):
                record = run.record()
                self.assertTrue(record["as_predicted"])
                self.assertEqual(record["allocator"]["allocations"], 0, "the checked step allocated")
                self.assertEqual(record["comm"], self.COMM)

    def test_files_and_losses_are_lesson_00s(self):
        for row, run in self.runs.items():
            reference = self.references["replicas" if "replicas" in row[0] else "stages"]
            with self.subTest(row=row):
                self.assertTrue(filecmp.cmp(run.weights, reference.weights, shallow=False))
                self.assertEqual([loss for loss, _ in run.losses()], [loss for loss, _ in reference.losses()])
        a, b = self.references.values()
        self.assertFalse(filecmp.cmp(a.weights, b.weights, shallow=False), "the comparison could not fail")


@unittest.skipIf(support.gpus() < 2, "two GPUs needed")
class PipelineOnGpus(OnGpus, support.ProcessTest):
    ROWS = [
        *((row, ("--graph", "on")) for row in SCHEDULES + REPLICAS),
        ("schedule=1f1b", ("--graph", "off")),
    ]
    COMM = "nccl"

    def test_a_traced_run_knows_its_makespan(self):
        for graph in ("on", "off"):
            run = support.Run("07_pipeline", 2, SETTINGS, *FLAGS, "--graph", graph, "--trace")
            ended = run.job()
            self.assertEqual((ended.code, ended.errors), (0, []), ended)
            rows = {row["name"]: row for row in run.record()["timetable"]["rows"]}
            self.assertGreater(rows["measured"]["seconds"], 0)
            self.assertLess(rows["measured"]["idle"], 1)

    def test_what_only_a_cpu_shows(self):
        for setting, key in (("link_ms=5", "link_ms"), ("sends=blocking", "sends")):
            ended = support.run("07_pipeline", 2, *FLAGS, "--set", setting, "--out", support.new_path("out"))
            self.expect_one_error(
                ended,
                64,
                f"{key}: it is about ranks on the CPU, and these are GPUs\n  fix: leave it out, or --device cpu",
            )


class PipelineOnOneGpu(OnGpus, support.ProcessTest):
    ROWS = [(row, ("--share-gpu",)) for row in SCHEDULES + REPLICAS]
    COMM = "staged"
    ENV = support.one_gpu()


if __name__ == "__main__":
    support.main(gpus_needed=1)
