"""Lesson 10's program: transformers' own weights go through a chain of lessons and come out as they were; what does not fit one device does on the
ranks that the advice names; the kernel counts what is planned; a rank that stops is named with its block and half."""
import json
import os
import re
import signal
import struct
import subprocess
import unittest

import support

LESSON = "10_tensor_parallel"
GOLDEN = os.path.join(support.ROOT, "tests/model/golden")
ORACLE = os.path.join(support.ROOT, ".deps/oracle/bin/python")
LOGITS = """
import sys
import torch
from safetensors.torch import load_file
from transformers import GPT2Config, GPT2LMHeadModel
shape = dict(vocab_size=97, n_positions=32, n_embd=32, n_layer=3, n_head=4, attn_implementation="eager")
model = GPT2LMHeadModel(GPT2Config(**shape, tie_word_embeddings=sys.argv[3] == "tied"))
weights = {("" if name.startswith(("lm_head.", "transformer.")) else "transformer.") + name: tensor for name, tensor in load_file(sys.argv[1]).items()}
missing, unexpected = model.load_state_dict(weights, strict=False)
assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
model.tie_weights()
io = load_file(sys.argv[2])
with torch.no_grad():
    logits = model.eval().double()(io["tokens"]).logits
print(((logits - io["logits"]).abs().max() / io["logits"].abs().max()).item())
"""


