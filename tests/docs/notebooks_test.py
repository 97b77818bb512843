#!/usr/bin/env python3
"""Every notebook runs from its first cell to its last with nothing but docs/results beside it, from the root
and from notebooks/, and what it keeps is what it prints and draws there: texts to the letter; of pictures
that there are as many.

exit  0 all is well; 1 it is not; 77 there is no matplotlib"""
import base64
import json
import pathlib
import re
import shutil
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))
from rendering import notebooks, plots  # noqa: E402

PATHS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PNG = b"\x89PNG\r\n\x1a\n"
LARGEST, ALL_OF_THEM = 150_000, 500_000  # bytes


def said_and_drawn(outputs):
    """(text, pictures) of a cell."""
    return "".join("".join(one.get("text", "")) for one in outputs), sum(
        one["output_type"] == "display_data" for one in outputs
    )


def differences(notebook, outputs):
    """Cells that keep something else than an execution gives; and those that say nothing."""
    for count, (cell, found) in enumerate(zip(notebooks.code_cells(notebook), outputs), start=1):
        if said_and_drawn(cell["outputs"]) != said_and_drawn(found):
            yield (
                f"code cell {count}: it keeps {said_and_drawn(cell['outputs'])}, and now gives "
                f"{said_and_drawn(found)}; fix: python3 docs/render.py"
            )
        if not said_and_drawn(found)[0].strip():
            yield f"code cell {count}: it prints nothing"
        if any(
            not base64.b64decode(one["data"]["image/png"]).startswith(PNG)
            for one in cell["outputs"]
            if one["output_type"] == "display_data"
        ):
            yield f"code cell {count}: its picture is none"


class Notebooks(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.alone = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        shutil.copytree(ROOT / "docs/results", self.alone / "docs/results")
        (self.alone / "notebooks").mkdir()

    def test_each_keeps_what_an_execution_gives(self):
        self.assertEqual(len(PATHS), 3)
        for path in PATHS:
            notebook = json.loads(path.read_text())
            for folder in (self.alone, self.alone / "notebooks"):
                with self.subTest(notebook=path.name, folder=folder.name):
                    self.assertEqual(
                        list(differences(notebook, notebooks.run(path.name, notebook, folder))), []
                    )

    def test_every_question_has_a_picture_and_something_to_try(self):
        for path in PATHS:
            cells = json.loads(path.read_text())["cells"]
            asked = [i for i, cell in enumerate(cells) if "".join(cell["source"]).startswith("## ")]
            self.assertGreater(len(asked), 3, path.name)
            for i in asked:
                with self.subTest(notebook=path.name, cell="".join(cells[i]["source"]).split("\n", 1)[0]):
                    self.assertEqual(said_and_drawn(cells[i + 1]["outputs"])[1], 1)
                    self.assertRegex(
                        "".join(cells[i + 2]["source"]), r"(?s)^\*\*See\.\*\* .*\n\n\*\*Try\.\*\* "
                    )

    def test_they_are_small_and_their_links_lead_somewhere(self):
        sizes = [path.stat().st_size for path in PATHS]
        self.assertLess(max(sizes), LARGEST)
        self.assertLess(sum(sizes), ALL_OF_THEM)
        for path in PATHS:
            words = "".join(
                "".join(cell["source"])
                for cell in json.loads(path.read_text())["cells"]
                if cell["cell_type"] == "markdown"
            )
            for target in re.findall(r"\]\(([^)#\s]+)", words):
                self.assertTrue((path.parent / target).exists(), f"{path.name}: {target}")

    def test_another_number_in_a_record_is_noticed(self):
        path = self.alone / "docs/results/lesson_08.json"
        path.write_text(path.read_text().replace("2192640", "2292640"))
        notebook = json.loads(PATHS[1].read_text())
        outputs = notebooks.run(PATHS[1].name, notebook, self.alone)
        self.assertTrue(any("2.29 MB" in one for one in differences(notebook, outputs)))
        changed = json.loads(notebooks.with_outputs(json.loads(PATHS[1].read_text()), outputs))
        self.assertEqual(list(differences(changed, outputs)), [])

    def test_a_lost_picture_is_noticed(self):
        notebook = json.loads(PATHS[0].read_text())
        cell = next(cell for cell in notebooks.code_cells(notebook) if said_and_drawn(cell["outputs"])[1])
        cell["outputs"] = cell["outputs"][:1]
        self.assertEqual(
            len(list(differences(notebook, notebooks.run(PATHS[0].name, notebook, self.alone)))), 1
        )

    def test_a_picture_of_other_numbers_is_another(self):
        drawn = []
        with plots.matplotlib.rc_context(notebooks.SETTINGS):
            for height in (1, 1, 2):
                figure = plots.pyplot.figure()
                figure.add_subplot().bar([0], [height])
                drawn.append(notebooks.picture(figure))
        self.assertEqual(notebooks.without_pictures(drawn[:1]), notebooks.without_pictures(drawn[1:2]))
        self.assertNotEqual(notebooks.without_pictures(drawn[:1]), notebooks.without_pictures(drawn[2:]))


if __name__ == "__main__":
    if plots.matplotlib is None:
        print(f"skipped: {plots.missing()}")
        sys.exit(77)
    unittest.main()
