#!/usr/bin/env python3
"""The page of a run (common/records/page/template.html) in a real browser: it checks itself under #selftest, and this test
plants mistakes that the check must find. usage: page_test.py [NAME ...]. Exit 77: there is no chromium.
"""

import copy
import json
import re
import sys
import unittest

from page_browser import CHROMIUM, browse
from page_sample import NAMES, sample
from run_page import SLOT, TEMPLATE, data_in
from run_page import page_of as page

LIMIT = 1_000_000  # bytes of a page
ZERO3, OFFLOAD, PIPELINE, REPLICAS = "04_zero3", "05_offload", "07_pipeline", "01_data_parallel"


def move(data, rank, kind, matching, change):
    """Applies `change` to the first row of marks that matches; it may return None to drop it."""
    rows = data["marks"]["ranks"][rank][kind]
    at = next(i for i, row in enumerate(rows) if matching(row))
    row = change(list(rows[at]))
    rows[at : at + 1] = [] if row is None else [row]


class Case(unittest.TestCase):
    def found(self, data, template=None, width=1280):
        text = page(data, template)
        self.assertLessEqual(len(text.encode()), LIMIT)
        texts = browse(text, width)
        self.assertIn("selftest", texts, "the page did not come to its end")
        return json.loads(texts["selftest"]), texts

    def passes(self, data, **how):
        result, texts = self.found(data, **how)
        self.assertTrue(result["pass"], result)
        return texts

    def fails(self, words, data, template=None):
        result, _ = self.found(data, template)
        self.assertFalse(result["pass"])
        self.assertTrue(any(re.search(words, fault) for fault in result["faults"]), result)


class Passes(Case):
    def test_each_lesson(self):
        for lesson in NAMES:
            with self.subTest(lesson):
                texts = self.passes(sample(lesson))
                self.assertIn("exactly as predicted", texts["verdict"])

    def test_a_moment_in_words(self):
        texts = self.passes(sample(ZERO3))
        self.assertRegex(texts["explain"], r"Travelling: block \d's (parameters|gradients) (go to every rank|are summed)")

    def test_narrow(self):
        self.passes(sample(ZERO3), width=520)

    def test_eight_ranks(self):
        for lesson in (ZERO3, PIPELINE):
            with self.subTest(lesson):
                self.passes(sample(lesson, ranks=8, blocks=8))

    def test_one_rank(self):
        self.assertIn("No message is travelling", self.passes(sample(REPLICAS, ranks=1))["explain"])

    def test_many_marks(self):
        self.passes(sample(ZERO3, blocks=12, micro=6))

    def test_without_marks(self):
        data = sample(ZERO3)
        for marks in ({}, {"steps": [], "left_out": "", "ranks": []}):
            data["marks"] = marks
            self.assertIn("recorded no marks", self.passes(data)["nomarks"])

    def test_some_ranks_left_out(self):
        data = sample(ZERO3, ranks=4)
        data["marks"]["left_out"] = "Only the first and the last rank are shown."
        data["marks"]["ranks"] = [data["marks"]["ranks"][i] for i in (0, 3)]
        self.assertIn("Only the first", self.passes(data)["nomarks"])

    def test_long_runs(self):
        for steps in (1, 6, 20_000):
            with self.subTest(steps):
                data = sample(REPLICAS, steps=steps)
                self.assertLessEqual(len(data["steps"]["step"]), 2_000)
                self.passes(data)

    def test_a_run_that_ended_early(self):
        data = sample(ZERO3)
        data["record"].update(exit_code=70, message="loss is not finite", ranks=[], as_predicted=None)
        data.update(marks={}, steps={}, buffers=[])
        self.assertIn("exit code 70: loss is not finite", self.passes(data)["verdict"])

    def test_not_as_predicted(self):
        data = sample(ZERO3)
        data["record"]["as_predicted"] = False
        data["record"]["ranks"][1]["predicted_bytes"]["gradients"] += 4
        verdict = self.found(data)[1]["verdict"]
        self.assertIn("rank 1, gradients (device), bytes", verdict)

    def test_strings_do_no_harm(self):
        data = sample(ZERO3)
        hard = "</script><script>document.title='no'</script> <!-- \"quotes\" 'and' & \u00e9\u4e2d\U0001f600 \u2028 \\"
        data["question"] = hard
        data["record"]["command"] = hard
        data["record"]["versions"][hard] = hard
        data["units"][2] = hard[:18]
        for row in data["buffers"][0]:
            row[2] = row[3] = hard
        data["record"]["ranks"][0]["cpu"] = hard
        texts = self.found(data)[1]
        self.assertEqual(texts["question"], hard)
        self.assertIn(hard, texts["origin"])


