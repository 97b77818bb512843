#!/usr/bin/env python3
"""docs/explore/index.html in a real browser: it checks itself under #selftest, at a wide and a narrow window, and asks for nothing from anywhere;
this test plants mistakes that it must find. usage: page_test.py [NAME ...]. Exit 77: there is no chromium.
"""

import json
import pathlib
import re
import sys
import tempfile
import unittest

from browser import CHROMIUM, Browser

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "docs"), str(ROOT / "docs/explore")]
from page import allowed  # noqa: E402
from rendering import marks  # noqa: E402

PAGE = ROOT / "docs/explore/index.html"
TEXT = PAGE.read_text(encoding="utf-8")
DONE = 'document.getElementById("selftest")?.textContent'


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.browser = Browser()
        cls.browser.__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.browser.__exit__()

    def found(self, text, width=1280):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "page.html"
            file.write_text(allowed(text), encoding="utf-8")
            return json.loads(self.browser.opened(f"file://{file}#selftest", width, DONE)), file

    def fails(self, words, before, after):
        self.assertIn(before, TEXT)
        result, _ = self.found(TEXT.replace(before, after))
        self.assertFalse(result["pass"])
        self.assertTrue(any(re.search(words, fault) for fault in result["wrong"] + result["faults"]), result)

    def test_it_passes(self):
        for width in (1280, 390):
            with self.subTest(width):
                result, file = self.found(TEXT, width)
                self.assertTrue(result["pass"], result)
                asked = [
                    url
                    for url in self.browser.requests()
                    if not url.startswith("data:") and url.split("#")[0] != f"file://{file}"
                ]
                self.assertEqual((asked, self.browser.errors()), ([], []))
                print(f"{width} px: {result['times']} ms")

    def test_the_address_keeps_it(self):
        self.browser.opened(
            f"file://{PAGE}#view=schedule&s.stages=3&s.schedule=gpipe", 1280, "document.body.dataset.ready"
        )
        said = "document.getElementById('schedule-said').textContent"
        self.assertIn("--schedule gpipe --stages 3", self.browser.value(said))
        self.browser.opened(
            f"file://{PAGE}#view=schedule&s.stages=64&s.microbatches=512", 1280, "document.body.dataset.ready"
        )
        self.assertRegex(
            self.browser.value(said),
            "--microbatches 512error: schedule: 32,768 forwards in all .*, and this page draws 4,096\n  fix: ",
        )
        self.browser.opened(
            f"file://{PAGE}#ranks=4&lesson=04_zero3&04_zero3.prefetch=0", 1280, "document.body.dataset.ready"
        )
        self.assertIn(
            "-n 4 --workload configs/gpt2_1558m.json --set prefetch=0",
            self.browser.value("document.getElementById('lesson-detail').textContent"),
        )

    def test_links_of_pages(self):
        """Every page's link opens at an example that the programs answer."""
        found = {
            link
            for page in marks.pages()
            for link in re.findall(
                r"explore/index\.html(#[^)\s]+)\)", (ROOT / page).read_text(encoding="utf-8")
            )
        }
        lessons = {link.partition("lesson=")[2].partition("&")[0] for link in found}
        self.assertLessEqual(
            {folder.name for folder in (ROOT / "lessons").glob("[0-9][0-9]_*")}
            - {"09_checkpoint_and_faults"},
            lessons,
        )
        for link in sorted(found):
            with self.subTest(link):
                self.browser.opened(
                    f"file://{PAGE}{link}",
                    1280,
                    "document.body.dataset.ready && !document.body.innerText.includes('Looking ...')",
                )
                said = {"schedule": "schedule-said", "choose": "choose-said"}.get(
                    re.sub(r".*view=(\w+).*", r"\1", link), "lesson-detail"
                )
                self.assertEqual(self.browser.value(f"document.querySelectorAll('#{said} .error').length"), 0)
                self.assertIn(".sh", self.browser.value(f"document.getElementById('{said}').textContent"))

    def test_keys(self):
        shown = "document.querySelector('[role=tabpanel]:not([hidden])').id"
        self.browser.opened(f"file://{PAGE}#ranks=4", 1280, "document.body.dataset.ready")
        self.browser.pressed("Tab")
        self.assertEqual(self.browser.value("document.activeElement.id"), "tab-memory")
        self.browser.pressed("ArrowRight")
        self.assertEqual(self.browser.value(shown), "schedule")
        self.browser.value("document.querySelector('#schedule-form [type=range]').focus()")
        self.browser.pressed("ArrowRight")
        self.assertIn(
            "--stages 5", self.browser.value("document.getElementById('schedule-said').textContent")
        )
        self.browser.value("document.getElementById('playhead').focus()")
        self.browser.pressed("End")
        self.assertEqual(
            self.browser.value("+document.getElementById('now').textContent"),
            self.browser.value("timeline.makespan"),
        )
        self.browser.value("document.querySelector('#actions button').focus()")
        self.browser.pressed("Enter")
        self.browser.pressed("]")
        self.assertIn(
            "error: schedule", self.browser.value("document.getElementById('check-said').textContent")
        )
        self.browser.pressed("[")
        self.assertNotIn("error", self.browser.value("document.getElementById('check-said').textContent"))
        self.browser.value("document.getElementById('tab-schedule').focus()")
        self.browser.pressed("ArrowLeft")
        lesson = "document.getElementById('lesson-title').textContent"
        for _ in range(60):  # every field and button can be reached
            self.browser.pressed("Tab")
            if self.browser.value("document.activeElement.textContent").startswith("05 offload"):
                break
        self.browser.pressed("Enter")
        self.assertEqual(self.browser.value(lesson), "05 offload")

    def test_no_request(self):
        self.assertLess(len(TEXT.encode()), 4_000_000)
        policy = re.search(r'Content-Security-Policy" content="([^"]*)"', TEXT).group(1)
        self.assertIn("default-src 'none'", policy)
        self.assertIsNone(re.search(r"connect-src|https?:", policy))
        self.assertNotIn("script-src 'unsafe-inline'", policy)
        self.assertEqual(allowed(TEXT), TEXT, "the policy names other scripts than there are")
        own = re.sub(r'<script id="(code|engine)".*?</script>', "", TEXT, flags=re.S)
        self.assertIsNone(re.search(r"""\b(src|href)=["'](?!data:)|\bfetch\(|XMLHttpRequest|@import""", own))

    def test_planted_mistakes(self):
        self.fails(
            "parts are not its total",
            "const sum = of.reduce((total, buffer) => total + buffer.bytes, 0);",
            "const sum = of.length ? of[0].bytes : 0;",
        )
        self.fails(
            "refusal is not shown",
            'return void detail.append(element("pre", { class: "error" }, err.trim()));',
            "return;",
        )
        self.fails("too large is not refused", "forwards > MOST_FORWARDS", "forwards > Infinity")
        self.fails(
            "curves and counts differ",
            'timeline = result.code ? null : JSON.parse(file("timeline.json"));',
            'timeline = result.code ? null : JSON.parse(file("timeline.json")); timeline?.per_stage.forEach(stage => stage.alive.pop() && (stage.alive = stage.alive.slice(0, 1)));',
        )
        self.fails("wider than the window", "<body>", '<body><div style="width:2000px">wide</div>')
        self.fails(
            "checker says nothing",
            'at("check-said").replaceChildren(said(',
            'at("check-said").replaceChildren(void (',
        )
        self.fails(
            "planted",
            "function showChoose() {",
            'function showChoose() { setTimeout(() => { throw new Error("planted"); });',
        )


if __name__ == "__main__":
    if CHROMIUM is None:
        print("skipped: chromium is not there, which opens docs/explore/index.html")
        sys.exit(77)
    unittest.main()
