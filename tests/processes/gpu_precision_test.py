"""fp16 on GPUs: gradients that overflow at the first loss scale, and a step that is not finite within a
captured graph. Both are skipped on all ranks alike and said, the scale falls by its rule, and lessons 01-04
end in the same bytes. One rank on one GPU; two on two or more. Skipped (77) without a GPU."""

import array
import json
import re

import support
from support import Run

RANKS = max(1, min(2, support.gpus()))
LESSONS = ("01_data_parallel", "02_zero1", "03_zero2", "04_zero3")
TEXT = (
    "model.width=128 model.context=128 batch.sequence=128 precision.dtype=fp16 data.validation_fraction=0.2 "
    f"batch.global=12 optim.lr=0.002 batch.micro={12 // RANKS} --device cuda --ops deterministic --threads 1"
)
POISONED = 5  # a replay of the graph that the third step captured
# The loss scale after overflows in three steps: the second halves it; the third is again a first.
SAID = {0: 65536, 1: 32768, POISONED: 32768}


def overflowing(path, target):
    """The weights of `path` so that the gradient of ln_f.bias is -1.5 in every element at the start, the
    largest of all: 65536 times that is beyond fp16, 32768 times is not. ln_f's output is 0, so that all 257
    tokens are equally likely; the 128 that text is made of lie at 3, the others at 0. Blocks add nothing, and
    positions are alternately one thing and its negative, so that ln_f.weight's gradient is the sum of as much
    of both."""
    width, tokens, positions, of_text = 128, 257, 128, 128
    values = {
        "wte.weight": [3.0] * (of_text * width) + [0.0] * ((tokens - of_text) * width),
        "wpe.weight": [0.5 * (-1) ** (t + i) for t in range(positions) for i in range(width)],
        "ln_f.weight": [0.0] * width,
        "ln_f.bias": [0.0] * width,
    }
    for block in range(2):
        values[f"h.{block}.attn.c_proj.weight"] = [0.0] * (width * width)
        values[f"h.{block}.mlp.c_proj.weight"] = [0.0] * (4 * width * width)
    with open(path, "rb") as file:
        size = file.read(8)
        header = file.read(int.from_bytes(size, "little"))
        data = bytearray(file.read())
    for name, of_name in values.items():
        begin, end = json.loads(header)["transformer." + name]["data_offsets"]
        assert end - begin == 4 * len(of_name), name
        data[begin:end] = array.array("f", of_name).tobytes()
    with open(target, "wb") as file:
        file.write(size + header + data)


class Overflow(support.ProcessTest):
    @classmethod
    def setUpClass(cls):
        cls.first = Run(LESSONS[0], RANKS, f"{TEXT} --steps 1")
        assert cls.first.ended.code == 0, cls.first.ended
        cls.init = support.new_path("init.safetensors")
        overflowing(cls.first.weights, cls.init)
        fault = f"--init {cls.init} --inject nan@{RANKS - 1},{POISONED} --steps 8"
        cls.runs = {
            (lesson, graph): Run(lesson, RANKS, f"{TEXT} {fault} --graph {graph}")
            for lesson in LESSONS
            for graph in ("on", "off")
            if graph == "on" or lesson in ("01_data_parallel", "04_zero3")
        }
        cls.skipping = Run("04_zero3", RANKS, f"{TEXT} --init {cls.init} --steps 2")
        support.together([*cls.runs.values(), cls.skipping], at_once=4)

    def test_all_end_well_and_as_predicted(self):
        jobs = {"first": self.first, "skipping": self.skipping, **self.runs}
        self.expect_all_well(jobs, warned=True)

    def test_every_skipped_step_is_said_with_the_scale(self):
        for name, job in self.runs.items():
            with self.subTest(name=name):
                said = re.findall(
                    r"^step (\d+): the gradient is not finite; its update is skipped, the loss scale is "
                    r"([\d.]+) now$",
                    job.ended.out,
                    re.MULTILINE,
                )
                self.assertEqual({int(step): float(scale) for step, scale in said}, SAID, job.ended)
                self.assertIn("3 updates skipped: their gradient was not finite\n", job.ended.out)

    def test_the_record_counts_them(self):
        skipped = [step in SAID for step in range(8)]
        for name, job in self.runs.items():
            with self.subTest(name=name):
                self.expect_record(job, skipped_updates=len(SAID))
                steps = job.record()["steps"]
                self.assertEqual(steps["skipped"], skipped)
                self.assertEqual([norm is None for norm in steps["grad_norm"]], skipped)
                self.assertNotIn(None, steps["loss"], "the loss itself is finite")

    # A skipped update changes no weight, and every other update does.
    def test_a_skipped_update_leaves_the_weights(self):
        self.expect_record(self.skipping, skipped_updates=2)
        self.expect_same_file(self.skipping.weights, self.init)
        self.expect_other_file(self.runs["04_zero3", "on"].weights, self.init)

    def test_lessons_end_in_the_same_bytes_and_learn_between_the_overflows(self):
        reference = self.runs["01_data_parallel", "on"]
        for name, job in self.runs.items():
            with self.subTest(name=name):
                self.expect_same_file(job.weights, reference.weights)
                losses = [loss for loss, _ in job.losses()]
                self.assertEqual(losses, [loss for loss, _ in reference.losses()])
                self.assertLess(losses[-1], losses[0] - 0.1)


if __name__ == "__main__":
    support.main(gpus_needed=1)
