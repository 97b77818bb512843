"""Lessons 01-05 and 10 on GPUs, NCCL and copy engines between them, deterministic operations: with a captured graph and without, and whatever a rank holds,
they end in the same bytes; so do runs whose ranks share a GPU, are profiled, or sum in a wider dtype. One rank on one GPU; two on two or
more. Skipped (77) without a GPU."""

import filecmp
import itertools
import os
import re
import typing
import unittest

import support

GPUS = support.gpus()
RANKS = max(1, min(2, GPUS))
STEPS = [
    "--steps",
    "8",
]  # the third is captured, five are replays; evaluation and the file of weights follow them
ALL = ("01_data_parallel", "02_zero1", "03_zero2", "04_zero3")


def model(dtype):
    """Attention by cuDNN where the dtype has 16 bits, units that no number of ranks divides."""
    return [
        "model.width=128",
        "model.context=128",
        "batch.sequence=128",
        f"precision.dtype={dtype}",
        "data.validation_fraction=0.2",
    ]


def one(ranks):
    """One micro-batch a rank."""
    return ["batch.global=12", f"batch.micro={12 // ranks}"]


class Row(typing.NamedTuple):
    """A run."""

    lesson: str
    settings: list
    flags: list = ["--graph", "on"]
    dtype: str = "bf16"
    ops: str = "deterministic"
    ranks: int = RANKS

    def run(self):
        flags = ["--device", "cuda", "--ops", self.ops, "--threads", "1", *STEPS, *self.flags]
        env = support.one_gpu() if "--share-gpu" in self.flags else None
        return support.Run(
            self.lesson, self.ranks, " ".join([*model(self.dtype), *self.settings]), *flags, env=env
        )

    def __str__(self):
        return (
            f"{self.lesson} -n {self.ranks} {self.dtype} {self.ops} {' '.join([*self.settings, *self.flags])}"
        )


def both(lesson, settings):
    return [Row(lesson, settings, ["--graph", graph]) for graph in ("on", "off")]


ONE, THREE = one(RANKS), ["batch.global=12", "batch.micro=2"]  # one micro-batch a rank; several
SHARED = [
    Row(lesson, one(2), ["--share-gpu"], ranks=2) for lesson in ("01_data_parallel", "03_zero2", "04_zero3")
]


def tensor(reference, *variants):
    """Lesson 00 that computes as two tensor ranks, and lesson 10 on two, whose messages go by copy engine, or by NCCL. (settings, flags) each."""
    rows = ["batch.global=12", "batch.micro=2"]
    return [
        Row("00_one_device", rows, ["--tensor-ranks", "2", *reference], ranks=1),
        *(Row("10_tensor_parallel", [*settings, *rows], list(flags)) for settings, flags in variants),
    ]


ON, OFF, BY_NCCL = ("--graph", "on"), ("--graph", "off"), ("--graph", "on", "--transport", "nccl")
# Those of a list add up gradients in the same order. Of two ranks' numbers of 16 bits fp32 and host memory hold the same sum: it is rounded once,
# and a first rounding to 24 bits does not show behind one to 8.
EQUAL = {
    "one micro-batch": [
        *both("01_data_parallel", ["verify_replicas=2", *ONE]),
        Row("01_data_parallel", ["bucket=5000", "verify_replicas=2", *ONE]),
        *both("02_zero1", ONE),
        Row("02_zero1", ["overlap=off", *ONE]),
        *both("03_zero2", ONE),
        Row("03_zero2", ["bucket=50000", *ONE], ["--graph", "off"]),
        *both("04_zero3", ONE),
        Row("04_zero3", ["prefetch=0", *ONE], ["--graph", "off"]),
        Row("04_zero3", ["prefetch=2", "persist_below=1000", *ONE]),
        Row("04_zero3", ["activations=recompute", *ONE]),
        *(
            Row("05_offload", [f"parameters={how}", "piece=5000", *ONE], ["--graph", "off"])
            for how in ("whole", "sharded")
        ),
        Row("01_data_parallel", ["precision.reduce_dtype=fp32", *ONE]),
        Row("04_zero3", ONE, ["--profile"]),
        *(Row(lesson, ONE, ["--sample", "40"]) for lesson in ("01_data_parallel", "04_zero3")),
        *(SHARED if RANKS == 2 else []),
    ],
    "summed once": [*both("01_data_parallel", THREE), *both("02_zero1", THREE)],
    "summed each time": [
        *both("03_zero2", THREE),
        *both("04_zero3", THREE),
        Row("04_zero3", ["reshard_after_forward=off", *THREE]),
        *(
            Row("05_offload", [f"parameters={how}", *THREE], ["--graph", "off"])
            for how in ("whole", "sharded")
        ),
    ],
    "fp16": [
        Row(lesson, ONE, ["--graph", graph], "fp16") for lesson, graph in zip(ALL, ("on", "off", "off", "on"))
    ]
    + [Row("05_offload", ONE, ["--graph", "off"], "fp16")],
    "fp32 gradients": [
        Row(lesson, ["precision.grad_dtype=fp32", *ONE], ["--graph", graph])
        for lesson, graph in zip(ALL, ("off", "on", "on", "off"))
    ],
    # In fp32 ATen writes attention out, and adds in one order.
    "ATen": [
        Row(lesson, ONE, ["--graph", graph], "fp32", "aten")
        for lesson, graph in (("01_data_parallel", "on"), ("04_zero3", "off"))
    ],
    **({} if RANKS == 2 else {"shared": SHARED}),
    **(
        {}
        if RANKS == 1
        else {
            "tensor ranks": tensor(
                (),
                ([], ON),
                ([], OFF),
                ([], BY_NCCL),
                (["gathered=kept"], ON),
                (["activations=recompute"], ON),
            ),
            "tensor ranks, tokens whole": tensor(
                ("--tokens", "whole"), (["tokens=whole"], ON), (["tokens=whole"], BY_NCCL)
            ),
            "tensor ranks, two lanes": tensor(
                ("--lanes", "2"),
                (["lanes=2"], ON),
                (["lanes=2", "gathered=kept"], OFF),
                (["lanes=2"], BY_NCCL),
            ),
        }
    ),
}
# cuDNN's attention, as ATen calls it, adds in any order.
ANY_ORDER = [Row("01_data_parallel", ONE, ["--graph", "off"], ops="aten"), Row("04_zero3", ONE, ops="aten")]


