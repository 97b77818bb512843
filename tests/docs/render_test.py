#!/usr/bin/env python3
"""docs/render.py notices what it is there to notice: each check is shown a page that breaks it."""
import copy
import dataclasses
import functools
import operator
import pathlib
import re
import sys
import tempfile
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))
sys.path.insert(0, str(ROOT / "tests/docs"))
import commands_test  # noqa: E402
import render  # noqa: E402, F401: it registers every renderer
from rendering import (  # noqa: E402
    cheat_sheet,
    checks,
    choosing_tables,
    collective_tables,
    combined,
    faults,
    front_page,
    gpu_tables,
    lesson_figures,
    lesson_tables,
    machine_tables,
    marks,
    offload_figures,
    offload_tables,
    outputs,
    palette,
    plans,
    plots,
    registry,
    svg,
    tensor_figures,
    tensor_tables,
    zero_figures,
    zero_tables,
)
from rendering.registry import Page, RenderError, record  # noqa: E402

PAGE = "lessons/01_data_parallel/README.md"


def given(name, found):
    """For the time of a `with` the record of that name has what was found."""
    return unittest.mock.patch.dict(registry.RECORDS, {name: found})


ONE_LESSON_ALONE = "runs that differ in more than the lesson, or of several GPUs"
# Changed values of a record that must stop the page: record, place of the value, mark, words of the message,
# and the value, if not just any other one will do.
STOPS = (
    ("lesson_01_order", ("ranks", "2", "bytes_sent"), "data-parallel-bytes", "not as predicted"),
    (
        "zero_order",
        ("lessons", "03_zero2", "2", "bytes", "gradients"),
        "zero-held 03_zero2",
        "not as predicted",
    ),
    (
        "zero_order",
        ("lessons", "03_zero2", "2", "operations", 0, "count"),
        "zero-predicted 03_zero2 02_zero1",
        "not as predicted",
    ),
    (
        "zero_order",
        ("lessons", "04_zero3", "4", "loss", -1),
        "zero-same-loss 03_zero2 04_zero3",
        "not those of lesson 00 with `--reduce-every micro_batch`",
    ),
    ("lesson_05", ("default", "bytes", "gradients"), "offload-bytes", "not as predicted"),
    ("lesson_05", ("sharded", "bytes", "parameters"), "offload-bytes", "not as predicted"),
    ("lesson_05", ("delayed", "bytes", "pinned", "gradients"), "offload-bytes", "not as predicted"),
    ("lesson_05", ("default", "bytes", "host", "variance"), "offload-bytes", "not as predicted"),
    ("lesson_05_link", ("runs", 1, "loss", -1), "offload-link", "losses differ"),
    ("lesson_10", ("ranks", "4 split", "bytes", "workspace"), "tensor-predicted split", "not as predicted"),
    (
        "lesson_10",
        ("ranks", "4 split", "operations", 0, "count"),
        "tensor-predicted split",
        "not as predicted",
    ),
    (
        "lesson_10",
        ("ranks", "4 split", "loss", -1),
        "tensor-predicted split",
        "not those of lesson 00 in parts",
    ),
    (
        "lesson_10",
        ("ranks", "4 split", "weights_sha256"),
        "tensor-predicted split",
        "not those of lesson 00 in parts",
    ),
    (
        "lesson_11",
        ("meshes", "2x2x2", "run", "bytes", "activations"),
        "mesh-predicted 2x1x2",
        "not as predicted",
    ),
    (
        "lesson_11",
        ("meshes", "2x2x2", "run", "ranks", 7, "measured", "data", 1),
        "mesh-predicted 2x1x2",
        "not as predicted",
    ),
    (
        "lesson_11",
        ("meshes", "2x2x2", "run", "loss", -1),
        "mesh-predicted 2x1x2",
        "not those of lessons/00_one_device",
    ),
    (
        "lesson_11",
        ("meshes", "2x2x2", "run", "weights_sha256"),
        "mesh-predicted 2x1x2",
        "not those of lessons/00_one_device",
    ),
    (
        "gpu_combined",
        ("rows", "mesh_4 x4", "programs", "mesh_2x1x2", "bytes_planned"),
        "mesh-gpu 4",
        "mesh_2x1x2: holds other bytes",
    ),
    (
        "gpu_combined",
        ("rows", "mesh_4 x4", "programs", "mesh_2x1x2", "bytes_measured"),
        "mesh-gpu 4",
        "mesh_2x1x2: holds other bytes",
    ),
    (
        "memory",
        ("plans", "gpt2_124m", "buffers", "saved"),
        "memory-worked gpt2_124m",
        "activations: saved: L B T",
    ),
    ("side_by_side", ("rows", 1, "as_predicted"), "side-by-side-bits", "not as predicted"),
    ("side_by_side", ("rows", 1, "held", "measured", "device"), "side-by-side-bits", "not as predicted"),
    ("side_by_side", ("rows", 1, "weights_sha256"), "side-by-side-bits", "its weights are not those of"),
    ("gpu_trace_all_at_once", ("world",), "gpu-traces", "another step than"),
    ("gpu_trace_all_at_once", ("step",), "gpu-traces", "another step than"),
    ("gpu_profile_one", ("runs", 0, "world"), "world-one-profile", ONE_LESSON_ALONE),
    ("gpu_profile_one", ("runs", 0, "commit"), "world-one-profile", ONE_LESSON_ALONE),
    (
        *("gpu_profile_one", ("runs", 0, "command"), "world-one-profile", ONE_LESSON_ALONE),
        "x --workload configs/gpt2_774m.json",
    ),
    ("gpu_profile_one", ("runs", 0, "lesson"), "world-one-profile", ONE_LESSON_ALONE, "02_zero1"),
    (
        "gpu_pipeline",
        ("rows", "pipeline_4 x2", "ratios", "ours_over_1f1b", "per_joule", "median"),
        "pipeline-gpu",
        "lead per joule",
        9.0,
    ),
)


def another(value):
    """Nearly the same: of numbers one that differs by as little as can be told."""
    if isinstance(value, str):
        return f"{value}, another"
    return not value if isinstance(value, bool) else value + (1 if isinstance(value, int) else 1e-9)


class Stops(unittest.TestCase):
    def test_what_is_not_as_it_must_be_stops_the_page(self):
        for name, (*way, last), mark, words, *new in STOPS:
            found = copy.deepcopy(record(name))
            place = functools.reduce(operator.getitem, way, found)
            place[last] = new[0] if new else another(place[last])
            renderer, *arguments = mark.split()
            with self.subTest(record=name, way=way, last=last), given(name, found), self.assertRaisesRegex(
                RenderError, words
            ):
                registry.RENDERERS[renderer](Page(PAGE), *arguments)


