"""Evaluation on the real programs: between steps it changes no bit, on any number of ranks it says the same, without training it exports what it was
given, and what is no text, no weights or no prompt is refused."""

import filecmp
import json
import math
import os
import re

import support

STEPS = ["--steps", "5"]
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
    path = support.new_path("text") + ".txt"
    with open(path, "w", encoding="utf-8") as file:
        file.write(" ".join(f"word {i * 7919 % 101}" for i in range(words)))
    return path


class EvaluationTest(support.ProcessTest):
    def expect_well(self, ended):
        self.assertEqual((ended.code, ended.err), (0, ""), ended)

    def test_between_steps_it_changes_no_bit(self):
        text = text_file()
        pairs = {
            lesson: [
                support.Run(lesson, ranks, settings, *STEPS, *flags)
                for flags in ([], ["--eval-every", "2", "--validation", text])
            ]
            for lesson, (ranks, settings) in LESSONS.items()
        }
        for lesson, (quiet, evaluating) in pairs.items():
            with self.subTest(lesson=lesson):
                self.expect_well(quiet.job())
                ended = evaluating.job()
                self.expect_well(ended)
                self.assertTrue(filecmp.cmp(quiet.weights, evaluating.weights, shallow=False))
                self.assertTrue(evaluating.record()["as_predicted"])
                losses = evaluating.record()["steps"]["validation_loss"]
                self.assertEqual([loss is None for loss in losses], [True, False, True, False, True])
                self.assertRegex(ended.out, r"after 2 steps: validation \d")
                with open(os.path.join(evaluating.out, "steps.jsonl"), encoding="utf-8") as file:
                    self.assertEqual(json.loads(file.readlines()[3])["validation_loss"], losses[3])

    def test_a_whole_text_on_any_ranks(self):
        text, found = text_file(), {}
        for lesson, ranks in support.chosen(
            {"00_one_device": 0, "01_data_parallel": 3, "04_zero3": 2, "07_pipeline": 2},
            "00_one_device",
            "01_data_parallel",
            "07_pipeline",
        ).items():
            run = support.Run(lesson, ranks, "", "--steps", "0", "--test", text)
            ended = run.job()
            self.expect_well(ended)
            found[lesson] = run.record()["test"]
            self.assertIn("nothing was trained, and so no claim was checked", ended.out)
        one = found["00_one_device"]
        self.assertEqual(one["rows"], (os.path.getsize(text) - 1) // 32)
        self.assertEqual(one["perplexity"], math.exp(one["loss"]))
        for lesson, test in found.items():
            self.assertAlmostEqual(test["loss"], one["loss"], places=12, msg=lesson)

    # Of 5 rows the last micro-batch, or a rank's share, may have fewer than the others.
    def test_the_rows_depend_on_the_data_alone(self):
        found, few = {}, (
            ("00_one_device", 0, 1),
            ("00_one_device", 0, 2),
            ("03_zero2", 2, 3),
            ("07_pipeline", 2, 4),
            ("10_tensor_parallel", 2, 4),
        )
        more = (
            ("00_one_device", 0, 12),
            ("01_data_parallel", 3, 2),
            ("04_zero3", 4, 1),
            ("08_weight_versions", 2, 3),
            ("10_tensor_parallel", 2, 3),
        )
        for lesson, ranks, micro in support.chosen(few + more, *few):
            run = support.Run(
                lesson, ranks, f"model.tied=off batch.micro={micro} data.validation_rows=5", "--steps", "0"
            )
            self.expect_well(run.job())
            found[lesson, ranks, micro] = run.record()["validation_loss"]
            self.assertAlmostEqual(
                found[lesson, ranks, micro],
                found["00_one_device", 0, 1],
                places=6,
                msg=(lesson, ranks, micro),
            )
        other = support.Run("00_one_device", 0, "model.tied=off data.validation_rows=4", "--steps", "0")
        self.expect_well(other.job())
        self.assertNotAlmostEqual(other.record()["validation_loss"], found["00_one_device", 0, 1], places=4)

    # A file of before evaluations were counted in rows means what it meant then, and one line says so.
    def test_an_older_workload_file(self):
        with open(os.path.join(support.scratch, "older.json"), "w", encoding="utf-8") as file:
            json.dump({"data": {"validation_batches": 2}, "batch": {"micro": 3}}, file)
        ended = support.execute([support.program("00_one_device"), "--workload", file.name, "--plan"])
        self.expect_well(ended)
        self.assertRegex(
            ended.out,
            r"\n  note: \S+/older\.json:1:\d+: validation_batches 2 of batch\.micro 3 rows: taken as \"validation_rows\": 6\n",
        )

    def test_a_comparison_knows_the_files(self):
        weights, texts = support.Run("00_one_device", 0, "", "--steps", "1"), [
            text_file(4000),
            text_file(4001),
        ]
        self.expect_well(weights.job())
        first = support.Run(
            "00_one_device", 0, "", "--steps", "2", "--validation", texts[0], "--init", weights.weights
        )
        self.expect_well(first.job())
        self.assertEqual(
            [first.record()[key]["file"] for key in ("init", "validation")], [weights.weights, texts[0]]
        )
        said = {
            text: support.run(
                "01_data_parallel",
                2,
                "--steps",
                "2",
                "--validation",
                text,
                "--compare",
                first.out + "/record.json",
                "--out",
                support.new_path("out"),
            )
            for text in texts
        }
        for text, ended in said.items():
            self.expect_well(ended)
            self.assertRegex(
                ended.out,
                r"compared with \S+/record.json; --init \S+\.safetensors \(sum [0-9a-f]{16}\) there, none here\n",
            )
        self.assertRegex(said[texts[0]].out, r"\n  validation +\d\.\d{6} ")
        self.assertRegex(
            said[texts[1]].out,
            r"validation losses are of other texts: --validation \S+ \(sum \w+\) there, \S+ \(sum \w+\) here\n",
        )

    def test_it_says_how_much_of_a_named_text_it_read(self):
        text = text_file()
        rows = (os.path.getsize(text) - 1) // 32
        whole = ["--set", f"data.validation_rows={rows}"]
        for flags, part in (([], r" \(\d+ of %s rows\)" % f"{rows:,}"), (whole, "")):
            ended = support.run(
                "00_one_device",
                0,
                "--steps",
                "0",
                "--validation",
                text,
                *flags,
                "--verbose",
                "--out",
                support.new_path("out"),
            )
            self.expect_well(ended)
            self.assertRegex(ended.out, r"\nperplexity \S+ on the validation text" + part + "\n")
        ended = support.run("00_one_device", 0, "--steps", "0", "--verbose", "--out", support.new_path("out"))
        self.assertRegex(
            ended.out, r"\nperplexity \S+ on the validation text\n", "as ever where no text is named"
        )

    def test_a_prompt_is_looked_at_before_the_first_step(self):
        saved = support.new_path("kept.safetensors")
        wanted = {
            ("Emma", "data.tokenizer=gpt2"): (
                "token 1 of it is 10161, and the model has 257",
                "other words, or the tokenizer that the data were " "made with: --set data.tokenizer=byte",
            ),
            ("a zoo", "model.vocab=120"): ("token 3 of it is 122, and the model has 120", "other words"),
        }
        for (prompt, setting), (what, fix) in wanted.items():
            ended = support.run(
                "01_data_parallel",
                2,
                *STEPS,
                "--sample",
                "3",
                "--prompt",
                prompt,
                "--set",
                setting,
                "--save",
                saved,
            )
            self.expect_one_error(ended, 64, f"--prompt: {what}\n  fix: {fix}")
            self.assertNotIn("step ", ended.out)

    def test_without_a_step_it_exports_what_it_was_given(self):
        trained = support.Run("04_zero3", 2, "", *STEPS)
        self.expect_well(trained.job())
        exported = support.Run("02_zero1", 3, "", "--steps", "0", "--init", trained.weights)
        self.expect_well(exported.job())
        self.assertTrue(filecmp.cmp(trained.weights, exported.weights, shallow=False))
        self.assertEqual(exported.record()["validation_loss"], trained.record()["validation_loss"])

    # Heads are in no shape: a file says itself how it is computed, and a folder for transformers has a config.json.
    def test_weights_say_how_they_are_computed(self):
        folder = support.new_path("folder")
        weights, config = (os.path.join(folder, name) for name in ("model.safetensors", "config.json"))
        self.expect_well(
            support.run("02_zero1", 2, "--steps", "0", "--save", weights, "--out", support.new_path("out"))
        )
        with open(config, encoding="utf-8") as file:
            says = json.load(file)
        self.assertEqual(
            says,
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
        for flag, named in (("--init", weights), ("--save", config)):
            ended = support.run(
                "00_one_device",
                0,
                "--steps",
                "0",
                flag,
                weights,
                "--set",
                "model.heads=4",
                "--out",
                support.new_path("out"),
            )
            self.expect_one_error(
                ended,
                65,
                f'{named}: "n_head" is 2, and this run computes 4\n  fix: --set model.heads=2; or, if the config.json is '
                "not these weights', a folder of their own",
            )

    def test_a_sample_of_ones_own(self):
        said = [
            support.run(
                "00_one_device",
                0,
                "--steps",
                "0",
                "--sample",
                "12",
                "--prompt",
                "Emma ",
                "--temperature",
                "0",
                "--seed",
                "7",
                "--out",
                support.new_path("out"),
            )
            for _ in range(2)
        ]
        texts = [
            re.search(
                r"sample: 12 tokens \(temperature 0, seed 7\) after a prompt of 5\n(Emma  \| .*)\n", ended.out
            )
            for ended in said
        ]
        self.assertTrue(all(texts), said[0])
        self.assertEqual(texts[0].group(1), texts[1].group(1))

    # A token file's ids are the model's, and may be none of the tokenizer's: what only informs does not end a run.
    def test_ids_that_the_tokenizer_lacks(self):
        tokens = support.write_tokens(
            support.new_path("tokens") + ".bin", [i * 7919 % 389 for i in range(2121)]
        )
        flags = ("--data", tokens, "--set", "model.vocab=400", "--set", "data.validation_fraction=0.2")
        for lesson, ranks, more in (
            ("00_one_device", 0, ()),
            ("01_data_parallel", 2, ()),
            ("10_tensor_parallel", 2, ("--sample", "5")),
        ):
            with self.subTest(lesson=lesson):
                run = support.Run(lesson, ranks, "", *flags, *more)
                ended = run.job()
                self.expect_well(ended)
                self.assertRegex(ended.out, r"(it writes|sample): .*\n?.*<\d{3}>")
                self.assertTrue(os.path.exists(run.weights))
                self.assertIsNotNone(run.record()["validation_loss"])

    def test_what_is_refused(self):
        empty, pickle, index, short = (
            support.new_path(name)
            for name in ("empty.txt", "weights.bin", "model.safetensors.index.json", "short.txt")
        )
        index = support.new_path("model") + ".safetensors.index.json"
        for path, content in (
            (empty, b""),
            (pickle, b"PK\x03\x04" + bytes(60)),
            (index, b"{}"),
            (short, b"a few words"),
        ):
            with open(path, "wb") as file:
                file.write(content)
        wanted = {
            ("--eval-every", "0"): (64, "--eval-every 0: "),
            ("--validation", empty): (65, f"{empty}: is empty\n  fix: give a text file with some text in it"),
            ("--validation", short): (
                65,
                f"{short}: the validation part has 11 tokens, 0 rows of 32; needed: 2 ",
            ),
            ("--test", short): (
                65,
                f"{short}: the test text has 11 tokens, 0 rows of 32; needed: one row, 33 tokens\n  fix: give a longer text",
            ),
            ("--init", pickle): (
                65,
                f"{pickle}: it is a pickle (torch.save), which can run any program when it is read\n  fix: convert it where you trust it",
            ),
            ("--init", index): (
                65,
                f"{index}: it lists the files of a model that is stored in several\n  fix: store it in one",
            ),
            ("--prompt", "Emma"): (64, "--prompt: this run makes no text\n  fix: add --sample N"),
            ("--eval-every", "2", "--set", "data.validation_fraction=0"): (
                64,
                "--eval-every 2: there is no validation text: data.validation_fraction is 0\n  fix: add --validation FILE, or --set ",
            ),
            ("--lr", "0.1"): (64, "--lr: it is a flag of other programs\n  fix: --set optim.lr=0.001"),
            ("--batch_size", "8"): (
                64,
                "--batch_size: it is a flag of other programs\n  fix: --set batch.global=N",
            ),
            ("--set", "data.validation_batches=3"): (
                64,
                '--set data.validation_batches=3: "data.validation_batches" is no key any more\n'
                "  fix: data.validation_rows: the old number times batch.micro",
            ),
            ("--set", "stage=3"): (
                64,
                '--set stage=3: "stage" is a key of other programs\n  fix: a stage is a lesson: lessons/02_zero1 (1)',
            ),
        }
        for flags, (code, text) in wanted.items():
            with self.subTest(flags=flags):
                ended = support.run("00_one_device", 0, *flags, "--out", support.new_path("out"))
                self.assertEqual((ended.code, len(ended.errors)), (code, 1), ended)
                self.assertIn(text, ended.err)
        ended = support.run("08_weight_versions", 2, "--set", "model.tied=off", "--eval-every", "2")
        self.expect_one_error(
            ended,
            64,
            "--eval-every: the stages would have to finish what is on its way, and every later step would be another one\n"
            "  fix: leave it out: a run evaluates at its end",
        )


if __name__ == "__main__":
    support.main()
