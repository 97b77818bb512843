"""The proof on the real programs: 20 steps of lesson 01 over MPI end in the bytes of lesson 00's file with the same order of sums."""

import filecmp
import json

import support

STEPS = ["--steps", "20"]
# ranks: settings of lesson 01; together every bucket with overlap and without
SETTINGS = {
    2: ["bucket=unit overlap=on", "bucket=tensor overlap=off", "bucket=model overlap=on", "bucket=5000 overlap=off"],
    3: ["bucket=tensor overlap=on", "bucket=unit overlap=off", "bucket=5000 overlap=on activations=recompute"],
    4: ["bucket=model overlap=off", "bucket=5000 overlap=on", "bucket=unit overlap=on activations=recompute_gelu"],
}


def losses(out):
    with open(out + "/steps.jsonl", encoding="utf-8") as file:
        return [(step["loss"], step["grad_norm"]) for step in map(json.loads, file)]


def validation(out):
    with open(out + "/record.json", encoding="utf-8") as file:
        return json.load(file)["validation_loss"]


class Run:
    """Where a run's files will lie, and the run."""

    def __init__(self, lesson, ranks, *flags):
        self.out = support.new_path("out")
        self.weights = self.out + ".safetensors"
        self.job = lambda: support.run(lesson, ranks, *flags, "--out", self.out, "--save", self.weights)


def reference(world):
    return Run("00_one_device", 0, "--virtual-ranks", str(world), *STEPS)


def data_parallel(world, settings, *flags):
    return Run("01_data_parallel", world, *(part for s in settings.split() for part in ("--set", s)), *flags)


class BitEqual(support.ProcessTest):
    @classmethod
    def setUpClass(cls):
        cls.runs = {world: reference(world) for world in SETTINGS}
        cls.runs.update({(world, s): data_parallel(world, s, *STEPS) for world, settings in SETTINGS.items() for s in settings})
        cls.ended = support.side_by_side({name: run.job for name, run in cls.runs.items()}, at_once=2)

    def test_all_end_well(self):
        for name, ended in self.ended.items():
            with self.subTest(name=name):
                self.assertEqual((ended.code, ended.err), (0, ""), ended)

    def test_files_are_equal(self):
        for world, settings in SETTINGS.items():
            for setting in settings:
                with self.subTest(world=world, setting=setting):
                    run = self.runs[world, setting]
                    self.assertTrue(filecmp.cmp(run.weights, self.runs[world].weights, shallow=False))
                    self.assertEqual(losses(run.out), losses(self.runs[world].out))

    def test_another_order_is_another_file(self):
        self.assertFalse(filecmp.cmp(self.runs[2].weights, self.runs[3].weights, shallow=False), "the comparison could not fail")
        self.assertFalse(filecmp.cmp(self.runs[3].weights, self.runs[4].weights, shallow=False), "the comparison could not fail")

    def test_every_step_checked_its_replicas(self):
        run = data_parallel(2, "verify_replicas=1", "--steps", "3")
        ended = run.job()
        self.assertEqual((ended.code, ended.err), (0, ""), ended)

    # A file holds what the run ended with: its evaluation, and the first loss of a run that goes on from it, on any world.
    def test_a_run_goes_on_from_a_file(self):
        trained = self.runs[2, "bucket=unit overlap=on"]
        still = ["--set", "optim.lr=1e-30", "--steps", "1", "--init", trained.weights]
        one, two = Run("00_one_device", 0, "--virtual-ranks", "2", *still), data_parallel(2, "bucket=model", *still)
        for run in (one, two):
            ended = run.job()
            self.assertEqual((ended.code, ended.err), (0, ""), ended)
            self.assertTrue(filecmp.cmp(run.weights, trained.weights, shallow=False), "a step too small to change a bit")
        self.assertEqual(validation(two.out), validation(trained.out))
        self.assertAlmostEqual(validation(one.out), validation(trained.out), places=6)  # one rank adds in another order
        self.assertEqual(losses(one.out), losses(two.out))
        first = losses(one.out)[0][0]
        self.assertLess(first, losses(trained.out)[0][0] - 1, "the first loss of a trained model on the first step's rows")


if __name__ == "__main__":
    support.main()