class Marks(unittest.TestCase):
    def setUp(self):
        registry.RENDERERS["echo"] = lambda page, *words: " ".join(words)
        self.addCleanup(registry.RENDERERS.pop, "echo")

    def render(self, text):
        return marks.rendered(Page(PAGE), text)

    def omits(self, mark):
        """A block that has nothing to show leaves its marks and says so."""
        page, opened = Page(PAGE), f"<!-- render: {mark} -->\n"
        done = marks.rendered(page, f"{opened}stale\n<!-- /render -->\n")
        self.assertEqual((done, page.omitted), (f"{opened}<!-- /render -->\n", [mark]))

    def test_what_stands_between_marks_is_replaced(self):
        ratio = record("gpu_peers")["rows"]["355m x2"]["ratios"]["scaling"]["median"]
        for opened, said, closed in (
            ("a\n<!-- render: echo one 'two three' -->\n", "one two three", "\n<!-- /render -->\nb\n"),
            (
                "<!-- value: cpu_tiny timed_steps d -->",
                str(record("cpu_tiny")["timed_steps"]),
                "<!-- /value --> steps",
            ),
            (
                '<!-- value: gpu_peers "rows.355m x2.ratios.scaling.median" .1% -->',
                f"{ratio:.1%}",
                "<!-- /value -->",
            ),
        ):
            for before in ("stale", said):
                self.assertEqual(self.render(opened + before + closed), opened + said + closed)

    def test_nothing_to_show_leaves_the_marks_and_says_so(self):
        self.omits("echo")

    def test_a_block_without_its_record_is_left_out_and_named(self):
        with unittest.mock.patch.dict(registry.RECORDS, clear=True), unittest.mock.patch.object(
            registry, "RESULTS", ROOT
        ):
            self.omits("offload-link")

    def test_marks_that_stop_the_page(self):
        never = "<!-- render: echo one -->"
        for text, words in (
            ("<!-- render: ecco -->\n<!-- /render -->\n", "nothing renders 'ecco'"),
            (f"{never}\ntext\n", "'echo one' is never closed"),
            (f"{never}\nprose\n<!-- render: echo two -->\n<!-- /render -->\n", "'echo one' is never closed"),
            ("<!-- render: faults 77 -->\n<!-- /render -->\n", "tests/faults has no patch of 77"),
            *(
                (f"<!-- value: cpu_tiny {path} d -->0<!-- /value -->", f"cpu_tiny.json has no {path}")
                for path in ("timed_stops", "tokens_per_second.99", "threads.x")
            ),
            ("<!-- value: nothing a d -->0<!-- /value -->", "docs/results/nothing.json is not there"),
            *(
                (f"<!-- value: {mark} -->0<!-- /value -->", "the value (tiny|four_blocks)@")
                for mark in (
                    "tiny@2 P+Q ,d",
                    "tiny@3 P ,d",
                    "four_blocks@2 sent('02_zero1') ,d",
                    "tiny@2 P+ ,d",
                    "tiny@2 open('x') s",
                    "tiny@two P ,d",
                    "tiny@2 P/2 ,d",
                )
            ),
            ("[`gone`](data_parallel.cpp#L1)", r"data_parallel.cpp has no \[anchor: gone\]"),
        ):
            with self.subTest(text=text), self.assertRaisesRegex(RenderError, words):
                self.render(text)

    def test_a_fault_that_the_readme_forgets(self):
        self.assertIn("01_norm_is_local.patch", faults.unlisted(Page(PAGE), "nothing"))
        self.assertEqual(faults.unlisted(Page(PAGE), (ROOT / PAGE).read_text()), [])

    def test_a_value_is_computed_from_plans(self):
        text = (
            "<!-- value: four_blocks@2 2*P ,d -->0<!-- /value -->, <!-- value: tiny@2 "
            "sent('02_zero1')/sent('04_zero3') .2f -->0<!-- /value -->"
        )
        self.assertEqual(
            self.render(text).replace("<!-- /value -->", "").replace(" -->", ":"),
            "<!-- value: four_blocks@2 2*P ,d:1,717,760, <!-- value: tiny@2 "
            "sent('02_zero1')/sent('04_zero3') .2f:0.13",
        )

    def test_an_anchor_becomes_its_line(self):
        done = self.render("[`reduce-grads`](data_parallel.cpp#L0)")
        line = int(done.split("#L")[1].rstrip(")"))
        code = (ROOT / "lessons/01_data_parallel/data_parallel.cpp").read_text().splitlines()
        self.assertIn("[anchor: reduce-grads]", code[line - 1])

    def test_an_anchor_that_the_readme_forgets(self):
        self.assertIn("buckets.cpp: [anchor: buckets]", marks.unmentioned_anchors(Page(PAGE), "nothing"))
        self.assertEqual(marks.unmentioned_anchors(Page(PAGE), (ROOT / PAGE).read_text()), [])


