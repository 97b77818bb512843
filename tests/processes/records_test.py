"""What a run leaves behind and what needs no run: records, traces, the plan, the memory cap, --help and its
kin."""

import collections
import json
import os
import re
import sys

import support
from support import Run, read_json

sys.path.insert(0, os.path.join(support.ROOT, "common/records/curves"))
from report import sent_bytes

LESSON = "01_data_parallel"


class Records(support.ProcessTest):
    @classmethod
    def setUpClass(cls):
        cls.jobs = {ranks: Run(LESSON, ranks, "--trace --steps 4") for ranks in (0, 1, 3)}
        support.together(cls.jobs.values(), at_once=3)

    def test_every_rank_measured_what_was_predicted(self):
        self.expect_all_well(self.jobs)
        for ranks, job in self.jobs.items():
            with self.subTest(ranks=ranks):
                self.assertIn(f"{job.out}/record.json", job.ended.out)
                found = job.record()["ranks"]
                self.assertEqual([rank["rank"] for rank in found], list(range(max(ranks, 1))))
                for rank in found:
                    self.assertGreater(rank["predicted_bytes"]["total"], 0)
                    self.assertEqual(rank["measured_bytes"], rank["predicted_bytes"])
                    self.assertEqual(rank["measured_operations"], rank["predicted_operations"])
                    # Five operations: two blocks, the embedding, the last norm, and the sum of four numbers.
                    self.assertEqual(sum(operation["count"] for operation in rank["predicted_operations"]), 5)

    def test_says_what_ran(self):
        alone, record = self.jobs[0].record(), self.jobs[3].record()
        self.expect_record(
            self.jobs[3], lesson=LESSON, world=3, comm="mpi", device="cpu", threads=1, exit_code=0
        )
        self.assertEqual(record["workload"]["model.width"], "32")
        self.assertEqual(record["strategy"], {"bucket": "unit", "overlap": "on", "verify_replicas": "50"})
        self.assertIn(" --trace ", record["command"])
        self.assertGreater(record["validation_loss"], 0)
        self.assertEqual(
            (alone["comm"], alone["workload_hash"]),
            ("local", record["workload_hash"]),
            "the number of ranks is no part of the work",
        )

    # On a CPU the default is one thread for a rank, however many cores there are.
    def test_a_rank_on_a_cpu_has_one_thread(self):
        env = support.environment()
        del env["OMP_NUM_THREADS"]
        self.expect_record(self.expect_well(Run(LESSON, 0, "--steps 1", env=env)), threads=1)
        if os.cpu_count() > 1:
            given = Run(LESSON, 0, "--steps 1 --threads 2", env=env)
            self.assertEqual(given.ended.code, 0, given.ended)
            self.expect_record(given, threads=2)

    def test_a_line_a_step(self):
        for ranks, job in self.jobs.items():
            with self.subTest(ranks=ranks):
                steps = [json.loads(line) for line in support.steps_of(job.out)]
                self.assertEqual([step["step"] for step in steps], [0, 1, 2, 3])
                for step in steps:
                    self.assertEqual(step["tokens"], 12 * 32)
                    self.assertGreaterEqual(step["seconds"], step["waited_seconds"])
                first, last = steps[0]["loss"], steps[-1]["loss"]
                self.assertLess(last, first)
                self.assertIn(f"loss {first:.4f} -> {last:.4f}, validation ", job.ended.out)

    def test_a_plan_for_programs_is_the_runs(self):
        ended = self.expect_well(support.run(LESSON, 0, "--plan --world 3 --json"))
        plan, record = json.loads(ended.out), self.jobs[3].record()
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
        self.assertEqual({buffer["place"] for buffer in mine["buffers"]}, {"device"})
        by_purpose = collections.Counter()
        for buffer in mine["buffers"]:
            by_purpose[buffer["purpose"]] += buffer["bytes"]
        self.assertEqual(
            {**by_purpose, "total": sum(by_purpose.values())},
            {k: v for k, v in ran["predicted_bytes"].items() if v},
        )
        # The sum of gradients takes every unit once, padded for three ranks.
        summed = {
            row["unit"]: row["elements"] for row in mine["operations"] if row.get("purpose") == "gradients"
        }
        self.assertEqual(
            [summed[unit] for unit in range(len(plan["units"]))], [unit["elements"] for unit in plan["units"]]
        )

    def test_one_trace_of_all_ranks(self):
        for ranks, job in self.jobs.items():
            with self.subTest(ranks=ranks):
                events = read_json(job.out, "trace.json")["traceEvents"]
                world = set(range(max(ranks, 1)))
                for kind in ("compute", "train"):
                    self.assertEqual({e["pid"] for e in events if e.get("cat") == kind}, world, kind)
                spans = [e for e in events if e["ph"] == "X"]
                steps = [(e["pid"], e["name"]) for e in spans if re.fullmatch(r"step \d+", e["name"])]
                self.assertEqual(
                    sorted(steps), [(rank, f"step {step}") for rank in sorted(world) for step in range(4)]
                )
                self.assertTrue(all(e["dur"] >= 0 and e["ts"] >= 0 for e in spans))

    def test_a_run_of_one_step_says_that_nothing_was_checked(self):
        job = Run(LESSON, 0, "--steps 1")
        self.expect_well(
            job, "bytes and operations are checked in the second step, which this run did not have\n"
        )
        self.expect_record(job, as_predicted=False)
        self.assertFalse(os.path.exists(job.out + "/trace.json"))

    def test_without_out_runs_lie_side_by_side(self):
        for _ in range(2):
            self.expect_well(support.execute(support.command("00_one_device", 0, "--steps 1")))
        place = support.scratch + "/runs/00_one_device"
        self.assertEqual(len(os.listdir(place)), 2)
        for name in os.listdir(place):
            self.assertRegex(name, r"\A\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(-\d+)?\Z")
            self.assertEqual(read_json(place, name, "record.json")["lesson"], "00_one_device")

    def test_the_memory_cap_is_exact(self):
        for ranks in support.chosen((0, 3), 0):
            total = self.jobs[ranks].record()["ranks"][0]["predicted_bytes"]["total"]
            refused = re.compile(
                r"--memory-cap [\d.]+ [kM]B: a rank would hold [\d.]+ [kM]B, 1 B more than that\n(  [a-z]+ "
                r"+[\d.]+ [kM]?B\n)+"
                r"  fix: one of these fits, and a rank holds\n(  .+ [\d.]+ [kM]B\n)+  --memory-cap "
                + str(total)
                + r" +[\d.]+ [kM]B"
            )
            text = f"--memory-cap {total - 1}"
            jobs = self.expect_ends({f"--memory-cap {total}": (0, ()), text: (69, refused)}, LESSON, ranks)
            self.assertFalse(os.path.exists(jobs[text].out + "/record.json"))


