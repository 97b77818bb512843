"""Numbers that are none, on the real programs: no evaluation, sample or file of weights passes them on. With optim.nonfinite=stop a run ends with 70 and
names the text and what is not finite; with skip it warns, and shows nan and not 0."""

import json
import math
import os
import re
import struct

import support

LESSONS = support.chosen(
    {"00_one_device": 0, "04_zero3": 2, "07_pipeline": 2}, "00_one_device", "07_pipeline"
)
FIX = r"\n  fix: a checkpoint of before it, then a smaller optim\.lr"
# One decay of the weights, times -9: only what is very large overflows.
DECAY = "optim.lr=10 optim.weight_decay=10 optim.warmup_steps=0 optim.clip=1e-30 data.validation_fraction=0"


def spoiled(path, tensor, value, element=-1):
    """A copy of a safetensors file with one number of a tensor replaced."""
    with open(path, "rb") as file:
        content = bytearray(file.read())
    (size,) = struct.unpack_from("<Q", content)
    begin, end = json.loads(content[8 : 8 + size])["transformer." + tensor]["data_offsets"]
    at = 8 + size + (begin + 4 * element if element >= 0 else end + 4 * element)
    struct.pack_into("<f", content, at, value)
    copy = support.new_path("spoiled") + ".safetensors"
    with open(copy, "wb") as file:
        file.write(content)
    return copy


