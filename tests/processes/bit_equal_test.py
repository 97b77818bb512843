"""The proof on the real programs: 20 steps of lesson 01 over MPI end in the bytes of lesson 00's file with the same order of sums."""

import filecmp

import support

STEPS = ["--steps", "20"]
# ranks: settings of lesson 01; together every bucket with overlap and without, as data_parallel_test.cpp has them on threads. Three ranks' sums have an order.
SETTINGS = {
    2: [
        "bucket=unit overlap=on",
        "bucket=tensor overlap=off",
        "bucket=model overlap=on",
        "bucket=5000 overlap=off",
    ],
    3: [
        "bucket=tensor overlap=on",
        "bucket=unit overlap=off",
        "bucket=5000 overlap=on activations=recompute",
    ],
    4: [
        "bucket=model overlap=off",
        "bucket=5000 overlap=on",
        "bucket=unit overlap=on activations=recompute_gelu",
    ],
}
FEW = "bucket=tensor overlap=on"
SETTINGS = support.chosen({**SETTINGS, 3: support.chosen(SETTINGS[3], FEW)}, 3)


def reference(world):
    return support.Run("00_one_device", 0, "", "--virtual-ranks", str(world), *STEPS)


def data_parallel(world, settings, *flags):
    return support.Run("01_data_parallel", world, settings, *flags)


class BitEqual(support.ProcessTest):
    @classmethod
    def setUpClass(cls):
        cls.runs = {world: reference(world) for world in (2, 3, 4)}
        cls.runs.update(
            {
                (world, s): data_parallel(world, s, *STEPS)
                for world, settings in SETTINGS.items()
                for s in settings
            }
        )
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
                    self.assertEqual(run.losses(), self.runs[world].losses())

    def test_another_order_is_another_file(self):
        self.assertFalse(
            filecmp.cmp(self.runs[2].weights, self.runs[3].weights, shallow=False),
            "the comparison could not fail",
        )
        self.assertFalse(
            filecmp.cmp(self.runs[3].weights, self.runs[4].weights, shallow=False),
            "the comparison could not fail",
        )

    @support.in_all_settings  # screen_test.py counts the checks
    def test_every_step_checked_its_replicas(self):
        run = data_parallel(2, "verify_replicas=1", "--steps", "3")
        ended = run.job()
        self.assertEqual((ended.code, ended.err), (0, ""), ended)

    # A file holds what the run ended with: its evaluation, and the first loss of a run that goes on from it, on any world.
    def test_a_run_goes_on_from_a_file(self):
        trained = self.runs[3, FEW]
        still = ["--set", "optim.lr=1e-30", "--steps", "1", "--init", trained.weights]
        one = support.Run("00_one_device", 0, "", "--virtual-ranks", "3", *still)
        two = data_parallel(3, "bucket=model", *still)
        for run in (one, two):
            ended = run.job()
            self.assertEqual((ended.code, ended.err), (0, ""), ended)
            self.assertTrue(
                filecmp.cmp(run.weights, trained.weights, shallow=False), "a step too small to change a bit"
            )
        self.assertEqual(two.record()["validation_loss"], trained.record()["validation_loss"])
        self.assertAlmostEqual(
            one.record()["validation_loss"], trained.record()["validation_loss"], places=6
        )  # one rank adds in another order
        self.assertEqual(one.losses(), two.losses())
        first = one.losses()[0][0]
        self.assertLess(
            first, trained.losses()[0][0] - 1, "the first loss of a trained model on the first step's rows"
        )


if __name__ == "__main__":
    support.main()
