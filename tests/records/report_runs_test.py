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
from fake_runs import FolderCase, begun_run, ended_run, rank, record, step, write

sys.path.insert(0, f"{fake_runs.ROOT}/common/records/curves")
import report  # noqa: E402
import run_files  # noqa: E402
import run_page  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"


class Case(FolderCase):
    name = "report"

    def rows(self, *arguments):
        """{name of a row: its cells}, of a report that is made."""
        lines = self.said(*arguments).splitlines()
        cells = [line.strip().split("  ") for line in lines if line.startswith("  ")]
        return {words[0]: [word.strip() for word in words[1:] if word] for words in cells}

    def has(self, runs, expected):
        """The report of some runs has these rows; a row whose value is None it has not."""
        rows = self.rows(*runs)
        self.assertEqual({name: rows.get(name) for name in expected}, expected)


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
        expected = {
            # After the warm-up there are 25 steps, whose 13th in order of time, step 17, is the median.
            "tokens per second": [f"{1536 / 0.42:,.0f}"],
            "milliseconds per step": ["420.00"],
            "steps": ["30"],
            "tokens": ["46,080"],
            "parameters": ["700"],
            "total": ["3,000"],  # of the rank that holds most
            "gradients, pinned": ["5"],
            "momentum, host": ["40"],
            "total, host": ["42"],
            "master, disk": ["7"],
            "total, disk": None,  # a sum of one is no news
            "first": ["5.0000"],
            "last": ["2.1000"],
            "validation": ["2.2500"],
            "perplexity": ["9.488"],
            "bytes are": ["measured"],
        }
        self.has([run], expected)

    def test_the_test_text_has_rows_of_its_own(self):
        test = {"file": "wiki_test.bin", "rows": 276, "loss": 2.0, "perplexity": math.exp(2.0)}
        runs = [
            ended_run(self.path("a"), [step(0)], test=test),
            ended_run(self.path("b"), [], validation_loss=None, test={**test, "loss": None}),
            ended_run(self.path("c"), [step(0)]),
        ]
        expected = {
            "perplexity": ["9.488", "-", "9.488"],
            "test loss": ["2.0000", "nan", "-"],
            "test perplexity": ["7.389", "nan", "-"],
        }
        self.has(runs, expected)
        self.has(runs[2:], {"test loss": None})  # this run had no test

    # A loss that is NaN or infinite is still a loss, and a perplexity may be infinite where the loss is not.
    def test_losses_that_are_not_finite(self):
        runs = [
            ended_run(self.path("a"), [step(0)], validation_loss="nan"),
            ended_run(self.path("b"), [step(0, validation_loss="inf")], validation_loss="inf"),
            ended_run(self.path("c"), [step(0)], validation_loss=710),
            ended_run(self.path("d"), [step(0)], validation_loss=None),
        ]
        expected = {"validation": ["nan", "inf", "710.0000", "-"], "perplexity": ["nan", "inf", "inf", "-"]}
        self.has(runs, expected)
        ended_run(self.path("e"), [step(0)], validation_loss="much")
        said = f'e/record.json: "validation_loss" is not what a run writes\n  fix: {run_files.WHOLE}'
        self.refused(65, said, "e")

    # Bytes are counted as by wire_bytes() of common/watch/comm_op.h.
    def test_bytes_sent(self):
        # Columns: kind, elements, dtype, the group (its ranks and their distance), the world, and the bytes
        # that each rank sends.
        for kind, elements, dtype, group, world, expected in (
            ("all_reduce", 10, "f32", {}, 4, [64, 64, 64, 48]),  # together 2 (4 - 1) times 10 numbers
            ("all_reduce", 2, "f32", {"ranks": 2}, 4, [8, 8, 8, 8]),
            ("all_reduce", 10, "f32", {"ranks": 3, "stride": 2}, 6, [56, 56, 56, 56, 48, 48]),
            ("reduce_scatter", 12, "bf16", {}, 3, [16] * 3),
            ("all_gather", 12, "f64", {}, 3, [64] * 3),
            ("all_gather", 12, "f32", {}, 1, [0]),
            ("broadcast", 5, "f32", {}, 2, [20, 20]),
            ("send", 5, "f32", {}, 4, [20] * 4),
            ("recv", 5, "f32", {}, 4, [0] * 4),
            ("barrier", 0, "f32", {}, 4, [0] * 4),
        ):
            operation = {"kind": kind, "elements": elements, "dtype": dtype, **group}
            found = [report.sent_bytes(operation, place, world) for place in range(world)]
            self.assertEqual(found, expected, operation)

    def test_bytes_of_a_step(self):
        send, copy = (
            {"kind": kind, "dtype": "f32", "elements": 10, "count": 3} for kind in ("send", "to_host")
        )
        ranks = [rank(0, operations=[send]), rank(1, operations=[copy, {**copy, "kind": "to_device"}])]
        run = ended_run(self.path("a"), [step(0)], ranks=ranks)
        self.has([run], {"sent to other ranks": ["120"], "copied to and from the host": ["240"]})

    def test_any_number_of_runs(self):
        runs = [ended_run(self.path(f"r{i}"), [step(0, loss=4 + 0.1 * i)]) for i in range(15)]
        out = self.said(*runs, "--svg", self.path("x.svg"))
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
        expected = {
            "bytes are": ["predicted", "DIFFERENT", "-"],
            "tokens per second": ["-"] * 3,
            "last": ["5.0000", "5.0000", "4.9000"],
            "steps": ["1", "1", "2"],
        }
        self.has(runs, expected)
        out = self.said(*runs).splitlines()
        self.assertIn("exit 70", out[1])
        self.assertRegex(out[2], r"not ended.*c/steps\.jsonl:3: the last line is cut off and left out$")

    def test_records_of_before_places(self):
        run = ended_run(self.path("a"), [step(0)], ranks=[rank(0, {"total": 1, "host": 64})])
        self.has([run], {"workspace, host": ["64"]})


