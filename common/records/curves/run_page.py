"""The page of a run that left none: its record and its steps in the template of common/records/page/, without
the clock, since nobody kept the marks. Standard library only.
usage: run_page.py PAGE...   their own data in today's template
"""

import json
import os
import pathlib
import re
import sys

from run_files import CANNOT_WRITE, DATA, WHOLE, Refused, finite, write_whole

TEMPLATE = pathlib.Path(__file__).resolve().parents[1] / "page/template.html"
SLOT = '<script id="data" type="application/json">{}</script>'
COLUMNS = ("step", "loss", "lr", "grad_norm", "tokens", "seconds", "waited_seconds")
# kMostSteps of common/records/page.cpp.
MOST_STEPS = 2_000


def cleaned(value):
    """The value for JSON, which has no number that is not finite: null instead."""
    if isinstance(value, dict):
        return {key: cleaned(member) for key, member in value.items()}
    if isinstance(value, list):
        return [cleaned(member) for member in value]
    return finite(value) if isinstance(value, float) else value


def data_of(run):
    record = cleaned({key: value for key, value in run.record.items() if key != "steps"})
    if isinstance(record.get("timetable"), dict):
        record["timetable"].pop("ranks", None)
    every = max(1, -(-len(run.steps) // MOST_STEPS))
    rows = [step for i, step in enumerate(run.steps) if i % every == 0 or i + 1 == len(run.steps)]
    steps = {key: [finite(step.get(key)) for step in rows] for key in COLUMNS}
    steps["validation"] = [
        [step["step"], step["validation_loss"]]
        for step in run.steps
        if finite(step.get("validation_loss")) is not None
    ]
    layers = str(run.record["workload"].get("model.layers", ""))
    blocks = int(layers) if layers.isdecimal() and len(layers) < 5 else 0
    return {
        "format": 1,
        "lesson": run.record["lesson"],
        "question": run.name,
        "record": record,
        "steps": steps,
        "units": ["embedding", *(f"block {i + 1}" for i in range(blocks)), "head"],
        "buffers": [],
        "limits": {},
        "marks": {},
    }


def page_of(data, template=None):
    """The template, filled as rank 0 fills it."""
    text = template or TEMPLATE.read_text(encoding="utf-8")
    assert text.count(SLOT) == 1
    line = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False).replace(
        "<", "\\u003c"
    )
    return text.replace(SLOT, SLOT.replace("{}", line))


def data_in(page):
    before, after = SLOT.split("{}")
    return json.loads(re.search(f"{re.escape(before)}(.*?){re.escape(after)}", page, re.DOTALL).group(1))


def write_page(run):
    """Returns its path; None: the run has a page, with more on it."""
    path = os.path.join(run.folder, "page.html")
    if os.path.lexists(path):
        return None
    try:
        page = page_of(data_of(run))
    except OSError as error:
        raise Refused(
            CANNOT_WRITE, path, f"has no template: {error.strerror}", "restore common/records/page"
        ) from None
    except RecursionError:
        raise Refused(DATA, run.file, "lists and objects are nested too deep", WHOLE) from None
    write_whole(page, path, "leave out --pages")
    return path


if __name__ == "__main__":
    for path in map(pathlib.Path, sys.argv[1:]):
        path.write_text(page_of(data_in(path.read_text(encoding="utf-8"))), encoding="utf-8")
