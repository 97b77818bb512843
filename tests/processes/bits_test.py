"""tests/bits.py notices what a build does otherwise: another operation, a few bytes, a number. Stand-ins run
the real program and change what it left."""

import json
import os
import stat
import subprocess
import sys
import unittest

import support

sys.path.insert(0, os.path.join(support.ROOT, "tests"))
import operations  # noqa: E402

TOOL = os.path.join(support.ROOT, "tests/bits.py")
CASE = "00_one_device split"
CHANGES = {
    "predicted": "record['ranks'][0]['predicted_operations'].append({'kind': 'broadcast', 'dtype': 'f32', "
    "'elements': 64, 'count': 1})",
    "measured": "record['ranks'][0]['measured_bytes']['total'] = 64",
}
STAND_IN = """#!{python}
import json, subprocess, sys
code = subprocess.run(["{real}", *sys.argv[1:]]).returncode
path = sys.argv[sys.argv.index("--out") + 1] + "/record.json"
record = json.load(open(path))
{change}
json.dump(record, open(path, "w"))
sys.exit(code)
"""


class Names(unittest.TestCase):
    def test_rows_that_differ_in_names_alone_are_one(self):
        row = {"count": 2, "dtype": "f32", "elements": 64, "kind": "all_reduce"}
        named = [{**row, "purpose": "gradients", "unit": unit} for unit in (0, 1)]
        of_two = {**row, "ranks": 2, "stride": 3, "purpose": "gradients"}
        self.assertEqual(
            operations.without_names([*named, of_two]), [{**row, "count": 4}, {**row, "ranks": 2}]
        )
        self.assertEqual(operations.without_names([row]), [row])

    def test_spans_are_called_as_they_were(self):
        for named, name in (
            ("wait for all_reduce of block 7's gradients (50,048 f32)", "wait for all_reduce of 50,048 f32"),
            ("send of activation gradients (8 bf16)", "send of 8 bf16"),
            ("all_reduce of 4 f64", "all_reduce of 4 f64"),
            ("step 3", "step 3"),
        ):
            self.assertEqual(operations.span_without_names(named), name)


class BitsTest(support.ProcessTest):
    @classmethod
    def setUpClass(cls):
        with open(support.WORKLOAD, encoding="utf-8") as file:
            small = json.load(file)
        small["data"]["source"] = os.path.join(support.scratch, "tokens.bin")
        cls.workload = support.new_path("workload") + ".json"
        with open(cls.workload, "w", encoding="utf-8") as file:
            json.dump(small, file)

    def run_tool(self, *arguments):
        return subprocess.run(
            [sys.executable, "-B", TOOL, *arguments, "-k", CASE, "--workload", self.workload],
            capture_output=True,
            text=True,
            check=False,
        )

    def test_what_it_notices(self):
        stored = support.new_path("bits") + ".json"
        self.assertEqual(
            self.run_tool("--store", stored, "--bin", support.programs).stdout, "1 cases, 0 failed, stored\n"
        )
        same = self.run_tool("--against", stored, "--bin", support.programs)
        self.assertEqual((same.returncode, same.stdout), (0, "1 cases, 0 failed, 0 differ\n"))
        for part, change in CHANGES.items():
            with self.subTest(part=part):
                folder = support.new_path("bin")
                os.mkdir(folder)
                path = os.path.join(folder, "00_one_device")
                with open(path, "w", encoding="utf-8") as file:
                    file.write(
                        STAND_IN.format(
                            python=sys.executable, real=support.program("00_one_device"), change=change
                        )
                    )
                os.chmod(path, stat.S_IRWXU)
                found = self.run_tool("--against", stored, "--bin", folder)
                self.assertEqual(found.returncode, 1, found.stdout + found.stderr)
                self.assertIn(f"differs: {CASE}: ", found.stdout)
                self.assertIn(part, found.stdout)


if __name__ == "__main__":
    support.main()
