"""Lessons 01-05 and 10 on GPUs, NCCL and copy engines between them, deterministic operations: with a captured
graph and without, and whatever a rank holds, they end in the same bytes; so do runs whose ranks share a GPU,
are profiled, or sum in a wider dtype. One rank on one GPU; two on two or more. Skipped (77) without a GPU."""

import itertools
import os
import re
import typing
import unittest

import support
from support import Run

GPUS = support.gpus()
RANKS = max(1, min(2, GPUS))
STEPS = "--steps 8"  # the third is captured, five are replays; evaluation and the file of weights follow them
ALL = ("01_data_parallel", "02_zero1", "03_zero2", "04_zero3")


def model(dtype):
    """Attention by cuDNN where the dtype has 16 bits, units that no number of ranks divides."""
    return (
        "model.width=128 model.context=128 batch.sequence=128 data.validation_fraction=0.2 "
        f"precision.dtype={dtype}"
    )


def one(ranks):
    """One micro-batch a rank."""
    return f"batch.global=12 batch.micro={12 // ranks}"


class Row(typing.NamedTuple):
    """A run."""

    lesson: str
    settings: str
    flags: str = "--graph on"
    dtype: str = "bf16"
    ops: str = "deterministic"
    ranks: int = RANKS

    def run(self):
        flags = f"--device cuda --ops {self.ops} --threads 1 {STEPS} {self.flags}"
        env = support.one_gpu() if "--share-gpu" in self.flags else None
        return Run(self.lesson, self.ranks, f"{model(self.dtype)} {self.settings} {flags}", env=env)


def both(lesson, settings):
    return [Row(lesson, settings, f"--graph {graph}") for graph in ("on", "off")]


ONE, THREE = one(RANKS), "batch.global=12 batch.micro=2"  # one micro-batch a rank; several
SHARED = [
    Row(lesson, one(2), "--share-gpu", ranks=2) for lesson in ("01_data_parallel", "03_zero2", "04_zero3")
]


def tensor(reference, *variants):
    """Lesson 00 that computes as two tensor ranks, and lesson 10 on two, whose messages go by copy engine, or
    by NCCL. (settings, flags) each."""
    return [
        Row("00_one_device", THREE, f"--tensor-ranks 2 {reference}", ranks=1),
        *(Row("10_tensor_parallel", f"{settings} {THREE}", flags) for settings, flags in variants),
    ]


