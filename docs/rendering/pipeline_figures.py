"""Drawings of lesson 07: what a run did, laid over what the simulator expected, and what each stage keeps alive."""
from . import plots
from .palette import BACKWARD, EDGE, FORWARD, LINES, OPTIMIZER, TINTS
from .pipelines import MICROBATCHES
from .registry import figure, has, record, renders, source, table

FILL_OF = {"F": FORWARD, "B": BACKWARD, "I": BACKWARD, "W": BACKWARD, "s": OPTIMIZER}


@figure
def pipeline_overlay():
    """The median step of a paced run, action by action, above the same actions as simulated."""
    if not has("pipeline_pace"):
        return None
    found = record("pipeline_pace")
    ranks, run = found["drawn"], found["schedules"]["1f1b"]["4"]
    measured, simulated = (run["rows"][name]["seconds"] for name in ("measured", "simulated"))
    end = max(measured, simulated)
    alt = f"Timelines of {len(ranks)} stages: a run of {1e3 * measured:.0f} ms above its simulation of {1e3 * simulated:.0f} ms; forwards and backwards lie above each other."
    rows = []
    for s, spans in enumerate(ranks):
        rows.append(
            (
                f"stage {s}",
                24,
                [
                    (1e3 * begin, 1e3 * stop, FILL_OF[name[0]], "" if name.startswith("step") else name)
                    for name, begin, stop, *_ in spans
                ],
            )
        )
        rows.append(
            (
                "simulated",
                12,
                [(1e3 * begin, 1e3 * stop, FILL_OF[name[0]], "") for name, *_, begin, stop in spans],
            )
        )
    norm = 1e3 * max(begin for spans in ranks for name, begin, *_ in spans if name.startswith("step"))

    def draw(figure):
        plotted = plots.axes(figure, 62, 52 * len(ranks) + 8, left=90, right=24)
        plots.lanes(plotted, rows, 1e3 * end)
        plotted.axvline(norm, color=EDGE, linewidth=1, linestyle="--")
        plots.words(
            figure,
            plotted.transData.transform((norm, 0))[0] + 4,
            54,
            "the norm's barrier, which is not simulated",
            ha="right",
        )
        plots.key(
            figure,
            116 + 52 * len(ranks),
            [(FORWARD, "forward"), (BACKWARD, "backward"), (OPTIMIZER, "update")],
            left=90,
        )

    return plots.plot(
        134 + 52 * len(ranks),
        "One step of 1F1B on four real ranks, laid over the simulation",
        alt,
        "Upper bars: the median of 7 steps of a run on two cores with `--pace`. Lower bars: its simulation (pipeline_pace.json).",
        draw,
    )


@figure
def pipeline_in_flight():
    """Activations and workspace of each of four stages, by schedule, as measured."""
    if not has("pipeline_order"):
        return None
    schedules = record("pipeline_order")["shapes"]["4x1"]["schedules"]
    held = {
        name: [rank["activations"] + rank["workspace"] for rank in run["bytes_of_ranks"]]
        for name, run in schedules.items()
    }
    alt = (
        "Bars of four stages for each schedule. "
        + "; ".join(
            f"{name}: " + ", ".join(f"{b / 1e6:.1f}" for b in several) + " MB"
            for name, several in held.items()
        )
        + "."
    )

    def draw(figure):
        plotted = plots.axes(figure, 72, 250, names=("", "MB of activations and workspace"))
        for s, fill in enumerate(TINTS):
            places = [i + 0.2 * (s - 1.5) for i in range(len(held))]
            megabytes = [several[s] / 1e6 for several in held.values()]
            plots.stacked(plotted, places, [(fill, megabytes)], thick=0.2)
            for place, count in zip(places, megabytes):
                plotted.annotate(
                    f"{count:.1f}", (place, count), xytext=(0, 4), textcoords="offset points", ha="center"
                )
        plotted.set(xticks=range(len(held)), xlim=(-0.6, len(held) - 0.4))
        plotted.set_xticklabels(list(held))
        plotted.grid(False, axis="x")
        plots.key(figure, 374, [(fill, f"stage {s}") for s, fill in enumerate(TINTS)])

    return plots.plot(
        392,
        "What each stage keeps for backward: bytes of activations and workspace",
        alt,
        "Measured, equal to the plan to the byte; 12 micro-batches of the default model (pipeline_order.json).",
        draw,
        "four stages, 12 micro-batches",
    )


