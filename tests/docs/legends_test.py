#!/usr/bin/env python3
"""A thing has one name and one colour: the legends of all figures, the cheat sheet among them, and of the
explorer are those of a run's page."""
import html
import json
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))
from rendering.palette import DARK, OF_PAGE, WORDS  # noqa: E402

EXPLORER = ROOT / "docs/explore"
# An entry of a schematic's legend (svg.py), and one of a plot's (matplotlib).
ENTRIES = (
    r'width="16" height="16" fill="(#\w+)"/>\n(?:<rect [^>]*url\(#hatch\)"/>\n)?'
    r'<text class="small"[^>]*>([^<]*)<',
    r'<g id="patch_\d+">\s*<path d="[^"]*" style="fill: (#\w+);[^"]*"/>\s*</g>\s*<g id="text_\d+">\s*'
    r"<text [^>]*>([^<]*)<",
)
# Things that are only told apart: ranks, stages, versions, numbers of micro-batches.
TOLD_APART = re.compile(r"v\d+|(rank|stage|rank or stage) \d|M = \d|t = \d")


def legend_of(svg):
    """[(fill, name)] of a figure's legend."""
    plot = svg.partition('<g id="legend_1">')[2]
    return [
        (fill, html.unescape(name))
        for text, entry in ((svg, ENTRIES[0]), (plot, ENTRIES[1]))
        for fill, name in re.findall(entry, text)
    ]


def names_of(fill):
    """What the page calls things of this colour."""
    colours = [colour for colour, pair in OF_PAGE.items() if pair[0] == fill]
    return [of[colour] for of in (WORDS["held"], WORDS["done"]) for colour in colours if colour in of]


def misnamed(legend):
    """Entries with a colour of the page that do not have its name in theirs, or a name of the page in another
    colour."""
    words = {name: colour for of in (WORDS["held"], WORDS["done"]) for colour, name in of.items()}
    return [
        (fill, name)
        for fill, name in legend
        if not TOLD_APART.match(name)
        and (
            names_of(fill) != []
            and not any(one in name for one in names_of(fill))
            or name in words
            and fill != OF_PAGE[words[name]][0]
        )
    ]


class Legends(unittest.TestCase):
    maxDiff = None

    def test_figures(self):
        found = {
            path.stem: legend_of(path.read_text()) for path in sorted((ROOT / "docs/figures").glob("*.svg"))
        }
        self.assertGreater(sum(legend != [] for legend in found.values()), 20)
        self.assertEqual(len(found["cheat_sheet"]), 6)
        self.assertEqual({name: wrong for name, legend in found.items() if (wrong := misnamed(legend))}, {})

    def test_dark_colours(self):
        for colour in (*WORDS["held"], *WORDS["done"]):
            self.assertEqual(DARK[OF_PAGE[colour][0]], OF_PAGE[colour][1])

    def test_explorer(self):
        """It is made with the page's words and colours, and has none of its own for the same things."""
        template = (EXPLORER / "template.html").read_text()
        self.assertIn("const COLOUR = {{PURPOSES}}, HELD = {{HELD}};", template)
        self.assertIn("Object.entries(HELD)", template)
        page = (EXPLORER / "index.html").read_text()
        made = json.loads(re.search(r"const COLOUR = .*, HELD = (.*);", page)[1])
        self.assertEqual(made, WORDS["held"])
        for colour, (light, dark) in OF_PAGE.items():
            self.assertIn(f"--{colour}: light-dark({light}, {dark});", page)
            self.assertNotIn(f"--{colour}:", template)

    def test_planted_names_and_colours_are_found(self):
        colour = {name: pair[0] for name, pair in OF_PAGE.items()}
        for wrong in (
            (colour["stash"], "stashed versions"),
            (colour["parameters"], "older weights"),
            (colour["optimizer"], "AdamW"),
            ("#123456", "waiting"),
        ):
            self.assertEqual(misnamed([(colour["gradients"], "gradients, too"), wrong]), [wrong])


if __name__ == "__main__":
    unittest.main()
