"""Lesson 11 as somebody runs it: on its default ranks and on eight it ends in the file of lesson 00 in the
same order of sums; a mesh that does not fit is one message that names one that does; a rank that stops or
dies is named with its place in the mesh; what stages took is on record."""

import signal

import support
from support import Run

LESSON = "11_combined"
STEPS = "--steps 4 --page off"
ROWS = "batch.global=12 batch.micro=2"


class OnCpuRanks(support.ProcessTest):
    def test_files_are_lesson_00s(self):
        order = "--tensor-ranks 2 --tied-sum split"
        pairs = {
            mesh: (
                Run(LESSON, ranks, f"{ROWS} mesh={mesh} {STEPS}"),
                Run("00_one_device", 0, f"{ROWS} {order} {replicas} {STEPS}"),
            )
            for ranks, mesh, replicas in ((4, "2x1x2", ""), (8, "2x2x2", "--virtual-ranks 2"))
        }
        for run, reference in pairs.values():
            support.together([run, reference])
            for job in (run, reference):
                self.expect_well(job, warned=True)
            self.expect_record(run, as_predicted=True)
            self.expect_measured_lists(run.record()["timetable"])
            self.expect_same_file(run.weights, reference.weights)
            self.assertEqual([loss for loss, _ in run.losses()], [loss for loss, _ in reference.losses()])

    # The action lists of each stage's first rank are those of lesson 07.
    def expect_measured_lists(self, timetable):
        self.assertEqual([row["name"] for row in timetable["rows"]], ["measured", "simulated", "formula"])
        names = [[span[0] for span in stage] for stage in timetable["ranks"]]
        micro_batches = len(names[0]) // 2
        self.assertEqual(names[1], [f"{what}{i}" for i in range(micro_batches) for what in "FB"] + ["step@1"])
        self.assertEqual(sorted(names[0]), sorted(names[1]))

    def test_a_mesh_that_does_not_fit(self):
        shape = "is not stages x data x tensor"
        self.expect_ends(
            {
                f"{setting} --plan --world {world}": (64, words)
                for world, setting, words in (
                    (
                        6,
                        "mesh=2x2x2",
                        ("mesh: 2x2x2 makes 8 ranks, and there are 6", "fix: -n 8, or mesh=1x3x2"),
                    ),
                    (4, "mesh=2x2", (f'mesh: "2x2" {shape}', "fix: mesh=2x1x2, or auto")),
                    (4, "mesh=2x0x2", (f'mesh: "2x0x2" {shape}',)),
                    (4, "mesh=2x1x2x", (shape,)),
                    (
                        4,
                        "schedule=zb_h1",
                        ("schedule: zb_h1 puts gradients of weights off", "a mesh with one tensor rank"),
                    ),
                )
            },
            LESSON,
            0,
        )


class Faults(support.ProcessTest):
    ANY = r"rank \d \(stage [01], data rank [01], tensor rank [01]\)"

    def expect_place(self, number, rank, stage, data, tensor):
        self.expect_struck(
            number,
            rank,
            LESSON,
            8,
            f"{ROWS} mesh=2x2x2",
            who=self.ANY,
            place=rf" \(stage {stage}, data rank {data}, tensor rank {tensor}\)",
            at=rf"stage {stage}, action \d+: \S+",
        )

    def test_a_stopped_rank_is_named_with_its_place(self):
        self.expect_place(signal.SIGSTOP, 5, 1, 0, 1)

    def test_a_killed_rank_is_named_with_its_place(self):
        self.expect_place(signal.SIGKILL, 2, 0, 1, 0)


if __name__ == "__main__":
    support.main()
