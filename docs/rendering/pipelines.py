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
# kPalette of pipedream/command/svg.cpp.
OWN_FILLS = ("#9cc2f5", "#f7c486", "#a9dcb3", "#f2a9b8", "#cdb7f0", "#8fd6d6", "#e3d98a", "#d0d0d0")
# Micro-batches of the schedule in pipedream_alive.json.
ALIVE_OF = 8


def run(program, arguments, expected=0):
    done = subprocess.run([program, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != expected:
        raise RenderError(
            f"pipedream {shlex.join(arguments)}: exit {done.returncode}, {expected} was "
            f"expected\n{done.stderr}"
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
    """The first lines that the command prints."""
    return block(page, arguments, lines=int(lines))


@renders
def pipedream_fail(page, code, *arguments):
    """A command that is meant to fail."""
    return block(page, arguments, expected=int(code))


def in_palette(drawn, name):
    """The command's drawing in the colours and the style of the other figures. Its colours are versions in
    weight_versioning, otherwise forward and backward."""
    for old, new in zip(OWN_FILLS, FILLS if name == "weight_versioning" else (FORWARD, BACKWARD)):
        drawn = drawn.replace(f'fill="{old}"', f'fill="{new}"')
    return re.sub(r"<style>.*?</style>", lambda match: f"<style>{STYLE}</style>", drawn, flags=re.S)


def simulated(program, folder, *arguments):
    path = pathlib.Path(folder) / "simulated.json"
    run(program, ["simulate", "--backward-weights", "0", *arguments, "--json", str(path)])
    return json.loads(path.read_text())


def alive(said):
    """What each stage of a simulated schedule holds from each moment on."""
    return {"makespan": said["makespan"], "stages": [stage["alive"] for stage in said["per_stage"]]}


# Steps that the front page draws, without a unit: stage, first action, number of actions, and the schedule
# that is simulated. For lesson 08 a step of the steady state is drawn, which never drains.
STEPS = {
    "07": (1, "F0", 8, "--schedule 1f1b --forward 0.75 --backward-input 1.5"),
    "08": (
        1,
        "F4@2",
        12,
        "--schedule pipedream --forward 0.75 --backward-input 1.5 --step 0.4 --microbatches 12",
    ),
    "11": (0, "F0", 8, "--schedule 1f1b --forward 1.35 --backward-input 1.65 --stages 2"),
}


def step_of_stage(said, stage, first, count):
    """[what, version, begin, end] of a stage's actions from `first` on; when all stages are done, or 0 where
    the schedule goes on."""
    spans = [
        span
        for span in said["per_stage"][stage]["spans"]
        if span[1] in ("forward", "backward", "step") and span[4] > span[3]
    ]
    names = [name for name, *_ in spans]
    begins = spans[names.index(first)][3] if "@" in first else 0
    actions = [
        [
            "update" if kind == "step" else name.split("@")[0],
            -1 if kind == "step" else int((name + "@0").split("@")[1]),
            round(begin - begins, 6),
            round(end - begins, 6),
        ]
        for name, kind, _, begin, end in spans[names.index(first) :][:count]
    ]
    return {"drained": 0 if begins else said["makespan"], "actions": actions}


def records_and_figures(program):
    for name in FIGURE_NAMES:
        yield f"docs/figures/{name}.svg", in_palette(run(program, ["draw", "--figure", name]), name)
    with tempfile.TemporaryDirectory() as folder:
        for m in MICROBATCHES:
            path = pathlib.Path(folder) / "record.json"
            run(program, ["compare", "--microbatches", str(m), "--batches", "4", "--json", str(path)])
            yield f"docs/results/pipedream_m{m}.json", path.read_text()
        found = {
            "about": "pipedream simulate --json, four stages, backward twice a forward: [time, sets of "
            "activations, weight versions].",
            "microbatches": ALIVE_OF,
            "schedules": {
                name: alive(
                    simulated(
                        program,
                        folder,
                        "--backward-input",
                        "2",
                        "--schedule",
                        name,
                        "--microbatches",
                        str(ALIVE_OF),
                    )
                )
                for name in ("gpipe", "1f1b")
            },
        }
        yield "docs/results/pipedream_alive.json", json.dumps(found) + "\n"
        found = {
            "about": "pipedream simulate --json: [what, version of the weights, begin, end] of one stage's "
            "actions, and when all stages are done.",
            "steps": {
                lesson: step_of_stage(simulated(program, folder, *arguments.split()), *which)
                for lesson, (*which, arguments) in STEPS.items()
            },
        }
        yield "docs/results/pipedream_steps.json", json.dumps(found) + "\n"