ON, OFF, BY_NCCL = "--graph on", "--graph off", "--graph on --transport nccl"
# Runs of one list add up gradients in the same order, so they end in equal bits. A sum of two ranks' 16-bit
# numbers is the same in fp32 and in host memory: rounding to 24 bits first does not change the rounding to 8.
EQUAL = {
    "one micro-batch": [
        *both("01_data_parallel", f"verify_replicas=2 {ONE}"),
        Row("01_data_parallel", f"bucket=5000 verify_replicas=2 {ONE}"),
        *both("02_zero1", ONE),
        Row("02_zero1", f"overlap=off {ONE}"),
        *both("03_zero2", ONE),
        Row("03_zero2", f"bucket=50000 {ONE}", "--graph off"),
        *both("04_zero3", ONE),
        Row("04_zero3", f"prefetch=0 {ONE}", "--graph off"),
        Row("04_zero3", f"prefetch=2 persist_below=1000 {ONE}"),
        Row("04_zero3", f"activations=recompute {ONE}"),
        *(
            Row("05_offload", f"parameters={how} piece=5000 {ONE}", "--graph off")
            for how in ("whole", "sharded")
        ),
        Row("01_data_parallel", f"precision.reduce_dtype=fp32 {ONE}"),
        Row("04_zero3", ONE, "--profile"),
        *(Row(lesson, ONE, "--sample 40") for lesson in ("01_data_parallel", "04_zero3")),
        *(SHARED if RANKS == 2 else []),
    ],
    "summed once": [*both("01_data_parallel", THREE), *both("02_zero1", THREE)],
    "summed each time": [
        *both("03_zero2", THREE),
        *both("04_zero3", THREE),
        Row("04_zero3", f"reshard_after_forward=off {THREE}"),
        *(Row("05_offload", f"parameters={how} {THREE}", "--graph off") for how in ("whole", "sharded")),
    ],
    "fp16": [
        Row(lesson, ONE, f"--graph {graph}", "fp16") for lesson, graph in zip(ALL, ("on", "off", "off", "on"))
    ]
    + [Row("05_offload", ONE, "--graph off", "fp16")],
    "fp32 gradients": [
        Row(lesson, f"precision.grad_dtype=fp32 {ONE}", f"--graph {graph}")
        for lesson, graph in zip(ALL, ("off", "on", "on", "off"))
    ],
    # In fp32 ATen computes attention by separate products, which add in one order.
    "ATen": [
        Row(lesson, ONE, f"--graph {graph}", "fp32", "aten")
        for lesson, graph in (("01_data_parallel", "on"), ("04_zero3", "off"))
    ],
    **({} if RANKS == 2 else {"shared": SHARED}),
    **(
        {}
        if RANKS == 1
        else {
            "tensor ranks": tensor(
                "", ("", ON), ("", OFF), ("", BY_NCCL), ("gathered=kept", ON), ("activations=recompute", ON)
            ),
            "tensor ranks, tokens whole": tensor(
                "--tokens whole", ("tokens=whole", ON), ("tokens=whole", BY_NCCL)
            ),
            "tensor ranks, two lanes": tensor(
                "--lanes 2", ("lanes=2", ON), ("lanes=2 gathered=kept", OFF), ("lanes=2", BY_NCCL)
            ),
        }
    ),
}
# cuDNN's attention, as ATen calls it, adds in no fixed order.
ANY_ORDER = [Row("01_data_parallel", ONE, "--graph off", ops="aten"), Row("04_zero3", ONE, ops="aten")]