class Checks(unittest.TestCase):
    def test_what_is_wrong_in_a_page_is_named(self):
        def links(text):
            return [line.split(": ", 1)[1] for line in checks.broken_links(PAGE, text)]

        def fences(text):
            return [
                line[: len("p.md:2: a fenced block is ''")] for line in checks.nameless_fences("p.md", text)
            ]

        def python(text):
            return list(checks.broken_python("p.md", text))

        explore = "../../docs/explore/index.html"
        for check, text, *wrong in (
            (links, "[a](data_parallel.cpp) [b](../../README.md) [c](https://example.org/x)"),
            (links, "![d](../../docs/figures/naive_pipeline.svg)"),
            (links, "[a](no.cpp)", "the link to no.cpp: there is no such file"),
            (links, "![a [b] c](no.svg)", "the link to no.svg: there is no such file"),
            (links, "[`a`](no.cpp)", "the link to no.cpp: there is no such file"),
            (links, "[a](../../../..)", "the link to ../../../..: it leads out of the repository"),
            (
                links,
                "[a](data_parallel.cpp#L99999)",
                "the link to data_parallel.cpp#L99999: there is no line 'L99999'",
            ),
            (links, f"[a]({explore}#view=choose&c.gpus=8) [b](../../docs/pages/04_zero3.html#no-heading)"),
            (links, f"[a]({explore}#lesson=01_data_parallel&workload=configs%2Ftiny.json)"),
            (links, "[a](#code-walk) [b](../00_one_device/README.md#run)"),
            (
                links,
                "[a](#no-such-part)",
                "the link to #no-such-part: that page has no heading 'no-such-part'",
            ),
            (links, "```text\n[a](no.cpp)\n```\nso `[a](no.cpp)` is text\n"),  # links in code
            (fences, "```sh\nls\n```\n"),
            (fences, "x\n```\nls\n```\n", "p.md:2: a fenced block is ''"),
            (python, "```python\nx = 1\n```\n```sh\nfi (\n```\n"),
            (python, "a\n```python\nx = 1\nwith y\n    pass\n```\n", "p.md:4: expected ':'"),
        ):
            with self.subTest(text=text):
                self.assertEqual(check(text), wrong)

    def test_commands(self):
        text = (
            "a\n```sh\nls -l   # all\n\ncat a \\\n  b\n```\n<!-- commands: exit 75 "
            "-->\n```sh\nfalse\n```\n<!-- commands: not run, takes an hour -->\n```sh\nsoak\n```\n"
        )
        found = checks.commands_of("p.md", text)
        self.assertEqual(
            [(c.line, c.words, c.exit_code, c.not_run) for c in found],
            [
                (3, ["ls", "-l"], 0, ""),
                (6, ["cat", "a", "b"], 0, ""),
                (10, ["false"], 75, ""),
                (14, ["soak"], 0, "takes an hour"),
            ],
        )

    def test_records_of_gpus_name_their_commit(self):
        def wrong(name, found):
            return [line.split(";")[0] for line in checks.records_without_commit([(name, found)])]

        good, dirty = {"commit": "89d10d3d2b59"}, {"commit": "89d10d3d2b59-dirty"}
        for name, found, *expected in (
            ("gpu_x", good),
            ("gpu_x", dirty),
            *(("gpu_x", bad, "it") for bad in ({}, *({"commit": no} for no in (None, "unknown", "89d10d3")))),
            ("gpu_peers", {"rows": {"a": {**good, "rounds": [good, {}]}}}, "a, round 2"),
            ("gpu_bits", {"world 2": {"runs": {"01": good, "02": {}}}}, "world 2, 02"),
            ("gpu_profile", {"runs": [good, dirty]}),
            ("gpu_profile", {"runs": [good, {}]}, "it"),
        ):
            expected = [f"docs/results/{name}.json: {what} names no commit" for what in expected]
            self.assertEqual(wrong(name, found), expected, found)
        self.assertGreater(len(checks.gpu_records()), 5)

    def test_a_claim_that_its_record_ends_is_named(self):
        self.assertEqual(checks.broken_claims(), [])
        found = copy.deepcopy(record("padding_cpu"))
        for run in found["runs"]:
            run["evaluated"]["pad_masked"] = {"pack": 2.0, "pad_unmasked": 1.9}.get(run["trained"], 2.5)
        with given("padding_cpu", found):
            self.assertEqual(
                checks.broken_claims(),
                [
                    "what_the_numbers_hide.md: counting padding makes no better model of text: its record "
                    "says otherwise"
                ],
            )

    def test_the_course_has_one_order_and_one_count_of_hours(self):
        self.assertEqual({*registry.COURSE}, {"pipedream", *(p.name for p in ROOT.glob("lessons/[0-9]*"))})
        hours = {"lessons/00_a": 1.5, "lessons/01_b": 2, "tour": 1, "lessons/02_c": 4}
        course = {of: {"page": f"{of}/README.md", "hours": count} for of, count in hours.items()}
        page = "You need two cores. Allow {} with the exercise.\n\n## Next\n\n[On](../{}/README.md).\n"
        pages = {
            "lessons/00_a/README.md": page.format("an hour and a half", "01_b"),
            "lessons/01_b/README.md": page.format("two hours", "../tour"),
            "tour/README.md": "no hours",
            "lessons/02_c/README.md": page.format("four hours", "00_a"),
        }
        wrong = {
            "lessons/00_a/README.md": page.format("an hour", "02_c"),
            "lessons/01_b/README.md": "nothing\n",
        }
        with unittest.mock.patch.object(checks, "COURSE", course):
            self.assertEqual(list(checks.problems_of_course(pages)), [])
            self.assertEqual(
                list(checks.problems_of_course({**pages, **wrong})),
                [
                    "lessons/00_a/README.md: it allows an hour, README.md 1.5",
                    "lessons/00_a/README.md: its '## Next' never links lessons/01_b/README.md, the next row "
                    "of README.md",
                    "lessons/01_b/README.md: it says no hours, README.md 2",
                    "lessons/01_b/README.md: there is no '## Next'",
                ],
            )

    def test_a_mark_of_commands_that_means_nothing(self):
        with self.assertRaisesRegex(RenderError, "is none of"):
            list(checks.commands_of("p.md", "<!-- commands: later -->\n```sh\nls\n```\n"))


class Commands(unittest.TestCase):
    """What commands_test.py makes of a line before it runs it."""

    def words(self, line, **marks_of_it):
        return " ".join(commands_test.lesson_words(checks.Command("p.md", 1, line.split(), **marks_of_it)))

    def test_lessons_are_cut_short(self):
        lesson, tail = "lessons/01_data_parallel/run.sh", "--preset cpu --no-build"
        for every, flags, short in (
            (False, "-n 4 --save w", f"-n 4 {tail} --plan --strict"),
            (False, "--sample a", f"--sample a {tail} --steps 2"),
            (False, "--sample a --steps 9", f"--sample a {tail} --steps 3"),
            (False, "--save-every 4 --steps 9", f"--save-every 4 --steps 9 {tail}"),
            (True, "-n 4 --save w", f"-n 4 --save w {tail} --steps 2"),
            (True, "--steps 9", f"--steps 9 {tail}"),
            (commands_test.ALL, "--plan --world 64", f"--plan --world 64 {tail}"),
        ):
            with unittest.mock.patch.object(commands_test, "ALL", every):
                self.assertEqual(self.words(f"{lesson} {flags}"), f"{lesson} {short}")
        self.assertEqual(
            self.words(f"{lesson} -n 2 --device cuda --ops aten --profile --graph=off", gpu=True),
            f"{lesson} -n 2 --device cuda {tail} --plan",
        )

    def test_what_is_wrong_is_said(self):
        with tempfile.TemporaryDirectory() as folder:
            run = lambda words, **marks_of_it: commands_test.run(
                checks.Command("p.md", 1, words, **marks_of_it), pathlib.Path(folder)
            )
            self.assertIsNone(run(["true"]))
            self.assertIsNone(run(["false"], exit_code=1))
            self.assertRegex(run(["false"]), "p.md:1: false: exit 1, 0 was expected")
            self.assertRegex(run(["true"], exit_code=75), "exit 0, 75 was expected")
            for marks_of_it in ({}, {"not_run": "it takes long"}):
                with self.assertRaisesRegex(RenderError, "tests/gone.sh is not there"):
                    run(["tests/gone.sh"], **marks_of_it)


def spans_of(kind, *sizes):
    return [["communication", f"{kind} of {size} f32", 0.0, 1.0] for size in sizes]