class Sampled(support.ProcessTest):
    def test_text_is_the_same_every_time(self):
        said = re.compile(
            r"\nsample: 40 tokens \(temperature 1, seed \d+\) after a prompt of (\d+)\n(.*)\n\nloss ",
            re.DOTALL,
        )
        for ranks in support.chosen((0, 3), 3):
            jobs = [Run(LESSON, ranks, "--verbose --sample 40") for _ in range(2)]
            support.together(jobs)
            one, other = (said.search(self.expect_well(job, said).ended.out) for job in jobs)
            prompt, made = one[2].split(" | ", 1)
            self.assertEqual(len(prompt), int(one[1]))
            self.assertTrue(0 < len(made) <= 40, made)
            self.assertEqual(one[2], other[2])

    def test_a_cap_that_is_too_small_is_found_before_the_first_step(self):
        plan = support.run(LESSON, 0, "--plan").out
        total = int(re.search(r"total .* ([\d,]+)\n", plan).group(1).replace(",", ""))
        text = f"--memory-cap {total + 1000} --steps 2"
        self.assertEqual(support.run(LESSON, 0, text).code, 0)
        ended = support.run(LESSON, 0, f"{text} --sample 40")
        self.assertEqual(ended.code, 69, ended)
        self.assertIn("sample_params", ended.err)
        self.assertNotIn("step 1/", ended.out)


