#!/usr/bin/env python3
"""Writes everything in the pages, figures and records that a program or a record says; checks the rest.

usage: python3 docs/render.py [--check] [--program PATH]     (from anywhere; PATH: default pipedream/run.sh)

  pages      every *.md: between `<!-- render: NAME ARGUMENTS -->` and `<!-- /render -->` what docs/rendering/
             makes of a record in docs/results/, of the command `pipedream`, or of a figure;
             `<!-- value: RECORD PATH FORMAT -->` a number in a sentence, also computed from a workload
             (docs/rendering/plans.py); links to code, [`anchor`](file.cpp#L1), get the line of
             `[anchor: anchor]`
  figures    docs/figures/*.svg, each drawn from a record whose name is in its caption
  pipedream  docs/results/pipedream_*.json, as the command computes them
  notebooks  what the cells of notebooks/*.ipynb print and draw
  checks     anchors, links inside the repository, fenced blocks (the commands in them run in
             tests/docs/commands_test.py), the commit that every record of GPUs names, sentences that a record
             no longer bears out

--check writes nothing and exits 1, naming what is stale or broken. What has no record yet is left out, and
named; so are plots and notebooks where matplotlib is not there, or is not the version that figures are
written with.
"""
import argparse
import contextlib
import difflib
import importlib
import pathlib
import pkgutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.dont_write_bytecode = True

import rendering  # noqa: E402
from rendering import checks, faults, marks, notebooks, pipelines, plots  # noqa: E402
from rendering.registry import FIGURES, ROOT, NoRecord, Page, RenderError  # noqa: E402

for module in pkgutil.iter_modules(
    rendering.__path__
):  # every module there adds its own renderers and figures
    importlib.import_module(f"rendering.{module.name}")


def produce(program, problems):
    """(path, new text) of everything; records before the pages that read them."""
    yield from pipelines.records_and_figures(program)
    if plots.missing():
        print(f"note: plots are left as they are: {plots.missing()}")
    for name, draw in FIGURES.items():
        with contextlib.suppress(NoRecord):
            if svg := draw().svg:
                yield f"docs/figures/{name}.svg", svg
    for path in marks.pages():
        page = Page(path, program)
        text = (ROOT / path).read_text()
        try:
            new = marks.rendered(page, text)
        except RenderError as error:
            problems.append(str(error))
            continue
        for what in page.omitted:
            print(f"note: {path}: {what} is left out: its record is not there yet")
        yield path, new
    yield from notebooks.rendered()


def check_page(path, text, problems):
    problems += checks.broken_links(path, text)
    problems += checks.nameless_fences(path, text)
    problems += checks.broken_python(path, text)
    list(checks.commands_of(path, text))  # it refuses marks that mean nothing
    if path.startswith("lessons/"):
        problems += [f"{path}: it never links {what}" for what in marks.unmentioned_anchors(Page(path), text)]
        problems += [
            f"{path}: it never names tests/faults/{what}" for what in faults.unlisted(Page(path), text)
        ]


def write_or_name(name, text, check):
    """True if the file is not what it should be."""
    path = ROOT / name
    old = path.read_text() if path.exists() else ""
    if old == text:
        return False
    if check:
        print(f"stale: {name}; fix: python3 docs/render.py")
        sys.stdout.writelines(
            list(difflib.unified_diff(old.splitlines(True), text.splitlines(True), "is", "should be"))[:40]
        )
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        print(f"written: {name}")
    return True


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--program", default=str(ROOT / "pipedream/run.sh"))
    options = parser.parse_args()
    problems, stale, written = [], 0, []
    try:
        for name, text in produce(options.program, problems):
            stale += write_or_name(name, text, options.check)
            written.append((name, text))
        for name, text in written:  # links may lead to what was written just now
            if name.endswith(".md"):
                check_page(name, text, problems)
        problems += checks.records_without_commit(checks.gpu_records())
        problems += checks.broken_claims()
        problems += checks.problems_of_course(dict(written))
        drawn = {name for name, _ in written}
        problems += [
            f"docs/figures/{path.name}: nothing draws it, or its record is not there"
            for path in sorted((ROOT / "docs/figures").iterdir())
            if f"docs/figures/{path.name}" not in drawn and not (plots.missing() and path.stem in FIGURES)
        ]
    except RenderError as error:
        problems.append(str(error))
    for problem in problems:
        print(f"error: {problem}")
    return 1 if problems or (options.check and stale) else 0


if __name__ == "__main__":
    sys.exit(main())
