"""Drawings of lesson 07: what a run did, laid over what the simulator expected, and what each stage keeps alive."""
from .palette import COMPUTE, GRADIENTS, OPTIMIZER, PARAMETERS
from .registry import figure, has, record, renders, source, table
from .svg import Drawing

FILL_OF = {"F": PARAMETERS, "B": GRADIENTS, "I": GRADIENTS, "W": COMPUTE, "s": OPTIMIZER}


@figure
def pipeline_overlay():
    """The median step of a paced run, action by action, above the same actions as simulated."""
    if not has("pipeline_pace"):
        return None
    found = record("pipeline_pace")
    ranks, run = found["drawn"], found["schedules"]["1f1b"]["4"]
    measured, simulated = (run["rows"][name]["seconds"] for name in ("measured", "simulated"))
    end = max(measured, simulated)
    left, right, row = 90, 944, 62
    drawing = Drawing(
        112 + row * len(ranks),
        "One step of 1F1B on four real ranks, laid over the simulation",
        f"Timelines of {len(ranks)} stages. Upper bars: when each forward and backward ran in the median step of a paced run. Lower bars: when the simulator "
        f"expects them. The run took {1e3 * measured:.0f} milliseconds, the simulation {1e3 * simulated:.0f}; the bars lie above each other.",
    )

    def x(seconds):
        return left + (right - left) * seconds / end

    for s, spans in enumerate(ranks):
        y = 58 + row * s
        drawing.text(16, y + 16, f"stage {s}")
        drawing.text(16, y + 36, "simulated", "small")
        for name, begin, stop, expected, expected_stop in spans:
            fill = FILL_OF[name[0]]
            label = "" if name.startswith("step") else name
            drawing.box(x(begin), y, x(stop) - x(begin), 24, fill, label, "in small")
            drawing.box(x(expected), y + 27, x(expected_stop) - x(expected), 12, fill)
    y = 58 + row * len(ranks)
    for tick in range(0, int(1e3 * end) + 1, 100):
        drawing.line(x(tick / 1e3), 50, x(tick / 1e3), y)
        drawing.text(x(tick / 1e3), y + 14, f"{tick} ms", "small mid")
    drawing.legend(left, y + 40, [(PARAMETERS, "forward"), (GRADIENTS, "backward"), (OPTIMIZER, "step")])
    return drawing.done(
        "Upper bars: the median of 7 steps of a run on two cores, whose actions take what lessons/07_pipeline/pace.json says. Lower bars: "
        "pipedream's simulation of that run (pipeline_pace.json)."
    )


@figure
def pipeline_in_flight():
    """Activations and workspace of each of four stages, by schedule, as measured."""
    if not has("pipeline_order"):
        return None
    schedules = record("pipeline_order")["shapes"]["4x1"]["schedules"]
    held = {name: [rank["activations"] + rank["workspace"] for rank in run["bytes_of_ranks"]] for name, run in schedules.items()}
    most = max(max(several) for several in held.values())
    drawing = Drawing(
        78 + 84 * len(held),
        "What each stage keeps for backward: bytes of activations and workspace",
        "Bars of four stages for each schedule. " + "; ".join(f"{name}: " + ", ".join(f"{b / 1e6:.1f}" for b in several) + " MB" for name, several in held.items()) + ".",
        "four stages, 12 micro-batches",
    )
    left, width = 130, 700
    for i, (name, several) in enumerate(held.items()):
        y = 52 + 84 * i
        drawing.text(16, y + 38, name)
        for s, count in enumerate(several):
            drawing.text(left - 8, y + 13 + 18 * s, f"{s}", "small end")
            drawing.box(left, y + 18 * s, width * count / most, 15, PARAMETERS)
            drawing.text(left + width * count / most + 8, y + 12 + 18 * s, f"{count / 1e6:.2f} MB", "small")
    return drawing.done("Measured, equal to the plan to the byte; 12 micro-batches of the default model (pipeline_order.json).")


@renders
def pipeline_pace(page):
    """Makespans of every family: measured over what the same costs come to in the simulator."""
    found = record("pipeline_pace")
    rows = []
    for name, runs in found["schedules"].items():
        rows.append([f"`{name}`"])
        for run in runs.values():
            measured, paced = run["rows"]["measured"], run["rows"]["paced"]
            rows[-1].append(f"{1e3 * measured['seconds']:.0f} / {1e3 * paced['seconds']:.0f} ms, {100 * measured['idle']:.0f} %")
    heads = ["measured / simulated, idle", *(f"M = {m}" for m in next(iter(found["schedules"].values())))]
    return table(heads, rows) + f"\n\nFrom {source(page, 'pipeline_pace')} (two cores, 4 ranks, the median of 7 steps)."
