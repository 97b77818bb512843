"""Runs on the disk without a program that made them, and the two commands that read runs."""

import json
import math
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WORKLOAD = {"batch.global": "12", "optim.lr": "0.004", "seed": "1", "steps": "30"}
HELD = {"parameters": 1000, "gradients": 1000, "total": 2000}


def finite(value):
    return value if math.isfinite(value) else None


def step(number, loss=None, seconds=0.5, **more):
    return {
        "step": number,
        "loss": finite(5 - 0.1 * number if loss is None else loss),
        "lr": 1e-3 * (number + 1),
        "grad_norm": 2.5 / (number + 1),
        "tokens": 1536,
        "seconds": seconds,
        "tokens_per_second": 1536 / seconds,
        "waited_seconds": 0.1,
        "wait_share": 0.2,
        "skipped": False,
        **more,
    }


def rank(number=0, held=None, operations=()):
    held, operations = held or HELD, list(operations)
    return {
        "rank": number,
        "predicted_bytes": held,
        "measured_bytes": held,
        "predicted_operations": operations,
        "measured_operations": operations,
    }


def record(steps=(), **more):
    columns = ("step", "loss", "lr", "grad_norm", "tokens", "seconds", "waited_seconds", "skipped")
    return {
        "format": 1,
        "lesson": "01_data_parallel",
        "commit": "unknown",
        "command": "01_data_parallel",
        "started": "2025-01-31T12:00:00Z",
        "seconds": 20.0,
        "exit_code": 0,
        "message": "",
        "workload_hash": "abc",
        "workload": WORKLOAD,
        "strategy": {"overlap": "on"},
        "device": "cpu",
        "comm": "mpi",
        "world": 2,
        "threads": 1,
        "as_predicted": True,
        "validation_loss": 2.25,
        "ranks": [rank()],
        "steps": {key: [one[key] for one in steps] for key in columns},
        **more,
    }


def lines(steps):
    return "".join(json.dumps(one) + "\n" for one in steps)


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def ended_run(folder, steps, **more):
    write(f"{folder}/record.json", json.dumps(record(steps, **more)))
    write(f"{folder}/steps.jsonl", lines(steps))
    return folder


def begun_run(folder, text, **more):
    """A run's folder before its end: a record without an exit code, and what was written of the steps."""
    write(
        f"{folder}/record.json",
        json.dumps(record(exit_code=None, ranks=[], validation_loss=None, as_predicted=False, **more)),
    )
    write(f"{folder}/steps.jsonl", text)
    return folder


def command(name, *arguments, cwd=None, **env):
    """lessons/NAME.sh: (exit code, stdout, stderr)."""
    ended = subprocess.run(
        [f"{ROOT}/lessons/{name}.sh", *arguments],
        cwd=cwd,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return ended.returncode, ended.stdout, ended.stderr


class FolderCase(unittest.TestCase):
    """With a folder of its own, which goes with it, where commands run."""

    name = ""  # of the command

    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory(prefix="stagecraft-records-"))

    def path(self, name):
        return os.path.join(self.folder, name)

    def text(self, name):
        return pathlib.Path(self.folder, name).read_text(encoding="utf-8")

    def ended(self, *arguments, **env):
        """(exit code, stdout, stderr)"""
        return command(self.name, *arguments, cwd=self.folder, **env)

    def said(self, *arguments, **env):
        """What it prints that does what it is asked for."""
        code, out, err = self.ended(*arguments, **env)
        self.assertEqual((code, err), (0, ""), out)
        return out

    def refused(self, code, said, *arguments, **env):
        self.assertEqual(self.ended(*arguments, **env), (code, "", f"error: {said}\n"))