class Scaling(Case):
    def run_on(self, ranks, seconds, name=None, count=25, **more):
        """Makes a run and returns its name."""
        name = name or f"on{ranks}"
        steps = [step(i, seconds=9 if i < 5 else seconds) for i in range(count)]
        ended_run(self.path(name), steps, world=ranks, ranks=[rank(i) for i in range(ranks)], **more)
        return name

    def test_next_to_the_fewest_ranks(self):
        runs = [self.run_on(4, 0.16), self.run_on(2, 0.25)]
        self.assertEqual(
            self.said(*runs, "--scaling"),
            "01_data_parallel, next to 2 ranks\n"
            "ranks  tokens per second  speed-up  efficiency\n"
            "    2              6,144      1.00       100 %\n"
            "    4              9,600      1.56        78 %\n",
        )
        self.assertFalse(os.path.exists(self.path(f"{runs[0]}/loss.svg")))

    def test_what_does_not_compare_is_refused(self):
        one = self.run_on(1, 0.5)
        others = {
            "lesson is 02_zero1 here and 01_data_parallel there": {"lesson": "02_zero1"},
            "device is cuda here and cpu there": {"device": "cuda"},
            "overlap is off here and on there": {"strategy": {"overlap": "off"}},
            "batch.global is 24 here and 12 there": {
                "workload": {**fake_runs.WORKLOAD, "batch.global": "24"}
            },
        }
        for said, more in others.items():
            two, key = self.run_on(2, 0.3, **more), said.split()[0]
            fix = f"compare runs of one workload, or say that they may differ in it: --across {key}"
            self.refused(64, f"{two}: did other work than {one}: {said}\n  fix: {fix}", one, two, "--scaling")
            out = self.said(one, two, "--scaling", "--across", key)
            self.assertEqual(out.splitlines()[-1].split(), ["2", "5,120", "1.67", "83", "%"])

    def test_what_has_no_rate_or_no_other_is_refused(self):
        one, two = (self.run_on(ranks, 0.5) for ranks in (1, 2))
        short, again = self.run_on(4, 0.5, "short", 24), self.run_on(2, 0.5, "again")
        for said, *runs in (
            (f"{short}: has 24 steps; a rate needs 25\n  fix: --steps 25 or more", one, short),
            (f"{again}: has 2 ranks, as {two}\n  fix: name one run of each number of ranks", one, two, again),
            (
                "--scaling: one run says nothing of scaling\n  fix: name runs on other numbers of ranks as "
                "well",
                one,
            ),
            ("--scaling: prints a table alone\n  fix: leave out --svg and --pages", one, two, "--pages"),
        ):
            self.refused(64, said, *runs, "--scaling")


