"""Lesson 10's and 12's programs: transformers' own weights go through a chain of lessons and come out as they
were, and have transformers' loss on rows of 1,024 tokens; what does not fit one device does on the ranks
that the advice names; the kernel counts what is planned; a rank that stops is named with its block, and half
or hop."""
import json
import os
import pathlib
import re
import signal
import struct

import support
from support import ORACLE, Run

LESSON, CONTEXT = "10_tensor_parallel", "12_context_parallel"
GOLDEN = os.path.join(support.ROOT, "tests/model/golden")
LOGITS = """
import sys
import torch
from safetensors.torch import load_file
from transformers import GPT2Config, GPT2LMHeadModel
shape = dict(vocab_size=97, n_positions=32, n_embd=32, n_layer=3, n_head=4, attn_implementation="eager")
model = GPT2LMHeadModel(GPT2Config(**shape, tie_word_embeddings=sys.argv[3] == "tied"))
def full(name): return ("" if name.startswith(("lm_head.", "transformer.")) else "transformer.") + name
weights = {full(name): tensor for name, tensor in load_file(sys.argv[1]).items()}
missing, unexpected = model.load_state_dict(weights, strict=False)
assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
model.tie_weights()
io = load_file(sys.argv[2])
with torch.no_grad():
    logits = model.eval().double()(io["tokens"]).logits
print(((logits - io["logits"]).abs().max() / io["logits"].abs().max()).item())
"""
LONG = """
import sys
import torch
from transformers import GPT2Config, GPT2LMHeadModel
weights, text = sys.argv[1:3]
torch.manual_seed(1)
model = GPT2LMHeadModel(GPT2Config(vocab_size=257, n_positions=1024, n_embd=32, n_layer=2, n_head=4))
for name, value in model.named_parameters():
    if name.endswith("bias"): torch.nn.init.normal_(value, std=0.5)
model.transformer.save_pretrained(weights)
tokens = torch.tensor(list(open(text, "rb").read()))
rows = (len(tokens) - 1) // 1024
read, target = (tokens[i : i + 1024 * rows].view(rows, 1024) for i in (0, 1))
with torch.no_grad():
    logits = model.eval().double()(read).logits
print(torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten()).item())
"""


def tensors_of(path):
    """name -> (dtype, shape, bytes) of a safetensors file; names as in the model, whether or not it stands in
    another."""
    whole = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack_from("<Q", whole)
    header, data = json.loads(whole[8 : 8 + length]), whole[8 + length :]
    return {
        name.removeprefix("transformer."): (t["dtype"], t["shape"], data[slice(*t["data_offsets"])])
        for name, t in header.items()
        if name != "__metadata__"
    }


class Golden(support.ProcessTest):
    CHAIN = [(LESSON, 4, ""), ("01_data_parallel", 2, ""), ("04_zero3", 3, ""), (LESSON, 3, "tokens=whole")]
    # With this learning rate no weight changes by a bit, so the weights saved must be those loaded.
    MODEL = (
        "model.layers=3 model.heads=4 model.width=32 model.context=32 model.vocab=97 "
        "batch.micro=2 optim.lr=1e-30 optim.warmup_steps=0"
    )

    def through_the_chain(self, name):
        """The weights of that golden file, as the last of the lessons exports them."""
        data = support.write_tokens(support.new_path("below_97.bin"), [i * i % 97 for i in range(20000)])
        model = f"{self.MODEL} model.tied={'on' if name == 'tied' else 'off'}"
        before, weights = f"--init {GOLDEN}/{name}.safetensors", support.new_path("weights.safetensors")
        for turn, (lesson, ranks, settings) in enumerate(self.CHAIN):
            steps = 2 * (turn + 1)
            text = f"{model} {settings} --data {data} {before} --steps {steps} --save-every {steps}"
            job = self.expect_well(Run(lesson, ranks, text), warned=True)
            before = f"--resume {job.saved(steps)} --resume-with steps"
        self.expect_well(support.tool("checkpoint", "export", job.saved(steps), weights), warned=True)
        return weights

    def test_what_transformers_made_comes_out_as_it_was(self):
        for name in support.chosen(("tied", "untied"), "untied"):
            with self.subTest(name=name):
                weights, golden = self.through_the_chain(name), f"{GOLDEN}/{name}.safetensors"
                found, wanted = tensors_of(weights), tensors_of(golden)
                self.assertEqual(sorted(found), sorted(wanted))
                self.assertEqual([of for of in wanted if found[of] != wanted[of]], [])
                if support.execute(["env", ORACLE, "-c", "import torch, transformers"]).code:
                    continue  # without transformers: equal weights have golden_test's golden logits
                said = support.execute(
                    [ORACLE, "-c", LOGITS, weights, f"{GOLDEN}/{name}_io.safetensors", name]
                )
                self.assertEqual(said.code, 0, said)
                self.assertLess(float(said.out), 1e-7)