class OnGpus(support.ProcessTest):
    @classmethod
    def setUpClass(cls):
        cls.groups = {order: [(row, row.run()) for row in members] for order, members in EQUAL.items()}
        cls.all = [*itertools.chain(*cls.groups.values()), *((row, row.run()) for row in ANY_ORDER)]
        cls.ended = support.side_by_side({str(row): run.job for row, run in cls.all}, at_once=4)

    def with_flag(self, flag):
        """(row, run, how it ended) of the runs with that flag."""
        found = [(row, run, self.ended[str(row)]) for row, run in self.all if flag in row.flags]
        self.assertTrue(found, flag)
        return found

    def test_all_end_well_and_as_predicted(self):
        self.assertEqual(len(self.ended), len(self.all), "a row stands there twice")
        for row, run in self.all:
            with self.subTest(row=str(row)):
                ended = self.ended[str(row)]
                self.assertEqual((ended.code, ended.errors), (0, []), ended)
                record = run.record()
                self.assertTrue(record["as_predicted"])
                if row.lesson != "00_one_device":  # the reference computes in parts as it comes
                    self.assertIn(record["allocator"]["allocations"], (0, None), "the checked step allocated")
                comm = "staged" if "--share-gpu" in row.flags else "nccl"
                self.assertEqual(
                    (record["device"], record["world"], record["comm"]),
                    ("cuda", row.ranks, comm if row.ranks > 1 else record["comm"]),
                )

    def test_files_losses_and_evaluations_are_equal(self):
        for order, members in self.groups.items():
            reference = members[0][1]
            for row, run in members[1:]:
                with self.subTest(order=order, row=str(row)):
                    self.assertTrue(filecmp.cmp(run.weights, reference.weights, shallow=False))
                    self.assertEqual(
                        [loss for loss, _ in run.losses()], [loss for loss, _ in reference.losses()]
                    )
                    self.assertEqual(run.record()["validation_loss"], reference.record()["validation_loss"])

    def test_another_order_is_another_file(self):
        files = [members[0][1].weights for members in self.groups.values()]
        for a, b in itertools.combinations(files, 2):
            self.assertFalse(filecmp.cmp(a, b, shallow=False), "the comparison could not fail")

    def test_the_same_weights_make_the_same_text(self):
        texts = set()
        for row, _, ended in self.with_flag("--sample"):
            found = re.search(
                r"\nsample: 40 tokens \(temperature 1, seed \d+\) after a prompt of \d+\n(.*)\nMEASURED\n",
                ended.out,
                re.DOTALL,
            )
            self.assertTrue(found, ended)
            texts.add(found.group(1))
        self.assertEqual(len(texts), 1, texts)

    # Five steps warm up, three are timed.
    def test_a_profile_times_the_operations_of_a_step(self):
        for row, run, ended in self.with_flag("--profile"):
            table = re.search(
                r"\n  time of a step by operation +ms +share +calls +rate +of its bound\n(.*)\n  a step \(mean of 3\) +([\d.]+)",
                ended.out,
                re.DOTALL,
            )
            self.assertTrue(table, ended)
            self.assertGreater(float(table.group(2)), 0)
            self.assertRegex(table.group(1), r"attention backward +[\d.]+ +[\d.]+ % +2 ")
            profile = run.record()["profile"]
            with self.subTest(row=str(row), profile=profile):
                self.assertEqual(profile["steps"], 3)
                self.assertTrue(profile["product_rate"] > 0 and profile["memory_rate"] > 0)
                self.assertTrue(
                    all(op["milliseconds"] > 0 and op["alone"] > 0 for op in profile["operations"])
                )
                spent = (
                    sum(op["milliseconds"] for op in profile["operations"]) / 3
                    + profile["waited_milliseconds"]
                )
                self.assertLessEqual(spent, profile["step_milliseconds"] * 1.001)
                self.assertTrue(
                    profile["sensors"] is None
                    or 0 < profile["sensors"]["watts"] <= 1.2 * profile["sensors"]["limit_watts"]
                )
                kinds = (
                    {op["kind"] for op in run.record()["ranks"][0]["measured_operations"]}
                    if RANKS > 1
                    else set()
                )
                self.assertEqual({op["kind"] for op in profile["communication"]}, kinds)
                for op in profile["communication"]:
                    self.assertGreater(op["milliseconds"], 0)
                    self.assertEqual(op["alone"] > 0, op["kind"] != "all_gather")

    def test_ranks_that_share_a_gpu_are_told_once(self):
        for _, _, ended in self.with_flag("--share-gpu"):
            self.assertEqual(ended.err.count("ranks share a GPU"), 1, ended)

    # Where data parallelism does not fit: lesson 01 is refused, lesson 04 trains below the cap.
    @unittest.skipIf(GPUS < 2, "one GPU: nothing is sharded")
    def test_a_cap_that_stops_01_lets_04_run(self):
        settings = [part for s in [*model("bf16"), *ONE, "model.layers=8"] for part in ("--set", s)]
        flags = [*settings, "--device", "cuda", "--steps", "4", "--threads", "1"]
        outs = {lesson: support.new_path("out") for lesson in ("01_data_parallel", "04_zero3")}
        ended = support.side_by_side(
            {
                lesson: lambda lesson=lesson: support.run(lesson, 2, *flags, "--out", outs[lesson])
                for lesson in outs
            }
        )
        peak = {}
        for lesson, end in ended.items():
            self.assertEqual((end.code, end.errors), (0, []), end)
            peak[lesson] = max(
                rank["measured_bytes"]["total"] for rank in support.record(outs[lesson])["ranks"]
            )
        self.assertLess(peak["04_zero3"], peak["01_data_parallel"])
        flags += ["--memory-cap", str(sum(peak.values()) // 2)]
        ended = support.side_by_side(
            {
                lesson: lambda lesson=lesson: support.run(lesson, 2, *flags, "--out", support.new_path("out"))
                for lesson in outs
            }
        )
        fits, stopped = ended["04_zero3"], ended["01_data_parallel"]
        self.assertEqual((fits.code, fits.errors), (0, []), fits)
        self.assertEqual(stopped.code, 69, stopped)
        self.assertRegex(stopped.errors[0], r"ZeRO-\d \(lesson 0\d\) -n 2")

    # 12 d^2 elements a block: more than any GPU has.
    def test_what_is_beyond_the_gpu_is_refused_before_it_allocates(self):
        for lesson in ("01_data_parallel", "04_zero3"):
            ended = support.run(
                lesson,
                RANKS,
                *(
                    part
                    for s in (
                        "model.layers=1024",
                        "model.width=65536",
                        "model.heads=512",
                        "model.context=64",
                        "batch.sequence=64",
                    )
                    for part in ("--set", s)
                ),
                "--device",
                "cuda",
                "--steps",
                "2",
                "--out",
                (out := support.new_path("out")),
            )
            self.assertEqual(ended.code, 69, ended)
            self.assertRegex(
                ended.errors[0],
                r"[\d.]+ GB free on GPU \d: a rank would hold [\d.]+ TB, [\d.]+ TB more than that\n",
            )
            self.assertFalse(os.path.exists(out))

    def test_they_learn(self):
        for row, run in self.all:
            values = [loss for loss, _ in run.losses()]
            self.assertLess(values[-1], values[0] - 0.1, row)


if __name__ == "__main__":
    support.main(gpus_needed=1)
