#!/usr/bin/env python3
"""Every notebook runs from its first cell to its last with nothing but docs/results beside it, from the root and from notebooks/.

Outputs of 01 and 02 are not kept in git, so that records may change without them; those of 03 are (docs/render.py compares them).
"""
import contextlib
import io
import json
import os
import pathlib
import shutil
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
WITH_OUTPUTS = {"03_pipelines.ipynb"}


def code_cells(path):
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


def run(path, folder):
    """How many cells ran; each must say something."""
    scope, here = {}, os.getcwd()
    os.chdir(folder)
    try:
        for count, cell in enumerate(code_cells(path), start=1):
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile("".join(cell["source"]), f"{path.name}, code cell {count}", "exec"), scope)
            if not printed.getvalue().strip():
                sys.exit(f"error: {path.name}, code cell {count} prints nothing")
    finally:
        os.chdir(here)
    return count


def check_kept(path):
    kept = [cell for cell in code_cells(path) if cell["outputs"] or cell["execution_count"] is not None]
    if kept and path.name not in WITH_OUTPUTS:
        sys.exit(f"error: {path.name} keeps outputs\n  fix: clear all outputs and save")


def main():
    notebooks = sorted((ROOT / "notebooks").glob("*.ipynb"))
    if len(notebooks) < 3:
        sys.exit("error: notebooks/ has not three notebooks")
    with tempfile.TemporaryDirectory() as place:
        alone = pathlib.Path(place)
        shutil.copytree(ROOT / "docs/results", alone / "docs/results")
        (alone / "notebooks").mkdir()
        for path in notebooks:
            check_kept(path)
            for folder in (alone, alone / "notebooks"):
                count = run(path, folder)
            print(f"{path.name}: {count} cells")


if __name__ == "__main__":
    main()
