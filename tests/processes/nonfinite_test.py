"""Numbers that are none, on the real programs: no evaluation, sample or file of weights passes them on. With
optim.nonfinite=stop a run ends with 70 and names the text and what is not finite; with skip it warns, and
shows nan and not 0."""

import json
import math
import os
import pathlib
import re
import struct

import support
from support import Run, new_file, once

LESSONS = support.chosen(
    {"00_one_device": 0, "04_zero3": 2, "07_pipeline": 2}, "00_one_device", "07_pipeline"
)
FIX = r"\n  fix: a checkpoint of before it, then a smaller optim\.lr"
# A learning rate and decay that multiply every weight by -9, so that only very large weights overflow.
DECAY = "optim.lr=10 optim.weight_decay=10 optim.warmup_steps=0 optim.clip=1e-30 data.validation_fraction=0"
NO_TAIL = "data.validation_fraction=0"


def spoiled(path, tensor, value, element=-1):
    """A copy of a safetensors file with one number of a tensor replaced."""
    content = bytearray(pathlib.Path(path).read_bytes())
    (size,) = struct.unpack_from("<Q", content)
    begin, end = json.loads(content[8 : 8 + size])["transformer." + tensor]["data_offsets"]
    struct.pack_into("<f", content, 8 + size + (begin if element >= 0 else end) + 4 * element, value)
    return new_file("spoiled.safetensors", bytes(content))


