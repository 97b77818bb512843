"""Lesson 07 on GPUs, deterministic operations: every schedule, and two replicas of one stage, end in the
bytes of lesson 00 in the same order of sums; with --trace a run says what its step took. On two GPUs with one
graph per step or none; on one GPU that two ranks share, whose messages go through the host's memory. Skipped
(77) without a GPU."""

import unittest

import support
from support import Run

SETTINGS = (
    "model.width=128 model.context=128 batch.sequence=128 precision.dtype=bf16 data.validation_fraction=0.2 "
    "model.layers=8 batch.micro=2"
)
FLAGS = "--device cuda --ops deterministic --threads 1 --steps 8"
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
        cls.references = {
            name: Run("00_one_device", 0, f"{SETTINGS} {order} {FLAGS}", env=support.one_gpu())
            for name, order in {"stages": "--tied-sum split", "replicas": "--virtual-ranks 2"}.items()
        }
        cls.runs = {
            (settings, flags): Run("07_pipeline", 2, f"{SETTINGS} {settings} {FLAGS} {flags}", env=cls.ENV)
            for settings, flags in cls.ROWS
        }
        support.together([*cls.references.values(), *cls.runs.values()], at_once=4)

    def test_all_end_well_and_as_predicted(self):
        self.expect_all_well({**self.references, **self.runs}, warned=True)
        for row, job in self.runs.items():
            with self.subTest(row=row):
                self.expect_record(job, comm=self.COMM)
                allocations = job.record()["allocator"]["allocations"]
                self.assertEqual(allocations, 0, "the checked step allocated")

    def test_files_and_losses_are_lesson_00s(self):
        for row, job in self.runs.items():
            reference = self.references["replicas" if "replicas" in row[0] else "stages"]
            with self.subTest(row=row):
                self.expect_same_file(job.weights, reference.weights)
                self.assertEqual([loss for loss, _ in job.losses()], [loss for loss, _ in reference.losses()])
        self.expect_other_file(*(reference.weights for reference in self.references.values()))


@unittest.skipIf(support.gpus() < 2, "two GPUs needed")
class PipelineOnGpus(OnGpus, support.ProcessTest):
    ROWS = [*((row, "--graph on") for row in SCHEDULES + REPLICAS), ("schedule=1f1b", "--graph off")]
    COMM = "nccl"

    def test_a_traced_run_knows_its_makespan(self):
        for graph in ("on", "off"):
            job = Run("07_pipeline", 2, f"{SETTINGS} {FLAGS} --graph {graph} --trace")
            rows = self.expect_well(job, warned=True).record()["timetable"]["rows"]
            measured = {row["name"]: row for row in rows}["measured"]
            self.assertGreater(measured["seconds"], 0)
            self.assertLess(measured["idle"], 1)

    def test_what_only_a_cpu_shows(self):
        said = "it is about ranks on the CPU, and these are GPUs\n  fix: leave it out, or --device cpu"
        self.expect_ends(
            {
                f"{setting} {FLAGS}": (64, f"{setting.split('=')[0]}: {said}")
                for setting in ("link_ms=5", "sends=blocking")
            },
            "07_pipeline",
            2,
        )


class PipelineOnOneGpu(OnGpus, support.ProcessTest):
    ROWS = [(row, "--share-gpu") for row in SCHEDULES + REPLICAS]
    COMM = "staged"
    ENV = support.one_gpu()


if __name__ == "__main__":
    support.main(gpus_needed=1)
