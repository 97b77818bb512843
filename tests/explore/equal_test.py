#!/usr/bin/env python3
"""The engine of docs/explore/index.html answers as the native programs do, to the byte: plans of lessons,
schedules, choose, and what they refuse. Asked in a browser, as the page asks. usage: equal_test.py BIN
[--points N] [NAME ...]. Exit 77: there is no chromium.
"""

import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import unittest

from browser import Browser, run_tests

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs/explore/index.html"
# Calls the page's programs as the page does, and adds the file that a program wrote.
ASKED = """function asked(words, files, read) {
  if (read && engine.FS.analyzePath(read).exists) engine.FS.unlink(read);
  const said = ask(words, files);
  return { ...said, file: read && engine.FS.analyzePath(read).exists ? file(read) : null };
}"""
BIN, POINTS = pathlib.Path(), 40 if os.environ.get("STAGECRAFT_SETTINGS") == "all" else 12
LESSONS = sorted(file.parent.name for file in ROOT.glob("lessons/[0-9]*/*_plan.cpp"))
WORKLOADS = [f"configs/{file.name}" for file in sorted((ROOT / "configs").glob("*.json"))]
GENERAL = {
    "model.layers": ["2", "4", "12", "30", "96"],
    "model.width": ["64", "128", "768", "1600"],
    "model.heads": ["4", "8", "16"],
    "batch.micro": ["1", "2", "3", "8"],
    "batch.global": ["8", "12", "48", "512"],
    "batch.sequence": ["16", "128"],
    "precision.dtype": ["fp32", "bf16", "fp16"],
    "precision.grad_dtype": ["fp32", "same"],
    "activations": ["keep", "recompute_gelu", "recompute"],
    "head_chunk": ["64", "1024"],
    "model.tied": ["false", "true"],
}
OWN = {
    "00": {"virtual_ranks": ["1", "2", "4"], "tensor_ranks": ["1", "2"]},
    "01": {"bucket": ["unit", "1MB"], "overlap": ["on", "off"]},
    "02": {"overlap": ["on", "off"]},
    "03": {"bucket": ["unit", "4MB"], "overlap": ["on", "off"]},
    "04": {
        "prefetch": ["0", "1", "2", "7"],
        "reshard_after_forward": ["on", "off"],
        "persist_below": ["0", "5000"],
        "shard_ranks": ["0", "2"],
    },
    "05": {
        "update": ["exact", "delayed", "early"],
        "parameters": ["whole", "sharded"],
        "resident": ["0", "2"],
    },
    "06": {
        "update": ["exact", "delayed"],
        "parameters": ["whole", "sharded"],
        "params_at": ["device", "disk"],
        "grads_at": ["host", "disk"],
    },
    "07": {
        "schedule": ["gpipe", "1f1b", "interleaved"],
        "chunks": ["1", "2"],
        "warmup": ["0", "1"],
        "replicas": ["1", "2"],
        "states": ["whole", "sharded"],
    },
    "08": {"versions": ["stash", "two_buffers", "vertical_sync"], "model.tied": ["false"]},
    "10": {"lanes": ["1", "2"], "gathered": ["kept", "again"]},
    "11": {
        "mesh": ["auto", "2x2x2", "1x4x2", "2x2x1"],
        "schedule": ["1f1b", "interleaved"],
        "chunks": ["1", "2"],
        "warmup": ["0", "1"],
    },
}
# Bad values, among them some that a browser's library must parse exactly like the native one.
BAD = [
    "optim.lr=nan",
    "optim.lr=1e-400",
    "optim.lr=1e400",
    "optim.lr=0x1p3",
    "optim.lr=.5.",
    "optim.lr=1e",
    "optim.lr= 1",
    "optim.lr=inf",
    "optim.eps=1e-08 ",
    "steps=2.5e1",
    "model.width=100",
    "model.width=9e15",
    "model.heads=7",
    "batch.micro=0",
    "seed=18446744073709551616",
    "nonsense=1",
    "model.layer=3",
    "bucket=1.5kB",
    "bucket=1.0000001kB",
    "bucket=infGB",
    "data.validation_fraction=0.30000000000000004",
    "data.validation_fraction=1.0000000000000002",
]
FAMILIES = ["naive", "gpipe", "1f1b", "interleaved", "zb_h1", "pipedream", "2bw", "deadlock_ring", "1f1"]


def some_of(flags, share, chance):
    """About this share of (flag, values), each with one of its values."""
    drawn = [(f"--{flag}", chance.choice(values)) for flag, values in flags if chance.random() < share]
    return [word for words in drawn for word in words]


def random_plan(chance):
    lesson, settings = chance.choice(LESSONS), {}
    workload = chance.choice(WORKLOADS)
    for pool, most in ((GENERAL, 4), (OWN.get(lesson[:2], {}), 3)):
        for key in chance.sample(sorted(pool), chance.randint(0, min(most, len(pool)))):
            settings[key] = chance.choice(pool[key])
    if lesson.startswith("08") and chance.random() < 0.9:
        settings["model.tied"] = "false"
    world = chance.choice([1, 2, 3, 4, 8, 8, 16, 64]) if lesson[:2] != "00" else 1
    words = [
        lesson,
        "--workload",
        workload,
        "--strategy",
        f"lessons/{lesson}/config.json",
        "--plan",
        "--json",
        "--world",
        str(world),
    ]
    words += chance.choice([[], [], ["--device", "cuda"], ["--device", "cpu"]])
    return [*words, *(word for key, value in settings.items() for word in ("--set", f"{key}={value}"))]