class OtherWork(Case):
    def setUp(self):
        super().setUp()
        self.run_of("one")
        self.run_of("other", **{"optim.lr": "0.001", "seed": "2"})

    def run_of(self, name, **other):
        """With these keys of its workload."""
        work = {"workload": {**fake_runs.WORKLOAD, **other}, "workload_hash": f"{other}"}
        ended_run(self.path(name), [step(0)], **work)

    def differ(self, difference, across, *flags):
        fix = f"compare runs of one workload, or say that they may differ in it: --across {across}"
        said = f"other: did other work than one: {difference} there\n  fix: {fix}"
        self.refused(64, said, "one", "other", *flags)

    def test_is_refused_by_its_first_key(self):
        self.differ("optim.lr is 0.001 here and 0.004", "optim.lr,seed")
        self.differ("seed is 2 here and 1", "optim.lr,seed", "--across", "optim.lr")
        self.assertFalse(os.path.exists(self.path("one/loss.svg")))

    def test_goes_with_across(self):
        for across in (["--across", "seed,optim.lr"], ["--across", "seed", "--across", "optim.lr"]):
            self.assertEqual(self.ended("one", *across, "other")[0], 0)

    def test_a_key_that_one_has_not(self):
        self.run_of("other", **{"model.new": "on"})
        self.differ("model.new is on here and nothing", "model.new")

    def test_an_older_record_counted_its_evaluation_in_micro_batches(self):
        self.run_of("one", **{"batch.micro": "3", "data.validation_rows": "6"})
        self.run_of("other", **{"batch.micro": "3", "data.validation_batches": "2"})
        self.assertEqual(self.ended("one", "other")[0], 0)
        self.run_of("other", **{"batch.micro": "3", "data.validation_batches": "1"})
        self.differ("data.validation_rows is 3 here and 6", "data.validation_rows")

    def test_a_key_that_nobody_has(self):
        said = "--across optim.lrs: no run here has such a key\n  fix: --across optim.lr"
        self.refused(64, said, "one", "other", "--across", "optim.lrs")


