"""Drawings of lesson 06: pieces in the window during a step, and how many tokens hide a disk (docs/results/lesson_06_*.json)."""
import math

from .infinity_tables import by_formulas, efficiencies
from .lesson_tables import is_busy
from .palette import COMPUTE, FILLS, LINES, OPTIMIZER
from .registry import figure, has, record
from .svg import Drawing, Plot
from .version_figures import label_ends

FILL_OF = {"read": FILLS[4], "AdamW": OPTIMIZER, "write": FILLS[6]}
ROW = 30  # points of a buffer's


def in_words(buffers, step):
    return f"{buffers} {'buffer' if buffers == 1 else 'buffers'}: a step of {step['microseconds'] / 1e3:.0f} ms"


@figure
def infinity_window():
    """What is in each buffer of the window during a step, with one and with three of them."""
    if not has("lesson_06_window"):
        return None
    found = record("lesson_06_window")
    steps = {int(buffers): step for buffers, step in found["drawn"].items()}
    end = max(step["microseconds"] for step in steps.values())
    left, right, high = 96, 940, [64 + ROW * buffers for buffers in steps]
    drawing = Drawing(
        112 + sum(high),
        "One step through the window: reading, updating and writing pieces",
        "Timelines. "
        + ". ".join(f"{in_words(buffers, step)}; forward has all parameters after {step['turn'] / 1e3:.0f} ms" for buffers, step in steps.items())
        + ". With one buffer each piece is read, updated and written before the next is read. With three the disk is never idle while pieces are updated.",
        f"measured, {found['disk_mbps']} MB/s" + (", on a busy machine" if is_busy("lesson_06_window") else ""),
    )

    def x(microseconds):
        return left + (right - left) * min(max(microseconds, 0), end) / end

    top = 50
    for tick in range(0, int(end / 1e3) + 1, 10):
        drawing.line(x(1e3 * tick), 62, x(1e3 * tick), top + sum(high))
        drawing.text(x(1e3 * tick), top + sum(high) + 16, f"{tick} ms", "small mid")
    for (buffers, step), height in zip(steps.items(), high):
        drawing.text(16, top + 8, in_words(buffers, step))
        y = top + 18
        drawing.text(left - 8, y + 17, "device", "small end")
        drawing.box(left, y, x(step["turn"]) - left, 24, COMPUTE, "forward, as parameters come", "in small")
        drawing.box(x(step["turn"]), y, x(step["microseconds"]) - x(step["turn"]), 24, COMPUTE, "head, backward", "in small")
        for buffer in range(buffers):
            drawing.text(left - 8, y + ROW * (buffer + 1) + 17, f"buffer {buffer}", "small end")
        for buffer, what, piece, begin, stop in step["spans"]:
            stop = min(stop, step["microseconds"])
            width = x(stop) - x(begin)
            drawing.box(x(begin), y + ROW * (buffer + 1), max(0.8, width), 24, FILL_OF[what], str(piece) if what != "AdamW" and width > 14 else "", "in small")
        top += height
    drawing.legend(left, top + 44, [(FILL_OF["read"], "reading"), (OPTIMIZER, "AdamW"), (FILL_OF["write"], "writing")])
    return drawing.done(f"A number is a piece, of {next(iter(steps.values()))['pieces']} in all; a read or a write lasts from its request to its end (lesson_06_window.json, traced steps).")


@figure
def infinity_efficiency():
    """Speed over that without a disk, by tokens of a step: two formulas, and what runs measured."""
    if not has("lesson_06_tokens"):
        return None
    disk, forward, rows = efficiencies()
    found = record("lesson_06_tokens")
    tokens = [count for count, *_ in rows]

    def gpu_at(count):  # between measured ones: straight
        after = next(i for i in range(1, len(rows)) if count <= rows[i][0])
        (a, at_a, _), (b, at_b, _) = rows[after - 1], rows[after]
        return at_a + (at_b - at_a) * (count - a) / (b - a)

    fine = [tokens[0] * (tokens[-1] / tokens[0]) ** (i / 80) for i in range(80)] + [tokens[-1]]
    alt = "Speed over the speed without a disk, by tokens per step: by the formula, and measured. " + " ".join(
        f"{kind.capitalize()}: " + ", ".join(f"{count} tokens {100 * both[kind][0]:.0f} and {100 * both[kind][1]:.0f} %" for count, _, both in rows) + "." for kind in ("exact", "delayed")
    )
    drawing = Drawing(
        372, "How many tokens hide a disk", alt, f"T_disk = {1e3 * disk:.0f} ms, T_forward = {1e3 * forward:.1f} ms; squares: measured" + (", on a busy machine" if is_busy("lesson_06_tokens") else "")
    )
    plot = Plot(drawing, 64, 70, 740, 240, (tokens[0], tokens[-1]), (0, 1.05), x_map=math.log2)
    plot.axes([(count, f"{count}") for count in tokens], [(i / 5, f"{20 * i} %") for i in range(6)], "tokens per step", "of the speed without a disk")
    ends = []
    for kind, colour in (("exact", LINES[0]), ("delayed", LINES[1])):
        points = [(count, by_formulas(gpu_at(count), disk, forward)[kind]) for count in fine]
        plot.curve(points, colour)
        for count, _, both in rows:
            drawing.box(plot.x(count) - 4, plot.y(both[kind][1]) - 4, 8, 8, colour)
        ends.append((plot.y(points[-1][1]), colour, False, kind))
    label_ends(drawing, plot.left + plot.width + 8, ends, plot.top)
    return drawing.done(
        f"One rank, {found['tokens_per_micro_batch']} tokens in a micro-batch, a disk of {found['disk_mbps']} MB/s. Lines: the two formulas, with T_gpu of lesson 05 in the same session (lesson_06_tokens.json)."
    )
