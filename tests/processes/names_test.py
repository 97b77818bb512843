"""What a trace shows has names: every operation the one that the plan gives it, and every pass a unit and a
micro-batch. The page of the same run finds nothing wrong with itself, in a browser where there is one."""
import collections
import json
import os
import pathlib
import re
import sys
import unittest

import support
from support import Run

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1] / "records"))
from page_browser import CHROMIUM, browse

STEP = 2  # of three: the first one differs in lessons 05 and 06, the last one is followed by an evaluation
# With six blocks units take turns in buffers, so a buffer that is not given up shows as one too many on the
# page.
LESSONS = {
    **{file.parent.name: "" for file in sorted(pathlib.Path(support.ROOT).glob("lessons/[0-9]*/*_plan.cpp"))},
    "03_zero2": "model.layers=6",
    "04_zero3": "model.layers=6",
    "05_offload": "model.layers=6 parameters=sharded",
    "06_infinity": "model.layers=6 parameters=sharded",
    "07_pipeline": "batch.micro=3",
    "08_weight_versions": "model.tied=off batch.micro=3",
}
LESSONS = support.chosen(LESSONS, "04_zero3", "06_infinity", "08_weight_versions", "10_tensor_parallel")
BROWSED = support.chosen(LESSONS, "06_infinity", "08_weight_versions")  # a browser takes as long as four runs
PASSES = ("forward", "backward_input", "backward_weights")


def events_of(trace, step):
    """Rank 0's events that lie in the step."""
    mine = [e for e in trace["traceEvents"] if e["ph"] == "X" and e["pid"] == 0]
    (whole,) = [e for e in mine if e["name"] == f"step {step}"]
    return [e for e in mine if e is not whole and whole["ts"] <= e["ts"] < whole["ts"] + whole["dur"]], mine


class Names(support.ProcessTest):
    def test_marks_change_no_bit_and_a_page_that_cannot_be_written_is_a_warning(self):
        jobs = {page: Run("04_zero3", 2, f"--steps 5 --page {page}") for page in ("on", "off")}
        for job in jobs.values():
            os.makedirs(job.out + "/page.html/in the way")
        support.together(jobs.values())
        for page, warned in (("on", 1), ("off", 0)):
            ended = jobs[page].ended
            self.assertEqual((ended.code, ended.said.count("page.html")), (0, warned), ended)
            self.expect_record(jobs[page], as_predicted=True)
        self.expect_same(jobs["on"], jobs["off"])

    def test_of_every_lesson(self):
        for lesson, settings in LESSONS.items():
            with self.subTest(lesson=lesson):
                self.check(lesson, settings)

    @unittest.skipUnless(CHROMIUM, "there is no chromium")
    def test_pages_of_meshes(self):
        meshes = {
            ("11_combined", 8, "mesh=2x2x2"): "Rank 0: stage 0, replica 0, tensor rank 0",
            ("07_pipeline", 4, "replicas=2 states=sharded"): "Rank 0: stage 0, replica 0",
            ("04_zero3", 4, "shard_ranks=2"): "Rank 0: replica 0, shard 0",
            ("11_combined", 4, "mesh=2x1x2 model.heads=3 model.width=48"): "Rank 0: stage 0, tensor rank 0",
        }
        for (lesson, ranks, settings), chosen in support.chosen(meshes, [*meshes][-1]).items():
            with self.subTest(lesson=lesson):
                job = Run(lesson, ranks, f"batch.micro=3 {settings} --steps 4")
                self.assertEqual(job.ended.code, 0, job.ended)
                texts = browse(support.read_text(job.out, "page.html"))
                self.assertEqual(json.loads(texts["selftest"])["faults"], [])
                self.assertIn(chosen, texts["shared"])
                self.assertNotIn("is not shown", texts.get("nomarks", ""))

    def check(self, lesson, settings):
        ranks = 0 if lesson == "00_one_device" else 2
        planned = support.run(lesson, 0, f"{settings} --plan --json --world {max(1, ranks)}")
        self.assertEqual(planned.code, 0, planned)
        plan = json.loads(planned.out)
        job = Run(lesson, ranks, f"{settings} --steps 4 --trace")
        self.assertEqual(job.ended.code, 0, job.ended)
        inside, mine = events_of(support.read_json(job.out, "trace.json"), STEP)
        operations = collections.Counter(
            e["name"] for e in mine if e["cat"] == "train" and e["args"]["step"] == str(STEP)
        )
        expected = collections.Counter()
        for row in plan["ranks"][0]["operations"]:
            expected[row["name"]] += row["count"]
        self.assertEqual(operations, expected)
        for name in operations:
            self.assertRegex(name, r"\A\w+ of .* \([\d,]+ \w+\)\Z")  # each carries something
        self.check_page(lesson, support.read_text(job.out, "page.html"), plan)
        if lesson < "07":
            self.check_passes(
                [e["name"] for e in inside if e["cat"] == "compute"],
                len(plan["units"]) - 2,
                plan["micro_batches"],
            )

    def check_page(self, lesson, text, plan):
        self.assertLess(len(text), 1_000_000)
        data = json.loads(
            re.search(r'<script id="data" type="application/json">(.*?)</script>', text).group(1)
        )
        self.assertEqual(
            (data["lesson"], data["units"][0], len(data["units"])), (lesson, "embedding", len(plan["units"]))
        )
        marks = data["marks"]
        self.assertEqual(
            (marks["steps"], marks["left_out"], len(marks["ranks"])), ([2, 3], "", plan["world"])
        )
        for rank in marks["ranks"]:
            self.assertTrue(rank["spans"] and rank["holds"], (lesson, rank["rank"]))
        for name, what in (
            ("sets", "A"),
            ("versions", "P"),
        ):  # as many as pipedream counts for each stage, and not fewer
            for rank, most in zip(marks["ranks"], data["limits"].get(name, ())):
                self.assertEqual(
                    max(row[4] if len(row) > 4 else 1 for row in rank["holds"] if row[1] == what),
                    most,
                    (lesson, name),
                )
        if CHROMIUM and lesson in BROWSED:
            self.assertEqual(json.loads(browse(text)["selftest"])["faults"], [], lesson)

    def check_passes(self, names, blocks, micro_batches):
        self.assertNotIn("compute", names)
        found = collections.Counter(re.sub(r", micro-batch \d+\Z", "", name) for name in names)
        for block in range(1, blocks + 1):
            for what in PASSES:
                self.assertEqual(found[f"{what} of block {block}"], micro_batches, (what, block, found))
        self.assertEqual(found["head of the head"], micro_batches)
        self.assertEqual(found["norm"], 1)


if __name__ == "__main__":
    support.main()