class Nonfinite(support.ProcessTest):
    @classmethod
    def setUpClass(cls):
        cls.weights = support.new_path("weights") + ".safetensors"
        cls.made = support.run(
            "00_one_device", 0, "--steps", "0", "--save", cls.weights, "--out", support.new_path("out")
        )
        cls.text = support.new_path("text") + ".txt"
        with open(cls.text, "w", encoding="utf-8") as file:
            file.write("all of this is a text. " * 100)

    def setUp(self):
        self.assertEqual((self.made.code, self.made.err), (0, ""), self.made)

    # Finite, and too large to compute with; of the position that no row has it goes unnoticed until the weights are decayed.
    def large(self):
        return spoiled(self.weights, "h.0.mlp.c_fc.weight", 3e38)

    def unseen(self):
        return spoiled(self.weights, "wpe.weight", 3e38)

    def train(self, lesson, keys, *flags):
        run = support.Run(lesson, LESSONS[lesson], keys, *flags)
        return run.job(), run

    def test_initial_weights_are_refused_by_tensor(self):
        wanted = [(lesson, "", math.nan, "h.1.attn.c_attn.weight", 5) for lesson in LESSONS]
        wanted += [
            ("00_one_device", "", math.inf, "wte.weight", 0),
            ("00_one_device", "optim.nonfinite=skip", -math.inf, "ln_f.bias", 31),
        ]
        for lesson, keys, value, tensor, element in wanted:
            with self.subTest(value=value, tensor=tensor, lesson=lesson):
                path = spoiled(self.weights, tensor, value, element)
                ended, run = self.train(lesson, keys, "--init", path, "--steps", "2")
                self.expect_one_error(
                    ended,
                    65,
                    re.compile(
                        re.escape(path)
                        + rf": tensor 'transformer\.{re.escape(tensor)}' holds a number that is not finite \(NaN or infinite\), "
                        rf"element {element} of \d+\n  fix: weights that were saved before the training that made them went wrong"
                    ),
                )
                self.assertFalse(os.path.exists(run.weights))
                self.assertNotIn("\nstep ", ended.out)

    def test_every_text_is_named(self):
        large, no_tail = self.large(), "data.validation_fraction=0"
        for lesson in LESSONS:
            for keys, flags, where in (
                ("", [], r"validation \(tokens\.bin\)"),
                ("", ["--validation", self.text], rf"validation \({re.escape(self.text)}\)"),
                (no_tail, ["--test", self.text], rf"--test {re.escape(self.text)}"),
            ):
                with self.subTest(lesson=lesson, where=where):
                    ended, run = self.train(lesson, keys, "--init", large, "--steps", "0", *flags)
                    self.expect_one_error(
                        ended,
                        70,
                        re.compile(rf"{where}: the loss is not finite, though all weights are{FIX}.*"),
                    )
                    self.assertTrue(
                        os.path.exists(run.weights), "they are finite, and what was trained is kept"
                    )
                    record = run.record()
                    self.assertEqual((record["exit_code"], record["validation_loss"]), (70, None))

    def test_a_sample_names_its_prompt_and_the_unit(self):
        large = self.large()
        for lesson in LESSONS:
            for flags, prompt in (
                (["--prompt", "a rank"], "--prompt"),
                ([], "the text's beginning as its prompt"),
            ):
                with self.subTest(lesson=lesson, prompt=prompt):
                    ended, run = self.train(
                        lesson,
                        "data.validation_fraction=0",
                        "--init",
                        large,
                        "--steps",
                        "0",
                        "--sample",
                        "9",
                        *flags,
                    )
                    self.expect_one_error(
                        ended,
                        70,
                        re.compile(
                            rf"--sample: after 0 tokens of {prompt} the model's output is not finite, first seen in unit [12]{FIX}.*"
                        ),
                    )
                    self.assertTrue(os.path.exists(run.weights))

    def test_weights_that_are_none_are_not_saved(self):
        unseen = self.unseen()
        for lesson in LESSONS:
            with self.subTest(lesson=lesson):
                folder = support.new_path("checkpoints")
                keys, saves = f"{DECAY} batch.sequence=16", ["--save-every", "1", "--checkpoints", folder]
                ended, run = self.train(lesson, keys, "--init", unseen, "--steps", "1")
                self.expect_one_error(
                    ended,
                    70,
                    re.compile(
                        rf"--save {re.escape(run.weights)}: wpe\.weight of unit 0 is not finite{FIX}; nothing was written.*"
                    ),
                )
                self.assertFalse(os.path.exists(run.weights))
                ended, _ = self.train(lesson, keys, "--init", unseen, "--steps", "1", *saves)
                self.expect_one_error(
                    ended,
                    70,
                    re.compile(
                        rf"the checkpoint after 1 steps: (rank \d: )?wpe\.weight holds a number that is not finite{FIX}; nothing was written.*"
                    ),
                )
                self.assertFalse(os.path.exists(folder))
                ended, run = self.train(
                    lesson, f"{keys} optim.nonfinite=skip", "--init", unseen, "--steps", "1", *saves
                )
                self.assertEqual((ended.code, ended.errors), (0, []), ended)
                said = ended.out + ended.err
                self.assertIn(f"--save {run.weights}: wpe.weight of unit 0 is not finite", said)
                self.assertRegex(
                    said,
                    r"the checkpoint after 1 steps: (rank \d: )?wpe\.weight holds a number that is not finite",
                )
                self.assertTrue(os.path.exists(run.weights))
                out = support.new_path("export")
                ended = support.execute([support.program("checkpoint"), "export", folder, out])
                self.assertEqual((ended.code, len(ended.errors)), (70, 1), ended)
                self.assertRegex(
                    ended.err, r"step-000001: wpe\.weight@parameters holds a number that is not finite"
                )
                self.assertFalse(os.path.exists(out))
                ended, _ = self.train(
                    lesson,
                    "",
                    "--resume",
                    folder,
                    "--steps",
                    "1",
                    "--resume-with",
                    ",".join(
                        [
                            "steps",
                            "batch.sequence",
                            "optim.nonfinite",
                            *(key.split("=")[0] for key in DECAY.split()),
                        ]
                    ),
                )
                self.expect_one_error(
                    ended,
                    65,
                    re.compile(
                        rf"{folder}/step-000001: (parameters|master) wpe\.weight holds a number that is not finite, element \d+\n  fix: an older checkpoint.*"
                    ),
                )

    def test_with_skip_it_is_shown_as_nan(self):
        large = self.large()
        for lesson in LESSONS:
            with self.subTest(lesson=lesson):
                ended, run = self.train(
                    lesson,
                    "optim.nonfinite=skip",
                    "--init",
                    large,
                    "--steps",
                    "2",
                    "--eval-every",
                    "1",
                    "--test",
                    self.text,
                    "--sample",
                    "4",
                )
                self.assertEqual((ended.code, ended.errors), (0, []), ended)
                said = ended.out + ended.err
                self.assertRegex(said, r"after 1 steps: validation nan\n")
                self.assertRegex(said, r"loss nan -> nan, validation nan nats a token")
                self.assertRegex(said, r"test nan, perplexity nan ")
                for warning in (
                    "validation (tokens.bin): the loss is not finite",
                    f"--test {self.text}: the loss is not finite",
                    "--sample: after 0 tokens",
                ):
                    self.assertIn(warning, said)
                record = run.record()
                self.assertEqual((record["exit_code"], record["skipped_updates"]), (0, 2))
                self.assertEqual(
                    (record["validation_loss"], record["steps"]["validation_loss"], record["steps"]["loss"]),
                    ("nan", ["nan", None], [None, None]),
                )
                self.assertEqual((record["test"]["loss"], record["test"]["perplexity"]), (None, "nan"))
                with open(os.path.join(run.out, "steps.jsonl"), encoding="utf-8") as file:
                    self.assertEqual(json.loads(file.readline())["validation_loss"], "nan")

    # A letter that only the other text has: training knows nothing of it.
    def test_between_steps_it_ends_the_run(self):
        untied, text = (
            support.Run("00_one_device", 0, "model.tied=off", "--steps", "0"),
            support.new_path("letters") + ".txt",
        )
        self.assertEqual(untied.job().code, 0)
        with open(text, "w", encoding="utf-8") as file:
            file.write("quite quiet questions. " * 100)
        init = spoiled(untied.weights, "wte.weight", 3e38, 32 * ord("q"))
        for lesson in LESSONS:
            with self.subTest(lesson=lesson):
                folder = support.new_path("checkpoints")
                flags = [
                    "--init",
                    init,
                    "--validation",
                    text,
                    "--steps",
                    "4",
                    "--eval-every",
                    "2",
                    "--save-every",
                    "2",
                    "--checkpoints",
                    folder,
                ]
                ended, run = self.train(lesson, "model.tied=off", *flags)
                self.expect_one_error(
                    ended,
                    70,
                    re.compile(
                        rf"validation \({re.escape(text)}\): the loss is not finite, though all weights are{FIX}.*"
                    ),
                )
                self.assertEqual(len(run.record()["steps"]["loss"]), 1, "of the step before")
                self.assertFalse(os.path.exists(run.weights))


if __name__ == "__main__":
    support.main()
