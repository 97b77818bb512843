"""Lessons 02-04 on the real programs: 12 steps over MPI end in the bytes of lesson 00's file with the same order of sums; the sharded
strategies run under a cap that stops data parallelism."""

import filecmp
import json
import re

import support

STEPS = ["--steps", "12"]
# ranks: (lesson, order of sums, settings)
SETTINGS = {
    2: [("02_zero1", "step", "overlap=on"), ("03_zero2", "micro_batch", "bucket=unit"), ("03_zero2", "step", "accumulate=full overlap=off"),
        ("04_zero3", "micro_batch", "prefetch=1"), ("04_zero3", "micro_batch", "persist_below=1000 prefetch=0")],
    3: [("02_zero1", "step", "overlap=off activations=recompute"), ("03_zero2", "micro_batch", "bucket=5000 activations=recompute_gelu"),
        ("04_zero3", "micro_batch", "prefetch=2 activations=recompute"), ("04_zero3", "micro_batch", "reshard_after_forward=off model.tied=off")],
}


def losses(out):
    with open(out + "/steps.jsonl", encoding="utf-8") as file:
        return [(step["loss"], step["grad_norm"]) for step in map(json.loads, file)]


def record(out):
    with open(out + "/record.json", encoding="utf-8") as file:
        return json.load(file)


class Run:
    def __init__(self, lesson, ranks, settings, *flags):
        self.out = support.new_path("out")
        self.weights = self.out + ".safetensors"
        setting = [part for s in settings.split() for part in ("--set", s)]
        self.job = lambda: support.run(lesson, ranks, *setting, *flags, "--out", self.out, "--save", self.weights)


def of_model(settings):
    return " ".join(s for s in settings.split() if "model." in s)


class Zero(support.ProcessTest):
    @classmethod
    def setUpClass(cls):
        cls.references, cls.runs = {}, {}
        for world, rows in SETTINGS.items():
            for lesson, order, settings in rows:
                key = (world, order, of_model(settings))
                cls.references[key] = Run("00_one_device", 0, of_model(settings), "--virtual-ranks", str(world), "--reduce-every", order, *STEPS)
                cls.runs[world, lesson, settings] = (Run(lesson, world, settings, *STEPS), key)
        jobs = {name: run.job for name, (run, _) in cls.runs.items()}
        cls.ended = support.side_by_side({**jobs, **{key: run.job for key, run in cls.references.items()}}, at_once=2)

    def test_all_end_well_and_as_predicted(self):
        for name, ended in self.ended.items():
            with self.subTest(name=name):
                self.assertEqual((ended.code, ended.err), (0, ""), ended)
        for name, (run, _) in self.runs.items():
            with self.subTest(name=name):
                self.assertTrue(record(run.out)["as_predicted"])

    def test_files_and_losses_are_equal(self):
        for name, (run, key) in self.runs.items():
            with self.subTest(name=name):
                self.assertTrue(filecmp.cmp(run.weights, self.references[key].weights, shallow=False))
                self.assertEqual(losses(run.out), losses(self.references[key].out))

    def test_another_order_is_another_file(self):
        one, other = self.references[2, "step", ""], self.references[2, "micro_batch", ""]
        self.assertFalse(filecmp.cmp(one.weights, other.weights, shallow=False), "the comparison could not fail")

    # What 04 wrote is what 02 goes on from, and the other way round.
    def test_a_run_goes_on_from_a_file_of_another_lesson(self):
        trained = self.runs[2, "04_zero3", "prefetch=1"][0]
        still = ["--set", "optim.lr=1e-30", "--steps", "1", "--init", trained.weights]
        for lesson, settings in (("02_zero1", ""), ("03_zero2", ""), ("04_zero3", "persist_below=1000"), ("04_zero3", "")):
            run = Run(lesson, 3, settings, *still)
            ended = run.job()
            self.assertEqual((ended.code, ended.err), (0, ""), ended)
            self.assertTrue(filecmp.cmp(run.weights, trained.weights, shallow=False), "a step too small to change a bit")

    def test_a_cap_that_stops_01_lets_04_run(self):
        more = ["--set", "model.layers=8", "--steps", "2"]
        peak = {}
        for lesson in ("01_data_parallel", "04_zero3"):
            ended = support.run(lesson, 4, *more, "--out", (out := support.new_path("out")))
            self.assertEqual((ended.code, ended.err), (0, ""), ended)
            peak[lesson] = max(rank["measured_bytes"]["total"] for rank in record(out)["ranks"])
        self.assertLess(peak["04_zero3"], 0.9 * peak["01_data_parallel"])
        cap = str((peak["01_data_parallel"] + peak["04_zero3"]) // 2)
        fits = support.run("04_zero3", 4, *more, "--memory-cap", cap, "--out", support.new_path("out"))
        self.assertEqual((fits.code, fits.err), (0, ""), fits)
        stopped = support.run("01_data_parallel", 4, *more, "--memory-cap", cap, "--out", support.new_path("out"))
        self.assertEqual(stopped.code, 69, stopped)
        self.assertRegex(stopped.errors[0], re.compile(r"--memory-cap .*asks for"))


if __name__ == "__main__":
    support.main()