# What a person does; each line's value is written to #done. `key` presses one, `at` is the playhead in us.
HANDS = """
const done = [], key = (name) => dispatchEvent(new KeyboardEvent("keydown", { key: name, cancelable: true }));
const at = () => Number($("timeline").getAttribute("aria-valuenow"));
const write = () => document.body.insertAdjacentHTML("beforeend", tag("pre", { id: "done" }, esc(JSON.stringify(done))));
const point = (e, name) => e.dispatchEvent(new PointerEvent(name, { bubbles: true, clientX: 700, clientY: 300, pointerId: 1 }));
SVGElement.prototype.setPointerCapture = () => {};
try {
  const first = at();
  key("ArrowRight"); done.push(["right", at() > first]);
  key("ArrowLeft"); done.push(["left", Math.abs(at() - first) < 2000]);
  key("End"); done.push(["end", at() === Math.round(view.d1 - view.d0)]);
  key("Home"); done.push(["home", at() === 0]);
  key("0"); const whole = view.v1 - view.v0;
  key("+"); done.push(["zoom in", Math.abs((view.v1 - view.v0) / whole - 0.5) < 0.01]);
  key("-"); done.push(["zoom out", view.v1 - view.v0 === whole]);
  $("steps").children[1].click(); done.push(["step 4", $("when").textContent.includes("into step 4")]);
  point($("timeline").querySelector(".op rect"), "pointermove"); done.push(["tip", !$("tip").hidden && /^Rank 0: .* Begins at/.test($("tip").textContent)]);
  point($("timeline").querySelector(".op rect"), "pointerdown"); done.push(["message", /issued.*under way.*waited for/.test($("message").textContent)]);
  key("Escape"); done.push(["no message", $("message").textContent === ""]);
  point($("timeline"), "pointerdown"); done.push(["playhead", Math.abs(x(view.t) - 700 + $("timeline").getBoundingClientRect().left) < 1]);
  $("explain").querySelector("button")?.click(); done.push(["from the text", view.chosen === null || $("message").textContent !== ""]);
  $("memory").querySelector("button").click(); done.push(["buffers", /params_shard.*4 P\/N/.test($("buffers").textContent)]);
  $("events").open = true; listEvents(); const row = $("list").querySelectorAll("button")[20]; row.click();
  done.push(["list", Math.abs(view.t - row.dataset.t) < 1 && $("list").textContent.includes("Forward of block 2")]);
  key("Home"); key("p"); done.push(["pause is offered", $("play").textContent === "Pause"]);
} catch (error) { done.push([String(error), false]); }
const still = performance.now(); while (performance.now() - still < 50);
setTimeout(() => { done.push(["plays", at() > 0]); play(false); write(); }, 1300);
"""


class Hands(Case):
    def acted(self, *flags):
        before, after = TEMPLATE.read_text(encoding="utf-8").rsplit("showAll();\n", 1)
        template = f"{before}showAll();\n{HANDS}{after}"
        done = json.loads(browse(page(sample(ZERO3), template), more=("--virtual-time-budget=4000", *flags))["done"])
        self.assertEqual([name for name, well in done if not well], [], done)
        return done

    def test_keys_pointer_and_text(self):
        self.acted()

    def test_without_motion_it_plays_from_event_to_event(self):
        self.acted("--force-prefers-reduced-motion")