class WithoutARun(support.ProcessTest):
    def quick(self, text, workload=support.WORKLOAD):
        """What the program alone prints."""
        workload = f"--workload {workload}" if workload else ""
        line = ["env", "-u", "PATH", support.program(LESSON), *f"{text} {workload}".split()]
        return self.expect_well(support.execute(line)).out

    def test_plan_of_a_world_that_is_not_here(self):
        out = self.quick("--plan --world 64", support.ROOT + "/configs/gpt2_1558m.json")
        self.expect_said(
            out,
            "01_data_parallel: plan for 64 ranks on GPUs\n",
            "GPT of 1,557,611,200 parameters",  # OpenAI's count of the same model
            re.compile(r"all_reduce +48 +[\d,]+ +bf16"),
        )
        self.assertNotIn("note:", out)

    def test_plan_of_one_gpu_holds_what_a_run_on_it_holds(self):
        self.assertNotIn("staged scratch", self.quick("--plan --device cuda"))
        self.assertRegex(self.quick("--plan --device cuda --share-gpu"), r"staged scratch +2,097,152 +=")

    def test_plan_says_whether_a_cap_is_enough(self):
        for cap, said in (
            ("1GB", r"\n  --memory-cap 1\.00 GB: fits, [\d.]+ MB are left\n"),
            (
                "100KB",
                r"\n  --memory-cap 100\.00 kB: does not fit, [\d.]+ [kM]B are missing\n"
                r"  what fits, and what a rank then holds\n  --memory-cap \d+ +[\d.]+ [kM]B\n\Z",
            ),
        ):
            self.assertRegex(self.quick(f"--plan --world 2 --memory-cap {cap}"), said)

    def test_plan_that_a_run_would_refuse(self):
        self.assertRegex(self.quick("--plan --world 5"), r"\n  note: .*12 / \(1 x 5\)")
        for code, said, text in (
            (0, "", "--world 4 --save-every 1"),
            (64, r"error: \S+: accumulation = .* which is not whole\n", "--world 5"),
            (69, r"error: --memory-cap 100\.00 kB: a rank would hold ", "--world 2 --memory-cap 100KB"),
            (
                69,
                r"error: [\d.]+ .B free on this machine, ranks here: 12: ",
                "--world 12 --set model.width=65536",
            ),
            (69, r"error: --device cuda: ", "--device cuda"),
        ):
            if "cuda" in text and support.gpus() > 0:
                continue
            with self.subTest(text=text):
                line = f"--plan --strict --workload {support.WORKLOAD} {text}"
                ended = support.tool(LESSON, *line.split())
                self.assertEqual(ended.code, code, ended)
                self.assertRegex(ended.err, r"\A" + said)
                self.assertIn("memory of a rank\n", ended.out)

    def test_the_plan_is_the_run_s(self):
        ran = support.run(LESSON, 2, "--steps 2 --verbose").out
        table = lambda text: text[
            text.index("memory of a rank\n") : text.index("  total", text.index("operations of a rank"))
        ]
        self.assertEqual(table(self.quick("--plan --world 2 --device cpu")), table(ran))

    def test_what_pages_show_of_a_plan_is_the_plan(self):
        """Pages show outputs from records: their bytes and operations are those of the programs."""
        for lesson in ("01_data_parallel", "02_zero1", "03_zero2", "04_zero3"):
            with self.subTest(lesson=lesson):
                said = read_json(support.ROOT, f"docs/results/lesson_{lesson[:2]}.json")["default"]["said"]
                tiny = support.ROOT + "/configs/tiny.json"
                plan = support.tool(lesson, "--plan", "--world", "2", "--workload", tiny)
                table = plan.out[plan.out.index("memory of a rank\n") :].rstrip("\n")
                self.assertIn(table, said if isinstance(said, str) else "\n".join(said))

    def test_help(self):
        out = self.quick("--help", None)
        self.expect_said(
            out,
            "usage: lessons/01_data_parallel/run.sh [-n RANKS] [flags]\n",
            "  --watchdog SECONDS",
            "  bucket=unit ",
            "   75  an operation",
        )
        self.assertNotIn("--virtual-ranks", out)
        self.assertIn("--virtual-ranks W", support.tool("00_one_device", "--help").out)

    def test_explain(self):
        for what, words in {
            "bucket": ("bucket", "how much gradient one all-reduce carries", "unit", "tensor"),
            "steps": (support.WORKLOAD + ":6:",),
            "all": ("model.layers", "optim.clip", "verify_replicas"),
        }.items():
            self.expect_said(self.quick(f"--explain {what}"), *words)

    def test_version(self):
        self.assertRegex(
            support.tool(LESSON, "--version").out,
            r"\AStagecraft ([0-9a-f]{12}(-dirty)?|unknown \(.+\))\nLibTorch \d+\.\d+\.\d+\nOpen MPI "
            r"\d+\.\d+\.\d+\ng\+\+ \d+\.\d+\.\d+\n\Z",
        )

    def test_under_mpirun_it_is_printed_once(self):
        for text, once in (
            ("--plan", "plan for 3 ranks"),
            ("--help", "exit codes"),
            ("--version", "LibTorch"),
        ):
            ended = self.expect_well(support.execute(support.command(LESSON, 3, text)))
            self.assertEqual(ended.out.count(once), 1, ended)


if __name__ == "__main__":
    support.main()
