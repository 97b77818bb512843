"""Drawings of lesson 06: pieces in the window during a step, and how many tokens hide a disk
(docs/results/lesson_06_*.json)."""
from . import plots
from .infinity_tables import by_formulas, efficiencies, median_of
from .lesson_tables import is_busy
from .palette import EDGE, OPTIMIZER, READING, WRITING, done
from .plans import workload
from .registry import figure, record, times_text

FILL_OF = {"read": READING, "AdamW": OPTIMIZER, "write": WRITING}
# Height of one buffer's row in pixels.
ROW = 30


def in_words(buffers, step):
    """The drawn step, and how long the table's run with as many buffers takes."""
    (run,) = (run for run in record("lesson_06_window")["runs"] if run["buffers"] == buffers)
    took = f"a step of {step['microseconds'] / 1e3:.0f} ms, where the median is {1e3 * median_of(run):.0f} ms"
    return f"{times_text(buffers, 'buffer')}: {took}"


@figure
def infinity_window():
    """What is in each buffer of the window during a step, with one and with three of them."""
    found = record("lesson_06_window")
    steps = {int(buffers): step for buffers, step in found["drawn"].items()}
    end = max(step["microseconds"] for step in steps.values()) / 1e3
    alt = (
        "Timelines. "
        + ". ".join(
            f"{in_words(buffers, step)}; forward has all parameters after {step['turn'] / 1e3:.0f} ms"
            for buffers, step in steps.items()
        )
        + "."
    )

    def draw(figure):
        top = 72
        for buffers, step in steps.items():
            high, whole, turn = 8 + ROW * buffers, step["microseconds"] / 1e3, step["turn"] / 1e3
            rows = [
                (
                    f"buffer {i}",
                    22,
                    [
                        (
                            max(begin, 0) / 1e3,
                            min(stop / 1e3, whole),
                            FILL_OF[what],
                            str(piece) if what != "AdamW" else "",
                        )
                        for buffer, what, piece, begin, stop in step["spans"]
                        if buffer == i
                    ],
                )
                for i in range(buffers)
            ]
            plots.words(figure, 16, top - 8, in_words(buffers, step), weight="bold")
            plotted = plots.axes(figure, top, high, left=96, right=24)
            plots.lanes(plotted, rows, end)
            plotted.axvline(turn, color=EDGE, linewidth=1, linestyle="--")
            at = plotted.transData.transform((turn, 0))[0]
            plots.words(figure, at, top - 8, "forward has all parameters", ha="center")
            top += high + 58
        plots.key(figure, top - 16, done(READING, OPTIMIZER, WRITING), left=96)

    return plots.plot(
        72 + sum(66 + ROW * buffers for buffers in steps),
        "One step through the window: reading, updating and writing pieces",
        alt,
        f"A number is a piece, of {next(iter(steps.values()))['pieces']} in all; a read or a write lasts "
        "from its request to its end (lesson_06_window.json, traced steps).",
        draw,
        f"measured, {found['disk_mbps']} MB/s"
        + (", on a busy machine" if is_busy("lesson_06_window") else ""),
    )


@figure
def infinity_efficiency():
    """Speed over that without a disk, by tokens of a step: two formulas, and what runs measured."""
    disk, forward, rows = efficiencies()
    found, work = record("lesson_06_tokens"), workload("four_blocks")
    tokens = [count for count, *_ in rows]

    def gpu_at(count):  # between measured ones: straight
        after = next(i for i in range(1, len(rows)) if count <= rows[i][0])
        (a, at_a, _), (b, at_b, _) = rows[after - 1], rows[after]
        return at_a + (at_b - at_a) * (count - a) / (b - a)

    fine = [tokens[0] * (tokens[-1] / tokens[0]) ** (i / 80) for i in range(80)] + [tokens[-1]]
    ends = [
        [f"{100 * both[kind][1]:.0f} %" for _, _, both in (rows[0], rows[-1])]
        for kind in ("exact", "delayed")
    ]
    worst = 100 * max(abs(a - b) for _, _, both in rows for a, b in both.values())
    alt = (
        f"Speed over the speed without a disk, from {tokens[0]} to {tokens[-1]} tokens per step: exact "
        f"updates rise from {' to '.join(ends[0])}, delayed ones from {' to '.join(ends[1])}; measured, at "
        f"most {worst:.0f} points from the formulas' lines."
    )

    def draw(figure):
        plotted = plots.axes(
            figure,
            72,
            240,
            right=110,
            names=("tokens per step", "of the speed without a disk"),
            log="x",
            forms=("{:g}", lambda value: f"{100 * value:.0f} %"),
        )
        lines = plots.lines_of(
            [
                (kind, [(count, by_formulas(gpu_at(count), disk, forward, work)[kind]) for count in fine])
                for kind in ("exact", "delayed")
            ]
        )
        plots.curves(plotted, lines, xticks=tokens, ylim=(0, 1.05), yticks=[i / 5 for i in range(6)])
        for kind, colour, *_ in lines:
            plotted.plot(tokens, [both[kind][1] for _, _, both in rows], "s", color=colour, markersize=7)

    return plots.plot(
        366,
        "How many tokens hide a disk",
        alt,
        f"One rank, {found['tokens_per_micro_batch']} tokens in a micro-batch, a disk of "
        f"{found['disk_mbps']} MB/s. Lines: the two formulas, with T_gpu of lesson 05 in the same session "
        "(lesson_06_tokens.json).",
        draw,
        f"T_disk = {1e3 * disk:.0f} ms, T_forward = {1e3 * forward:.1f} ms; lines: computed, squares: "
        "measured" + (", on a busy machine" if is_busy("lesson_06_tokens") else ""),
    )