COMPUTES = ["compute", "compute", 100.0, 50e3]
GATHERED = ["waiting", "wait for all_gather 5", 1.9e3, 2.0e3]
REDUCED = ["waiting", "wait for all_reduce 5", 50e3, 51e3]
# Four blocks of 198,272 elements lie between units 0 and 5; lesson 04 gathers two blocks again.
BLOCK = "198,272"
GATHERS = spans_of("all_gather", "65,536", *[BLOCK] * 4, "256", BLOCK, BLOCK)
REDUCTIONS = [
    *spans_of("reduce_scatter", "256", *[BLOCK] * 3, "65,536", BLOCK),
    ["communication", "all_reduce of 4 f64", 0.0, 1.0],
]
A, B, D = ["c", "a", 0, 10], ["c", "b", 5, 15], ["c", "d", 10, 20]
FIT = {"latency_s": 1e-6, "bytes_per_s": 1e9}
PROGRAM = """void f() {
  // why
  for (;;) {
    begin();

    // how
    if (a) {
      b();
    }
  }
  after();
  return 1;
}""".splitlines()
FUNCTION = ["def f(a):", "    if a:", "        return 1", "    return 2"]
DRAWN = {
    "runs": 3,
    "steps_microseconds": {"median": 75e3, "lowest": 69e3, "highest": 92e3},
    "waited_microseconds": {"median": 1500.0, "lowest": 300.0, "highest": 16700.0},
}
# Questions to renderers with the data asked about and the expected answer; an exception is a text that stops
# the page.
ANSWERS = {
    "forward begins when its parameters are there": (
        (zero_figures.forward_begins, {"spans": [COMPUTES, GATHERED, REDUCED]}, 2e3),
        (zero_figures.forward_begins, {"spans": [COMPUTES, REDUCED]}, 100.0),
    ),
    "a sweep's fit; a call is a latency for each of its messages": (
        (collective_tables.fitted, 4, FIT, 1e6, 6e-6 + 1.5e-3),
        (collective_tables.call_seconds, 2, 4, FIT, collective_tables.fitted(4, FIT, 0)),
        (collective_tables.call_seconds, 1, 2, FIT, 1e-6),
    ),
    "spans at once get lanes of their own": (
        (lesson_figures.lanes_of, [A, B, D], ([(0, A), (1, B), (0, D)], 2)),
    ),
    "a drawn step is named beside the others": (
        (
            lesson_figures.steps_text,
            DRAWN,
            "a usual one of 3 runs, whose steps take 75 ms, 69 to 92, and wait 1.5 ms, 0.3 to 16.7",
        ),
    ),
    "operations of a timeline are of units": (
        (zero_figures.units_of, GATHERS[:6], True, [*"012345"]),
        (zero_figures.units_of, GATHERS, True, [*"01234521"]),
        (zero_figures.units_of, REDUCTIONS, False, [*"543201", ""]),
        (zero_figures.units_of, REDUCTIONS[1:], False, RenderError("one micro-batch")),  # a part of a step
        (zero_figures.units_of, REDUCTIONS[:6] + REDUCTIONS, False, RenderError("one micro-batch")),
    ),
    "part of an output": (
        (outputs.lines_between, ["a", "  b 1", "c", "d"], "b", "d", ["  b 1", "c"]),
        (outputs.lines_between, ["a", "b", "c"], "x", "", RenderError()),
        (outputs.lines_between, ["a", "b", "c"], "b", "a", RenderError()),
    ),
    "lines of a program end with their block": (
        (front_page.block_from, PROGRAM, "begin(", ["begin();", "if (a) {", "  b();", "}"]),
        (front_page.block_from, PROGRAM, "after(", ["after();"]),
        (front_page.block_from, PROGRAM, "gone", RenderError("no line contains 'gone'")),
        (front_page.block_from, PROGRAM, "begin( .. b()", ["begin();", "if (a) {"]),
        (front_page.block_from, FUNCTION, "if a", ["if a:", "    return 1"]),
    ),
    "the peak of a GPU": (
        (gpu_tables.peak_of, "NVIDIA H200", 989e12),
        (gpu_tables.peak_of, "NVIDIA A100-SXM4-40GB", 312e12),
        (gpu_tables.peak_of, "another", None),
    ),
}


