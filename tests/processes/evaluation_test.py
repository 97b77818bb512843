"""Evaluation on the real programs: between steps it changes no bit, on any number of ranks it says the same,
without training it exports what it was given, and what is no text, no weights or no prompt is refused."""

import json
import math
import os
import re

import support
from support import Run, new_file, once

STEPS = "--steps 5"
LESSONS = support.chosen(
    {
        "00_one_device": (0, ""),
        "01_data_parallel": (3, ""),
        "02_zero1": (2, ""),
        "04_zero3": (2, ""),
        "05_offload": (2, "update=delayed"),
        "07_pipeline": (2, ""),
    },
    "05_offload",
    "07_pipeline",
)


def text_file(words=4000):
    return new_file("text.txt", " ".join(f"word {i * 7919 % 101}" for i in range(words)))


class EvaluationTest(support.ProcessTest):
    def test_between_steps_it_changes_no_bit(self):
        evaluate = f"--eval-every 2 --validation {text_file()}"
        for lesson, (ranks, settings) in LESSONS.items():
            quiet, evaluating = (
                Run(lesson, ranks, f"{settings} {STEPS} {flags}") for flags in ("", evaluate)
            )
            self.expect_all_well({(lesson, "quiet"): quiet, (lesson, "evaluating"): evaluating})
            with self.subTest(lesson=lesson):
                self.expect_same_file(quiet.weights, evaluating.weights)
                losses = evaluating.record()["steps"]["validation_loss"]
                self.assertEqual([loss is None for loss in losses], [True, False, True, False, True])
                self.assertRegex(evaluating.ended.out, r"after 2 steps: validation \d")
                last = json.loads(support.steps_of(evaluating.out)[3])
                self.assertEqual(last["validation_loss"], losses[3])

    def test_a_whole_text_on_any_ranks(self):
        text = text_file()
        ranks = {"00_one_device": 0, "01_data_parallel": 3, "04_zero3": 2, "07_pipeline": 2}
        some = support.chosen(ranks, "00_one_device", "01_data_parallel", "07_pipeline")
        nothing = "nothing was trained, and so no claim was checked"
        jobs = self.expect_ends(
            {(lesson, ranks, f"--steps 0 --test {text}"): (0, (nothing,)) for lesson, ranks in some.items()}
        )
        one, *others = (job.record()["test"] for job in jobs.values())
        self.assertEqual(one["rows"], (os.path.getsize(text) - 1) // 32)
        self.assertEqual(one["perplexity"], math.exp(one["loss"]))
        for test in others:
            self.assertAlmostEqual(test["loss"], one["loss"], places=12)

    # With 5 rows, the last micro-batch or a rank's share may have fewer rows than the others.
    def test_the_rows_depend_on_the_data_alone(self):
        few = (
            ("00_one_device", 0, 1),
            ("00_one_device", 0, 2),
            ("03_zero2", 2, 3),
            ("07_pipeline", 2, 4),
            ("10_tensor_parallel", 2, 4),
            ("12_context_parallel", 2, 2),
        )
        more = (
            ("00_one_device", 0, 12),
            ("01_data_parallel", 3, 2),
            ("04_zero3", 4, 1),
            ("08_weight_versions", 2, 3),
            ("10_tensor_parallel", 2, 3),
            ("11_combined mesh=2x1x2x1", 4, 1),
            ("12_context_parallel exchange=gather", 4, 3),
        )
        jobs = {
            (lesson, ranks, micro, rows): Run(
                lesson.split()[0],
                ranks,
                f"{' '.join(lesson.split()[1:])} model.tied=off batch.micro={micro} "
                f"data.validation_rows={rows} --steps 0",
            )
            for lesson, ranks, micro, rows in [
                *((*case, 5) for case in support.chosen(few + more, *few)),
                ("00_one_device", 0, 1, 4),
            ]
        }
        self.expect_all_well(jobs)
        found = {case: job.record()["validation_loss"] for case, job in jobs.items()}
        one, other = (found["00_one_device", 0, 1, rows] for rows in (5, 4))
        self.assertNotAlmostEqual(one, other, places=4)
        for case, loss in found.items():
            if case[-1] == 5:
                self.assertAlmostEqual(loss, one, places=6, msg=case)

    # A workload file from when evaluations counted micro-batches keeps its meaning, and one line says so.
    def test_an_older_workload_file(self):
        older = json.dumps({"data": {"validation_batches": 2}, "batch": {"micro": 3}})
        ended = support.tool("00_one_device", "--workload", new_file("older.json", older), "--plan")
        note = (
            r"\n  note: \S+/older\S*\.json:1:\d+: validation_batches 2 of batch\.micro 3 rows: taken as "
            r"\"validation_rows\": 6\n"
        )
        self.expect_well(ended, re.compile(note))

    def test_a_comparison_knows_the_files(self):
        texts = [text_file(4000), text_file(4001)]
        weights = self.expect_well(once("00_one_device", 0, "--steps 1")).weights
        first = Run("00_one_device", 0, f"--steps 2 --validation {texts[0]} --init {weights}")
        record = self.expect_well(first).record()
        self.assertEqual([record[key]["file"] for key in ("init", "validation")], [weights, texts[0]])
        compared = re.compile(
            r"compared with \S+/record.json; --init \S+\.safetensors \(sum [0-9a-f]{16}\) there, none here\n"
        )
        how = f"--steps 2 --compare {first.out}/record.json --validation"
        self.expect_ends(
            {
                f"{how} {texts[0]}": (0, (compared, re.compile(r"\n  validation +\d\.\d{6} "))),
                f"{how} {texts[1]}": (
                    0,
                    (
                        compared,
                        re.compile(
                            r"validation losses are of other texts: --validation \S+ \(sum \w+\) there, \S+ "
                            r"\(sum \w+\) here\n"
                        ),
                    ),
                ),
            },
            "01_data_parallel",
            2,
        )

    def test_it_says_how_much_of_a_named_text_it_read(self):
        text = text_file()
        rows = (os.path.getsize(text) - 1) // 32
        says = lambda part: (0, (re.compile(rf"\nperplexity \S+ on the validation text{part}\n"),))
        named = f"--steps 0 --verbose --validation {text}"
        self.expect_ends(
            {
                named: says(rf" \(\d+ of {rows:,} rows\)"),
                f"data.validation_rows={rows} {named}": says(""),
                "--steps 0 --verbose": says(""),  # as ever where no text is named
            },
            "00_one_device",
            0,
        )

    def test_a_prompt_is_looked_at_before_the_first_step(self):
        flags = ("--steps", "5", "--sample", "3", "--prompt")
        jobs = self.expect_ends(
            {
                ("data.tokenizer=gpt2", *flags, "Emma"): (
                    64,
                    "--prompt: token 1 of it is 10161, and the model has 257\n  fix: other words, or the "
                    "tokenizer that the data were made with: --set data.tokenizer=byte",
                ),
                ("model.vocab=120", *flags, "a zoo"): (
                    64,
                    "--prompt: token 3 of it is 122, and the model has 120\n  fix: other words",
                ),
            },
            "01_data_parallel",
            2,
        )
        for job in jobs.values():
            self.assertNotIn("step ", job.ended.out)

    def test_without_a_step_it_exports_what_it_was_given(self):
        trained = Run("04_zero3", 2, STEPS)
        exported = Run("02_zero1", 3, f"--steps 0 --init {self.expect_well(trained).weights}")
        self.expect_same_file(exported, trained)
        self.expect_record(exported, validation_loss=trained.record()["validation_loss"])

    # The number of heads follows from no tensor's shape, so a weights file records how to compute, and a
    # folder for transformers has a config.json.
    def test_weights_say_how_they_are_computed(self):
        folder = support.new_path("folder")
        weights, config = (os.path.join(folder, name) for name in ("model.safetensors", "config.json"))
        self.expect_well(Run("02_zero1", 2, f"--steps 0 --save {weights}"))
        self.assertEqual(
            support.read_json(config),
            {
                "architectures": ["GPT2LMHeadModel"],
                "model_type": "gpt2",
                "tie_word_embeddings": True,
                "n_embd": 32,
                "n_head": 2,
                "n_layer": 2,
                "n_positions": 32,
                "vocab_size": 257,
                "activation_function": "gelu_new",
                "layer_norm_epsilon": 1e-05,
                "scale_attn_weights": True,
                "scale_attn_by_inverse_layer_idx": False,
            },
        )
        self.expect_ends(
            {
                f"model.heads=4 --steps 0 {flag} {weights}": (
                    65,
                    f'{named}: "n_head" is 2, and this run computes 4\n  fix: --set model.heads=2; or, if '
                    "the config.json is not these weights', a folder of their own",
                )
                for flag, named in (("--init", weights), ("--save", config))
            },
            "00_one_device",
            0,
        )

    def test_a_sample_of_ones_own(self):
        flags = "--steps 0 --sample 12 --temperature 0 --seed 7"
        said = r"sample: 12 tokens \(temperature 0, seed 7\) after a prompt of 5\n(Emma  \| .*)\n"
        one, other = (
            re.search(said, support.run("00_one_device", 0, flags, "--prompt", "Emma ").out) for _ in range(2)
        )
        self.assertEqual(one[1], other[1])

    # A token file's ids need only be within the model's vocabulary. The tokenizer may lack some: it is only
    # used to show text, which must not end a run.
    def test_ids_that_the_tokenizer_lacks(self):
        tokens = support.write_tokens(support.new_path("tokens.bin"), [i * 7919 % 389 for i in range(2121)])
        text = f"model.vocab=400 data.validation_fraction=0.2 --data {tokens}"
        written = (0, (re.compile(r"(it writes|sample): .*\n?.*<\d{3}>"),))
        jobs = self.expect_ends(
            {
                ("00_one_device", 0, text): written,
                ("01_data_parallel", 2, text): written,
                ("10_tensor_parallel", 2, f"{text} --sample 5"): written,
            }
        )
        for job in jobs.values():
            self.assertTrue(os.path.exists(job.weights))
            self.assertIsNotNone(job.record()["validation_loss"])

    def test_what_is_refused(self):
        empty, short = new_file("empty.txt", ""), new_file("short.txt", "a few words")
        pickle = new_file("weights.bin", b"PK\x03\x04" + bytes(60))
        index = new_file("model.safetensors.index.json", "{}")
        cases = {
            "--eval-every 0": (64, "--eval-every 0: "),
            f"--validation {empty}": (65, f"{empty}: is empty\n  fix: give a text file with some text in it"),
            f"--validation {short}": (
                65,
                f"{short}: the validation part has 11 tokens, 0 rows of 32; needed: 2 ",
            ),
            f"--test {short}": (
                65,
                f"{short}: the test text has 11 tokens, 0 rows of 32; needed: one row, 33 tokens\n  fix: "
                "give a longer text",
            ),
            f"--init {pickle}": (
                65,
                f"{pickle}: it is a pickle (torch.save), which can run any program when it is read\n  fix: "
                "convert it where you trust it",
            ),
            f"--init {index}": (
                65,
                f"{index}: it lists the files of a model that is stored in several\n  fix: store it in one",
            ),
            "--prompt Emma": (64, "--prompt: this run makes no text\n  fix: add --sample N"),
            "data.validation_fraction=0 --eval-every 2": (
                64,
                "--eval-every 2: there is no validation text: data.validation_fraction is 0\n  fix: add "
                "--validation FILE, or --set ",
            ),
            "--lr 0.1": (64, "--lr: it is a flag of other programs\n  fix: --set optim.lr=0.001"),
            "--batch_size 8": (
                64,
                "--batch_size: it is a flag of other programs\n  fix: --set batch.global=N",
            ),
            "data.validation_batches=3": (
                64,
                '--set data.validation_batches=3: "data.validation_batches" is no key any more\n'
                "  fix: data.validation_rows: the old number times batch.micro",
            ),
            "stage=3": (
                64,
                '--set stage=3: "stage" is a key of other programs\n  fix: a stage is a lesson: '
                "lessons/02_zero1 (1)",
            ),
        }
        self.expect_ends({text: (code, (said,)) for text, (code, said) in cases.items()}, "00_one_device", 0)
        self.expect_one_error(
            Run("08_weight_versions", 2, "model.tied=off --eval-every 2"),
            64,
            "--eval-every: the stages would have to finish what is on its way, and every later step would "
            "be another one\n"
            "  fix: leave it out: a run evaluates at its end",
        )


if __name__ == "__main__":
    support.main()