class Planted(Case):
    def test_a_missing_release(self):
        for what, state in (("G", "slice"), ("P", "slice")):
            with self.subTest(what):
                data = sample(ZERO3)
                start = data["marks"]["ranks"][0]["begins"][0]
                move(data, 0, "holds", lambda h, w=what, s=state: h[0] > start + 1 and h[1] == w and h[3] == s, lambda h: None)
                self.fails(r"alive|after (leaving|whole)", data)

    def test_a_shifted_span(self):
        data = sample(ZERO3)
        move(data, 1, "spans", lambda s: s[1] == "forward" and s[2] == 2, lambda s: s[:4] + [s[4] - 900] + s[5:])
        self.fails(r"rank 1, forward of block 2.*(before it ends|without whole)", data)

    def test_a_span_before_its_parameters(self):
        data = sample(ZERO3)
        move(data, 0, "spans", lambda s: s[1] == "forward" and s[2] == 1, lambda s: s[:4] + [s[4] - 600] + s[5:])
        self.fails(r"rank 0, forward of block 1.*without whole parameters", data)

    def test_a_dropped_message(self):
        for lesson, kind in ((ZERO3, "all_gather"), (PIPELINE, "send"), (OFFLOAD, "to_host")):
            with self.subTest(kind):
                data = sample(lesson)
                move(data, 0, "operations", lambda o, k=kind: o[0] == k, lambda o: None)
                self.fails("messages of rank 0 in step 3", data)

    def test_one_end_alone(self):
        data = sample(PIPELINE)
        for operations in ("measured_operations", "predicted_operations"):
            data["record"]["ranks"][0][operations] = [o for o in data["record"]["ranks"][0][operations] if o["kind"] != "send"]
        data["marks"]["ranks"][0]["operations"] = [o for o in data["marks"]["ranks"][0]["operations"] if o[0] != "send"]
        self.fails("one end alone", data)

    def test_too_many_sets(self):
        data = sample(PIPELINE)
        data["limits"]["sets"] = [1, 1]
        self.fails("2 activations alive", data)

    def test_contents_beyond_the_ledger(self):
        data = sample(REPLICAS)
        data["sizes"][1] *= 2
        self.fails("bytes of parameters in", data)

    def test_buffers_of_another_sum(self):
        data = sample(ZERO3)
        data["buffers"][1][0][4] += 4
        self.fails("buffers of rank 1", data)

    def in_template(self, before, after, words, lesson=ZERO3):
        text = TEMPLATE.read_text(encoding="utf-8")
        self.assertEqual(text.count(before), 1, before)
        self.fails(words, sample(lesson), text.replace(before, after))

    def test_a_wrong_colour(self):
        self.in_template("--gradients: light-dark(#f9bd6c", "--gradients: light-dark(#94bdf5", "colour, light: gradients is blue")
        self.in_template("#a32b22", "#1d6b38", "colour, dark: waiting is green")
        self.in_template('item.pass === "update" ? "optimizer" : /', 'item.pass === "update" ? "parameters" : /', "colour, light: optimizer is blue")

    def test_a_faint_text(self):
        self.in_template("--dim: light-dark(#555b64", "--dim: light-dark(#9aa0a8", "contrast, light")

    def test_a_wrong_width(self):
        self.in_template("width:${100 * BAR * n / most}%", "width:${100 * BAR * n / most + 0.2}%", "widths of rank")

    def test_labels_that_overlap(self):
        self.in_template("view.width / 130)", "view.width / 13)", "labels overlap")

    def test_a_cell_that_lies(self):
        self.in_template('"data-state": hold.state', '"data-state": "whole"', "cell 0")

    def test_a_page_error_and_a_request(self):
        self.in_template("// --- verdict ---\n", 'setTimeout(() => 0);\ndispatchEvent(new ErrorEvent("error", { message: "planted" }));\n', "page error or a request: planted")


class Template(unittest.TestCase):
    def test_its_limits(self):
        text = TEMPLATE.read_text(encoding="utf-8")
        script = text.split("<script>\n")[1].split("</script>")[0]
        self.assertLessEqual(len(script.splitlines()), 600)
        self.assertNotRegex(text, r"https?:|@import|url\(|\bsrc=|\bhref=|\bfetch\(|XMLHttpRequest|import\(")
        self.assertIn("default-src 'none'", text)
        self.assertTrue(text.isascii())
        self.assertEqual(text.count(SLOT), 1)

    def test_what_is_written_is_read(self):
        data = sample(ZERO3)
        data["question"] = "</script>"
        line = re.search(r'<script id="data" type="application/json">(.*?)</script>', page(data)).group(1)
        self.assertNotIn("<", line)
        self.assertEqual(json.loads(line), json.loads(json.dumps(copy.deepcopy(data))))

    def test_sample_pages_have_todays_template(self):
        pages = sorted((TEMPLATE.parents[3] / "docs/pages").glob("*.html"))
        self.assertGreaterEqual(len(pages), 9)
        for path in pages:
            text = path.read_text(encoding="utf-8")
            before, after = TEMPLATE.read_text(encoding="utf-8").split("{}</script>\n<script>", 1)
            self.assertTrue(text.startswith(before) and text.endswith(after), f"{path.name}; fix: docs/pages/make.sh --refit")
            self.assertEqual(data_in(text)["format"], 1)


if __name__ == "__main__":
    if CHROMIUM is None:
        print("skipped: there is no chromium (common/setup/setup.sh --dev)")
        sys.exit(77)
    unittest.main()
