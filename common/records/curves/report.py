"""Runs side by side, and their loss over tokens as an SVG.
Called by lessons/report.sh; standard library only."""

import argparse
import difflib
import math
import os
import pathlib
import sys

from axes import Plot, label_ends
from run_files import ELEMENT_BYTES, USAGE, Refused, number, read_run, run_program, say, write_whole
from run_page import write_page

# The project's figures are drawn with docs/rendering, and so is this report's.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "docs"))
from rendering.palette import LINES  # noqa: E402
from rendering.svg import Drawing  # noqa: E402

# As the programs' tables say them.
PURPOSES = {
    "parameters": "parameters",
    "gradients": "gradients",
    "master": "master",
    "momentum": "momentum",
    "variance": "variance",
    "activations": "activations",
    "workspace": "workspace",
    "communication": "communication",
    "stash": "older weights",
    "checkpoint": "checkpoint",
}
# Places of memory other than the device.
PLACES = ("pinned", "host", "disk")
COPIES = {
    "to_host": "copied to and from the host",
    "to_device": "copied to and from the host",
    "disk_read": "read from and written to the disk",
    "disk_write": "read from and written to the disk",
}
# kWarmupSteps and kTimedSteps of common/records/record.h.
WARM_UP, TIMED = 5, 20
# Characters of a line of the report.
WIDTH = 110
# Points of a drawn curve.
MOST_POINTS = 500
# exp() of a larger loss is infinite.
MOST_LOSS = math.log(sys.float_info.max)
NONE = "-"


# --- one run's numbers --------------------------------------------------------------------------------------


def timing(steps):
    """(median seconds, tokens per second) as timing_of() of record.cpp has them; None of too few steps."""
    timed = steps[WARM_UP:]
    if len(timed) < TIMED:
        return None
    seconds = sorted(step["seconds"] for step in timed)
    median = seconds[max(math.ceil(len(seconds) / 2), 1) - 1]
    return (median, sum(step["tokens"] for step in timed) / len(timed) / median) if median > 0 else None