class LongRows(support.ProcessTest):
    def test_context_ranks_have_transformers_loss(self):
        if support.execute(["env", ORACLE, "-c", "import torch, transformers"]).code:
            self.skipTest("transformers is not installed")
        weights, text = support.new_path("gpt2"), support.new_file("long.txt", "".join(map(str, range(1500))))
        said = support.execute([ORACLE, "-c", LONG, weights, text])
        self.assertEqual(said.code, 0, said)
        flags = (
            "model.layers=2 model.heads=4 model.width=32 model.context=1024 batch.sequence=1024 "
            "batch.micro=2 data.validation_fraction=0 "
            f"--steps 0 --init {weights}/model.safetensors --test {text}"
        )
        for ranks, settings in ((2, ""), (4, "parts=contiguous exchange=gather")):
            with self.subTest(ranks=ranks):
                job = self.expect_well(Run(CONTEXT, ranks, f"{settings} {flags}"), warned=True)
                self.assertAlmostEqual(job.record()["test"]["loss"], float(said.out), delta=1e-6)


class Fits(support.ProcessTest):
    ROWS = f"--workload {support.ROOT}/configs/tiny_rows.json --steps 2"

    def test_the_advice_names_ranks_that_train(self):
        plan = json.loads(support.run("00_one_device", 0, f"{self.ROWS} --plan --json").out)
        capped = f"{self.ROWS} --memory-cap {plan['ranks'][0]['bytes']['device'] * 6 // 10}"
        refused = Run("00_one_device", 0, capped).ended
        self.assertEqual(refused.code, 69, refused)
        advice = re.search(r"\n  tensor parallel \(lesson 10\) -n (\d+)((?: --set \S+)*) ", refused.err)
        self.assertTrue(advice, refused)
        self.assertEqual((advice[1], advice[2]), ("2", ""))
        self.expect_well(Run(LESSON, 2, capped), "as predicted")


class Memory(support.ProcessTest):
    """The memory that the kernel counts: what more layers hold is what the plan says, in either form."""

    MODEL = "model.width=512 model.heads=8 model.vocab=4096 batch.global=2 batch.micro=2"

    def test_the_kernel_counts_what_is_planned(self):
        cases = ((LESSON, "tokens=split"), (LESSON, "tokens=whole"), (CONTEXT, ""))
        for lesson, settings in support.chosen(cases, cases[0], cases[2]):
            with self.subTest(lesson=lesson, settings=settings):
                planned, counted = [], []
                for layers in (2, 10):
                    text = f"{self.MODEL} model.layers={layers} {settings} --steps 2 --sample 0 --page off"
                    ended, plans, peaks = support.peak_memory(lesson, 2, text)
                    self.expect_well(ended)
                    planned.append([plan["total"] for plan in plans])
                    counted.append(peaks)
                for rank in range(2):
                    more = planned[1][rank] - planned[0][rank]
                    self.assertGreater(more, 200e6)
                    self.assertAlmostEqual((counted[1][rank] - counted[0][rank]) / more, 1, delta=0.03)


class Faults(support.ProcessTest):
    def test_a_stopped_rank_is_named_with_its_block_and_half(self):
        place = (
            r"(?:(?:forward|backward) of (?:the embedding|block \d+'s (?:attention|MLP))|the head|the "
            r"norm|the sum of what every rank has)"
        )
        self.expect_struck(signal.SIGSTOP, 1, LESSON, 2, "batch.micro=2", who="rank 0", at=place)

    def test_a_stopped_rank_is_named_with_its_block_and_hop(self):
        place = r"(?:forward|backward) of block \d+'s attention, hop [01]"
        rows = "model.context=1024 batch.sequence=1024 data.validation_fraction=0"
        for _ in range(5):  # between attentions a rank has come to nothing that has a name
            said = self.expect_struck(signal.SIGSTOP, 1, CONTEXT, 2, rows, who="rank 0", at=f"(?:{place})?")
            if re.search(place, said):
                return
        self.fail(said)


if __name__ == "__main__":
    support.main()