class Parts(unittest.TestCase):
    def test_answers(self):
        for what, asked in ANSWERS.items():
            for function, *arguments, answer in asked:
                with self.subTest(what, arguments=arguments):
                    if isinstance(answer, RenderError):
                        with self.assertRaisesRegex(RenderError, str(answer)):
                            function(*arguments)
                    elif isinstance(answer, float):
                        self.assertAlmostEqual(function(*arguments), answer)
                    else:
                        self.assertEqual(function(*arguments), answer)

    def test_the_ring_sends_each_piece_once_a_step(self):
        for ranks in (2, 3, 4, 7):
            states = lesson_figures.ring_states(ranks)
            self.assertEqual(len(states), 1 + 2 * (ranks - 1))
            for cell in (cell for row in states[-1][0] for cell in row):
                self.assertEqual(cell, set(range(ranks)))
            for state, moves in states[1:]:
                self.assertEqual(len({(sender, piece) for sender, _, piece, _ in moves}), ranks)
            halfway = states[ranks - 1][0]
            self.assertEqual([sum(len(cell) == ranks for cell in row) for row in halfway], [1] * ranks)

    # A record names the values of a workload and not its file, so the file is found by the values' hash.
    def test_a_run_is_of_the_file_whose_values_it_had(self):
        command = (
            "lessons/01_data_parallel/run.sh -n 2 --steps 20 --set batch.micro=6 --set overlap=off --set "
            "optim.lr=0.004"
        )
        for name in plans.FILES:
            work = {**plans.workload(name), "steps": 20}
            work["batch"]["micro"], work["optim"]["lr"] = 6, 0.004
            self.assertEqual(
                plans.workload_of({"command": command, "workload_hash": plans.hash_of(work)}), name
            )
        with self.assertRaisesRegex(
            RenderError, "its workload is none of configs/tiny.json, tests/workloads/four_blocks.json"
        ):
            plans.workload_of({"command": command, "workload_hash": plans.hash_of(plans.workload("tiny"))})

    # The hashes are those of Hash.IsStable in tests/config/resolve_test.cpp.
    def test_a_workload_is_resolved_as_by_the_programs(self):
        lines = dict(plans.resolved(plans.workload("four_blocks")))
        self.assertEqual(
            [
                lines[key]
                for key in (
                    "model.tied",
                    "optim.clip",
                    "optim.eps",
                    "optim.lr",
                    "data.validation_fraction",
                    "steps",
                )
            ],
            ["on", "1", "1e-08", "0.002", "0.05", "400"],
        )

    def test_a_busy_machine_is_named(self):
        turns = {"load_before": 0.1, "variants": [{"rounds": [{"load_before": 0.2}, {"load_before": 0.0}]}]}
        with given("x", turns):
            self.assertEqual(
                lesson_tables.load_text("x"), "up to 0.2 cores busy with other work before a turn"
            )
            turns["variants"][0]["rounds"][1]["load_before"] = 0.9
            self.assertRegex(lesson_tables.load_text("x"), "up to 0.9 cores.*no result")

    def test_main_ratios_and_how_many_are_below_the_aim(self):
        def entry(world, rates, stored=None):
            programs = {name: {"label": f"label of {name}"} for name in rates}
            programs |= {
                name: {"label": f"label of {name}", "stored": rate} for name, rate in (stored or {}).items()
            }
            cells = {
                name: {
                    "tokens_per_second": rate,
                    "power": {"watts": {"median": 690.0}, "sm_mhz": {"median": rate / 100}},
                }
                for name, rate in rates.items()
            }
            row = {
                "workload": "configs/gpt2_124m.json",
                "rows_a_rank": 8,
                "sequence": 1024,
                "world": world,
                "gpu": "NVIDIA H200",
                "programs": programs,
                "rounds": [{"programs": cells}],
            }
            return {**row, "ratios": machine_tables.gpu_table.ratios_of(row)}

        rows = {
            "a": entry(
                1,
                {"ours": 120e3, "compile": 100e3, "compile_reduce_overhead": 105e3, "bf16": 110e3},
                {"llmc": 119e3},
            ),
            "b x2": entry(
                2,
                {
                    "ours": 300e3,
                    "zero1": 290e3,
                    "zero3": 280e3,
                    "ours_1": 160e3,
                    "compile": 200e3,
                    "zero": 190e3,
                    "fsdp": 150e3,
                },
                {"fsdp_stored": 256e3},
            ),
        }
        with given("gpu_peers", {"rows": rows}):
            with self.assertRaisesRegex(RenderError, "FSDP2 was not held back in b x2"):
                gpu_tables.gpu_ratios(Page(PAGE))
            rows["b x2"]["rounds"][0]["programs"]["fsdp"]["power"]["watts"]["median"] = 500.0
            text = gpu_tables.gpu_ratios(Page(PAGE))
            # The peer compared is the fastest setting with fp32 parameters: neither the slowest nor a bf16
            # one.
            self.assertIn("| `a` | 1 | 120.0 | 1.143 | 1.008, stored |  |", text)
            self.assertIn("| `b x2` | 2 | 300.0 | 1.500 |  | 1.094, stored |", text)
            # Row a compares with torch.compile, of which reduce-overhead is closer, and llm.c (bf16 has no
            # aim); row b with DDP, lesson 02 with zero, lesson 04 with FSDP2's stored rate, both lessons with
            # lesson 01, and scaling.
            self.assertIn(
                "Of 6 comparisons with peers and with one GPU 4 are below the aim; of 2 comparisons of "
                "lessons 02 to 04 with lesson 01 2 are below the aim ([which, and why]",
                text,
            )
            below = gpu_tables.gpu_margins(Page(PAGE))
            order = [
                below.index(line)
                for line in (
                    "| `a` | 00 | label of llmc | 1.008 (one round), stored | 1.08 |",
                    "| `b x2` | 01 | 2 times one GPU | 0.938 (one round) | 0.97 |",
                    "| `b x2` | 04 | lesson 01 | 0.933 (one round) | 0.96 |",
                    "| `b x2` | 02 | lesson 01 | 0.967 (one round) | 0.98 |",
                    "| `a` | 00 | label of compile_reduce_overhead | 1.143 (one round) | 1.15 |",
                    "| `b x2` | 04 | label of fsdp_stored | 1.094",
                )
            ]
            self.assertEqual(order, sorted(order))
            # 803,478,528 FLOPs a token, as in tests/records/mfu_test.cpp, of 989e12 a second and GPU.
            limits = gpu_tables.gpu_limits(Page(PAGE))
            self.assertIn("| `a` | 10 % | 9 % |\n| `b x2` | 12 % | 8 % |", limits)
            self.assertIn("In 0 of 2 runs our clock is the lower one.", limits)
        # Lessons have aims only relative to lesson 01, on several GPUs, with one micro-batch a step.
        rows = {
            "one": entry(1, {"ours": 120e3, "zero1": 90e3}),
            "several x2": {**entry(2, {"ours": 120e3, "zero1": 90e3}), "micro_batches": 4},
            "alone x2": entry(2, {"ours": 100e3, "zero1": 98.1e3, "zero2": 97.9e3, "zero3": 96.1e3}),
        }
        with given("gpu_peers", {"rows": rows}):
            self.assertEqual(
                [(key, lesson, aim) for key, lesson, _, _, aim in gpu_tables.comparisons()],
                [("alone x2", "02", 0.98), ("alone x2", "03", 0.98), ("alone x2", "04", 0.96)],
            )
            self.assertIn("1 is below the aim", gpu_tables.missed()[0])
        with given("gpu_peers", {"rows": {"a": entry(1, {"ours": 120e3, "compile": 100e3})}}):
            self.assertRegex(
                gpu_tables.gpu_margins(Page(PAGE)),
                r"^Of 1 comparison with peers and with one GPU none is below the aim\.\n",
            )

    # Attention is compared with the best published kernel for its shape; a shape that nobody has published,
    # with the best product in the run's dtype.
    def test_attention_has_a_bound_of_its_own(self):
        op = {
            "op": "attention",
            "milliseconds": 4.0,
            "calls": 1,
            "flops": 291e9 * 2,
            "bytes": 0.0,
            "alone": 1.0,
        }
        profile = {
            "steps": 1,
            "step_milliseconds": 4.0,
            "waited_milliseconds": 0.0,
            "communication": [],
            "operations": [op, {**op, "op": "attention backward"}, {**op, "op": "product"}],
        }

        def shares(words):
            return {
                name: share
                for name, (_, _, share) in gpu_tables.profiled(
                    {"command": f"x --workload configs/{words}", "profile": profile}
                ).items()
                if share
            }

        self.assertEqual(
            shares("gpt2_355m.json"), {"attention": "50 %", "attention backward": "40 %", "product": "25 %"}
        )
        for words, share in (
            ("gpt2_355m.json --set batch.sequence=512", "65 %"),
            ("gpt2_355m.json --set batch.sequence=256", "25 %"),
            ("tiny.json", "25 %"),  # another head
        ):
            self.assertEqual(shares(words)["attention"], share)

    def test_a_program_that_failed_is_named(self):
        row = copy.deepcopy(record("gpu_peers")["rows"]["355m x2"])
        row["programs"]["fsdp"]["failure"] = "exit 1\n\nno GPU"
        for turn in row["rounds"]:
            turn["programs"].pop("fsdp", None)
        text = machine_tables.programs_text({"355m x2": row})
        self.assertRegex(text, r"\|  \| FSDP2, blocks compiled \| failed \|")
        self.assertIn("355m x2, FSDP2, blocks compiled: failed: exit 1: no GPU", text)

    def test_rounds_of_more_than_one_commit_are_marked(self):
        def row(*commits):
            return {"rounds": [{"commit": commit} for commit in commits]}

        rows = {"a": row("1" * 12), "c": row("1" * 12, "2" * 12, "1" * 12)}
        with given("gpu_peers", {"rows": rows}):
            self.assertIn(
                "`a`: 111111111111; `c`: **rounds of more than one commit**, 111111111111 (2 rounds), "
                "222222222222 (1 round).",
                gpu_tables.gpu_commits(Page(PAGE)),
            )

    def test_a_formula_or_command_that_is_wrong_stops_the_cheat_sheet(self):
        cheat_sheet.checked()
        for number, lesson in enumerate(cheat_sheet.LESSONS):
            wrong = [{"command": " --never"}]
            if lesson.states:
                wrong += [
                    {"states": f"{lesson.states} + P / 1000"},
                    {"activations": (lesson.activations[0], f"{lesson.activations[1]} / 2")},
                ]
            wrong += [
                {"sent": (*lesson.sent[:i], (words, f"2 {formula}", kind), *lesson.sent[i + 1 :])}
                for i, (words, formula, kind) in enumerate(lesson.sent)
            ]
            wrong += [
                {"more": ((words, f"3 {formula}", place, purposes), *lesson.more[1:])}
                for words, formula, place, purposes in lesson.more[:1]
            ]
            for changed in wrong:
                lessons = (
                    *cheat_sheet.LESSONS[:number],
                    dataclasses.replace(lesson, **changed),
                    *cheat_sheet.LESSONS[number + 1 :],
                )
                with self.subTest(lesson=lesson.program, changed=changed), unittest.mock.patch.object(
                    cheat_sheet, "LESSONS", lessons
                ), self.assertRaisesRegex(
                    RenderError,
                    "has no command"
                    if "command" in changed
                    else f"the cheat sheet, {registry.COURSE[lesson.program]['name']}",
                ):
                    cheat_sheet.checked()
        for name, wrong in (
            ("BUBBLE", "(S - 1) / (M + S)"),
            ("CHECKPOINT", (("", "16 P / N"), ("about", "12 P"))),
            ("CHECKPOINT", (("", "12 P / N"), ("about", "16 P"))),
        ):
            with self.subTest(wrong=wrong), unittest.mock.patch.object(
                cheat_sheet, name, wrong
            ), self.assertRaises(RenderError):
                cheat_sheet.checked()

    def test_commands_of_the_record_of_bytes_repeat_its_runs(self):
        for run in record("memory")["runs"]:
            self.assertEqual(
                run["command"].split()[:3], [f"lessons/{run['lesson']}/run.sh", "-n", str(run["world"])]
            )
            self.assertIn(f" --workload {plans.FILES['four_blocks']} ", run["command"])
            self.assertEqual(
                [one for one in plans.settings_in(run["command"]) if not one.startswith("steps=")],
                run["settings"],
            )

    def test_the_solutions_of_hunts_are_folded_and_the_story_comes_first(self):
        text = faults.faults(Page(PAGE), "01")
        self.assertTrue(text.startswith("<details><summary>") and text.endswith("</details>"))
        rows = re.findall(r"^\| \[(\d)\]\(\S+/tests/faults/(\w+)\.patch\) \| .* \| `.*` \|$", text, re.M)
        self.assertEqual([number for number, _ in rows], [str(n + 1) for n in range(len(rows))])
        self.assertEqual(len(rows), len(list((ROOT / "tests/faults").glob("01_*.patch"))))
        story = (ROOT / f"tests/faults/{rows[0][1]}.patch").read_text()
        self.assertRegex(story, "(?m)^Story: ")

    @unittest.skipIf(plots.missing(), plots.missing())
    def test_a_plot_is_the_same_every_time_and_says_no_date(self):
        def draw(figure):
            plots.curves(
                plots.axes(figure, 60, 200, right=200), plots.lines_of([("a < b", [(0, 0), (1, 2)])])
            )

        texts = [plots.plot(300, "t", "a", "c", draw).svg for _ in range(2)]
        self.assertEqual(*texts)
        self.assertIn(">a &lt; b</text>", texts[0])
        self.assertNotIn("date", texts[0].replace("update", ""))

    def test_without_matplotlib_a_plot_is_described_and_not_drawn(self):
        with unittest.mock.patch.object(plots, "matplotlib", None):
            drawn = zero_figures.zero_bytes()
        self.assertEqual(drawn.svg, "")
        self.assertIn("45.86 GB", drawn.alt)

    def test_a_drawing_is_the_same_every_time_and_escapes_text(self):
        drawings = [svg.Drawing(100, "a < b", "x & y").done("c").svg for _ in range(2)]
        self.assertEqual(*drawings)
        self.assertIn('<title id="title">a &lt; b</title>', drawings[0])


