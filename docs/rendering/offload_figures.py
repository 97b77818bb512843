"""Drawings of lesson 05: where its bytes lie, and a step's copies."""
from . import plots
from .palette import (
    BACKWARD,
    COMPUTE,
    EDGE,
    FORWARD,
    GRADIENTS,
    LINES,
    OPTIMIZER,
    PARAMETERS,
    done,
    held,
    held_in,
    parts_of,
)
from .registry import figure, record

RUNS = (("one_device", "lesson 00"), ("exact", "exact"), ("delayed", "delayed"))
PLACES = ("device", "pinned", "host")


@figure
def offload_places():
    """Bytes of one rank by place and purpose, 355M: as measured."""
    runs = record("gpu_offload")["runs"]["355m"]
    bars = [
        (name, place, parts_of(of if place == "device" else of.get(place, {})))
        for run, name in RUNS
        for of in (runs[run]["bytes"],)
        for place in PLACES
    ]
    columns = [parts for *_, parts in bars]
    alt = (
        "Bytes by place. "
        + "; ".join(
            f"{name}, {place}: {count / 1e9:.2f} GB"
            for name, place, parts in bars
            if (count := sum(part for _, part in parts)) >= 5e6
        )
        + "."
    )

    def draw(figure):
        plotted = plots.axes(figure, 56, 34 * len(bars), left=170, right=90, forms=("{:g} GB", ""))
        places = [i + 0.5 * (i // len(PLACES)) for i in range(len(bars))]
        plots.stacked(
            plotted, places, plots.gigabytes(columns), lambda end, _: f"{end:.2f} GB", across=True, gap=6
        )
        plotted.set(ylim=(places[-1] + 0.6, -0.6), yticks=places, yticklabels=[place for _, place, _ in bars])
        for i, (_, name) in enumerate(RUNS):
            middle = plotted.transData.transform((0, places[len(PLACES) * i + 1]))[1]
            plots.words(figure, 16, figure.get_figheight() * 72 - middle + 4, name, weight="bold")
        plots.key(figure, 56 + 34 * len(bars) + 46, held_in(columns), left=170)

    return plots.plot(
        120 + 34 * len(bars),
        "Where the bytes of one rank lie: 355M, 16 rows of 1024 tokens",
        alt,
        "One H200, bf16; pinned is the host's memory that the GPU copies from and to (gpu_offload.json).",
        draw,
        "measured, equal to the plan",
    )


def rows_of(step):
    """Lanes of a traced step. What the GPU computes has the names of the record's marks; a record without
    them says only when it computes."""
    passes = {
        "compute": (COMPUTE, ""),
        "forward": (FORWARD, "forward"),
        "backward": (BACKWARD, "backward"),
        "update": (OPTIMIZER, ""),
    }
    return [
        ("GPU", 24, [(*span, *passes[name]) for name in passes for span in step.get(name, ())]),
        ("parameters up", 18, [(begin, end, PARAMETERS, "") for begin, end in step["to_device"]]),
        ("gradients down", 18, [(begin, end, GRADIENTS, "") for begin, end in step["to_host"]]),
        ("host", 24, [(begin, end, OPTIMIZER, "update") for begin, end in step["adam"]]),
    ]


@figure
def offload_timeline():
    """A step of 355M with exact and with delayed updates: what the GPU and the host compute, copies both
    ways, and when the norm is known."""
    steps = record("gpu_offload")["steps"]
    end = max(step["milliseconds"] for step in steps.values())
    alt = "Steps on a clock. " + " ".join(
        f"{name.capitalize()}: {step['milliseconds']:.0f} ms, the host's AdamW "
        + " and ".join(f"from {begin:.0f} to {stop:.0f}" for begin, stop in step["adam"] if stop - begin > 1)
        + "."
        for name, step in steps.items()
    )

    def draw(figure):
        for i, (name, step) in enumerate(steps.items()):
            top = 78 + 196 * i
            known = step["norm"][-1][1]
            plots.words(figure, 16, top - 10, f"{name}: {step['milliseconds']:.0f} ms", weight="bold")
            plotted = plots.axes(figure, top, 124, left=130, right=24)
            plots.lanes(plotted, rows_of(step), end)
            plotted.axvline(known, color=EDGE, linewidth=1, linestyle="--")
            plots.words(
                figure, plotted.transData.transform((known, 0))[0] + 4, top - 10, "norm known", ha="right"
            )
        passes = (
            [(COMPUTE, "forward and backward")]
            if any("compute" in step for step in steps.values())
            else done(FORWARD, BACKWARD)
        )
        plots.key(
            figure,
            78 + 196 * len(steps) - 26,
            [*passes, *held(PARAMETERS, GRADIENTS), *done(OPTIMIZER)],
            left=130,
        )

    return plots.plot(
        78 + 196 * len(steps) - 8,
        "One step: when parameters come, gradients leave, and the host updates",
        alt,
        "Exact: the host is still updating, and forward gets each unit's parameters as they are ready. "
        "Early: the first bar ends the update of the step before. "
        "Delayed: they were ready before the step began (gpu_offload.json, a step that was traced, which "
        "takes some milliseconds).",
        draw,
        "355M, 16 rows of 1024 tokens, one H200",
    )


SERIES = (("exact", LINES[0], "o"), ("early", LINES[1], "s"))


def resident_units(name, kind):
    """The number of resident units in a run of that kind; None for a run of another kind."""
    first, _, more = name.partition(", ")
    return (
        None
        if first != kind or more and not more.endswith(" resident")
        else int(more.split()[0])
        if more
        else 0
    )


@figure
def offload_curve():
    """355M: what each resident unit more costs on the device, and what it brings."""
    runs = record("gpu_offload")["runs"]["355m"]
    points = {
        kind: sorted(
            (units, runs[name]["device_bytes"] / 1e9, runs[name]["tokens_per_second"] / 1e3)
            for name in runs
            if (units := resident_units(name, kind)) is not None
        )
        for kind, *_ in SERIES
    }
    one = runs["one_device"]
    alt = (
        "Thousands of tokens per second by gigabytes on the device. "
        + " ".join(
            f"{kind}: "
            + ", ".join(f"{units} resident {size:.1f} GB {rate:.0f}" for units, size, rate in found)
            + "."
            for kind, found in points.items()
        )
        + f" Lesson 00: {one['device_bytes'] / 1e9:.1f} GB {one['tokens_per_second'] / 1e3:.0f}."
    )

    def draw(figure):
        plotted = plots.axes(
            figure, 72, 240, right=150, names=("GB on the device", "thousand tokens per second")
        )
        for kind, colour, marker in SERIES:
            plotted.plot(
                [size for _, size, _ in points[kind]],
                [rate for *_, rate in points[kind]],
                color=colour,
                marker=marker,
                label=kind,
            )
            for units, size, rate in points[kind]:
                below = -16 if kind == "exact" else 7  # away from the other series and lesson 00
                plotted.annotate(
                    f"{units}", (size, rate), xytext=(0, below), textcoords="offset points", ha="center"
                )
        plotted.plot(
            [one["device_bytes"] / 1e9],
            [one["tokens_per_second"] / 1e3],
            color=EDGE,
            marker="D",
            linestyle="",
            label="lesson 00",
        )
        plotted.set_ylim(bottom=0)
        plotted.legend(loc="lower right")

    return plots.plot(
        372,
        "Resident units: device memory against speed",
        alt,
        "Numbers at the points: resident units of 26. Early: no step is clipped (gpu_offload.json).",
        draw,
        "355M, 16 rows of 1024 tokens",
    )
