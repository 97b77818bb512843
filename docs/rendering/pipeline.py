"""Lesson 07: equal bits of every schedule, what its stages hold, and what a run did, laid over what the
simulator expected (docs/results/pipeline_*.json)."""
from . import plots
from .lesson_tables import file_text, tail
from .machine_tables import gpu_table
from .palette import BACKWARD, EDGE, FORWARD, LINES, OPTIMIZER, TINTS, done
from .pipelines import MICROBATCHES
from .registry import RenderError, figure, record, renders, source, table, table_of, times_text


@renders
def pipeline_same_bits(page):
    """Lesson 00's weights in each order of sums, and the shapes that end in them. Stops where a schedule ends
    in others."""
    same = {}
    for shape, found in record("pipeline_order")["shapes"].items():
        reference = found["reference"]
        for name, run in found["schedules"].items():
            if any(run[key] != reference[key] for key in ("weights_sha256", "loss")):
                raise RenderError(
                    f"pipeline_order: {name} on {shape} does not end in lesson 00's losses and weights"
                )
        same.setdefault(f"`{reference['weights_sha256'][:12]}`", []).append(shape.replace("x", " x "))
    names = ", ".join(f"`{name}`" for name in found["schedules"])
    return table(
        ["lesson 00's weights", "stages x replicas that end in them"],
        [[weights, ", ".join(shapes)] for weights, shapes in same.items()],
        left=2,
    ) + tail(
        page,
        "pipeline_order",
        more=f"SHA-256 of the saved weights; all 20 losses are equal, too, of {names}; "
        f"{file_text(reference)}",
    )


@renders
def pipeline_gpu(page):
    """Lesson 07 in turns with torch.distributed.pipelining on two GPUs. Of the bound: of S M / (M + S - 1)
    times one GPU on the same step."""
    of, runs, found = gpu_table, [], record("gpu_pipeline")["rows"]
    simulated = {
        (row["run"], *row["settings"]): row["seconds"] / row["predicted"]
        for row in record("choosing")["check"]["rows"]
        if row["record"] == "gpu_pipeline"
    }
    for key, row in found.items():
        for peer, label, ours, setting in (
            ("1f1b", "1F1B", "ours", "schedule=1f1b"),
            ("1f1b", "1F1B, `warmup=1`", "ours_warmup", "warmup=1"),
            ("gpipe", "GPipe", "ours_gpipe", "schedule=gpipe"),
        ):
            if {peer, ours} <= row["programs"].keys():
                step = simulated.get((key, setting, f"split={','.join(map(str, row['split']))}"))
                runs.append((row, ours, peer, label, step, row["ratios"][f"{ours}_over_{peer}"]))

    def of_the_bound(row, ours, *_):
        stages, M = len(row["split"]), row["micro_batches"]
        over_one = row["ratios"].get(f"{ours}_over_one_device")
        return f"{over_one['median'] / (stages * M / (M + stages - 1)):.3f}" if over_one else ""

    one, energies = next(iter(found.values())), [run[-1]["per_joule"]["median"] for run in runs]
    if any(energy >= run[-1]["median"] for energy, run in zip(energies, runs)):
        raise RenderError(
            "gpu_pipeline: a lead per joule is not smaller than that in time, and the page says so"
        )
    return (
        of.explained(
            table_of(
                runs,
                {
                    "M": lambda row, *_: row["micro_batches"],
                    "schedule": lambda *run: run[3],
                    "lesson 07, k tok/s": lambda row, ours, *_: (
                        f"{of.median_of(row, ours, 'tokens_per_second') / 1e3:.0f}"
                    ),
                    "measured / simulated ms": lambda *run: f"{run[4]:.3f}" if run[4] else "",
                    "of the bound": of_the_bound,
                    "torch.distributed.pipelining": lambda row, _, peer, *__: (
                        f"{of.median_of(row, peer, 'tokens_per_second') / 1e3:.0f}"
                    ),
                    "ratio within a round": lambda *run: (
                        "{median:.2f} ({lowest:.2f} to {highest:.2f})".format(**run[-1])
                    ),
                    "peak GiB, ours / theirs": lambda row, *two: " / ".join(
                        of.held_text(row["programs"][name]) for name in two[:2]
                    ),
                    "ratio per joule": lambda *run: f"{run[-1]['per_joule']['median']:.2f}",
                },
                left=2,
            )
        )
        + tail(
            page,
            "gpu_pipeline",
            more=f"two {one['gpu']}, GPT-2 355M cut into 14 and 10 blocks, rows of 4, "
            f"{times_text(len(one['rounds']), 'round')}, commit {one['commit']}; the peer: stages compiled, "
            "fp32 parameters, bf16 autocast",
        )
        + "\n\nPer joule, by the GPUs' own counters, the lead is smaller: "
        f"{min(energies):.2f} to {max(energies):.2f} times the tokens. A GPU that waits for its host draws "
        "less power."
    )