class FrontPage(unittest.TestCase):
    def spans(self, step, row, what=""):
        return [span for span in step.spans if span.row == row and span.what.startswith(what)]

    # A drawn step must be possible: units are computed in order, nothing is used before it has arrived, and a
    # link carries one thing at a time.
    def test_a_drawn_step_is_one_that_can_be(self):
        units = list(range(front_page.LAST + 1))
        for lesson in (lesson for lesson, *_ in front_page.ROWS if lesson < "05"):
            step = front_page.step_of(lesson)
            with self.subTest(lesson=lesson):
                self.assertEqual([s.unit for s in self.spans(step, "compute", "forward")], units)
                self.assertEqual([s.unit for s in self.spans(step, "compute", "backward")], units[::-1])
                busy = self.spans(step, "compute") + self.spans(step, "waiting")
                for row in (busy, self.spans(step, "communication")):
                    ordered = sorted(row, key=lambda s: s.begin)
                    self.assertTrue(all(a.end <= b.begin + 1e-9 for a, b in zip(ordered, ordered[1:])))
                backward = {s.unit: s for s in self.spans(step, "compute", "backward")}
                reduced = [
                    s
                    for what in ("all-reduce", "reduce-scatter")
                    for s in self.spans(step, "communication", what)
                ]
                self.assertEqual([s.unit for s in reduced], [] if lesson == "00_one_device" else units[::-1])
                self.assertTrue(all(s.begin >= backward[s.unit].end for s in reduced))
                self.assertTrue(all(s.end <= step.spans[-1].begin for s in reduced))
                gathers = self.spans(step, "communication", "all-gather")
                for what in ("forward", "backward"):
                    for used in self.spans(step, "compute", what):
                        mine = [g for g in gathers if g.unit == used.unit and g.begin < used.begin]
                        self.assertTrue(all(g.end <= used.begin for g in mine))
                        self.assertEqual(bool(mine), lesson in ("02_zero1", "03_zero2", "04_zero3"))

    # At the end of forward two of four blocks are still in a buffer, so only the other two are gathered
    # again.
    def test_lesson_04_gathers_again_what_forward_released(self):
        gathers = [s.unit for s in self.spans(front_page.step_of("04_zero3"), "communication", "all-gather")]
        self.assertEqual(gathers, [0, 1, 2, 3, 4, 5, 2, 1])

    def test_chosen_lines_of_an_output(self):
        with given("name", {"run": {"said": ["total 1", "loss 2", "  x", "  total 3  equal"]}}):
            self.assertEqual(
                front_page.output_lines(Page(PAGE), "name", "run", "loss", "total"),
                "```text\nloss 2\n  total 3  equal\n```",
            )
            with self.assertRaisesRegex(RenderError, "no line that starts with 'gone'"):
                front_page.output_lines(Page(PAGE), "name", "run", "gone")