class Nonfinite(support.ProcessTest):
    def setUp(self):
        self.weights = self.expect_well(once("00_one_device", 0, "--steps 0")).weights
        # A weight that is finite and too large to compute with. At a position that no row has, it is noticed
        # only when decay changes it.
        self.large = spoiled(self.weights, "h.0.mlp.c_fc.weight", 3e38)
        self.unseen = spoiled(self.weights, "wpe.weight", 3e38)
        self.text = new_file("text.txt", "all of this is a text. " * 100)

    def expect_stops(self, cases, code):
        """cases: (lesson, text) -> pattern of the one error. Returns (lesson, text) -> Run."""
        found = self.expect_ends(
            {
                (lesson, LESSONS[lesson], text): (code, re.compile(said))
                for (lesson, text), said in cases.items()
            }
        )
        return {(lesson, text): job for (lesson, _, text), job in found.items()}

    def test_initial_weights_are_refused_by_tensor(self):
        cases = {}
        for lesson, keys, value, tensor, element in [
            *((lesson, "", math.nan, "h.1.attn.c_attn.weight", 5) for lesson in LESSONS),
            ("00_one_device", "", math.inf, "wte.weight", 0),
            ("00_one_device", "optim.nonfinite=skip", -math.inf, "ln_f.bias", 31),
        ]:
            path = spoiled(self.weights, tensor, value, element)
            cases[lesson, f"{keys} --steps 2 --init {path}"] = (
                re.escape(path)
                + rf": tensor 'transformer\.{re.escape(tensor)}' holds a number that is not finite \(NaN or "
                r"infinite\), "
                rf"element {element} of \d+\n  fix: weights that were saved before the training that made "
                r"them went wrong"
            )
        for job in self.expect_stops(cases, 65).values():
            self.assertFalse(os.path.exists(job.weights))
            self.assertNotIn("\nstep ", job.ended.out)

    def test_every_text_is_named(self):
        start = f"--steps 0 --init {self.large}"
        jobs = self.expect_stops(
            {
                (
                    lesson,
                    f"{keys} {start} {flags}",
                ): rf"{where}: the loss is not finite, though all weights are{FIX}.*"
                for lesson in LESSONS
                for keys, flags, where in (
                    ("", "", r"validation \(tokens\.bin\)"),
                    ("", f"--validation {self.text}", rf"validation \({re.escape(self.text)}\)"),
                    (NO_TAIL, f"--test {self.text}", rf"--test {re.escape(self.text)}"),
                )
            },
            70,
        )
        for job in jobs.values():
            self.assertTrue(os.path.exists(job.weights), "they are finite, and what was trained is kept")
            self.expect_record(job, exit_code=70, validation_loss=None)

    def test_a_sample_names_its_prompt_and_the_unit(self):
        jobs = self.expect_stops(
            {
                (
                    lesson,
                    f"{NO_TAIL} --steps 0 --init {self.large} --sample 9 {flags}",
                ): rf"--sample: after 0 tokens of {prompt} the model's output is not finite, first seen in "
                rf"unit [12]{FIX}.*"
                for lesson in LESSONS
                for flags, prompt in (
                    ("--prompt rank", "--prompt"),
                    ("", "the text's beginning as its prompt"),
                )
            },
            70,
        )
        for job in jobs.values():
            self.assertTrue(os.path.exists(job.weights))

    def test_weights_that_are_none_are_not_saved(self):
        keys, start = f"{DECAY} batch.sequence=16", f"--steps 1 --init {self.unseen}"
        found = r"(rank \d: )?wpe\.weight holds a number that is not finite"
        for lesson, ranks in LESSONS.items():
            with self.subTest(lesson=lesson):
                job = Run(lesson, ranks, f"{keys} {start}")
                said = (
                    rf"--save {re.escape(job.weights)}: wpe\.weight of unit 0 is not finite{FIX}; nothing "
                    r"was written.*"
                )
                self.expect_one_error(job, 70, re.compile(said))
                self.assertFalse(os.path.exists(job.weights))
                job = Run(lesson, ranks, f"{keys} {start} --save-every 1")
                said = rf"the checkpoint after 1 steps: {found}{FIX}; nothing was written.*"
                self.expect_one_error(job, 70, re.compile(said))
                self.assertFalse(os.path.exists(job.checkpoints))
                job = Run(lesson, ranks, f"{keys} optim.nonfinite=skip {start} --save-every 1")
                self.expect_well(
                    job,
                    f"--save {job.weights}: wpe.weight of unit 0 is not finite",
                    re.compile(f"the checkpoint after 1 steps: {found}"),
                    warned=True,
                )
                self.assertTrue(os.path.exists(job.weights))
                out = support.new_path("export")
                self.expect_one_error(
                    support.tool("checkpoint", "export", job.checkpoints, out),
                    70,
                    ("step-000001: wpe.weight@parameters holds a number that is not finite",),
                )
                self.assertFalse(os.path.exists(out))
                changed = ["steps", *(key.split("=")[0] for key in keys.split()), "optim.nonfinite"]
                said = (
                    rf"{job.saved(1)}: (parameters|master) wpe\.weight holds a number that is not finite, "
                    r"element \d+\n  fix: an older checkpoint.*"
                )
                self.expect_one_error(
                    Run(
                        lesson,
                        ranks,
                        f"--resume {job.checkpoints} --steps 1 --resume-with {','.join(changed)}",
                    ),
                    65,
                    re.compile(said),
                )

    def test_with_skip_it_is_shown_as_nan(self):
        flags = f"--steps 2 --init {self.large} --eval-every 1 --test {self.text} --sample 4"
        for lesson, ranks in LESSONS.items():
            with self.subTest(lesson=lesson):
                job = self.expect_well(
                    Run(lesson, ranks, f"optim.nonfinite=skip {flags}"),
                    "after 1 steps: validation nan\n",
                    "loss nan -> nan, validation nan nats a token",
                    "test nan, perplexity nan ",
                    "validation (tokens.bin): the loss is not finite",
                    f"--test {self.text}: the loss is not finite",
                    "--sample: after 0 tokens",
                    warned=True,
                )
                self.expect_record(job, exit_code=0, skipped_updates=2, validation_loss="nan")
                steps, test = (job.record()[key] for key in ("steps", "test"))
                self.assertEqual((steps["validation_loss"], steps["loss"]), (["nan", None], [None, None]))
                self.assertEqual((test["loss"], test["perplexity"]), (None, "nan"))
                self.assertEqual(json.loads(support.steps_of(job.out)[0])["validation_loss"], "nan")

    # Only the validation text has this letter, so training never meets its spoiled weight.
    def test_between_steps_it_ends_the_run(self):
        untied = self.expect_well(Run("00_one_device", 0, "model.tied=off --steps 0"))
        text = new_file("letters.txt", "quite quiet questions. " * 100)
        init = spoiled(untied.weights, "wte.weight", 3e38, 32 * ord("q"))
        flags = f"--init {init} --validation {text} --steps 4 --eval-every 2 --save-every 2"
        said = rf"validation \({re.escape(text)}\): the loss is not finite, though all weights are{FIX}.*"
        cases = {(lesson, f"model.tied=off {flags}"): said for lesson in LESSONS}
        for job in self.expect_stops(cases, 70).values():
            self.assertEqual(len(job.record()["steps"]["loss"]), 1, "of the step before")
            self.assertFalse(os.path.exists(job.weights))


if __name__ == "__main__":
    support.main()
