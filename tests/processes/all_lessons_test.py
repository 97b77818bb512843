"""lessons/all.sh: what it says of real runs, that their bits are compared, and what it refuses."""

import contextlib
import io
import pathlib
import sys
import tempfile
import unittest.mock

import support

sys.path[:0] = [f"{support.ROOT}/common/records/curves", f"{support.ROOT}/tests/docs"]
import commands_test  # noqa: E402
import side_by_side  # noqa: E402


class AllLessons(support.ProcessTest):
    def command(self, *words):
        with tempfile.TemporaryDirectory() as place:
            folder = commands_test.playground(
                pathlib.Path(place).resolve() / "repository", pathlib.Path(support.programs).resolve()
            )
            line = ["lessons/all.sh", "--no-build", *words]
            return support.finished(line, cwd=folder, env=support.environment())

    def test_lessons_side_by_side(self):
        ended = self.command("00", "06", "08", "--steps", "2")
        self.expect_well(ended)
        held, moved = (
            {line.split()[0]: line.split()[2:] for line in block.splitlines()[1:]}
            for block in ended.out.split("\n\n")[1:]
        )
        self.assertEqual(held["00"], ["1", "17,115,480", "-", "-", "-", "as", "predicted"])
        self.assertEqual((held["06"][0], held["06"][3], held["06"][5:]), ("4", "-", ["as", "predicted"]))
        device, pinned, disk = (int(held["06"][at].replace(",", "")) for at in (1, 2, 4))
        self.assertTrue(
            0 < pinned < disk < device,
            "a window is pinned, states are on the disk, parameters and activations on the device",
        )
        self.assertEqual((moved["00"][:3], moved["00"][4:]), (["-"] * 3, ["00"]))
        self.assertEqual(moved["06"][4:], ["00", "--virtual-ranks", "4", "--reduce-every", "micro_batch"])
        self.assertEqual(moved["08"][4:], ["its", "own"])

    def test_other_bits_are_named(self):
        record = {
            "lesson": "x",
            "world": 4,
            "as_predicted": True,
            "ranks": [
                {"rank": 0, "measured_bytes": {"parameters": 4, "total": 4}, "measured_operations": []}
            ],
        }
        made = {}

        def ran(words, more, folder):
            return made.setdefault(words[0], side_by_side.Ran(record, f"bits of {len(made)}"))

        said = io.StringIO()
        with unittest.mock.patch.object(side_by_side, "ran", ran), contextlib.redirect_stdout(said):
            self.assertEqual(side_by_side.main(["--no-build", "00"]), 0)
            self.assertEqual(side_by_side.main(["--no-build", "00", "01"]), 70)
        self.assertIn("DIFFERENT", said.getvalue())

    def test_a_run_that_fails_ends_it(self):
        with unittest.mock.patch.object(support, "programs", support.new_folder("none")):
            ended = self.command("00")
        self.expect_one_error(ended, 69, ())

    def test_refused(self):
        for words, where in (
            (["99"], "lessons/all.sh: '99' is no lesson"),
            (["--steps", "1"], "--steps: '1' is not a number of steps"),
            (["--steps", "1e9"], "--steps: '1e9'"),
            (["--frog"], "lessons/all.sh: unrecognized arguments: --frog"),
        ):
            with self.subTest(words=words):
                ended = self.command(*words)
                self.expect_one_error(ended, 64, (where,))
                self.assertEqual(ended.out, "")


if __name__ == "__main__":
    support.main()