def tensors_of(path):
    """name -> (dtype, shape, bytes) of a safetensors file; names as in the model, whether or not it stands in another."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header, data = json.loads(file.read(length)), file.read()
    return {
        name.removeprefix("transformer."): (t["dtype"], t["shape"], data[slice(*t["data_offsets"])])
        for name, t in header.items()
        if name != "__metadata__"
    }


class Golden(support.ProcessTest):
    CHAIN = [
        (LESSON, 4, []),
        ("01_data_parallel", 2, []),
        ("04_zero3", 3, []),
        (LESSON, 3, ["--set", "tokens=whole"]),
    ]
    # A rate at which no weight moves by a bit: what comes out must be what came in.
    MODEL = [
        f"--set=model.{key}" for key in ("layers=3", "heads=4", "width=32", "context=32", "vocab=97")
    ] + ["--set=batch.micro=2", "--set=optim.lr=1e-30", "--set=optim.warmup_steps=0"]

    def through_the_chain(self, name):
        data = support.write_tokens(support.new_path("below_97") + ".bin", [i * i % 97 for i in range(20000)])
        before, weights = ["--init", os.path.join(GOLDEN, f"{name}.safetensors")], support.new_path(
            "weights"
        ) + ".safetensors"
        for turn, (lesson, ranks, flags) in enumerate(self.CHAIN):
            folder, steps = support.new_path("checkpoints"), 2 * (turn + 1)
            ended = support.run(
                lesson,
                ranks,
                *self.MODEL,
                "--set",
                f"model.tied={'on' if name == 'tied' else 'off'}",
                "--data",
                data,
                *flags,
                *before,
                "--steps",
                str(steps),
                "--save-every",
                str(steps),
                "--checkpoints",
                folder,
                "--out",
                support.new_path("out"),
            )
            self.assertEqual(ended.code, 0, f"{lesson} on {ranks}: {ended}")
            before = ["--resume", os.path.join(folder, f"step-{steps:06d}"), "--resume-with", "steps"]
        ended = support.execute([support.program("checkpoint"), "export", before[1], weights])
        self.assertEqual(ended.code, 0, ended)
        return weights

    def test_what_transformers_made_comes_out_as_it_was(self):
        for name in support.chosen(("tied", "untied"), "untied"):
            with self.subTest(name=name):
                weights = self.through_the_chain(name)
                found, wanted = tensors_of(weights), tensors_of(os.path.join(GOLDEN, f"{name}.safetensors"))
                self.assertEqual(sorted(found), sorted(wanted))
                self.assertEqual([of for of in wanted if found[of] != wanted[of]], [])
                if (
                    not os.path.exists(ORACLE)
                    or subprocess.run(
                        [ORACLE, "-c", "import torch, transformers"], capture_output=True, check=False
                    ).returncode
                ):
                    continue  # equal weights have golden_test's golden logits; with transformers at hand it says so itself
                said = subprocess.run(
                    [ORACLE, "-c", LOGITS, weights, os.path.join(GOLDEN, f"{name}_io.safetensors"), name],
                    capture_output=True,
                    text=True,
                    check=False,
                )
                self.assertEqual(said.returncode, 0, said.stderr)
                self.assertLess(float(said.stdout), 1e-7)


class Fits(support.ProcessTest):
    ROWS = ["--workload", os.path.join(support.ROOT, "configs/tiny_rows.json"), "--steps", "2"]

    def run_rows(self, lesson, ranks, *flags):
        return support.execute([*support.mpirun(ranks), support.program(lesson), *self.ROWS, *flags])

    def test_the_advice_names_ranks_that_train(self):
        plan = json.loads(self.run_rows("00_one_device", 0, "--plan", "--json").out)
        held = plan["ranks"][0]["bytes"]["device"]
        cap = ["--memory-cap", str(held * 6 // 10)]
        refused = self.run_rows("00_one_device", 0, *cap, "--out", support.new_path("out"))
        self.assertEqual(refused.code, 69, refused)
        advice = re.search(r"\n  tensor parallel \(lesson 10\) -n (\d+)((?: --set \S+)*) ", refused.err)
        self.assertTrue(advice, refused)
        self.assertEqual((advice[1], advice[2]), ("2", ""))
        trained = self.run_rows(LESSON, 2, *cap, "--out", support.new_path("out"))
        self.assertEqual((trained.code, trained.err), (0, ""), trained)
        self.assertIn("as predicted", trained.out)


class Memory(support.ProcessTest):
    """As the kernel counts it: what more layers hold is what the plan says, in either form."""

    MODEL = [
        "--set=model.width=512",
        "--set=model.heads=8",
        "--set=model.vocab=4096",
        "--set=batch.global=2",
        "--set=batch.micro=2",
    ]

    def test_the_kernel_counts_what_is_planned(self):
        for tokens in support.chosen(("split", "whole"), "split"):
            with self.subTest(tokens=tokens):
                planned, counted = [], []
                for layers in (2, 10):
                    ended, plans, peaks = support.peak_memory(
                        LESSON,
                        2,
                        *self.MODEL,
                        f"--set=model.layers={layers}",
                        f"--set=tokens={tokens}",
                        "--steps",
                        "2",
                        "--sample",
                        "0",
                        "--page",
                        "off",
                    )
                    self.assertEqual((ended.code, ended.err), (0, ""), ended)
                    planned.append([plan["total"] for plan in plans])
                    counted.append(peaks)
                for rank in range(2):
                    more = planned[1][rank] - planned[0][rank]
                    self.assertGreater(more, 200e6)
                    self.assertAlmostEqual((counted[1][rank] - counted[0][rank]) / more, 1, delta=0.03)


class Faults(support.ProcessTest):
    def test_a_stopped_rank_is_named_with_its_block_and_half(self):
        ended = self.struck(signal.SIGSTOP, 1, LESSON, 2, "--set", "batch.micro=2", "--watchdog", "5")
        place = r"(?:(?:forward|backward) of (?:the embedding|block \d+'s (?:attention|MLP))|the head|the norm|the sum of what every rank has)"
        self.expect_one_error(
            ended,
            75,
            re.compile(
                r"lost rank 1: rank 0 waits for its operation \d+ \(.*, train step \d+\) for more than 5\.0 s"
                r"\n  rank 1: process \d+ has stopped \(no heartbeat for \d+\.\d s\); last operation \d+ \(.*\), train step \d+, "
                + place
                + r"\n  fix: see what it does there; a rank that is only slow needs a longer --watchdog \(now 5\.0 s\)"
            ),
        )


if __name__ == "__main__":
    support.main()
