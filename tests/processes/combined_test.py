"""Lesson 11 as somebody runs it: on its default ranks and on eight it ends in the file of lesson 00 in the same order of sums; a mesh that does not
fit is one message that names one that does."""

import filecmp

import support

LESSON = "11_combined"
STEPS = ["--steps", "4", "--page", "off"]
ROWS = "batch.global=12 batch.micro=2"


class OnCpuRanks(support.ProcessTest):
    def test_files_are_lesson_00s(self):
        for ranks, mesh, order in ((4, "2x1x2", ("--tensor-ranks", "2", "--tied-sum", "split")),
                                   (8, "2x2x2", ("--tensor-ranks", "2", "--tied-sum", "split", "--virtual-ranks", "2"))):
            with self.subTest(mesh=mesh):
                reference = support.Run("00_one_device", 0, ROWS, *order, *STEPS)
                run = support.Run(LESSON, ranks, f"{ROWS} mesh={mesh}", *STEPS)
                ended = support.side_by_side({"00": reference.job, "11": run.job}, at_once=2)
                for end in ended.values():
                    self.assertEqual((end.code, end.errors), (0, []), end)
                self.assertTrue(run.record()["as_predicted"])
                self.assertTrue(filecmp.cmp(run.weights, reference.weights, shallow=False))
                self.assertEqual([loss for loss, _ in run.losses()], [loss for loss, _ in reference.losses()])

    def test_a_mesh_that_does_not_fit(self):
        for world, settings, words in ((6, ["mesh=2x2x2"], ("mesh: 2x2x2 makes 8 ranks, and there are 6", "fix: -n 8, or mesh=1x3x2")),
                                       (4, ["mesh=2x2"], ('mesh: "2x2" is not stages x data x tensor', "fix: mesh=2x1x2, or auto")),
                                       (4, ["mesh=2x0x2"], ('mesh: "2x0x2" is not stages x data x tensor',)), (4, ["mesh=2x1x2x"], ("is not stages x data x tensor",)),
                                       (4, ["schedule=zb_h1"], ("schedule: zb_h1 puts gradients of weights off", "a mesh with one tensor rank"))):
            with self.subTest(settings=settings):
                flags = [part for setting in settings for part in ("--set", setting)]
                ended = support.run(LESSON, 0, "--plan", "--world", str(world), *flags)
                self.assertEqual(ended.code, 64, ended)
                for word in words:
                    self.assertIn(word, ended.err)


if __name__ == "__main__":
    support.main()