class OtherFiles(Case):
    """Files other than the workload: those that --init, --validation and --test named."""

    def run_of(self, name, **more):
        return ended_run(self.path(name), [step(0)], **more)

    @staticmethod
    def file(name, total, **more):
        return {"file": name, "bytes": 9, "sum": total, **more}

    def differ(self, one, other, what, here, there, *first):
        fix = f"compare runs with one text, or say that they may differ in it: --across {what}"
        said = (
            f"{other}: was evaluated on another text than {one}: --{what} {here} here and {there} there\n  "
            f"fix: {fix}"
        )
        self.refused(64, said, *first, one, other)

    def test_losses_of_other_texts_are_refused(self):
        self.run_of("one", validation=self.file("v.txt", "aa"))
        self.run_of("copy", validation=self.file("copy.txt", "aa"))
        self.run_of("other", validation=self.file("v.txt", "bb"))
        self.run_of("tail")
        self.run_of("none", validation_loss=None)
        self.rows("one", "copy", "none")
        self.differ("one", "other", "validation", "v.txt (sum bb)", "v.txt (sum aa)")
        self.differ("one", "tail", "validation", "none", "v.txt (sum aa)", "none")
        self.rows("one", "other", "tail", "--across", "validation")

    def test_tests_of_other_texts_are_refused(self):
        self.run_of("one", test=self.file("t.bin", "aa", rows=3, loss=2))
        self.run_of("old", test={"file": "t.bin", "rows": 3, "loss": 2})
        self.run_of("other", test=self.file("u.bin", "bb", rows=3, loss=2))
        self.rows("one", "old")
        self.differ("old", "other", "test", "u.bin (sum bb)", "t.bin (sum unknown)")

    def test_other_initial_weights_are_named(self):
        self.run_of("one", init=self.file("w.safetensors", "aa"))
        self.run_of("other")
        lines = self.said("one", "other").splitlines()
        self.assertEqual(
            [line.split("  ", 2)[2] for line in lines[:2]],
            ["one  --init w.safetensors (sum aa)", "other  --init none"],
        )
        self.assertNotIn("--init", self.said("one", "one"))


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
    NAME = f"  fix: name the folder of a run or its record.json, such as {GOOD}"

    def bad(self, said):
        self.refused(65, said, "a")

    def test_no_run(self):
        self.bad(f"a: there is no such run\n{self.NAME}")
        os.mkdir(self.path("a"))
        self.bad(f"a: holds no record.json\n{self.NAME}")
        ended_run(self.path("a/b"), [])
        self.bad("a: holds no record.json\n" + self.NAME.replace(self.GOOD, "a/b"))
        ended_run(self.path("runs/x/y"), [])
        self.refused(65, "z: there is no such run\n" + self.NAME.replace(self.GOOD, "runs/x/y"), "z")

    def test_damaged_records(self):
        without_ranks = {key: value for key, value in record().items() if key != "ranks"}
        wrong_group = rank(0, operations=[{**OPERATION, "ranks": 0}])
        for text, said, fix in (
            ("", ": is empty", run_files.WHOLE),
            ('{"format": 1,\n "a": }', ":2:7: is not JSON", run_files.WHOLE),
            (
                {"format": 2},
                ': "format" is 2, not 1, the one this version reads',
                "use the version that wrote it",
            ),
            (record(workload=[]), ': "workload" is not what a run writes', run_files.WHOLE),
            (without_ranks, ': "ranks" is missing', run_files.WHOLE),
            (
                {**record(), "steps": {"step": [0, 1], "loss": [1]}},
                ': "steps": its columns are not of one length',
                run_files.WHOLE,
            ),
            ({**record(), "steps": {"step": [0]}}, ': "steps": "tokens" is missing', run_files.WHOLE),
            (
                record([step(0)], ranks=[{"rank": 0}]),
                ': "predicted_bytes" is missing in "ranks[0]"',
                run_files.WHOLE,
            ),
            (
                record([step(0)], ranks=[wrong_group]),
                ': "ranks[0].predicted_operations[0].ranks" is not what a run writes',
                run_files.WHOLE,
            ),
            (record(lesson="../../x"), ': "lesson" is not what a run writes', run_files.WHOLE),
            (
                {"about": "another file"},
                ': is no record of a run: it has no "format"',
                f"name the folder of a run or its record.json, such as {self.GOOD}",
            ),
        ):
            write(self.path("a/record.json"), text if isinstance(text, str) else json.dumps(text))
            self.bad(f"a/record.json{said}\n  fix: {fix}")

    def test_damaged_steps(self):
        first, second, third = (fake_runs.lines([step(i)]) for i in range(3))
        for text, said in (
            (f'{first}{{"step": 1, "lo\n{third}', "2:13: is not JSON"),
            ("[1]\n", "1: is not what a run writes"),
            (
                first + second.replace('"seconds": 0.5', '"seconds": "long"', 1),
                '2: "seconds" is not what a run writes',
            ),
        ):
            begun_run(self.path("a"), text)
            self.bad(f"a/steps.jsonl:{said}\n  fix: {run_files.A_LINE}")

    # Any content of a record is reported or refused with a message, and only the page and the figure are
    # written.
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
            self.refused(64, f"lessons/report.sh: {said}\n  fix: lessons/report.sh --help", *arguments)
        self.assertIn("--across", self.said("--help"))

    def test_links_and_pipes(self):
        ended_run(self.path("a"), [step(0)])
        write(self.path("keep"), "kept")
        for name in ("x.svg", "y.svg.new"):
            os.symlink(self.path("keep"), self.path(name))
        os.mkfifo(self.path("pipe"))
        for arguments, code, said in (
            (("a", "--svg", "x.svg"), 64, "error: x.svg: is a symbolic link, and would be replaced"),
            (("a", "--svg", "y.svg"), 0, ""),
            (("a", "--svg", "pipe"), 73, "error: "),
            (("pipe",), 65, "error: pipe: cannot be read: it is no regular file"),
        ):
            found, _, err = self.ended(*arguments)
            self.assertEqual((found, err[: len(said)]), (code, said))
        self.assertEqual(self.text("keep"), "kept")

    def test_a_figure_that_cannot_be_written(self):
        ended_run(self.path("a"), [step(0)])
        code, _, err = self.ended("a", "--svg", "none/x.svg")
        said = (
            "error: none/x.svg: cannot be written: No such file or directory\n  fix: name another file: "
            "--svg FILE\n"
        )
        self.assertEqual((code, err), (73, said))