class Zero(unittest.TestCase):
    # A timeline has milliseconds, a lane for each operation in flight at once, and labels for units 0, 4, 8
    # ...
    def test_a_timeline_draws_what_it_has(self):
        def sent(kind, *parts):
            return [["communication", f"{kind} of {size} f32", begin, end] for size, begin, end in parts]

        run = {
            "microseconds": 800.0,
            "spans": [
                ["compute", "compute", 0.0, 700.0],
                *sent("all_gather", (7, 0.0, 25.0), (9, 20.0, 31.0), (9, 30.0, 41.0), (2, 40.0, 90.0)),
                *sent(
                    "reduce_scatter",
                    (2, 400.0, 401.0),
                    (9, 500.0, 501.0),
                    (7, 600.0, 601.0),
                    (9, 650.0, 651.0),
                ),
                ["waiting", "wait", 700.0, 700.5],
            ],
        }
        rows, labels = zero_figures.rows_of(run)
        self.assertEqual(
            [name for name, *_ in rows], ["compute", "", "", "gathers", "", "reductions", "waiting"]
        )
        self.assertEqual(
            [[first for first, *_ in spans] for _, _, spans in rows],
            [[0.0], [], [0.0, 0.03], [0.02, 0.04], [], [0.4, 0.5, 0.6, 0.65], [0.7]],
        )
        self.assertEqual({fill for fill in (span[2] for span in rows[5][2])}, {palette.GRADIENTS})
        self.assertEqual(labels, [(2, 0.0, "0"), (5, 0.6, "0")])

    # A unit is 36 points wide and a slice 8 points high.
    def test_figures_fill_what_a_rank_holds(self):
        boxes = []
        drawing = unittest.mock.Mock(
            box=lambda x, y, width, height, fill, kind_of_box, share: boxes.append(
                (round(x), kind_of_box if share == 1 else "pale")
            )
        )
        zero_figures.draw_cells(drawing, 0, 0, "fill", 1, False, (5,))
        self.assertEqual(
            [kind for _, kind in boxes], ["bare", "box", "bare", "bare"] * 5 + ["pale", "box", "pale", "pale"]
        )
        self.assertEqual([x for x, _ in boxes if x >= 36][0], 36)
        cells = []
        with unittest.mock.patch.object(
            zero_figures, "draw_cells", lambda drawing, x, y, *what: cells.append(what[1:])
        ):
            zero_figures.zero2_holds()
        # The figure's cells are ordered by moment and vector, with four ranks each.
        self.assertEqual(cells[:5], [*((rank, True, ()) for rank in range(4)), (0, False, ())])
        self.assertEqual([whole for rank, vector_whole, whole in cells if whole], [(0, 3, 4)] * 4)

    def test_a_timeline_says_whether_its_machine_was_busy(self):
        for load, said in ((0.01, ">measured<"), (0.9, ">measured on a busy machine: order, no times<")):
            with given("zero_trace", {**record("zero_trace"), "load_before": load}):
                drawn = zero_figures.zero1_trace()
            self.assertTrue(plots.missing() or said in drawn.svg)
            self.assertIn(f"up to {load:.1f} cores busy", drawn.caption)

    def test_beside_pipelines(self):
        text = zero_tables.zero_beside_pipelines(Page(PAGE), "gpt2_355m,4,4,8")
        self.assertIn("| GPT-2 355M | 4 | 2 | 2.84 GB |", text)  # as `04_zero3 --plan` of that shape has it
        planned = zero_tables.plan_of("04_zero3", "gpt2_355m", 4, "batch.micro=4", "batch.global=32")
        for planned.sent in (10**8, 10**10):
            with unittest.mock.patch.object(
                zero_tables, "plan_of", lambda *which: planned
            ), self.assertRaisesRegex(RenderError, "not between pipedream's bounds"):
                zero_tables.zero_beside_pipelines(Page(PAGE), "gpt2_355m,4,4,8")

    def test_gradients_that_are_not_sent_m_times_stop_the_page(self):
        found = copy.deepcopy(record("zero_order"))
        run = found["lessons"]["03_zero2"]["2"]
        for key in ("operations", "predicted_operations"):
            run[key] = [{**op, "count": op["count"] + (op["kind"] == "reduce_scatter")} for op in run[key]]
        with given("zero_order", found), self.assertRaisesRegex(RenderError, "not 6 times"):
            zero_tables.zero_send_once(Page("lessons/03_zero2/README.md"), "2")


class Tensor(unittest.TestCase):
    PAGE = Page("lessons/10_tensor_parallel/README.md")

    def test_drawn_steps_have_the_plans_messages(self):
        sent = [
            sum(span.row == "communication" for span in step.spans)
            for step in (*tensor_figures.block_steps(), front_page.tensor_step())
        ]
        self.assertEqual(sent, [4, 6, 10 * front_page.BLOCKS + 4 + 1])  # the last one: of what every rank has

    def test_a_difference_is_of_one_function(self):
        files = (
            "lessons/01_data_parallel/data_parallel.cpp",
            "lessons/10_tensor_parallel/tensor_parallel.cpp",
        )
        text = tensor_tables.difference(self.PAGE, *files, "train_step")
        self.assertIn(
            "-  for (int unit = layout_.last_unit(); unit >= 0; --unit) wait_reduced(unit);\n+  "
            "sum_replicated();\n   global_norm();",
            text,
        )
        self.assertNotIn("hashes_", text)
        with self.assertRaisesRegex(RenderError, "data_parallel.cpp defines no step_slice"):
            tensor_tables.difference(self.PAGE, *files, "step_slice")

    def test_a_difference_marks_what_it_leaves_out(self):
        files = ("lessons/02_zero1/zero1.cpp", "lessons/03_zero2/zero2.cpp")
        lines = tensor_tables.difference(self.PAGE, *files, "train_step").splitlines()
        self.assertIn("+    passes_.head(batch, params_full_, grads_full_, Write::overwrite, sums_);", lines)
        self.assertEqual(
            lines[3:5], ["   sums_.zero_();", "   for (std::size_t j = 0; j < micro_batches.size(); ++j) {"]
        )
        before = tensor_tables.difference(
            self.PAGE, "lessons/01_data_parallel/data_parallel.cpp", files[0], "train_step"
        )
        self.assertIn("sums_);\n     ...\n   global_norm();\n", before)


