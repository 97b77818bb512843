"""What a run leaves behind and what needs no run: records, traces, the plan, the memory cap, --help and its kin."""

import json
import os
import re
import sys

import support

sys.path.insert(0, os.path.join(support.ROOT, "common/records/curves"))
from report import sent_bytes

LESSON = "01_data_parallel"


def read_json(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return json.load(file)


class Records(support.ProcessTest):
    @classmethod
    def setUpClass(cls):
        cls.outs = {ranks: support.new_path("out") for ranks in (0, 1, 3)}
        cls.ended = support.side_by_side(
            {
                ranks: lambda ranks=ranks, out=out: support.run(LESSON, ranks, "--trace", "--out", out)
                for ranks, out in cls.outs.items()
            }
        )

    def test_ends_well(self):
        for ranks, ended in self.ended.items():
            with self.subTest(ranks=ranks):
                self.assertEqual((ended.code, ended.err), (0, ""), ended)
                self.assertIn(f"{self.outs[ranks]}/record.json", ended.out)

    def test_every_rank_measured_what_was_predicted(self):
        for ranks, out in self.outs.items():
            with self.subTest(ranks=ranks):
                record = read_json(out, "record.json")
                self.assertTrue(record["as_predicted"])
                self.assertEqual([r["rank"] for r in record["ranks"]], list(range(max(ranks, 1))))
                for rank in record["ranks"]:
                    self.assertGreater(rank["predicted_bytes"]["total"], 0)
                    self.assertEqual(rank["measured_bytes"], rank["predicted_bytes"])
                    self.assertEqual(rank["measured_operations"], rank["predicted_operations"])
                    # two blocks, the embedding, the last norm, and the four numbers
                    self.assertEqual(sum(operation["count"] for operation in rank["predicted_operations"]), 5)

    def test_says_what_ran(self):
        record = read_json(self.outs[3], "record.json")
        self.assertEqual(
            (
                record["lesson"],
                record["world"],
                record["comm"],
                record["device"],
                record["threads"],
                record["exit_code"],
            ),
            (LESSON, 3, "mpi", "cpu", 1, 0),
        )
        self.assertEqual(record["workload"]["model.width"], "32")
        self.assertEqual(record["strategy"], {"bucket": "unit", "overlap": "on", "verify_replicas": "50"})
        self.assertIn(" --trace ", record["command"])
        self.assertGreater(record["validation_loss"], 0)
        self.assertEqual(read_json(self.outs[0], "record.json")["comm"], "local")
        self.assertEqual(
            read_json(self.outs[0], "record.json")["workload_hash"],
            record["workload_hash"],
            "the number of ranks is no part of the work",
        )

    # Nobody said how many: one on a CPU, however many cores there are.
    def test_a_rank_on_a_cpu_has_one_thread(self):
        env = support.environment()
        del env["OMP_NUM_THREADS"]
        out = support.new_path("out")
        ended = support.run(LESSON, 0, "--steps", "1", "--out", out, env=env)
        self.assertEqual((ended.code, ended.err), (0, ""), ended)
        self.assertEqual(support.record(out)["threads"], 1)
        if os.cpu_count() > 1:
            given = support.run(
                LESSON,
                0,
                "--steps",
                "1",
                "--threads",
                "2",
                "--out",
                (two := support.new_path("out")),
                env=env,
            )
            self.assertEqual((given.code, support.record(two)["threads"]), (0, 2), given)

    def test_a_line_a_step(self):
        for ranks, out in self.outs.items():
            with self.subTest(ranks=ranks), open(out + "/steps.jsonl", encoding="utf-8") as file:
                steps = [json.loads(line) for line in file]
                self.assertEqual([step["step"] for step in steps], [0, 1, 2, 3])
                for step in steps:
                    self.assertEqual(step["tokens"], 12 * 32)
                    self.assertGreaterEqual(step["seconds"], step["waited_seconds"])
                self.assertLess(steps[-1]["loss"], steps[0]["loss"])
                first, last = f"{steps[0]['loss']:.4f}", f"{steps[-1]['loss']:.4f}"
                self.assertIn(f"loss {first} -> {last}, validation ", self.ended[ranks].out)

    def test_a_plan_for_programs_is_the_runs(self):
        ended = support.run(LESSON, 0, "--plan", "--world", "3", "--json")
        self.assertEqual((ended.code, ended.err), (0, ""), ended)
        plan, record = json.loads(ended.out), read_json(self.outs[3], "record.json")
        self.assertEqual(
            (plan["world"], plan["stages"], [rank["alike"] for rank in plan["ranks"]]), (3, 1, [2, 1])
        )
        self.assertEqual(
            [rank["bytes_sent"] for rank in plan["ranks"]],
            [
                sum(
                    op["count"] * sent_bytes(op, rank, 3)
                    for op in record["ranks"][rank]["measured_operations"]
                )
                for rank in (0, 2)
            ],
        )
        mine, ran = plan["ranks"][0], record["ranks"][0]
        self.assertEqual(
            [{k: v for k, v in row.items() if k != "name"} for row in mine["operations"]],
            ran["predicted_operations"],
        )
        self.assertEqual(mine["bytes"]["device"], ran["predicted_bytes"]["total"])
        by_purpose = {}
        for buffer in mine["buffers"]:
            self.assertEqual(buffer["place"], "device")
            by_purpose[buffer["purpose"]] = by_purpose.get(buffer["purpose"], 0) + buffer["bytes"]
        self.assertEqual(
            {**by_purpose, "total": sum(by_purpose.values())},
            {k: v for k, v in ran["predicted_bytes"].items() if v},
        )
        # What is summed is every unit once, padded for three ranks.
        summed = {
            row["unit"]: row["elements"] for row in mine["operations"] if row.get("purpose") == "gradients"
        }
        self.assertEqual(
            [summed[unit] for unit in range(len(plan["units"]))], [unit["elements"] for unit in plan["units"]]
        )

    def test_one_trace_of_all_ranks(self):
        for ranks, out in self.outs.items():
            with self.subTest(ranks=ranks):
                events = read_json(out, "trace.json")["traceEvents"]
                world = set(range(max(ranks, 1)))
                for kind in ("compute", "train"):
                    self.assertEqual({e["pid"] for e in events if e.get("cat") == kind}, world, kind)
                steps = [
                    (e["pid"], e["name"])
                    for e in events
                    if e["ph"] == "X" and re.fullmatch(r"step \d+", e["name"])
                ]
                self.assertEqual(
                    sorted(steps), [(rank, f"step {step}") for rank in sorted(world) for step in range(4)]
                )
                self.assertTrue(all(e["dur"] >= 0 and e["ts"] >= 0 for e in events if e["ph"] == "X"))

    def test_a_run_of_one_step_says_that_nothing_was_checked(self):
        out = support.new_path("out")
        ended = support.run(LESSON, 0, "--steps", "1", "--out", out)
        self.assertEqual(ended.code, 0, ended)
        self.assertIn(
            "bytes and operations are checked in the second step, which this run did not have\n", ended.out
        )
        record = read_json(out, "record.json")
        self.assertFalse(record["as_predicted"])
        self.assertFalse(os.path.exists(out + "/trace.json"))

    def test_without_out_runs_lie_side_by_side(self):
        for _ in range(2):
            self.assertEqual(support.run("00_one_device", 0, "--steps", "1").code, 0)
        place = support.scratch + "/runs/00_one_device"
        self.assertEqual(len(os.listdir(place)), 2)
        for name in os.listdir(place):
            self.assertRegex(name, r"\A\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(-\d+)?\Z")
            self.assertEqual(read_json(place, name, "record.json")["lesson"], "00_one_device")

    def test_the_memory_cap_is_exact(self):
        for ranks in support.chosen((0, 3), 0):
            with self.subTest(ranks=ranks):
                total = read_json(self.outs[ranks], "record.json")["ranks"][0]["predicted_bytes"]["total"]
                fits = support.run(
                    LESSON, ranks, "--memory-cap", str(total), "--out", support.new_path("out")
                )
                self.assertEqual((fits.code, fits.err), (0, ""), fits)
                out = support.new_path("out")
                refused = support.run(LESSON, ranks, "--memory-cap", str(total - 1), "--out", out)
                self.expect_one_error(
                    refused,
                    69,
                    re.compile(
                        r"--memory-cap [\d.]+ [kM]B: a rank would hold [\d.]+ [kM]B, 1 B more than that\n(  [a-z]+ +[\d.]+ [kM]?B\n)+"
                        r"  fix: one of these fits, and a rank holds\n(  .+ [\d.]+ [kM]B\n)+  --memory-cap "
                        + str(total)
                        + r" +[\d.]+ [kM]B"
                    ),
                )
                self.assertFalse(os.path.exists(out + "/record.json"))


class Sampled(support.ProcessTest):
    def test_text_is_the_same_every_time(self):
        ended = support.side_by_side(
            {
                (ranks, turn): lambda ranks=ranks: support.run(
                    LESSON, ranks, "--verbose", "--sample", "40", "--out", support.new_path("out")
                )
                for ranks in support.chosen((0, 3), 3)
                for turn in (0, 1)
            }
        )
        for ranks in support.chosen((0, 3), 3):
            texts = []
            for turn in (0, 1):
                job = ended[ranks, turn]
                self.assertEqual((job.code, job.err), (0, ""), job)
                found = re.search(
                    r"\nsample: 40 tokens \(temperature 1, seed \d+\) after a prompt of (\d+)\n"
                    r"(.*)\n\nloss ",
                    job.out,
                    re.DOTALL,
                )
                self.assertTrue(found, job)
                prompt, made = found.group(2).split(" | ", 1)
                self.assertEqual(len(prompt), int(found.group(1)))
                self.assertGreater(len(made), 0)
                self.assertLessEqual(len(made), 40)
                texts.append(found.group(2))
            self.assertEqual(texts[0], texts[1])

    def test_a_cap_that_is_too_small_is_found_before_the_first_step(self):
        plan = support.run(LESSON, 0, "--plan").out
        total = int(re.search(r"total .* ([\d,]+)\n", plan).group(1).replace(",", ""))
        flags = ("--memory-cap", str(total + 1000), "--steps", "2", "--out", support.new_path("out"))
        self.assertEqual(support.run(LESSON, 0, *flags).code, 0)
        ended = support.run(LESSON, 0, *flags[:-1], support.new_path("out"), "--sample", "40")
        self.assertEqual(ended.code, 69, ended)
        self.assertIn("sample_params", ended.err)
        self.assertNotIn("step 1/", ended.out)


class WithoutARun(support.ProcessTest):
    def quick(self, *flags):
        ended = support.execute(["env", "-u", "PATH", support.program(LESSON), *flags])
        self.assertEqual((ended.code, ended.err), (0, ""), ended)
        return ended.out

    def test_plan_of_a_world_that_is_not_here(self):
        out = self.quick("--plan", "--world", "64", "--workload", support.ROOT + "/configs/gpt2_1558m.json")
        self.assertIn("01_data_parallel: plan for 64 ranks on GPUs\n", out)
        self.assertIn("GPT of 1,557,611,200 parameters", out)  # OpenAI's count of the same model
        self.assertRegex(out, r"all_reduce +48 +[\d,]+ +bf16")
        self.assertNotIn("note:", out)

    def test_plan_of_one_gpu_holds_what_a_run_on_it_holds(self):
        flags = ("--plan", "--device", "cuda", "--workload", support.WORKLOAD)
        self.assertNotIn("staged scratch", self.quick(*flags))
        self.assertRegex(self.quick(*flags, "--share-gpu"), r"staged scratch +2,097,152 +=")

    def test_plan_says_whether_a_cap_is_enough(self):
        plan = ("--plan", "--world", "2", "--workload", support.WORKLOAD, "--memory-cap")
        self.assertRegex(self.quick(*plan, "1GB"), r"\n  --memory-cap 1\.00 GB: fits, [\d.]+ MB are left\n")
        self.assertRegex(
            self.quick(*plan, "100KB"),
            r"\n  --memory-cap 100\.00 kB: does not fit, [\d.]+ [kM]B are missing\n"
            r"  what fits, and what a rank then holds\n  --memory-cap \d+ +[\d.]+ [kM]B\n\Z",
        )

    def test_plan_that_a_run_would_refuse(self):
        out = self.quick("--plan", "--world", "5", "--workload", support.WORKLOAD)
        self.assertRegex(out, r"\n  note: .*12 / \(1 x 5\)")
        for code, said, *flags in (
            (0, "", "--world", "4", "--save-every", "1"),
            (64, r"error: \S+: accumulation = .* which is not whole\n", "--world", "5"),
            (
                69,
                r"error: --memory-cap 100\.00 kB: a rank would hold ",
                "--world",
                "2",
                "--memory-cap",
                "100KB",
            ),
            (
                69,
                r"error: [\d.]+ .B free on this machine, ranks here: 12: ",
                "--world",
                "12",
                "--set",
                "model.width=65536",
            ),
            (69, r"error: --device cuda: ", "--device", "cuda"),
        ):
            if "cuda" in flags and support.gpus() > 0:
                continue
            with self.subTest(flags=flags):
                ended = support.execute(
                    [support.program(LESSON), "--plan", "--strict", "--workload", support.WORKLOAD, *flags]
                )
                self.assertEqual(ended.code, code, ended)
                self.assertRegex(ended.err, r"\A" + said)
                self.assertIn("memory of a rank\n", ended.out)

    def test_the_plan_is_the_run_s(self):
        run = support.run(LESSON, 2, "--steps", "2", "--verbose", "--out", support.new_path("out"))
        table = lambda text: text[
            text.index("memory of a rank\n") : text.index("  total", text.index("operations of a rank"))
        ]
        planned = self.quick("--plan", "--world", "2", "--device", "cpu", "--workload", support.WORKLOAD)
        self.assertEqual(table(planned), table(run.out))

    def test_what_pages_show_of_a_plan_is_the_plan(self):
        """Pages show outputs from records: their bytes and operations are those of the programs."""
        for lesson in ("01_data_parallel", "02_zero1", "03_zero2", "04_zero3"):
            with self.subTest(lesson=lesson):
                with open(
                    os.path.join(support.ROOT, f"docs/results/lesson_{lesson[:2]}.json"), encoding="utf-8"
                ) as file:
                    said = json.load(file)["default"]["said"]
                plan = support.execute(
                    [
                        support.program(lesson),
                        "--plan",
                        "--world",
                        "2",
                        "--workload",
                        support.ROOT + "/configs/tiny.json",
                    ]
                )
                table = plan.out[plan.out.index("memory of a rank\n") :].rstrip("\n")
                self.assertIn(table, said if isinstance(said, str) else "\n".join(said))

    def test_help(self):
        out = self.quick("--help")
        for text in (
            "usage: lessons/01_data_parallel/run.sh [-n RANKS] [flags]\n",
            "  --watchdog SECONDS",
            "  bucket=unit ",
            "   75  an operation",
        ):
            self.assertIn(text, out)
        self.assertNotIn("--virtual-ranks", out)
        one_device = support.execute([support.program("00_one_device"), "--help"])
        self.assertIn("--virtual-ranks W", one_device.out)

    def test_explain(self):
        out = self.quick("--explain", "bucket", "--workload", support.WORKLOAD)
        for text in ("bucket", "how much gradient one all-reduce carries", "unit", "tensor"):
            self.assertIn(text, out)
        self.assertIn(
            support.WORKLOAD + ":6:", self.quick("--explain", "steps", "--workload", support.WORKLOAD)
        )
        everything = self.quick("--explain", "all", "--workload", support.WORKLOAD)
        for key in ("model.layers", "optim.clip", "verify_replicas"):
            self.assertIn(key, everything)

    def test_version(self):
        self.assertRegex(
            support.execute([support.program(LESSON), "--version"]).out,
            r"\AStagecraft ([0-9a-f]{12}(-dirty)?|unknown \(.+\))\nLibTorch \d+\.\d+\.\d+\nOpen MPI \d+\.\d+\.\d+\ng\+\+ \d+\.\d+\.\d+\n\Z",
        )

    def test_under_mpirun_it_is_printed_once(self):
        command = support.mpirun(3) + [support.program(LESSON), "--plan", "--workload", support.WORKLOAD]
        ended = support.execute(command)
        self.assertEqual((ended.code, ended.err), (0, ""), ended)
        self.assertEqual(ended.out.count("plan for 3 ranks"), 1)
        for flag in ("--help", "--version"):
            ended = support.execute(support.mpirun(3) + [support.program(LESSON), flag])
            self.assertEqual((ended.code, ended.err), (0, ""), ended)
            self.assertEqual(ended.out.count("exit codes") + ended.out.count("LibTorch"), 1, ended)


if __name__ == "__main__":
    support.main()