class Pages(Case):
    def test_the_policy_names_the_script_that_is_there(self):
        text = self.text(f"{fake_runs.ROOT}/common/records/page/template.html")
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
        self.said("a", "b", "--pages")
        self.assertEqual(self.text("b/page.html"), "the run's own")
        data = run_page.data_in(self.text("a/page.html"))
        self.assertEqual(
            (data["record"]["command"], data["steps"]["loss"][3], data["marks"]), ("</script>", None, {})
        )
        if CHROMIUM:
            self.assertEqual(json.loads(browse(self.text("a/page.html"))["selftest"])["faults"], [])

    def test_a_page_that_cannot_be_written(self):
        ended_run(self.path("a"), [step(0)])
        os.chmod(self.path("a"), 0o500)
        if os.access(self.path("a"), os.W_OK):
            self.skipTest("this user may write everywhere")
        code, _, err = self.ended("a", "--pages", "--svg", self.path("loss.svg"))
        self.assertEqual(code, 73, err)


class Figure(Case):
    def drawn(self, *arguments):
        path = self.path(self.said(*arguments).splitlines()[-1].removeprefix("figure: "))
        return path, xml.etree.ElementTree.parse(path).getroot()

    def curve(self, name, *steps, **more):
        """[(tokens, loss)] of a run with these steps, as the figure has them."""
        return report.curve_of(run_files.read_run(ended_run(self.path(name), steps, **more)))

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
        before = self.text(path)
        self.drawn("a", "b")
        self.assertEqual(self.text(path), before, "the same runs give the same bytes")

    def test_a_loss_stands_above_the_tokens_seen_with_it(self):
        """A run that went on from a checkpoint counts as well; it may have had half the batch before."""
        self.assertEqual(self.curve("a", *map(step, range(4)))[3], (4 * 1536, 4.7))
        self.assertEqual(self.curve("c", step(10), step(11))[0][0], 11 * 1536)
        half = self.curve("d", step(10), step(11), resumed_from={"step": 10, "rows": 60, "tokens": 10 * 768})
        self.assertEqual([tokens for tokens, _ in half], [10 * 768 + 1536, 10 * 768 + 2 * 1536])

    def test_runs_with_equal_bits_share_a_name_and_are_both_seen(self):
        for name, add in (("a", 0), ("b", 1), ("c", 0)):
            ended_run(self.path(name), [step(i, loss=5 - 0.1 * i + add) for i in range(20)])
        _, root = self.drawn("a", "b", "c")
        words = " ".join(text.text for text in root.iter(f"{SVG}text"))
        self.assertIn("[1] = [3] 01_data_parallel -n 2: 3.1000", words)
        lines = [line for line in root.iter(f"{SVG}polyline") if len(line.get("points").split()) == 20]
        self.assertEqual([line.get("stroke-dashoffset") for line in lines], ["0", "-10", None])

    def test_many_steps_are_averaged(self):
        points = self.curve("a", *(step(i, loss=float(i % 2)) for i in range(2000)))
        self.assertEqual((len(points), points[-1], points[0]), (500, (2000 * 1536, 0.5), (4 * 1536, 0.5)))

    def test_many_names_fit(self):
        runs = [ended_run(self.path(f"r{i}"), [step(0), step(1)]) for i in range(40)]
        _, root = self.drawn(*runs)
        self.assertLess(
            max(float(text.get("y")) for text in root.iter(f"{SVG}text")), float(root.get("height"))
        )

    def test_what_is_not_finite(self):
        curve = self.curve("a", step(0), step(1, loss=math.nan), step(2))
        self.assertEqual([loss for _, loss in curve], [5.0, 4.8])
        ended_run(self.path("b"), [step(0, loss=math.inf)])
        self.assertEqual(self.said("b").splitlines()[-1], "no figure: no run here has a finite loss")

    def test_ticks(self):
        self.assertEqual(report.ticks(0, 61440), [0, 10000, 20000, 30000, 40000, 50000, 60000, 70000])
        self.assertEqual(report.ticks(3, 3)[0] < 3 < report.ticks(3, 3)[-1], True)
        for low, high in ((2.31, 2.33), (0, 3e11), (0.001, 11)):
            found = report.ticks(low, high)
            self.assertTrue(found[0] <= low and high <= found[-1] and 4 <= len(found) <= 11, found)


if __name__ == "__main__":
    unittest.main()
