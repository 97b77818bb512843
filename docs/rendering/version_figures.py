"""Drawings of lesson 08: which weights each computation of a paced run read, and losses by rule
(docs/results/lesson_08*.json)."""
import re

from . import plots
from .lesson_figures import smooth
from .palette import FILLS, INSIDE, LINES
from .registry import figure, record
from .svg import WIDTH
from .version_tables import NAMES, ONCE, RULES, losses, rate_text

NAMED = {
    "none": "none",
    "stash": "stash",
    "vertical_sync": "vertical_sync",
    "two_buffers": "two_buffers",
    ONCE: "stash, every 12",
    "1f1b": "1F1B = lesson 00",
    "small_steps": "lesson 00, one row",
}  # of runs in lesson_08_losses.json
TWIN = {
    "none": "small_steps",
    "stash": "small_steps",
    "vertical_sync": "small_steps",
    "two_buffers": "1f1b",
}  # a run without staleness
# The colour of each rule's line, as a number in LINES.
OVER_TIME = {"1f1b": 4, "stash": 1, ONCE: 5, "two_buffers": 3}
# A drawn loss is the mean of so many steps.
WINDOW = 10


def step_seconds():
    """How long the steps of each run take on four stages, paced."""
    found = record("lesson_08")
    return {
        "1f1b": found["flush"]["rows"]["measured"]["seconds"],
        **{rule: found["rules"][rule]["rows"]["measured"]["seconds"] for rule in NAMES},
    }


def version_of(name):
    """(kind, micro-batch, version) of "F24@21"; of "step@22" the version that it makes."""
    kind, microbatch, version = re.fullmatch(r"(F|B|step)(\d*)(?:@(\d+))?", name).groups()
    return kind, int(microbatch or -1), int(version or 0)


@figure
def versions_run():
    """Two steps of a paced run, every computation in the colour of the weights that it read."""
    drawn = record("lesson_08")["drawn"]
    ranks = [[(*version_of(name), begin, end) for name, begin, end, *_ in spans] for spans in drawn["ranks"]]
    end = max(stop for spans in ranks for *_, stop in spans)
    oldest = min(version for spans in ranks for kind, _, version, *_ in spans if kind != "step")
    m = min(k for kind, k, *_ in ranks[0] if kind == "F")
    read = ", ".join(
        f"stage {s} version {next(v for kind, k, v, *_ in spans if (kind, k) == ('F', m))}"
        for s, spans in enumerate(ranks)
    )
    alt = (
        f"Timelines of {len(ranks)} stages without a gap. A backward has the colour of its forward's "
        f"version. The forward of micro-batch {m} reads, on {read}."
    )
    rows = [
        (
            f"stage {s}",
            42,
            [
                (
                    1e3 * begin,
                    1e3 * stop,
                    FILLS[(version - oldest) % len(FILLS)],
                    "" if kind == "step" else f"{kind}{microbatch}\nv{version}",
                )
                for kind, microbatch, version, begin, stop in spans
            ],
        )
        for s, spans in enumerate(ranks)
    ]

    def draw(figure):
        plots.lanes(plots.axes(figure, 44, 50 * len(ranks) + 8, left=76, right=24), rows, 1e3 * end)
        plots.words(
            figure,
            76,
            96 + 50 * len(ranks),
            "F, B: forward and backward of a micro-batch; v and the colour: the version that it reads.",
        )
        plots.words(
            figure,
            76,
            114 + 50 * len(ranks),
            "Without a name: an update, in the colour of the version that it makes.",
        )

    return plots.plot(
        130 + 50 * len(ranks),
        "Weight stashing on four real ranks: which version of its weights each computation reads",
        alt,
        f"Two steps of {drawn['microbatches']} micro-batches with versions=stash on two cores, with "
        "`--pace` (lesson_08.json).",
        draw,
        "measured",
    )