class OnGpus(support.ProcessTest):
    @classmethod
    def setUpClass(cls):
        cls.groups = {order: [(row, row.run()) for row in members] for order, members in EQUAL.items()}
        cls.all = dict([*itertools.chain(*cls.groups.values()), *((row, row.run()) for row in ANY_ORDER)])
        support.together(cls.all.values(), at_once=4)

    def with_flag(self, flag):
        """The runs with that flag."""
        found = [job for row, job in self.all.items() if flag in row.flags]
        self.assertTrue(found, flag)
        return found

    def test_all_end_well_and_as_predicted(self):
        rows = len(ANY_ORDER) + sum(map(len, EQUAL.values()))
        self.assertEqual(len(self.all), rows, "a row stands there twice")
        self.expect_all_well(self.all, warned=True)
        for row, job in self.all.items():
            with self.subTest(row=row):
                if row.lesson != "00_one_device":  # the reference computes in parts as it comes
                    allocations = job.record()["allocator"]["allocations"]
                    self.assertIn(allocations, (0, None), "the checked step allocated")
                self.expect_record(job, device="cuda", world=row.ranks)
                if row.ranks > 1:
                    self.expect_record(job, comm="staged" if "--share-gpu" in row.flags else "nccl")

    def test_files_losses_and_evaluations_are_equal(self):
        for order, ((_, reference), *members) in self.groups.items():
            for row, job in members:
                with self.subTest(order=order, row=row):
                    self.expect_same_file(job.weights, reference.weights)
                    self.assertEqual(
                        [loss for loss, _ in job.losses()], [loss for loss, _ in reference.losses()]
                    )
                    self.expect_record(job, validation_loss=reference.record()["validation_loss"])

    def test_another_order_is_another_file(self):
        files = [members[0][1].weights for members in self.groups.values()]
        for a, b in itertools.combinations(files, 2):
            self.expect_other_file(a, b)

    def test_the_same_weights_make_the_same_text(self):
        said = re.compile(
            r"\nsample: 40 tokens \(temperature 1, seed \d+\) after a prompt of \d+\n(.*)\nMEASURED\n",
            re.DOTALL,
        )
        texts = set()
        for job in self.with_flag("--sample"):
            self.expect_said(job.ended.out, said)
            texts.add(said.search(job.ended.out)[1])
        self.assertEqual(len(texts), 1, texts)

    # A profile leaves out five warm-up steps and times three.
    def test_a_profile_times_the_operations_of_a_step(self):
        said = re.compile(
            r"\n  time of a step by operation +ms +share +calls +rate +of its bound\n(.*)\n  a step \(mean "
            r"of 3\) +([\d.]+)",
            re.DOTALL,
        )
        for job in self.with_flag("--profile"):
            self.expect_said(job.ended.out, said)
            table = said.search(job.ended.out)
            self.assertGreater(float(table.group(2)), 0)
            self.assertRegex(table.group(1), r"attention backward +[\d.]+ +[\d.]+ % +2 ")
            profile = job.record()["profile"]
            with self.subTest(profile=profile):
                self.assertEqual(profile["steps"], 3)
                self.assertTrue(profile["product_rate"] > 0 and profile["memory_rate"] > 0)
                times = [op["milliseconds"] for op in profile["operations"]]
                self.assertTrue(all(op["alone"] > 0 for op in profile["operations"]) and min(times) > 0)
                spent = sum(times) / 3 + profile["waited_milliseconds"]
                self.assertLessEqual(spent, profile["step_milliseconds"] * 1.001)
                self.assertTrue(
                    profile["sensors"] is None
                    or 0 < profile["sensors"]["watts"] <= 1.2 * profile["sensors"]["limit_watts"]
                )
                operations = job.record()["ranks"][0]["measured_operations"] if RANKS > 1 else []
                self.assertEqual(
                    {op["kind"] for op in profile["communication"]}, {op["kind"] for op in operations}
                )
                for op in profile["communication"]:
                    self.assertGreater(op["milliseconds"], 0)
                    self.assertEqual(op["alone"] > 0, op["kind"] != "all_gather")

    def test_ranks_that_share_a_gpu_are_told_once(self):
        for job in self.with_flag("--share-gpu"):
            self.assertEqual(job.ended.err.count("ranks share a GPU"), 1, job.ended)

    # Under a memory cap at which lesson 01 is refused, lesson 04 trains.
    @unittest.skipIf(GPUS < 2, "one GPU: nothing is sharded")
    def test_a_cap_that_stops_01_lets_04_run(self):
        text = f"{model('bf16')} {ONE} model.layers=8 --device cuda --steps 4 --threads 1"
        lessons = ("01_data_parallel", "04_zero3")
        free = {lesson: Run(lesson, 2, text, save=False) for lesson in lessons}
        self.expect_all_well(free, warned=True)
        high, low = (
            max(rank["measured_bytes"]["total"] for rank in free[lesson].record()["ranks"])
            for lesson in lessons
        )
        self.assertLess(low, high)
        capped = f"{text} --memory-cap {(high + low) // 2}"
        self.expect_well(Run("04_zero3", 2, capped, save=False), warned=True)
        stopped = support.run("01_data_parallel", 2, capped)
        self.assertEqual(stopped.code, 69, stopped)
        self.assertRegex(stopped.errors[0], r"ZeRO-\d \(lesson 0\d\) -n 2")

    # A block of this width has 12 d^2 elements, more than any GPU can hold.
    def test_what_is_beyond_the_gpu_is_refused_before_it_allocates(self):
        large = "model.layers=1024 model.width=65536 model.heads=512 model.context=64 batch.sequence=64"
        for lesson in ("01_data_parallel", "04_zero3"):
            job = Run(lesson, RANKS, f"{large} --device cuda --steps 2")
            self.assertEqual(job.ended.code, 69, job.ended)
            self.assertRegex(
                job.ended.errors[0],
                r"[\d.]+ GB free on GPU \d: a rank would hold [\d.]+ TB, [\d.]+ TB more than that\n",
            )
            self.assertFalse(os.path.exists(job.out))

    def test_they_learn(self):
        for row, job in self.all.items():
            values = [loss for loss, _ in job.losses()]
            self.assertLess(values[-1], values[0] - 0.1, row)


if __name__ == "__main__":
    support.main(gpus_needed=1)
