#!/usr/bin/env python3
"""Writes everything of pipedream's pages that the command `pipedream` computes.

usage: pipedream/render.py [--check] [--program PATH]      (from the repository's root; default program: pipedream/run.sh)

  pages      between `<!-- render: ARGUMENTS -->` and `<!-- /render -->`: the command line and what it printed. `<!-- render-head N: ... -->`
             keeps the first N lines. A command that is meant to fail is marked `<!-- render-fail CODE: ARGUMENTS -->`.
  figures    docs/figures/<name>.svg for the five figures
  records    docs/results/pipedream_m<M>.json: the comparison of schedules for 4 stages and four batches of M = 4, 8, 16, 32
  notebook   the outputs of notebooks/03_pipelines.ipynb, whose cells read those records

--check writes nothing and exits 1, naming what is stale.
"""
import argparse
import contextlib
import difflib
import io
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

PAGES = ["pipedream/README.md", "pipedream/QUICK_START.md"]
FIGURES = ["naive_pipeline", "microbatch_forward", "microbatch_backward", "weight_versioning", "utilization_comparison"]
MICROBATCHES = [4, 8, 16, 32]
NOTEBOOK = "notebooks/03_pipelines.ipynb"
MARK = re.compile(r"<!-- render(?:-(head|fail) (\d+))?: (.*?) -->\n.*?<!-- /render -->", re.S)


def run(program, arguments, expected=0):
    done = subprocess.run([program, *shlex.split(arguments)], capture_output=True, text=True, check=False)
    if done.returncode != expected:
        sys.exit(f"error: pipedream {arguments}: exit {done.returncode}, {expected} was expected\n{done.stderr}")
    return done.stdout + done.stderr


def render_page(program, text):
    def block(match):
        kind, number, arguments = match.groups()
        lines = run(program, arguments, int(number) if kind == "fail" else 0).rstrip("\n").split("\n")
        if kind == "head" and len(lines) > int(number):
            lines = lines[: int(number)] + ["..."]
        mark = match.group(0).split("\n", 1)[0]
        body = "\n".join(line.rstrip() for line in lines)
        return f"{mark}\n```text\n$ pipedream/run.sh {arguments}\n{body}\n```\n<!-- /render -->"

    return MARK.sub(block, text)


def render_notebook(text):
    """Runs the code cells one after the other, in this process and the repository's root, and keeps what they print."""
    notebook = json.loads(text)
    scope = {}
    for count, cell in enumerate((c for c in notebook["cells"] if c["cell_type"] == "code"), start=1):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("".join(cell["source"]), f"{NOTEBOOK}, code cell {count}", "exec"), scope)
        lines = printed.getvalue().splitlines(keepends=True)
        cell["execution_count"] = count
        cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": lines}] if lines else []
    return json.dumps(notebook, indent=1) + "\n"


def produce(program):
    """(path, new text) of everything; the notebook last, because it reads the records."""
    for page in PAGES:
        yield page, render_page(program, pathlib.Path(page).read_text())
    for name in FIGURES:
        yield f"docs/figures/{name}.svg", run(program, f"draw --figure {name}")
    with tempfile.TemporaryDirectory() as folder:
        for m in MICROBATCHES:
            record = pathlib.Path(folder) / "record.json"
            run(program, f"compare --microbatches {m} --batches 4 --json {record}")
            yield f"docs/results/pipedream_m{m}.json", record.read_text()
    yield NOTEBOOK, render_notebook(pathlib.Path(NOTEBOOK).read_text())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--program", default="pipedream/run.sh")
    options = parser.parse_args()
    stale = 0
    for name, text in produce(options.program):
        path = pathlib.Path(name)
        old = path.read_text() if path.exists() else ""
        if old == text:
            continue
        stale += 1
        if options.check:
            print(f"stale: {name}; fix: pipedream/render.py")
            sys.stdout.writelines(list(difflib.unified_diff(old.splitlines(True), text.splitlines(True), "is", "should be"))[:40])
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            print(f"written: {name}")
    return 1 if options.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
