#!/usr/bin/env python3
"""docs/explore/index.html in a real browser: it checks itself under #selftest, at a wide and a narrow window,
and asks for nothing from anywhere; this test plants mistakes that it must find. usage: page_test.py [NAME
...]. Exit 77: there is no chromium.
"""

import json
import pathlib
import re
import sys
import tempfile
import unittest

from browser import Browser, run_tests

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
        cls.browser = cls.enterClassContext(Browser())

    def found(self, text, width=1280):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "page.html"
            file.write_text(allowed(text), encoding="utf-8")
            return json.loads(self.browser.opened(f"file://{file}#selftest", width, DONE)), file

    def opened(self, address, done="document.body.dataset.ready"):
        self.browser.opened(f"file://{PAGE}{address}", 1280, done)

    def text(self, element):
        return self.browser.value(f"document.getElementById('{element}').textContent")

    def pressed(self, chosen, *keys):
        """Keys that come to the element of this selector; without one to the element that has the focus."""
        if chosen:
            self.browser.value(f"document.querySelector('{chosen}').focus()")
        for key in keys:
            self.browser.pressed(key)

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
        for address, element, said in (
            ("#view=schedule&s.stages=3&s.schedule=gpipe", "schedule-said", "--schedule gpipe --stages 3"),
            (
                "#view=schedule&s.stages=64&s.microbatches=512",
                "schedule-said",
                "--microbatches 512error: schedule: 32,768 forwards in all .*, and this page draws 4,096\n  "
                "fix: ",
            ),
            (
                "#ranks=4&lesson=04_zero3&04_zero3.prefetch=0",
                "lesson-detail",
                "-n 4 --workload configs/gpt2_1558m.json --set prefetch=0",
            ),
        ):
            self.opened(address)
            self.assertRegex(self.text(element), said)

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
                self.opened(
                    link, "document.body.dataset.ready && !document.body.innerText.includes('Looking ...')"
                )
                said = {"schedule": "schedule-said", "choose": "choose-said"}.get(
                    re.sub(r".*view=(\w+).*", r"\1", link), "lesson-detail"
                )
                self.assertEqual(self.browser.value(f"document.querySelectorAll('#{said} .error').length"), 0)
                self.assertIn(".sh", self.text(said))

    def test_keys(self):
        self.opened("#ranks=4")
        self.pressed("", "Tab")
        self.assertEqual(self.browser.value("document.activeElement.id"), "tab-memory")
        self.pressed("", "ArrowRight")
        shown = "document.querySelector('[role=tabpanel]:not([hidden])').id"
        self.assertEqual(self.browser.value(shown), "schedule")
        self.pressed("#schedule-form [type=range]", "ArrowRight")
        self.assertIn("--stages 5", self.text("schedule-said"))
        self.pressed("#playhead", "End")
        self.assertEqual(float(self.text("now")), self.browser.value("timeline.makespan"))
        self.pressed("#actions button", "Enter", "]")
        self.assertIn("error: schedule", self.text("check-said"))
        self.pressed("", "[")
        self.assertNotIn("error", self.text("check-said"))
        self.pressed("#tab-schedule", "ArrowLeft")
        for _ in range(60):  # every field and button can be reached
            self.pressed("", "Tab")
            if self.browser.value("document.activeElement.textContent").startswith("05 offload"):
                break
        self.pressed("", "Enter")
        self.assertEqual(self.text("lesson-title"), "05 offload")

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
        for words, before, after in (
            (
                "parts are not its total",
                "const sum = of.reduce((total, buffer) => total + buffer.bytes, 0);",
                "const sum = of.length ? of[0].bytes : 0;",
            ),
            (
                "refusal is not shown",
                'return void detail.append(element("pre", { class: "error" }, err.trim()));',
                "return;",
            ),
            ("too large is not refused", "forwards > MOST_FORWARDS", "forwards > Infinity"),
            (
                "curves and counts differ",
                'timeline = result.code ? null : JSON.parse(file("timeline.json"));',
                'timeline = result.code ? null : JSON.parse(file("timeline.json")); '
                "timeline?.per_stage.forEach(stage => stage.alive.pop() && (stage.alive = "
                "stage.alive.slice(0, 1)));",
            ),
            ("wider than the window", "<body>", '<body><div style="width:2000px">wide</div>'),
            (
                "checker says nothing",
                'at("check-said").replaceChildren(said(',
                'at("check-said").replaceChildren(void (',
            ),
            (
                "planted",
                "function showChoose() {",
                'function showChoose() { setTimeout(() => { throw new Error("planted"); });',
            ),
        ):
            with self.subTest(words):
                self.assertIn(before, TEXT)
                result, _ = self.found(TEXT.replace(before, after))
                self.assertFalse(result["pass"])
                self.assertRegex("\n".join(result["wrong"] + result["faults"]), words)


if __name__ == "__main__":
    run_tests(sys.argv[1:])
