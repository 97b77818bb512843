"""What the command `pipedream` computes: blocks of its pages, its figures and records."""
import json
import pathlib
import re
import shlex
import subprocess
import tempfile

from .palette import BACKWARD, FILLS, FORWARD
from .registry import ROOT, RenderError, renders
from .svg import STYLE

FIGURE_NAMES = ["naive_pipeline", "microbatch_forward", "microbatch_backward", "weight_versioning"]
MICROBATCHES = [4, 8, 16, 32]
ALIVE_OF = 8  # micro-batches of pipedream_alive.json


def run(program, arguments, expected=0):
    done = subprocess.run([program, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != expected:
        raise RenderError(
            f"pipedream {shlex.join(arguments)}: exit {done.returncode}, {expected} was expected\n{done.stderr}"
        )
    return done.stdout + (done.stderr if expected else "")  # pipedream/run.sh says on stderr that it builds


def block(page, arguments, expected=0, lines=None):
    said = run(page.program, arguments, expected).rstrip("\n").split("\n")
    if lines is not None and len(said) > lines:
        said = said[:lines] + ["..."]
    body = "\n".join(line.rstrip() for line in said)
    return f"```text\n$ pipedream/run.sh {shlex.join(arguments)}\n{body}\n```"


@renders
def pipedream(page, *arguments):
    """The command line and what it printed."""
    return block(page, arguments)


@renders
def pipedream_head(page, lines, *arguments):
    """Its first lines."""
    return block(page, arguments, lines=int(lines))


@renders
def pipedream_fail(page, code, *arguments):
    """A command that is meant to fail."""
    return block(page, arguments, expected=int(code))


def in_palette(drawn, name):
    """The command's drawing in the colours and the style of the other figures."""
    changed = {FILLS[0]: FORWARD, FILLS[1]: BACKWARD}
    if name == "weight_versioning":  # its colours are versions
        changed = {"#f2a9b8": FILLS[3], "#d0d0d0": FILLS[7]}
    for old, new in changed.items():
        drawn = drawn.replace(f'fill="{old}"', f'fill="{new}"')
    return re.sub(r"<style>.*?</style>", lambda match: f"<style>{STYLE}</style>", drawn, flags=re.S)


def alive(program, schedule, folder):
    """What each stage of a simulated schedule holds from each moment on."""
    path = pathlib.Path(folder) / "simulated.json"
    run(program, ["simulate", "--schedule", schedule, "--microbatches", str(ALIVE_OF), "--json", str(path)])
    said = json.loads(path.read_text())
    return {"makespan": said["makespan"], "stages": [stage["alive"] for stage in said["per_stage"]]}


def records_and_figures(program):
    for name in FIGURE_NAMES:
        yield f"docs/figures/{name}.svg", in_palette(run(program, ["draw", "--figure", name]), name)
    with tempfile.TemporaryDirectory() as folder:
        for m in MICROBATCHES:
            path = pathlib.Path(folder) / "record.json"
            run(program, ["compare", "--microbatches", str(m), "--batches", "4", "--json", str(path)])
            yield f"docs/results/pipedream_m{m}.json", path.read_text()
        yield "docs/results/pipedream_alive.json", json.dumps(
            {
                "about": "pipedream simulate --json, four stages, backward twice a forward: [time, sets of activations, weight versions].",
                "microbatches": ALIVE_OF,
                "schedules": {name: alive(program, name, folder) for name in ("gpipe", "1f1b")},
            }
        ) + "\n"
