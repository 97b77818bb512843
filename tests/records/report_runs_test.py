#!/usr/bin/env python3
"""lessons/report.sh: what its table and its figure say, and what it refuses."""

import contextlib
import io
import json
import math
import os
import random
import re
import subprocess
import sys
import unittest
import xml.etree.ElementTree

import fake_runs
from page_browser import CHROMIUM, allowed, browse
from fake_runs import FolderCase, begun_run, command, ended_run, rank, record, step, write

sys.path.insert(0, f"{fake_runs.ROOT}/common/records/curves")
import report  # noqa: E402
import run_files  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"


def text_of(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


class Case(FolderCase):
    def refused(self, code, said, *arguments, name="report"):
        found, out, err = command(name, *arguments, cwd=self.folder)
        self.assertEqual((found, out, err), (code, "", said))

    def rows(self, *arguments):
        """{name of a row: its cells}, of a report that is made."""
        code, out, err = command("report", *arguments, cwd=self.folder)
        self.assertEqual((code, err), (0, ""), out)
        cells = [line.strip().split("  ") for line in out.splitlines() if line.startswith("  ")]
        return {words[0]: [word.strip() for word in words[1:] if word] for words in cells}


class Table(Case):
    def test_what_a_row_says(self):
        steps = [step(i, seconds=9 if i < 5 else 0.25 + 0.01 * i) for i in range(30)]
        device = {
            "parameters": 700,
            "gradients": 300,
            "total": 900,
            "pinned": {"gradients": 5},
            "host": {"momentum": 40, "variance": 2},
            "disk": {"master": 7},
        }
        run = ended_run(self.path("a"), steps, ranks=[rank(0), rank(1, {**device, "total": 3000})])
        rows = self.rows(run)
        # The 13th of the 25 steps after the warm-up, number 17, is the median.
        self.assertEqual(
            (rows["tokens per second"], rows["milliseconds per step"]), ([f"{1536 / 0.42:,.0f}"], ["420.00"])
        )
        self.assertEqual((rows["steps"], rows["tokens"]), (["30"], ["46,080"]))
        self.assertEqual(
            (rows["parameters"], rows["total"]), (["700"], ["3,000"]), "of the rank that holds most"
        )
        self.assertEqual(
            [rows[name] for name in ("gradients, pinned", "momentum, host", "total, host", "master, disk")],
            [["5"], ["40"], ["42"], ["7"]],
        )
        self.assertNotIn("total, disk", rows, "a sum of one is no news")
        self.assertEqual(
            (rows["first"], rows["last"], rows["validation"], rows["perplexity"]),
            (["5.0000"], ["2.1000"], ["2.2500"], ["9.488"]),
        )
        self.assertEqual(rows["bytes are"], ["measured"])

    def test_the_test_text_has_rows_of_its_own(self):
        test = {"file": "wiki_test.bin", "rows": 276, "loss": 2.0, "perplexity": math.exp(2.0)}
        runs = [
            ended_run(self.path("a"), [step(0)], test=test),
            ended_run(self.path("b"), [], validation_loss=None, test={**test, "loss": None}),
            ended_run(self.path("c"), [step(0)]),
        ]
        rows = self.rows(*runs)
        self.assertEqual(
            [rows[name] for name in ("perplexity", "test loss", "test perplexity")],
            [["9.488", "-", "9.488"], ["2.0000", "nan", "-"], ["7.389", "nan", "-"]],
        )
        self.assertNotIn("test loss", self.rows(runs[2]), "this run had no test")

    # A loss that is no number is one that is there, and a perplexity may be infinite where the loss is not.
    def test_losses_that_are_not_finite(self):
        runs = [
            ended_run(self.path("a"), [step(0)], validation_loss="nan"),
            ended_run(self.path("b"), [step(0, validation_loss="inf")], validation_loss="inf"),
            ended_run(self.path("c"), [step(0)], validation_loss=710),
            ended_run(self.path("d"), [step(0)], validation_loss=None),
        ]
        rows = self.rows(*runs)
        self.assertEqual(rows["validation"], ["nan", "inf", "710.0000", "-"])
        self.assertEqual(rows["perplexity"], ["nan", "inf", "inf", "-"])
        ended_run(self.path("e"), [step(0)], validation_loss="much")
        code, _, err = command("report", "e", cwd=self.folder)
        self.assertEqual(
            (code, err.splitlines()[0]),
            (65, 'error: e/record.json: "validation_loss" is not what a run writes'),
        )

    # As wire_bytes() of common/watch/comm_op.h counts them.
    def test_bytes_sent(self):
        def sent(kind, elements, place, world, dtype="f32", **more):
            return report.sent_bytes(
                {"kind": kind, "elements": elements, "dtype": dtype, **more}, place, world
            )

        self.assertEqual([sent("all_reduce", 10, place, 4) for place in range(4)], [64, 64, 64, 48])
        self.assertEqual(sum(sent("all_reduce", 10, place, 4) for place in range(4)), 2 * 3 * 10 * 4)
        self.assertEqual(sent("all_reduce", 2, 3, 4, ranks=2), 8, "a group of neighbours")
        apart = [sent("all_reduce", 10, rank, 6, ranks=3, stride=2) for rank in range(6)]
        self.assertEqual(apart, [56, 56, 56, 56, 48, 48], "two groups, their ranks two apart")
        self.assertEqual(
            (sent("reduce_scatter", 12, 0, 3, "bf16"), sent("all_gather", 12, 0, 3, "f64")), (16, 64)
        )
        self.assertEqual(
            (
                sent("broadcast", 5, 0, 2),
                sent("send", 5, 1, 4),
                sent("recv", 5, 1, 4),
                sent("barrier", 0, 0, 4),
            ),
            (20, 20, 0, 0),
        )
        self.assertEqual(sent("all_gather", 12, 0, 1), 0, "one rank sends nothing")

    def test_bytes_of_a_step(self):
        send, copy = (
            {"kind": kind, "dtype": "f32", "elements": 10, "count": 3} for kind in ("send", "to_host")
        )
        back = {**copy, "kind": "to_device"}
        rows = self.rows(
            ended_run(
                self.path("a"),
                [step(0)],
                ranks=[rank(0, operations=[send]), rank(1, operations=[copy, back])],
            )
        )
        self.assertEqual(
            (rows["sent to other ranks"], rows["copied to and from the host"]), (["120"], ["240"])
        )

    def test_any_number_of_runs(self):
        runs = [ended_run(self.path(f"r{i}"), [step(0, loss=4 + 0.1 * i)]) for i in range(15)]
        code, out, err = command("report", *runs, "--svg", self.path("x.svg"))
        self.assertEqual((code, err), (0, ""))
        last = [line.split()[1:] for line in out.splitlines() if line.startswith("  last")]
        self.assertEqual(sum(last, []), [f"{4 + 0.1 * i:.4f}" for i in range(15)])
        self.assertLessEqual(max(len(line) for line in out.splitlines() if not line.startswith("[")), 110)
        self.assertEqual(out.count("[15]"), 5, "in the list and above each of its parts")

    def test_short_predicted_and_unended_runs(self):
        short = rank()
        short["measured_bytes"] = short["measured_operations"] = None
        runs = [
            ended_run(self.path("a"), [step(0)], ranks=[short]),
            ended_run(self.path("b"), [step(0)], as_predicted=False, exit_code=70),
            begun_run(self.path("c"), fake_runs.lines([step(0), step(1)]) + '{"step": 2, "lo'),
        ]
        rows = self.rows(*runs)
        self.assertEqual(rows["bytes are"], ["predicted", "DIFFERENT", "-"])
        self.assertEqual(
            (rows["tokens per second"], rows["last"], rows["steps"]),
            (["-"] * 3, ["5.0000", "5.0000", "4.9000"], ["1", "1", "2"]),
        )
        out = command("report", *runs)[1].splitlines()
        self.assertIn("exit 70", out[1])
        self.assertIn("not ended", out[2])
        self.assertTrue(out[2].endswith("c/steps.jsonl:3: the last line is cut off and left out"), out[2])

    def test_records_of_before_places(self):
        self.assertEqual(
            self.rows(ended_run(self.path("a"), [step(0)], ranks=[rank(0, {"total": 1, "host": 64})]))[
                "workspace, host"
            ],
            ["64"],
        )


class Scaling(Case):
    def run_on(self, ranks, seconds, **more):
        steps = [step(i, seconds=9 if i < 5 else seconds) for i in range(25)]
        return ended_run(
            self.path(f"on{ranks}"), steps, world=ranks, ranks=[rank(i) for i in range(ranks)], **more
        )

    def test_next_to_the_fewest_ranks(self):
        runs = [self.run_on(4, 0.16), self.run_on(2, 0.25)]
        code, out, err = command("report", *runs, "--scaling", cwd=self.folder)
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(
            out,
            "01_data_parallel, next to 2 ranks\n"
            "ranks  tokens per second  speed-up  efficiency\n"
            "    2              6,144      1.00       100 %\n"
            "    4              9,600      1.56        78 %\n",
        )
        self.assertFalse(os.path.exists(f"{runs[0]}/loss.svg"))

    def test_what_does_not_compare_is_refused(self):
        one = os.path.relpath(self.run_on(1, 0.5), self.folder)
        others = {
            "lesson is 02_zero1 here and 01_data_parallel there": {"lesson": "02_zero1"},
            "device is cuda here and cpu there": {"device": "cuda"},
            "overlap is off here and on there": {"strategy": {"overlap": "off"}},
            "batch.global is 24 here and 12 there": {
                "workload": {**fake_runs.WORKLOAD, "batch.global": "24"}
            },
        }
        for said, more in others.items():
            two, key = os.path.relpath(self.run_on(2, 0.3, **more), self.folder), said.split()[0]
            fix = f"compare runs of one workload, or say that they may differ in it: --across {key}"
            self.refused(
                64, f"error: {two}: did other work than {one}: {said}\n  fix: {fix}\n", one, two, "--scaling"
            )
            code, out, _ = command("report", one, two, "--scaling", "--across", key, cwd=self.folder)
            self.assertEqual((code, out.splitlines()[-1].split()), (0, ["2", "5,120", "1.67", "83", "%"]))

    def test_what_has_no_rate_or_no_other_is_refused(self):
        one, two = (os.path.relpath(self.run_on(ranks, 0.5), self.folder) for ranks in (1, 2))
        short = os.path.relpath(ended_run(self.path("short"), [step(0)] * 24, world=4), self.folder)
        again = os.path.relpath(ended_run(self.path("again"), [step(0)] * 25, world=2), self.folder)
        self.refused(
            64,
            f"error: {short}: has 24 steps; a rate needs 25\n  fix: --steps 25 or more\n",
            one,
            short,
            "--scaling",
        )
        said = "name one run of each number of ranks"
        self.refused(
            64, f"error: {again}: has 2 ranks, as {two}\n  fix: {said}\n", one, two, again, "--scaling"
        )
        said = "one run says nothing of scaling\n  fix: name runs on other numbers of ranks as well\n"
        self.refused(64, f"error: --scaling: {said}", one, "--scaling")
        said = "error: --scaling: prints a table alone\n  fix: leave out --svg and --pages\n"
        self.refused(64, said, one, two, "--scaling", "--pages")


class OtherWork(Case):
    def setUp(self):
        super().setUp()
        self.one = ended_run(self.path("one"), [step(0)])
        other = {**fake_runs.WORKLOAD, "optim.lr": "0.001", "seed": "2"}
        self.other = ended_run(self.path("other"), [step(0)], workload=other, workload_hash="def")

    def test_is_refused_by_its_first_key(self):
        said = (
            "error: other: did other work than one: optim.lr is 0.001 here and 0.004 there\n"
            "  fix: compare runs of one workload, or say that they may differ in it: --across optim.lr,seed\n"
        )
        self.refused(64, said, "one", "other")
        self.refused(
            64,
            said.replace("optim.lr is 0.001 here and 0.004", "seed is 2 here and 1"),
            "one",
            "other",
            "--across",
            "optim.lr",
        )
        self.assertFalse(os.path.exists(self.path("one/loss.svg")))

    def test_goes_with_across(self):
        for across in (["--across", "seed,optim.lr"], ["--across", "seed", "--across", "optim.lr"]):
            self.assertEqual(command("report", "one", *across, "other", cwd=self.folder)[0], 0)

    def test_a_key_that_one_has_not(self):
        ended_run(
            self.other, [step(0)], workload={**fake_runs.WORKLOAD, "model.new": "on"}, workload_hash="def"
        )
        self.refused(
            64,
            "error: other: did other work than one: model.new is on here and nothing there\n"
            "  fix: compare runs of one workload, or say that they may differ in it: --across model.new\n",
            "one",
            "other",
        )

    def test_an_older_record_counted_its_evaluation_in_micro_batches(self):
        today = {**fake_runs.WORKLOAD, "batch.micro": "3", "data.validation_rows": "6"}
        older = {**fake_runs.WORKLOAD, "batch.micro": "3", "data.validation_batches": "2"}
        ended_run(self.one, [step(0)], workload=today)
        ended_run(self.other, [step(0)], workload=older, workload_hash="def")
        self.assertEqual(command("report", "one", "other", cwd=self.folder)[0], 0)
        ended_run(
            self.other, [step(0)], workload={**older, "data.validation_batches": "1"}, workload_hash="def"
        )
        said = "error: other: did other work than one: data.validation_rows is 3 here and 6 there\n"
        self.refused(
            64,
            said + "  fix: compare runs of one workload, or say that they may differ in it: "
            "--across data.validation_rows\n",
            "one",
            "other",
        )

    def test_a_key_that_nobody_has(self):
        self.refused(
            64,
            "error: --across optim.lrs: no run here has such a key\n" "  fix: --across optim.lr\n",
            "one",
            "other",
            "--across",
            "optim.lrs",
        )


class OtherFiles(Case):
    """Beside the workload: what --init, --validation and --test named."""

    def run_of(self, name, **more):
        return ended_run(self.path(name), [step(0)], **more)

    @staticmethod
    def text(name, total):
        return {"file": name, "bytes": 9, "sum": total}

    def test_losses_of_other_texts_are_refused(self):
        self.run_of("one", validation=self.text("v.txt", "aa"))
        self.run_of("copy", validation=self.text("copy.txt", "aa"))
        self.run_of("other", validation=self.text("v.txt", "bb"))
        self.run_of("tail")
        self.run_of("none", validation_loss=None)
        self.rows("one", "copy", "none")
        said = (
            "error: other: was evaluated on another text than one: "
            "--validation v.txt (sum bb) here and v.txt (sum aa) there\n"
            "  fix: compare runs with one text, or say that they may differ in it: --across validation\n"
        )
        self.refused(64, said, "one", "other")
        self.refused(
            64,
            said.replace("other: w", "tail: w").replace("v.txt (sum bb) h", "none h"),
            "none",
            "one",
            "tail",
        )
        self.rows("one", "other", "tail", "--across", "validation")

    def test_tests_of_other_texts_are_refused(self):
        self.run_of("one", test={**self.text("t.bin", "aa"), "rows": 3, "loss": 2})
        self.run_of("old", test={"file": "t.bin", "rows": 3, "loss": 2})
        self.run_of("other", test={**self.text("u.bin", "bb"), "rows": 3, "loss": 2})
        self.rows("one", "old")
        self.refused(
            64,
            "error: other: was evaluated on another text than old: "
            "--test u.bin (sum bb) here and t.bin (sum unknown) there\n"
            "  fix: compare runs with one text, or say that they may differ in it: --across test\n",
            "old",
            "other",
        )

    def test_other_initial_weights_are_named(self):
        self.run_of("one", init=self.text("w.safetensors", "aa"))
        self.run_of("other")
        lines = command("report", "one", "other", cwd=self.folder)[1].splitlines()
        self.assertEqual(
            [line.split("  ", 2)[2] for line in lines[:2]],
            ["one  --init w.safetensors (sum aa)", "other  --init none"],
        )
        self.assertNotIn("--init", command("report", "one", "one", cwd=self.folder)[1])


FORGED = [
    None,
    True,
    0,
    -1,
    1 << 63,
    10**400,
    1e308,
    math.nan,
    "",
    "x",
    "\x1b[31m",
    "../../../x",
    "\ud800",
    "nan",
    [],
    [1],
    {},
    {"a": {}},
    [None] * 3,
]
OPERATION = {"kind": "all_reduce", "dtype": "f32", "elements": 10, "count": 3}


def paths_of(value, path=()):
    yield path
    for key, member in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        yield from paths_of(member, (*path, key))


def put(value, path, new):
    if not path:
        return new
    value[path[0]] = put(value[path[0]], path[1:], new)
    return value


class BadInput(Case):
    GOOD = "runs/01_data_parallel/2025-01-31T12-00-00"
    NAME = f"  fix: name the folder of a run or its record.json, such as {GOOD}\n"

    def bad(self, said, text=None):
        if text is not None:
            write(self.path("a/record.json"), text)
        self.refused(65, f"error: {said}", "a")

    def test_no_run(self):
        self.bad(f"a: there is no such run\n{self.NAME}")
        os.mkdir(self.path("a"))
        self.bad(f"a: holds no record.json\n{self.NAME}")
        ended_run(self.path("a/b"), [])
        self.bad("a: holds no record.json\n" + self.NAME.replace(self.GOOD, "a/b"))
        ended_run(self.path("runs/x/y"), [])
        self.refused(65, "error: z: there is no such run\n" + self.NAME.replace(self.GOOD, "runs/x/y"), "z")

    def test_damaged_records(self):
        fix = f"\n  fix: {run_files.WHOLE}\n"
        self.bad("a/record.json: is empty" + fix, "")
        self.bad("a/record.json:2:7: is not JSON" + fix, '{"format": 1,\n "a": }')
        self.bad(
            'a/record.json: is no record of a run: it has no "format"\n' + self.NAME,
            '{"about": "another file"}',
        )
        self.bad(
            'a/record.json: "format" is 2, not 1, the one this version reads\n'
            "  fix: use the version that wrote it\n",
            '{"format": 2}',
        )
        wrong = 'a/record.json: "workload" is not what a run writes'
        self.bad(wrong + fix, json.dumps(record(workload=[])))
        self.bad(
            'a/record.json: "ranks" is missing' + fix,
            json.dumps({k: v for k, v in record().items() if k != "ranks"}),
        )
        self.bad(
            'a/record.json: "steps": its columns are not of one length' + fix,
            json.dumps({**record(), "steps": {"step": [0, 1], "loss": [1]}}),
        )
        self.bad(
            'a/record.json: "steps": "tokens" is missing' + fix,
            json.dumps({**record(), "steps": {"step": [0]}}),
        )
        self.bad(
            'a/record.json: "predicted_bytes" is missing in "ranks[0]"' + fix,
            json.dumps(record([step(0)], ranks=[{"rank": 0}])),
        )
        self.bad(
            'a/record.json: "ranks[0].predicted_operations[0].ranks" is not what a run writes' + fix,
            json.dumps(record([step(0)], ranks=[rank(0, operations=[{**OPERATION, "ranks": 0}])])),
        )
        self.bad(
            'a/record.json: "lesson" is not what a run writes' + fix, json.dumps(record(lesson="../../x"))
        )

    def test_damaged_steps(self):
        fix = f"\n  fix: {run_files.A_LINE}\n"
        begun_run(
            self.path("a"), fake_runs.lines([step(0)]) + '{"step": 1, "lo\n' + fake_runs.lines([step(2)])
        )
        self.bad("a/steps.jsonl:2:13: is not JSON" + fix)
        begun_run(self.path("a"), "[1]\n")
        self.bad("a/steps.jsonl:1: is not what a run writes" + fix)
        begun_run(self.path("a"), fake_runs.lines([step(0), {**step(1), "seconds": "long"}]))
        self.bad('a/steps.jsonl:2: "seconds" is not what a run writes' + fix)

    # Whatever stands in a record: it is reported, or refused with a message, and nothing is written but the page and the figure.
    def test_forged_records(self):
        good = record(
            [step(i) for i in range(26)],
            ranks=[rank(0, operations=[OPERATION])],
            test={"file": "t", "rows": 3, "loss": 2},
            init={"file": "w"},
        )
        paths = [path for path in paths_of(good) if not (path[:1] == ("steps",) and path[2:] and path[2] > 0)]
        chance, said = random.Random(1), set()
        for path in paths:
            for value in chance.sample(FORGED, 4):
                ended_run(self.path("a"), [])
                write(self.path("a/record.json"), json.dumps(put(json.loads(json.dumps(good)), path, value)))
                with contextlib.redirect_stdout(io.StringIO()) as out, self.subTest(path=path, value=value):
                    try:
                        said.add(report.main([self.path("a"), "--pages"]))
                    except run_files.Refused as refused:
                        said.add(refused.code)
                    self.assertNotIn("\x1b", out.getvalue())
        self.assertEqual(said, {0, 65})
        self.assertLessEqual(
            set(os.listdir(self.folder)) | set(os.listdir(self.path("a"))),
            {"a", "good", "record.json", "steps.jsonl", "page.html", "loss.svg"},
        )

    def test_a_name_that_is_no_utf8(self):
        name = os.fsencode(self.path("a")) + b"\xff\x1b"
        os.rename(ended_run(self.path("a"), [step(0)]), name)
        ended = subprocess.run(
            [f"{fake_runs.ROOT}/lessons/report.sh".encode(), name, b"--pages"],
            capture_output=True,
            check=False,
        )
        self.assertEqual((ended.returncode, ended.stderr), (0, b""))
        self.assertIn(rb"a\udcff\x1b/loss.svg", ended.stdout)
        self.assertTrue(os.path.exists(name + b"/page.html"))

    def test_an_output_without_room(self):
        ended_run(self.path("a"), [step(0)])
        with open("/dev/full", "w", encoding="utf-8") as full:
            ended = subprocess.run(
                [f"{fake_runs.ROOT}/lessons/report.sh", self.path("a")],
                stdout=full,
                stderr=subprocess.PIPE,
                check=False,
            )
        self.assertEqual(
            (ended.returncode, ended.stderr.decode().splitlines()[0]),
            (73, "error: stdout: No space left on device"),
        )

    def test_links_in_a_circle_are_not_followed(self):
        for i in range(30):
            os.makedirs(self.path(f"a/{i}"))
            os.symlink("..", self.path(f"a/{i}/up"))
        self.bad(f"a: holds no record.json\n{self.NAME}")

    def test_usage(self):
        for arguments, said in (
            ([], "the following arguments are required: runs"),
            (["a", "--nonsense"], "unrecognized arguments: --nonsense"),
            (["a", "--svg"], "argument --svg: expected one argument"),
        ):
            self.refused(
                64, f"error: lessons/report.sh: {said}\n  fix: lessons/report.sh --help\n", *arguments
            )
        self.assertIn("--across", command("report", "--help")[1])

    def test_links_and_pipes(self):
        ended_run(self.path("a"), [step(0)])
        with open(self.path("keep"), "w", encoding="utf-8") as file:
            file.write("kept")
        for name in ("x.svg", "y.svg.new"):
            os.symlink(self.path("keep"), self.path(name))
        code, _, err = command("report", "a", "--svg", "x.svg", cwd=self.folder)
        self.assertEqual(
            (code, err.split("\n")[0]), (64, "error: x.svg: is a symbolic link, and would be replaced")
        )
        self.assertEqual(command("report", "a", "--svg", "y.svg", cwd=self.folder)[0], 0)
        with open(self.path("keep"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "kept")
        os.mkfifo(self.path("pipe"))
        self.assertEqual(command("report", "a", "--svg", "pipe", cwd=self.folder)[0], 73)
        code, _, err = command("report", "pipe", cwd=self.folder)
        self.assertEqual(
            (code, err.split("\n")[0]), (65, "error: pipe: cannot be read: it is no regular file")
        )

    def test_a_figure_that_cannot_be_written(self):
        ended_run(self.path("a"), [step(0)])
        code, _, err = command("report", "a", "--svg", "none/x.svg", cwd=self.folder)
        self.assertEqual(
            (code, err),
            (
                73,
                "error: none/x.svg: cannot be written: No such file or directory\n"
                "  fix: name another file: --svg FILE\n",
            ),
        )


class Pages(Case):
    def test_the_policy_names_the_script_that_is_there(self):
        text = text_of(f"{fake_runs.ROOT}/common/records/page/template.html")
        mine, right = (re.search("script-src [^;]*", one).group() for one in (text, allowed(text)))
        self.assertEqual(mine, right, "in the Content-Security-Policy of template.html")

    def test_a_page_for_a_run_that_left_none(self):
        ended_run(
            self.path("a"),
            [step(i, loss=math.nan if i == 3 else None) for i in range(30)],
            command="</script>",
            message="\u2028",
        )
        write(self.path("b/page.html"), "the run's own")
        ended_run(self.path("b"), [step(i) for i in range(30)])
        code, out, err = command("report", "a", "b", "--pages", cwd=self.folder)
        self.assertEqual((code, err), (0, ""), out)
        self.assertEqual(text_of(self.path("b/page.html")), "the run's own")
        line = re.search(
            r'<script id="data" type="application/json">(.*?)</script>', text_of(self.path("a/page.html"))
        ).group(1)
        data = json.loads(line)
        self.assertEqual(
            (data["record"]["command"], data["steps"]["loss"][3], data["marks"]), ("</script>", None, {})
        )
        if CHROMIUM:
            self.assertEqual(json.loads(browse(text_of(self.path("a/page.html")))["selftest"])["faults"], [])

    def test_a_page_that_cannot_be_written(self):
        ended_run(self.path("a"), [step(0)])
        os.chmod(self.path("a"), 0o500)
        if os.access(self.path("a"), os.W_OK):
            self.skipTest("this user may write everywhere")
        code, _, err = command("report", "a", "--pages", "--svg", self.path("loss.svg"), cwd=self.folder)
        self.assertEqual(code, 73, err)


class Figure(Case):
    def drawn(self, *arguments):
        code, out, err = command("report", *arguments, cwd=self.folder)
        self.assertEqual((code, err), (0, ""))
        path = self.path(out.splitlines()[-1].removeprefix("figure: "))
        return path, xml.etree.ElementTree.parse(path).getroot()

    def test_a_curve_for_each_run(self):
        for name, add in (("a", 0), ("b", 1)):
            ended_run(self.path(name), [step(i, loss=5 - 0.1 * i + add) for i in range(20)])
        path, root = self.drawn("a", "b")
        self.assertEqual(path, self.path("a/loss.svg"), "next to the first run's record")
        lines = [line.get("points").split() for line in root.iter(f"{SVG}polyline")]
        self.assertEqual(
            sorted(len(points) for points in lines),
            [2, 2, 20, 20],
            "two curves, and a piece of each next to its name",
        )
        words = " ".join(text.text for text in root.iter(f"{SVG}text"))
        for said in (
            "[1] 01_data_parallel -n 2: 3.1000",
            "[2] 01_data_parallel -n 2: 4.1000",
            "nats per token",
            "10k",
        ):
            self.assertIn(said, words)
        # A loss stands above the tokens seen with it, also in a run that went on from a checkpoint.
        self.assertEqual(report.curve_of(run_files.read_run(self.path("a")))[3], (4 * 1536, 4.7))
        ended_run(self.path("c"), [step(10), step(11)])
        self.assertEqual(report.curve_of(run_files.read_run(self.path("c")))[0][0], 11 * 1536)
        before = {"step": 10, "rows": 60, "tokens": 10 * 768}  # with half the batch
        ended_run(self.path("d"), [step(10), step(11)], resumed_from=before)
        self.assertEqual(
            [tokens for tokens, _ in report.curve_of(run_files.read_run(self.path("d")))],
            [10 * 768 + 1536, 10 * 768 + 2 * 1536],
        )
        with open(path, encoding="utf-8") as first:
            before = first.read()
        self.drawn("a", "b")
        with open(path, encoding="utf-8") as second:
            self.assertEqual(second.read(), before, "the same runs give the same bytes")

    def test_runs_with_equal_bits_share_a_name_and_are_both_seen(self):
        for name, add in (("a", 0), ("b", 1), ("c", 0)):
            ended_run(self.path(name), [step(i, loss=5 - 0.1 * i + add) for i in range(20)])
        _, root = self.drawn("a", "b", "c")
        words = " ".join(text.text for text in root.iter(f"{SVG}text"))
        self.assertIn("[1] = [3] 01_data_parallel -n 2: 3.1000", words)
        lines = [line for line in root.iter(f"{SVG}polyline") if len(line.get("points").split()) == 20]
        self.assertEqual([line.get("stroke-dashoffset") for line in lines], ["0", "-10", None])

    def test_many_steps_are_averaged(self):
        ended_run(self.path("a"), [step(i, loss=float(i % 2)) for i in range(2000)])
        points = report.curve_of(run_files.read_run(self.path("a")))
        self.assertEqual((len(points), points[-1], points[0]), (500, (2000 * 1536, 0.5), (4 * 1536, 0.5)))

    def test_many_names_fit(self):
        runs = [ended_run(self.path(f"r{i}"), [step(0), step(1)]) for i in range(40)]
        _, root = self.drawn(*runs)
        self.assertLess(
            max(float(text.get("y")) for text in root.iter(f"{SVG}text")), float(root.get("height"))
        )

    def test_what_is_not_finite(self):
        ended_run(self.path("a"), [step(0), step(1, loss=float("nan")), step(2)])
        self.assertEqual(
            [loss for _, loss in report.curve_of(run_files.read_run(self.path("a")))], [5.0, 4.8]
        )
        ended_run(self.path("b"), [step(0, loss=float("inf"))])
        code, out, err = command("report", "b", cwd=self.folder)
        self.assertEqual(
            (code, err, out.splitlines()[-1]), (0, "", "no figure: no run here has a finite loss")
        )

    def test_ticks(self):
        self.assertEqual(report.ticks(0, 61440), [0, 10000, 20000, 30000, 40000, 50000, 60000, 70000])
        self.assertEqual(report.ticks(3, 3)[0] < 3 < report.ticks(3, 3)[-1], True)
        for low, high in ((2.31, 2.33), (0, 3e11), (0.001, 11)):
            found = report.ticks(low, high)
            self.assertTrue(found[0] <= low and high <= found[-1] and 4 <= len(found) <= 11, found)


if __name__ == "__main__":
    unittest.main()