@figure
def pipeline_alive():
    """How many micro-batches each stage keeps over time, GPipe next to 1F1B."""
    found = record("pipedream_alive")
    schedules = {{"gpipe": "GPipe", "1f1b": "1F1B"}[name]: of for name, of in found["schedules"].items()}
    curves = {
        name: [list({time: sets for time, sets, _ in stage}.items()) for stage in of["stages"]]
        for name, of in schedules.items()
    }  # the last of a moment
    ends = {name: of["makespan"] for name, of in schedules.items()}
    most = {name: [max(sets for _, sets in stage) for stage in stages] for name, stages in curves.items()}
    alt = "Micro-batches that four stages keep over time. " + " ".join(
        f"{name}: at most {', '.join(map(str, counts))}; the step ends at {ends[name]:g}."
        for name, counts in most.items()
    )

    def draw(figure):
        half = plots.WIDTH / 2
        for i, (name, stages) in enumerate(curves.items()):
            plotted = plots.axes(
                figure,
                84,
                200,
                left=64 + half * i,
                right=24 + half - half * i,
                names=("time, a forward is 1", f"{name}: micro-batches alive"),
            )
            for stage, points in enumerate(stages):
                plotted.step(*zip(*points), where="post", color=LINES[stage])
            plotted.set(xlim=(0, max(ends.values())), ylim=(0, found["microbatches"] + 0.5))
        plots.key(figure, 338, [(LINES[stage], f"stage {stage}") for stage in range(len(TINTS))])

    return plots.plot(
        356,
        "The same step, the same idle time, another memory",
        alt,
        f"Simulated: four stages, {found['microbatches']} micro-batches, backward twice a forward (pipedream_alive.json).",
        draw,
        "simulated",
    )


@figure
def utilization_comparison():
    """Simulated shares of time that stages are busy, as `pipedream compare` writes them (pipelines.py)."""
    rows = {m: record(f"pipedream_m{m}")["rows"] for m in MICROBATCHES}
    names = [row["schedule"] for row in rows[MICROBATCHES[0]]]
    alt = (
        "Simulated share of time that four stages are busy in four batches of 4, 8, 16 and 32 microbatches. "
        + " ".join(
            f"{name}: " + ", ".join(f"{100 * rows[m][i]['utilization']:.1f} %" for m in MICROBATCHES) + "."
            for i, name in enumerate(names)
        )
    )

    def draw(figure):
        plotted = plots.axes(figure, 72, 250, names=("", "% of the time busy"))
        for k, (m, fill) in enumerate(zip(MICROBATCHES, TINTS)):
            places, shares = [i + 0.2 * (k - 1.5) for i in range(len(names))], [
                100 * row["utilization"] for row in rows[m]
            ]
            plots.stacked(plotted, places, [(fill, shares)], thick=0.2)
            for place, share in zip(places, shares):
                plotted.annotate(
                    f"{share:.0f}", (place, share), xytext=(0, 3), textcoords="offset points", ha="center"
                )
        plotted.set(
            xticks=range(len(names)),
            xlim=(-0.6, len(names) - 0.4),
            ylim=(0, 108),
            yticks=[0, 25, 50, 75, 100],
        )
        plotted.set_xticklabels([name.replace(", ", ",\n") for name in names])
        plotted.grid(False, axis="x")
        plots.key(figure, 384, [(fill, f"M = {m}") for m, fill in zip(MICROBATCHES, TINTS)])

    return plots.plot(
        402,
        "How busy four stages are, by schedule and number of microbatches",
        alt,
        "Simulated: four batches of M microbatches (pipedream_m4.json to pipedream_m32.json).",
        draw,
        "simulated",
    )


@renders
def pipeline_pace(page):
    """Makespans of every family: measured over what the same costs come to in the simulator."""
    found = record("pipeline_pace")
    rows = []
    for name, runs in found["schedules"].items():
        rows.append([f"`{name}`"])
        for run in runs.values():
            measured, paced = run["rows"]["measured"], run["rows"]["paced"]
            rows[-1].append(
                f"{1e3 * measured['seconds']:.0f} / {1e3 * paced['seconds']:.0f} ms, {100 * measured['idle']:.0f} %"
            )
    heads = ["measured / simulated, idle", *(f"M = {m}" for m in next(iter(found["schedules"].values())))]
    return (
        table(heads, rows)
        + f"\n\nFrom {source(page, 'pipeline_pace')} (two cores, 4 ranks, the median of 7 steps)."
    )