def random_schedule(chance):
    words = ["pipedream", "simulate", "--schedule", chance.choice(FAMILIES)]
    own = (
        ("stages", ["1", "2", "4", "5", "8"]),
        ("microbatches", ["1", "4", "8", "16"]),
        ("chunks", ["1", "2", "3"]),
        ("batches", ["1", "3"]),
        ("warmup", ["0", "1", "2"]),
        ("forward", ["1", "0.3", "1e-3", "-1", "1e400"]),
        ("backward-weights", ["0.7", "2"]),
        ("latency", ["0", "0.1"]),
        ("step", ["0", "0.25"]),
        ("uneven", ["1,1,2,1", "1,x", ".5,1e1,1,1"]),
    )
    return [*words, *some_of(own, 0.35, chance), "--json", "timeline.json"]


def random_machine(chance):
    words = [
        "choose",
        "--json",
        "--gpus",
        chance.choice(["1", "2", "4", "8"]),
        "--workload",
        chance.choice(WORKLOADS),
    ]
    own = (
        ("gpu", ["H100", "RTX4090", "L4", "RTX4091"]),
        ("memory", ["24GB", "80GB", "1e400GB", "0.1GB"]),
        ("link", ["25GB/s"]),
        ("host-memory", ["512GB"]),
        ("disk", ["4GB/s", "4GB"]),
    )
    nodes = ["--gpus-per-node", "2", "--node-link", chance.choice(["1GB/s", "50GB/s"])]
    return [*words, *some_of(own, 0.4, chance), *(nodes if chance.random() < 0.3 else [])]


class Equal(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.browser = cls.enterClassContext(Browser())
        cls.browser.opened(f"file://{PAGE}", 1280, "document.body.dataset.ready")
        cls.browser.value(ASKED)
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory())

    def asked(self, words, files=None, read=None):
        said = self.browser.value(
            f"asked({json.dumps(words)}, {json.dumps(files or {})}, {json.dumps(read)})"
        )
        return said["code"], said["out"], said["err"], said["file"]

    def native(self, words, files=None, read=None):
        own = pathlib.Path(self.folder)
        for name, text in (files or {}).items():
            (own / name).write_text(text)
        if read:
            (own / read).unlink(missing_ok=True)
        done = subprocess.run(
            [BIN / words[0], *words[1:]],
            cwd=own if words[0] == "pipedream" else ROOT,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return (
            done.returncode,
            done.stdout,
            done.stderr,
            (own / read).read_text() if read and (own / read).exists() else None,
        )

    def equal(self, words, files=None, read=None):
        here, there = self.asked(words, files, read), self.native(words, files, read)
        self.assertEqual(here, there, " ".join(words))
        return here

    def equal_at_random(self, asked, seed, points, **how):
        """What so many questions of this kind are answered; among them one that is refused."""
        chance = random.Random(seed)
        answers = [self.equal(asked(chance), **how) for _ in range(points)]
        self.assertLessEqual({0, 64}, {code for code, *_ in answers})
        return answers

    def test_plans(self):
        self.equal_at_random(random_plan, 44, POINTS)

    def test_refused_values(self):
        for lesson, *flags in (
            *(("03_zero2", "--workload", "configs/tiny.json", "--set", setting) for setting in BAD),
            ("00_one_device", "--world", "4"),
            ("04_zero3", "--worlds", "4"),
            ("04_zero3", "--workload", "configs/none.json"),
        ):
            self.equal([lesson, "--plan", "--json", *flags])

    def test_schedules(self):
        for code, _, _, timeline in self.equal_at_random(random_schedule, 45, POINTS, read="timeline.json"):
            self.assertEqual(timeline is not None, code == 0)

    def test_files(self):
        code, _, _, text = self.equal(["pipedream", "check", "--write", "list.json"], read="list.json")
        self.assertEqual(code, 0)
        moved = json.loads(text)
        moved["actions"][1][0], moved["actions"][1][2] = moved["actions"][1][2], moved["actions"][1][0]
        files = {
            "moved.json": json.dumps(moved),
            "deep.json": "[" * 100_000,
            "keys.json": '{"a":' * 100_000,
            "large.json": "x" * 10_000_000,
            "large.csv": "1f1b,4,4,1,flush\n" * 500_000,
        }
        for name, text in files.items():
            self.assertEqual(self.equal(["pipedream", "check", "--file", name], {name: text})[0], 65)
        self.assertEqual(self.equal(["pipedream", "check"])[0], 0)

    def test_choose(self):
        """The page advises what choose does, and no rate that it shows has more than two digits."""
        show = """at("choose-result").replaceChildren(), drawChoice({}), [at("choose-result").textContent,
            ...[...document.querySelectorAll("#choose-result td:nth-child(2).n")].map(e => e.textContent)]"""
        answers = self.equal_at_random(random_machine, 46, 2 * POINTS)
        self.assertGreaterEqual([code for code, *_ in answers].count(0), POINTS)
        for code, out, *_ in answers:
            if code == 0:
                (text, *cells), advice = (
                    self.browser.value(show.replace("{}", out)),
                    json.loads(out)["advice"],
                )
                self.assertIn(f"Advice: {advice}, ", text)
                self.assertGreater(len(cells), 1)
                rates = cells + re.findall(r": ([\d,]+) tokens a second", text)
                self.assertEqual([rate for rate in rates if len(rate.replace(",", "").rstrip("0")) > 2], [])


if __name__ == "__main__":
    arguments = sys.argv[1:]
    BIN = pathlib.Path(arguments.pop(0)).resolve()
    if "--points" in arguments:
        where = arguments.index("--points")
        POINTS = int(arguments[where + 1])
        del arguments[where : where + 2]
    run_tests(arguments)
