"""What a trace shows has names: every operation the one that the plan gives it, and every pass a unit and a micro-batch."""
import collections
import json
import re
import unittest

import support

STEP = 2  # of three: the first one differs in lessons 05 and 06, the last one is followed by an evaluation
SETTINGS = {"00_one_device": (), "07_pipeline": ("--set", "batch.micro=3"), "08_weight_versions": ("--set", "model.tied=off", "--set", "batch.micro=3")}
LESSONS = ("00_one_device", "01_data_parallel", "02_zero1", "03_zero2", "04_zero3", "05_offload", "06_infinity", "07_pipeline", "08_weight_versions")
UNIT = r"(the embedding|block \d+|the head)"
PASSES = ("forward", "backward_input", "backward_weights")


def events_of(trace, step):
    """Of rank 0: what lies in the step."""
    mine = [e for e in trace["traceEvents"] if e["ph"] == "X" and e["pid"] == 0]
    (whole,) = [e for e in mine if e["name"] == f"step {step}"]
    return [e for e in mine if e is not whole and whole["ts"] <= e["ts"] < whole["ts"] + whole["dur"]], mine


class Names(unittest.TestCase):
    def test_of_every_lesson(self):
        for lesson in LESSONS:
            with self.subTest(lesson=lesson):
                self.check(lesson)

    def check(self, lesson):
        ranks = 0 if lesson == "00_one_device" else 2
        settings = (*SETTINGS.get(lesson, ()), "--workload", support.WORKLOAD)
        planned = support.run(lesson, 0, "--plan", "--json", "--world", str(max(1, ranks)), *settings)
        self.assertEqual(planned.code, 0, planned)
        plan = json.loads(planned.out)
        out = support.new_path("out")
        ended = support.run(lesson, ranks, "--steps", "4", "--trace", "--out", out, *settings)
        self.assertEqual(ended.code, 0, ended)
        with open(out + "/trace.json", encoding="utf-8") as file:
            inside, mine = events_of(json.load(file), STEP)
        operations = collections.Counter(e["name"] for e in mine if e["cat"] == "train" and e["args"]["step"] == str(STEP))
        expected = collections.Counter()
        for row in plan["ranks"][0]["operations"]:
            expected[row["name"]] += row["count"]
        self.assertEqual(operations, expected)
        for name in operations:
            self.assertRegex(name, r"\A\w+ of .* \([\d,]+ \w+\)\Z")  # each carries something
        if lesson < "07":
            self.check_passes([e["name"] for e in inside if e["cat"] == "compute"], len(plan["units"]) - 2, plan["micro_batches"])

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