def versions_read(rule, microbatch, stage, stages, every):
    """What forward and backward read: the formulas of the page, which tests compare with the lists."""
    newest = max(0, microbatch - (stages - 1 - stage))
    return {
        "none": (newest, microbatch),
        "stash": (newest, newest),
        "vertical_sync": (max(0, microbatch - (stages - 1)),) * 2,
        "two_buffers": (max(0, microbatch // every - 1),) * 2,
    }[rule]


@figure
def versions_rules():
    """The four rules side by side: the version that forward and backward of each micro-batch read on each
    stage."""
    stages, every, shown = 4, 4, range(4, 16)
    cell, high, top = 33, 19, 84
    read = {
        rule: [[versions_read(rule, k, s, stages, every) for k in shown] for s in range(stages)]
        for rule in RULES
    }
    oldest = min(version for rows in read.values() for row in rows for pair in row for version in pair)
    alt = (
        "Four grids of stages by micro-batches, each cell with the version that forward reads above the one "
        "that backward reads. "
        + "Micro-batch 12 on stage 0: "
        + ", ".join(f"{rule} {rows[0][8][0]} and {rows[0][8][1]}" for rule, rows in read.items())
        + "."
    )

    def draw(figure):
        for i, rule in enumerate(RULES):
            left, begin = 84 + 448 * (i % 2), top + 250 * (i // 2)
            plots.words(figure, left, begin - 26, rule, weight="bold")
            plots.words(
                figure,
                left,
                begin - 8,
                "an update every 4 micro-batches"
                if rule == "two_buffers"
                else "an update after every micro-batch",
            )
            grid = plots.axes(
                figure, begin, stages * (2 * high + 8), left=left, right=WIDTH - left - cell * len(shown)
            )
            grid.grid(False)
            grid.set(
                xlim=(0, len(shown)),
                ylim=(stages * (2 * high + 8), 0),
                yticks=[],
                xticks=[j + 0.5 for j in range(len(shown))],
                xticklabels=[str(k) for k in shown],
            )
            for s, row in enumerate(read[rule]):
                y = s * (2 * high + 8)
                for j, pair in enumerate(row):
                    for half, version in enumerate(pair):
                        grid.barh(
                            y + half * high,
                            1,
                            high,
                            j,
                            align="edge",
                            color=FILLS[(version - oldest) % len(FILLS)],
                            gid="bar",
                        )
                        grid.text(
                            j + 0.5,
                            y + half * high + high / 2,
                            str(version),
                            color=INSIDE,
                            ha="center",
                            va="center_baseline",
                        )
                if i % 2 == 0:
                    plots.words(figure, left - 8, begin + y + high + 4, f"stage {s}", ha="right")
        plots.words(
            figure,
            16,
            top + 250 * 2 - 10,
            "Below: micro-batches. In a cell: the version that forward reads, and under it the one that "
            "backward reads. Colours repeat after eight versions.",
        )

    return plots.plot(
        top + 250 * 2 + 6,
        "Which version of the weights a micro-batch meets, by rule",
        alt,
        "Computed from the formulas below, for four stages; tests compare them with the lists that ranks "
        "execute.",
        draw,
        "computed",
    )


@figure
def versions_losses():
    """Loss over micro-batches at one learning rate; over a paced run's time, each at the better of two."""
    found, seconds = losses(), step_seconds()
    low_rate = min(found["rates"], key=float)

    def means(name, rate):
        return smooth(found["rates"][rate][name]["loss"], WINDOW)[WINDOW - 1 :]

    def apart(name):
        pairs = zip(means(name, low_rate), means(TWIN[name], low_rate))
        return [(found["micro_batches"] * (i + WINDOW), loss - twin) for i, (loss, twin) in enumerate(pairs)]

    rates = found["rates"]
    best = {
        name: min(rates, key=lambda rate, name=name: rates[rate][name]["validation_loss"])
        for name in NAMED
        if name in seconds
    }
    alt = (
        "Two plots of the loss, over micro-batches and over time. Validation losses at learning rate "
        f"{rate_text(low_rate)}: "
        + ", ".join(
            f"{name} {found['rates'][low_rate][run]['validation_loss']:.2f}" for run, name in NAMED.items()
        )
        + "."
    )

    def draw(figure):
        one = plots.axes(
            figure,
            76,
            230,
            right=610,
            names=(
                "micro-batches",
                f"loss above that of the twin, nats; learning rate {rate_text(low_rate)}",
            ),
        )
        plots.curves(one, plots.lines_of([(name, apart(name)) for name in TWIN]))
        two = plots.axes(
            figure,
            76,
            230,
            left=520,
            right=180,
            names=(
                "seconds",
                f"loss, nats; each at the better of {' and '.join(map(rate_text, found['rates']))}",
            ),
            log="x",
            forms=("{:g}", ""),
        )
        plots.curves(
            two,
            [
                (
                    f"{NAMED[name]}: {rate_text(best[name])}",
                    LINES[colour],
                    [(seconds[name] * (i + WINDOW), loss) for i, loss in enumerate(means(name, best[name]))],
                )
                for name, colour in OVER_TIME.items()
            ],
            xticks=[30, 100, 300],
            ylim=(2.3, 3.6),
        )

    return plots.plot(
        360,
        "Weight versions: what staleness costs, and what the time saved buys",
        alt,
        f"{found['steps']} steps of {found['micro_batches']} micro-batches of configs/tiny_untied.json "
        "(lesson_08_losses.json). A twin: lesson 00 with as many updates. Seconds: with `--pace` "
        "(lesson_08.json).",
        draw,
        f"measured; means of {WINDOW} steps",
    )