FILL_OF = {"F": FORWARD, "B": BACKWARD, "I": BACKWARD, "W": BACKWARD, "s": OPTIMIZER}


@figure
def pipeline_overlay():
    """The median step of a paced run, action by action, above the same actions as simulated."""
    found = record("pipeline_pace")
    ranks, run = found["drawn"], found["schedules"]["1f1b"]["4"]
    measured, simulated = (run["rows"][name]["seconds"] for name in ("measured", "simulated"))
    end = max(measured, simulated)
    alt = (
        f"Timelines of {len(ranks)} stages: a run of {1e3 * measured:.0f} ms above its simulation of "
        f"{1e3 * simulated:.0f} ms; forwards and backwards lie above each other."
    )

    def lane(spans, simulated):
        return [
            (1e3 * times[0], 1e3 * times[1], FILL_OF[name[0]], "" if simulated or name[0] == "s" else name)
            for name, *both in spans
            for times in [both[2:] if simulated else both]
        ]

    rows = [
        row
        for s, spans in enumerate(ranks)
        for row in ((f"stage {s}", 24, lane(spans, False)), ("simulated", 12, lane(spans, True)))
    ]
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
        plots.key(figure, 116 + 52 * len(ranks), done(FORWARD, BACKWARD, OPTIMIZER), left=90)

    return plots.plot(
        134 + 52 * len(ranks),
        "One step of 1F1B on four real ranks, laid over the simulation",
        alt,
        "Upper bars: the median of 7 steps of a run on two cores with `--pace`. Lower bars: its simulation "
        "(pipeline_pace.json).",
        draw,
    )


@figure
def pipeline_in_flight():
    """Activations and workspace of each of four stages, by schedule, as measured."""
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
            plots.stacked(plotted, places, [(fill, megabytes)], lambda end, _: f"{end:.1f}", thick=0.2, gap=4)
        plotted.set(xticks=range(len(held)), xticklabels=list(held), xlim=(-0.6, len(held) - 0.4))
        plots.key(figure, 374, [(fill, f"stage {s}") for s, fill in enumerate(TINTS)])

    return plots.plot(
        392,
        "What each stage keeps for backward: bytes of activations and workspace",
        alt,
        "Measured, equal to the plan to the byte; 12 micro-batches of the default model "
        "(pipeline_order.json).",
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
        f"Simulated: four stages, {found['microbatches']} micro-batches, backward twice a forward "
        "(pipedream_alive.json).",
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
            places = [i + 0.2 * (k - 1.5) for i in range(len(names))]
            shares = [100 * row["utilization"] for row in rows[m]]
            plots.stacked(plotted, places, [(fill, shares)], lambda end, _: f"{end:.0f}", thick=0.2, gap=3)
        plotted.set(
            xticks=range(len(names)),
            xticklabels=[name.replace(", ", ",\n") for name in names],
            xlim=(-0.6, len(names) - 0.4),
            ylim=(0, 108),
            yticks=[0, 25, 50, 75, 100],
        )
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
    found = record("pipeline_pace")["schedules"]
    columns = {"measured / simulated, idle": lambda name, _: f"`{name}`"}
    for M in next(iter(found.values())):
        columns[f"M = {M}"] = lambda _, runs, M=M: (
            "{:.0f} / {:.0f} ms, {:.0f} %".format(
                *(1e3 * runs[M]["rows"][way]["seconds"] for way in ("measured", "paced")),
                100 * runs[M]["rows"]["measured"]["idle"],
            )
        )
    return (
        table_of(found.items(), columns)
        + f"\n\nFrom {source(page, 'pipeline_pace')} (two cores, 4 ranks, the median of 7 steps)."
    )