def sent_bytes(operation, rank, world):
    """What a rank sends for one such operation: wire_bytes() of common/watch/comm_op.h."""
    ranks, elements, size = (
        operation.get("ranks", world),
        operation["elements"],
        ELEMENT_BYTES[operation["dtype"]],
    )
    if ranks == 1:
        return 0
    if operation["kind"] == "all_reduce":
        # The slices of an all-reduce may differ in size, as in common/watch/comm_op.h: `place` is the rank's
        # number in its group, whose ranks are `stride` apart.
        piece, place = -(-elements // ranks), rank // max(1, operation.get("stride", 1)) % ranks
        own = min(elements, (place + 1) * piece) - min(elements, place * piece)
        return (elements - own + (ranks - 1) * own) * size
    if operation["kind"] in ("reduce_scatter", "all_gather"):
        return elements // ranks * (ranks - 1) * size
    return elements * size if operation["kind"] in ("broadcast", "send") else 0


def found(rank, what):
    """What was measured, or predicted where the run was too short to be checked."""
    measured = rank["measured_" + what]
    return rank["predicted_" + what] if measured is None else measured


def bytes_rows(run):
    """{row: bytes} of the rank that holds most on its device."""
    if not run.record["ranks"]:
        return {}
    held = max((found(rank, "bytes") for rank in run.record["ranks"]), key=lambda one: one["total"])
    rows = {words: held[purpose] for purpose, words in PURPOSES.items() if purpose in held}
    rows["total"] = held["total"]
    for place in PLACES:
        beside = held.get(place, {})
        if isinstance(beside, int):  # records from before places
            beside = {"workspace": beside}
        rows.update({f"{purpose}, {place}": beside[purpose] for purpose in PURPOSES if purpose in beside})
        if len(beside) > 1:
            rows[f"total, {place}"] = sum(beside.values())
    return rows


def moved_rows(run):
    """{row: bytes of one step}: of each row the most that a rank moves."""
    most = {"sent to other ranks": 0} if run.record["ranks"] else {}
    for rank in run.record["ranks"]:
        moved = {}
        for operation in found(rank, "operations"):
            way = COPIES.get(operation["kind"], "sent to other ranks")
            one = (
                operation["elements"] * ELEMENT_BYTES[operation["dtype"]]
                if operation["kind"] in COPIES
                else sent_bytes(operation, rank["rank"], run.record["world"])
            )
            moved[way] = moved.get(way, 0) + one * operation["count"]
        for way, count in moved.items():
            most[way] = max(most.get(way, 0), count)
    return most


def state_of(run):
    code = run.record["exit_code"]
    return "not ended" if code is None else "" if code == 0 else f"exit {code}"


def checked(run):
    ranks = run.record["ranks"]
    if not ranks or any(
        rank["measured_bytes"] is None or rank["measured_operations"] is None for rank in ranks
    ):
        return "predicted" if ranks else NONE
    return "measured" if run.record.get("as_predicted") else "DIFFERENT"


def perplexity(loss):
    return NONE if loss is None else "inf" if loss > MOST_LOSS else f"{math.exp(loss):.3f}"


def decimals(value):
    return NONE if value is None else f"{value:.4f}"


def speed_rows(run):
    times = timing(run.steps)
    return {
        "steps": f"{len(run.steps):,}",
        "tokens": f"{sum(step['tokens'] for step in run.steps):,}",
        "tokens per second": f"{times[1]:,.0f}" if times else NONE,
        "milliseconds per step": f"{1e3 * times[0]:,.2f}" if times else NONE,
    }


def loss_rows(run):
    validation, test = run.record["validation_loss"], run.record.get("test")
    rows = {
        "first": decimals(run.steps[0]["loss"] if run.steps else None),
        "last": decimals(run.steps[-1]["loss"] if run.steps else None),
        "validation": decimals(validation),
        "perplexity": perplexity(validation),
    }
    if test:  # --test
        loss = number(test["loss"])
        rows |= {"test loss": decimals(loss), "test perplexity": perplexity(loss)}
    return rows


def counts(rows):
    return {name: f"{value:,}" for name, value in rows.items()}


# Parts of the table: a title, and the function that gives a run's rows.
PARTS = (
    ("speed, after the warm-up", speed_rows),
    ("peak bytes of a rank", lambda run: counts(bytes_rows(run))),
    ("bytes per step of a rank", lambda run: counts(moved_rows(run))),
    ("", lambda run: {"bytes are": checked(run)}),
    ("loss, nats per token", loss_rows),
)


# --- side by side -------------------------------------------------------------------------------------------


def in_order(columns):
    """The names of all columns' rows, each where the first run that has it has it."""
    names = []
    for column in columns:
        at = 0
        for name in column:
            if name in names:
                at = names.index(name) + 1
            else:
                names.insert(at, name)
                at += 1
    return names


def aligned(lines, left=(0,)):
    """The lines of a table whose columns stand right, but for those."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    cells = [
        [cell.ljust(w) if i in left else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths))]
        for line in lines
    ]
    return ["  ".join(line).rstrip() for line in cells]


def block(numbered):
    """The table of as many runs as fit into a line."""
    lines = []
    for title, rows in PARTS:
        columns = [rows(run) for _, run in numbered]
        names = in_order(columns)
        if title and names:
            lines.append([title, *(f"[{number}]" for number, _ in numbered)])
        lines += [["  " + name, *(column.get(name, NONE) for column in columns)] for name in names]
    return aligned(lines)


def report(runs):
    numbered = list(enumerate(runs, 1))
    names = [
        [f"[{number}]", title_of(run), state_of(run), run.given, init, run.note]
        for (number, run), init in zip(numbered, inits_of(runs))
    ]
    widths = [max(len(name[i]) for name in names) for i in range(3)]
    lines = [
        "  ".join(
            [*(part.ljust(width) for part, width in zip(name, widths) if width), *filter(None, name[3:])]
        )
        for name in names
    ]
    fitting = (WIDTH - 30) // 13
    for first in range(0, len(numbered), fitting):
        lines += ["", *block(numbered[first : first + fitting])]
    return "\n".join(lines)


def title_of(run):
    return f"{run.record['lesson']} -n {run.record['world']}"


# --- files that runs were given: {"file", "bytes", "sum"} of a record ---------------------------------------


def same_file(one, other):
    if not one or not other:
        return not one and not other
    key = "sum" if "sum" in one and "sum" in other else "file"  # records from before sums
    return one[key] == other[key]


def name_of(file):
    return f"{file['file']} (sum {file.get('sum', 'unknown')})" if file else "none"


def inits_of(runs):
    """What to say of each run's initial weights: nothing where all are the same."""
    files = [run.record.get("init") for run in runs]
    if all(same_file(files[0], file) for file in files):
        return [""] * len(runs)
    return [f"--init {name_of(file)}" for file in files]


EVALUATED = {  # the flag that names the text: whether a run has a loss of it
    "validation": lambda run: run.record["validation_loss"] is not None,
    "test": lambda run: "test" in run.record,
}


def refuse_other_texts(runs, across):
    """Losses compare only where they are of one text, or where it was said that they are not."""
    for flag, has_loss in EVALUATED.items():
        first, *others = [run for run in runs if has_loss(run)] or [None]
        for run in others if flag not in across else ():
            one, other = first.record.get(flag), run.record.get(flag)
            if not same_file(one, other):
                raise Refused(
                    USAGE,
                    run.given,
                    f"was evaluated on another text than {first.given}: "
                    f"--{flag} {name_of(other)} here and {name_of(one)} there",
                    f"compare runs with one text, or say that they may differ in it: --across {flag}",
                )


def workload_of(run):
    return run.record["workload"]


def refuse_other_work(runs, across, facts=workload_of):
    """Runs compare only where they did the same work, or differ in what was named."""
    known = {key for run in runs for key in facts(run)} | set(EVALUATED)
    for key in across:
        if key not in known:
            near = difflib.get_close_matches(key, sorted(known), 1) or sorted(known)[:1]
            raise Refused(
                USAGE,
                f"--across {key}",
                "no run here has such a key",
                f"--across {near[0]}" if near else "leave it out",
            )
    first = runs[0]
    for run in runs[1:]:
        one, other = facts(first), facts(run)
        keys = sorted(key for key in {**one, **other} if one.get(key) != other.get(key))
        strange = [key for key in keys if key not in across]
        if strange:
            key = strange[0]
            values = f"{key} is {other.get(key, 'nothing')} here and {one.get(key, 'nothing')} there"
            raise Refused(
                USAGE,
                run.given,
                f"did other work than {first.given}: {values}",
                f"compare runs of one workload, or say that they may differ in it: --across {','.join(keys)}",
            )


# --- speed over ranks ---------------------------------------------------------------------------------------


def scaling_facts(run):
    """What must be the same for a rate to be a matter of ranks."""
    device = {
        "cpu": (run.record["ranks"] or [{}])[0].get("cpu"),
        "GPU": run.record.get("versions", {}).get("GPU"),
    }
    own = {"lesson": run.record["lesson"], "device": run.record["device"], **device}
    return {
        **{key: value for key, value in own.items() if value},
        **run.record.get("strategy", {}),
        **workload_of(run),
    }


def scaling(runs):
    """Ranks, rate, and what the ranks beyond the fewest bring."""
    by_ranks = {}
    for run in runs:
        other = by_ranks.setdefault(run.record["world"], run)
        if other is not run:
            what = f"has {run.record['world']} ranks, as {other.given}"
            raise Refused(USAGE, run.given, what, "name one run of each number of ranks")
        if timing(run.steps) is None:
            what = f"has {len(run.steps)} steps; a rate needs {WARM_UP + TIMED}"
            raise Refused(USAGE, run.given, what, f"--steps {WARM_UP + TIMED} or more")
    if len(by_ranks) < 2:
        raise Refused(
            USAGE,
            "--scaling",
            "one run says nothing of scaling",
            "name runs on other numbers of ranks as well",
        )
    fewest = min(by_ranks)
    base = timing(by_ranks[fewest].steps)[1]
    lines = [["ranks", "tokens per second", "speed-up", "efficiency"]]
    for ranks, run in sorted(by_ranks.items()):
        gain = timing(run.steps)[1] / base
        lines.append(
            [str(ranks), f"{base * gain:,.0f}", f"{gain:.2f}", f"{100 * gain * fewest / ranks:.0f} %"]
        )
    return "\n".join(
        [
            f"{runs[0].record['lesson']}, next to {fewest} rank{'s' if fewest > 1 else ''}",
            *aligned(lines, left=()),
        ]
    )


# --- the figure ---------------------------------------------------------------------------------------------


def curve_of(run):
    """[(tokens, loss)]: means of neighbouring steps where there are many; what is not finite is left out."""
    # A run that went on from a checkpoint begins at the checkpoint's tokens, because its earlier steps may
    # have had other batches.
    before = run.record.get("resumed_from") or {}
    first, trained = before.get("step", 0), before.get("tokens")
    points = [
        (
            (step["step"] - first + 1) * step["tokens"]
            + (first * step["tokens"] if trained is None else trained),
            step["loss"],
        )
        for step in run.steps
        if math.isfinite(step["loss"])
    ]
    each = -(-len(points) // MOST_POINTS)
    groups = [points[at : at + each] for at in range(0, len(points), max(each, 1))]
    return [(group[-1][0], sum(loss for _, loss in group) / len(group)) for group in groups]


def ticks(low, high):
    """4 to 9 round values that span the range."""
    if high - low <= 1e-9 * abs(high):
        around = max(0.5, 1e-3 * abs(high))
        low, high = low - around, high + around
    power = 10 ** math.floor(math.log10((high - low) / 4))
    step = next(power * m for m in (1, 2, 5, 10) if (high - low) / (power * m) <= 8)
    return [step * i for i in range(math.floor(low / step), math.ceil(high / step) + 1)]


def short(value):
    for unit, size in (("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def equal_curves(curves):
    """[(runs, points)]: runs with equal bits lie on each other; they share a name, and their dashes come in
    turn."""
    found = []
    for run, points in curves:
        same = next((runs for runs, others in found if others == points), None)
        if same is None:
            found.append(([run], points))
        else:
            same.append(run)
    return found


def draw(runs):
    """The figure; None where no run has a loss."""
    curves = [(run, points) for run in runs if (points := curve_of(run))]
    if not curves:
        return None
    numbers = {id(run): f"[{number}] {title_of(run)}" for number, run in enumerate(runs, 1)}
    losses = [loss for _, points in curves for _, loss in points]
    x_ticks, y_ticks = ticks(0, max(1, *(points[-1][0] for _, points in curves))), ticks(
        min(losses), max(losses)
    )
    ends = "; ".join(
        f"{numbers[id(run)]} ends at {points[-1][1]:.4f} after {points[-1][0]:,} tokens"
        for run, points in curves
    )
    height = max(300, 17 * len(curves))
    means = any(len(run.steps) > MOST_POINTS for run, _ in curves)
    drawing = Drawing(
        height + 120,
        "Loss over tokens",
        f"Training loss over the tokens seen. {ends}.",
        "means of neighbouring steps" if means else "",
    )
    plot = Plot(drawing, 64, 70, 620, height, (0, x_ticks[-1]), (y_ticks[0], y_ticks[-1]))
    plot.axes(
        [(t, short(t)) for t in x_ticks],
        [(t, f"{t:.6g}") for t in y_ticks],
        "tokens",
        "training loss, nats per token",
    )
    labels = []
    for same, points in equal_curves(curves):
        colours = [LINES[curves.index((run, points)) % len(LINES)] for run in same]
        for turn, colour in enumerate(colours):
            plot.curve(points, colour, turn, len(same))
        numbers_of = "".join(f"{numbers[id(run)].split(' ')[0]} = " for run in same[:-1])
        labels.append(
            (plot.y(points[-1][1]), colours, f"{numbers_of}{numbers[id(same[-1])]}: {points[-1][1]:.4f}")
        )
    labels = [
        (min(y, plot.top + height - 16 * below), *rest)
        for below, (y, *rest) in enumerate(sorted(labels, reverse=True))
    ]
    label_ends(drawing, plot.left + plot.width + 6, labels, plot.top)
    return drawing.done("").svg


class Arguments(argparse.ArgumentParser):
    def error(self, message):
        raise Refused(USAGE, self.prog, message, f"{self.prog} --help")


def main(arguments):
    parser = Arguments("lessons/report.sh", add_help=False, allow_abbrev=False)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--svg")
    parser.add_argument("--across", action="append", default=[])
    parser.add_argument("--pages", action="store_true")
    parser.add_argument("--scaling", action="store_true")
    asked = parser.parse_intermixed_args(arguments)
    runs = [read_run(path) for path in asked.runs]
    across = [key for keys in asked.across for key in keys.split(",") if key]
    if asked.scaling:
        if asked.svg or asked.pages:
            raise Refused(USAGE, "--scaling", "prints a table alone", "leave out --svg and --pages")
        refuse_other_work(runs, across, scaling_facts)
        say(scaling(runs))
        return 0
    refuse_other_work(runs, across)
    refuse_other_texts(runs, across)
    say(report(runs))
    for run in runs if asked.pages else ():
        path = write_page(run)
        say(f"\npage: {path or os.path.join(run.folder, 'page.html') + ', which was there'}")
    svg = draw(runs)
    if svg is None:
        say("\nno figure: no run here has a finite loss")
        return 0
    path = asked.svg or os.path.join(runs[0].folder, "loss.svg")
    write_whole(svg, path, "name another file: --svg FILE")
    say(f"\nfigure: {path}")
    return 0


if __name__ == "__main__":
    run_program(main)
