"""tests/bits.py notices what a build does otherwise: another operation, a few bytes, a number. Stand-ins run the real program and change what it left."""

import os
import stat
import subprocess
import sys

import support

TOOL = os.path.join(support.ROOT, "tests/bits.py")
CASE = "00_one_device split"
CHANGES = {
    "predicted": "record['ranks'][0]['predicted_operations'].append(['broadcast', 'f32', 64, 1, 1])",
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


class BitsTest(support.ProcessTest):
    def run_tool(self, *arguments):
        return subprocess.run([sys.executable, "-B", TOOL, *arguments, "-k", CASE, "--workload", os.path.join(support.ROOT, "configs/tiny.json")], capture_output=True, text=True, check=False)

    def test_what_it_notices(self):
        stored = support.new_path("bits") + ".json"
        self.assertEqual(self.run_tool("--store", stored, "--bin", support.programs).stdout, "1 cases, 0 failed, stored\n")
        same = self.run_tool("--against", stored, "--bin", support.programs)
        self.assertEqual((same.returncode, same.stdout), (0, "1 cases, 0 failed, 0 differ\n"))
        for part, change in CHANGES.items():
            with self.subTest(part=part):
                folder = support.new_path("bin")
                os.mkdir(folder)
                path = os.path.join(folder, "00_one_device")
                with open(path, "w", encoding="utf-8") as file:
                    file.write(STAND_IN.format(python=sys.executable, real=support.program("00_one_device"), change=change))
                os.chmod(path, stat.S_IRWXU)
                found = self.run_tool("--against", stored, "--bin", folder)
                self.assertEqual(found.returncode, 1, found.stdout + found.stderr)
                self.assertIn(f"differs: {CASE}: ", found.stdout)
                self.assertIn(part, found.stdout)


if __name__ == "__main__":
    support.main()