class Combined(unittest.TestCase):
    PAGE = Page("lessons/11_combined/README.md")

    def test_messages_along_each_axis(self):
        """With 12 blocks: ten messages for each block and micro-batch, and two at the first stage's end; one
        sum of what every tensor rank has; reduce-scatter and gather of both segments of each unit."""
        for mesh, pair in combined.mesh_runs().items():
            stages, data, tensor = combined.shape_of(mesh)
            found, M = pair["run"]["ranks"][0]["measured"], 12 // (4 if mesh == "2x1x2" else 2) // data
            expected = {"world": 1, **({"stages": 2 * M, "ends": 1} if stages > 1 else {})}
            if tensor > 1:
                expected["tensor"] = (
                    M * (10 * 12 // stages + 2 * (3 - stages) + (stages == 1)) + 1
                )  # with one stage the head's, too, and its statistics
            if data > 1:
                expected["data"] = 2 * (
                    (2 * (1 + 12 // stages) if tensor > 1 else 1 + 12 // stages) + (stages == 1)
                )
            self.assertEqual({axis: count for axis, (count, _) in found.items()}, expected, mesh)
            self.assertEqual(sum(sent for _, sent in found.values()), pair["run"]["bytes_sent"])

    def test_groups_that_are_drawn(self):
        drawn = [
            [[combined.number_of(*rank) for rank in group] for group in combined.groups_of(axis)]
            for axis in range(3)
        ]
        self.assertEqual(
            drawn,
            [
                [[0, 4], [1, 5], [2, 6], [3, 7]],
                [[0, 2], [1, 3], [4, 6], [5, 7]],
                [[0, 1], [2, 3], [4, 5], [6, 7]],
            ],
        )

    def test_layouts_are_all_there_and_hold_their_parts(self):
        laid = combined.all_laid()
        self.assertEqual(len({one.mesh for one in laid}), 10)
        for one in laid:
            self.assertEqual(
                sum(size for _, size in tensor_figures.purposes_of(one.plan)), one.held, one.mesh
            )
        self.assertEqual(
            [one.mesh for one in laid if not one.sent["tensor"]], ["8x1x1", "4x2x1", "2x4x1", "1x8x1"]
        )


class EveryLesson(unittest.TestCase):
    def test_a_row_is_the_plainest_of_its_lesson_and_its_command_makes_it(self):
        def row(lesson, fits=True, *settings, seconds=1.26):
            return {
                "lesson": lesson,
                "micro": 4,
                "device": 3e9,
                "host": 2e9,
                "disk": 0,
                "fits": fits,
                "seconds": seconds,
                "tokens_per_second": 1 / seconds,
                "settings": list(settings),
                **({"command": " ".join((lesson, *settings))} if fits else {}),
            }

        def plan(gpus, *rows):
            return {"command": f"lessons/choose.sh --gpus {gpus}", "rows": rows, "sure": "+-9 %"}

        found = {
            "plans": {
                "7b x8": plan(
                    8,
                    {"lesson": "08_weight_versions", "settings": []},
                    row("01_data_parallel", False),
                    row("04_zero3", True, "prefetch=2"),
                    row("04_zero3", True, "prefetch=3", seconds=0.884),
                ),
                "7b x1": plan(1, row("00_one_device")),
            }
        }
        with given("choosing", found):
            lines = {
                line.split("[")[1][:2]: line.split(" | ")[1:4]
                for line in choosing_tables.every_lesson(Page("docs/choosing.md")).splitlines()
                if line.startswith("| [")
            }
            self.assertEqual(
                (lines["04"], lines["01"], lines["08"]),
                (["3.0, 4", "2.0 / 0", "1.3; 0.88"], ["3.0, 4", "2.0 / 0", "does not fit"], [""] * 3),
            )
            commands = choosing_tables.every_lesson_commands(Page("docs/choosing.md")).splitlines()
            self.assertEqual(commands[2:-1], ["00_one_device", "04_zero3 prefetch=2", "04_zero3 prefetch=3"])

    def test_the_tree_says_what_choose_says(self):
        one = {"command": "lessons/choose.sh --gpus 16 --node-link 1GB/s --host-memory 2TB"}
        advice = {"gpt2_355m": "lesson 02_zero1", "gpt_7b": "lesson 11_combined mesh=2x8x1", "gpt_70b": None}
        with given("choosing", {"tree": {"2 x 8": {**one, "advice": advice}}}):
            drawn = choosing_tables.choosing_tree().svg
        for words in (
            "2 x 8",
            "between nodes 1GB/s",
            "host memory 2TB",
            "02 ZeRO-1",
            "mesh=2x8x1",
            "nothing fits",
        ):
            self.assertIn(f">{words}</text>", drawn)

    def test_what_is_predicted_has_two_digits(self):
        for number, words in (
            (1101066, "1,100,000"),
            (41.63, "42"),
            (2.04, "2.0"),
            (9.96, "10"),
            (0.0123, "0.012"),
        ):
            self.assertEqual(registry.two_digits(number), words)

    def test_a_plan_shows_each_lessons_quickest_exact_row(self):
        def row(lesson, rate, fits=True, *settings):
            return {
                "lesson": lesson,
                "micro": 1,
                "fits": fits,
                "tokens_per_second": rate,
                "settings": list(settings),
            }

        rows = [
            row("01", 9, False),
            row("01", 8, False),
            row("04", 1),
            row("04", 3, True, "shard_ranks=4"),
            row("04", 7, False),
            row("05", 2),
            row("05", 5, True, "update=delayed"),
            {"lesson": "08", "settings": []},
        ]
        shown = choosing_tables.quickest_of_each(rows)
        self.assertEqual(
            [(one["lesson"], one["tokens_per_second"]) for one in shown], [("01", 9), ("04", 3), ("05", 2)]
        )


class Offload(unittest.TestCase):
    # 24 blocks of width 1024 beside a head of 50,304 columns: 0.285 of the operations without attention.
    def test_forwards_share_of_a_step(self):
        self.assertAlmostEqual(offload_tables.forward_share(plans.workload("gpt2_355m")), 0.29, places=2)

    def test_passes_are_those_that_the_record_marks(self):
        copies = {"to_host": [[0.9, 1.0], [46.0, 47.0]], "to_device": [], "adam": []}

        def gpu(**computes):
            lanes = {name: spans for name, _, spans in offload_figures.rows_of({**copies, **computes})}
            return [(*span[:2], span[3]) for span in lanes["GPU"]]

        self.assertEqual(
            gpu(forward=[[0, 45]], backward=[[45, 90]]), [(0, 45, "forward"), (45, 90, "backward")]
        )
        self.assertEqual(gpu(compute=[[0, 90]]), [(0, 90, "")])  # the copy at 0.9 ms says nothing of a pass


if __name__ == "__main__":
    unittest.main()
