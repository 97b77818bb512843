"""Lesson 11 as somebody runs it: on its default ranks and on eight it ends in the file of lesson 00 in the same order of sums; a mesh that does not
fit is one message that names one that does; a rank that stops or dies is named with its place in the mesh; what stages took is on record."""

import filecmp
import re
import signal

import support

LESSON = "11_combined"
STEPS = ["--steps", "4", "--page", "off"]
ROWS = "batch.global=12 batch.micro=2"


class OnCpuRanks(support.ProcessTest):
    def test_files_are_lesson_00s(self):
        for ranks, mesh, order in (
            (4, "2x1x2", ("--tensor-ranks", "2", "--tied-sum", "split")),
            (8, "2x2x2", ("--tensor-ranks", "2", "--tied-sum", "split", "--virtual-ranks", "2")),
        ):
            with self.subTest(mesh=mesh):
                reference = support.Run("00_one_device", 0, ROWS, *order, *STEPS)
                run = support.Run(LESSON, ranks, f"{ROWS} mesh={mesh}", *STEPS)
                ended = support.side_by_side({"00": reference.job, "11": run.job}, at_once=2)
                for end in ended.values():
                    self.assertEqual((end.code, end.errors), (0, []), end)
                self.assertTrue(run.record()["as_predicted"])
                self.expect_measured_lists(run.record()["timetable"])
                self.assertTrue(filecmp.cmp(run.weights, reference.weights, shallow=False))
                self.assertEqual([loss for loss, _ in run.losses()], [loss for loss, _ in reference.losses()])

    # Of each stage's first rank: as lesson 07's.
    def expect_measured_lists(self, timetable):
        self.assertEqual([row["name"] for row in timetable["rows"]], ["measured", "simulated", "formula"])
        names = [[span[0] for span in stage] for stage in timetable["ranks"]]
        micro_batches = len(names[0]) // 2
        self.assertEqual(names[1], [f"{what}{i}" for i in range(micro_batches) for what in "FB"] + ["step@1"])
        self.assertEqual(sorted(names[0]), sorted(names[1]))

    def test_a_mesh_that_does_not_fit(self):
        for world, settings, words in (
            (6, ["mesh=2x2x2"], ("mesh: 2x2x2 makes 8 ranks, and there are 6", "fix: -n 8, or mesh=1x3x2")),
            (4, ["mesh=2x2"], ('mesh: "2x2" is not stages x data x tensor', "fix: mesh=2x1x2, or auto")),
            (4, ["mesh=2x0x2"], ('mesh: "2x0x2" is not stages x data x tensor',)),
            (4, ["mesh=2x1x2x"], ("is not stages x data x tensor",)),
            (
                4,
                ["schedule=zb_h1"],
                ("schedule: zb_h1 puts gradients of weights off", "a mesh with one tensor rank"),
            ),
        ):
            with self.subTest(settings=settings):
                flags = [part for setting in settings for part in ("--set", setting)]
                ended = support.run(LESSON, 0, "--plan", "--world", str(world), *flags)
                self.assertEqual(ended.code, 64, ended)
                for word in words:
                    self.assertIn(word, ended.err)


class Faults(support.ProcessTest):
    PLACE = r"stage {}, data rank {}, tensor rank {}"
    ANY = r"rank \d \(stage [01], data rank [01], tensor rank [01]\)"
    AT = r"; last operation \d+ \(.*\), train step \d+, stage {}, action \d+: \S+"

    def struck_rank(self, number, rank):
        return self.struck(
            number,
            rank,
            LESSON,
            8,
            *(f"--set={setting}" for setting in (*ROWS.split(), "mesh=2x2x2")),
            "--watchdog",
            "5",
        )

    def test_a_stopped_rank_is_named_with_its_place(self):
        self.expect_one_error(
            self.struck_rank(signal.SIGSTOP, 5),
            75,
            re.compile(
                rf"lost rank 5 \({self.PLACE.format(1, 0, 1)}\): {self.ANY} waits for its operation \d+ \(.*, train step \d+\) for more than 5\.0 s"
                r"\n  rank 5: process \d+ has stopped \(no heartbeat for \d+\.\d s\)"
                + self.AT.format(1)
                + r"\n  fix: see what it does there; a rank that is only slow needs a longer --watchdog \(now 5\.0 s\)"
            ),
        )

    def test_a_killed_rank_is_named_with_its_place(self):
        self.expect_one_error(
            self.struck_rank(signal.SIGKILL, 2),
            75,
            re.compile(
                rf"lost rank 2 \({self.PLACE.format(0, 1, 0)}\): noticed by {self.ANY}\n  rank 2: process \d+ is gone"
                + self.AT.format(0)
                + r"\n  fix: look above for its own last words; .*\n  killed with SIGKILL; .*"
            ),
        )


if __name__ == "__main__":
    support.main()
