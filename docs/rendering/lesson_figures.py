"""Drawings of lessons 00 and 01."""
import math
import re

from .lesson_tables import bytes_text, file_text, load_text
from .plans import plan_of
from .palette import COMPUTE, GRADIENTS, LINES, OPTIMIZER, PARAMETERS, WAITING
from .registry import FIGURES, RENDERERS, RenderError, figure, has, record
from .svg import Drawing, Plot
from .workloads import FILES, command_of, workload

COMPUTED = "Computed, not measured"
NARROW = 70  # a column in which a number with its commas no longer fits


def shown_figure(page, name):
    """The figure with its alternative text, and a caption that names its record."""
    if name not in FIGURES:
        raise RenderError(f"nothing draws '{name}'; there are {', '.join(sorted(FIGURES))}")
    drawn = FIGURES[name]()
    if drawn is None:
        return ""
    return f"![{drawn.alt}]({page.link(f'docs/figures/{name}.svg')})\n\n*{drawn.caption}*"


RENDERERS["figure"] = shown_figure


def columns(drawing, units, top):
    """A column a unit: (left, width) of each, with its name on top."""
    left, width = 150, (800 - 150) / len(units)
    places = [(left + i * width, width) for i in range(len(units))]
    narrow = width < NARROW
    for i, (x, w) in enumerate(places):
        name = f"{i}" if narrow else f"unit {i}"
        what = "wte, wpe" if i == 0 else "ln_f" if i == len(units) - 1 else "" if narrow else f"block {i}"
        drawing.text(x + w / 2, top - 20, name, "mid")
        drawing.text(x + w / 2, top - 5, what, "small mid")
    if narrow:
        drawing.text(16, top - 20, "unit")
    return places


def elements_text(count, width):
    return f"{count:,}" if width >= NARROW or count < 1000 else f"{count / 1e3:.1f}k"


@figure
def one_device_step():
    """What a step does, in order, and which vectors it touches."""
    planned = plan_of("00_one_device", "tiny", 1)
    units, blocks, p = planned.units, planned.L, planned.P
    alt = (f"The model's parameters lie in {blocks + 2} units: the embeddings, {blocks} blocks, the last norm. Forward visits them from first to last "
           f"in steps 1 to {blocks + 2}; backward from last to first, writing each unit's gradient; the update then reads the gradient and rewrites "
           "momentum, variance and parameters. Each of the four vectors has one part a unit.")
    drawing = Drawing(438, "One training step: what is visited, and in which order", alt, "numbers: order in time")
    places = columns(drawing, units, 84)
    y = 92
    drawing.text(16, y + 24, "forward")
    for i, (x, w) in enumerate(places):
        label = f"{i + 1}" if w < NARROW or 0 < i < len(units) - 1 else f"{i + 1} embed" if i == 0 else f"{i + 1} head, loss"
        drawing.box(x + 3, y, w - 6, 38, COMPUTE, label, "in small")
    drawing.line(places[0][0], y + 46, places[-1][0] + places[-1][1], y + 46, "arrow", tip=True)
    y = 152
    drawing.text(16, y + 24, "backward")
    for i, (x, w) in enumerate(places):
        label = f"{len(units)} too" if i == len(units) - 1 and w >= NARROW else f"{len(units)}" if i == len(units) - 1 else f"{2 * len(units) - 1 - i}"
        drawing.box(x + 3, y, w - 6, 38, COMPUTE, label, "in small")
    drawing.line(places[-1][0] + places[-1][1], y + 46, places[0][0], y + 46, "arrow", tip=True)
    drawing.text(810, 116, "reads parameters,", "small")
    drawing.text(810, 130, "keeps activations", "small")
    drawing.text(810, 170, "reads both, writes", "small")
    drawing.text(810, 184, "gradients", "small")
    y = 222
    last = 2 * len(units)
    for name, fill, note in (("parameters", PARAMETERS, f"read; written in {last}"), ("gradients", GRADIENTS, "written by backward"),
                             ("momentum", OPTIMIZER, f"read, written in {last}"), ("variance", OPTIMIZER, f"read, written in {last}")):
        drawing.text(16, y + 18, name)
        for (x, w), size in zip(places, units):
            drawing.box(x + 1, y, w - 2, 28, fill, elements_text(size, w), "in small")
        drawing.text(810, y + 12, bytes_text(4 * p) + " = 4 P", "small")
        drawing.text(810, y + 25, note, "small")
        y += 40
    drawing.text(16, y + 18, f"{last}: AdamW goes through the units and writes momentum, variance and parameters from the gradients. Elements as stored: P = {p:,}.", "small")
    drawing.text(16, y + 34, f"The head uses unit 0's wte (tied), so wte's gradient is opened in {len(units)} and completed in {last - 1}.", "small")
    return drawing.done(f"{COMPUTED}: the layout of configs/tiny.json.")


def ring_states(ranks):
    """Which ranks' terms each rank holds of each piece: at the start, and after each of the 2 (N-1) steps."""
    held = [[{r} for _ in range(ranks)] for r in range(ranks)]
    states = [([[set(c) for c in row] for row in held], [])]
    for step in range(2 * (ranks - 1)):
        moves = []
        for r in range(ranks):
            piece = (r - step) % ranks if step < ranks - 1 else (r + 1 - (step - ranks + 1)) % ranks
            moves.append((r, (r + 1) % ranks, piece, set(held[r][piece])))
        for _, to, piece, terms in moves:
            held[to][piece] = held[to][piece] | terms if step < ranks - 1 else terms
        states.append(([[set(c) for c in row] for row in held], moves))
    return states


def summed(count, ranks):
    """The colour of gradients, the fuller the more ranks are in the sum."""
    part = count / ranks
    return "#" + "".join(f"{round(255 + part * (int(GRADIENTS[i:i + 2], 16) - 255)):02x}" for i in (1, 3, 5))


@figure
def ring_all_reduce():
    ranks = 4
    states = ring_states(ranks)
    if any(len(cell) != ranks for row in states[-1][0] for cell in row):
        raise RenderError("the ring does not end with every sum on every rank")
    alt = (f"A ring all-reduce of {ranks} ranks. Each rank's vector is cut into {ranks} pieces. In {ranks - 1} steps every rank passes one piece on and adds "
           f"what it receives: then each rank holds one complete piece. In {ranks - 1} more steps the complete pieces go round, and every rank has them all.")
    drawing = Drawing(356, f"Ring all-reduce, {ranks} ranks: reduce-scatter, then all-gather", alt, "number: ranks summed in that piece; outlined: just arrived")
    panel, cell = 132, 25
    for i, (state, moves) in enumerate(states):
        x0 = 16 + i * panel
        name = "start" if i == 0 else f"step {i}"
        drawing.text(x0 + 2 * cell, 68, name, "mid")
        arrived = {(to, piece) for _, to, piece, _ in moves}
        for piece in range(ranks):
            drawing.text(x0 + piece * cell + cell / 2, 88, "abcd"[piece], "small mid")
        for r in range(ranks):
            y = 96 + r * 34
            for piece in range(ranks):
                count = len(state[r][piece])
                fill = summed(count, ranks)
                drawing.box(x0 + piece * cell, y, cell, cell, fill, str(count), "in small")
                if (r, piece) in arrived:
                    drawing.box(x0 + piece * cell + 2, y + 2, cell - 4, cell - 4, "none", kind_of_box="got")
    for r in range(ranks):
        drawing.text(16 + 4 * cell + 4, 96 + r * 34 + 17, f"r{r}", "small")
    y = 96 + ranks * 34 + 14
    first, last = 16 + panel, 16 + ranks * panel - 34
    drawing.line(first, y, last, y, "arrow", tip=True)
    drawing.text((first + last) / 2, y + 18, f"reduce-scatter: {ranks - 1} steps, a piece each", "small mid")
    first, last = 16 + ranks * panel, 16 + (2 * ranks - 1) * panel - 34
    drawing.line(first, y, last, y, "arrow", tip=True)
    drawing.text((first + last) / 2, y + 18, f"all-gather: {ranks - 1} steps, a piece each", "small mid")
    drawing.text(16, y + 50, f"Per step each rank sends one piece of 1/{ranks} to its right neighbour (the next row; the last sends to the first): {2 * (ranks - 1)} pieces in all, which is", "small")
    drawing.text(16, y + 66, f"2 (N-1)/N = {2 * (ranks - 1)}/{ranks} = {2 * (ranks - 1) / ranks:g} times the vector, and less than twice it for any number of ranks.", "small")
    return drawing.done(f"{COMPUTED}: the steps are played by docs/render.py, which checks that every rank ends with every sum.")


def lanes_of(spans):
    """Spans with the first lane that is free; operations that are under way at once stand below each other."""
    lanes, found = [], []
    for span in sorted(spans, key=lambda s: s[2]):
        lane = next((i for i, ends in enumerate(lanes) if ends <= span[2]), len(lanes))
        lanes[lane:lane + 1] = [span[3]]
        found.append((lane, span))
    return found, max(1, len(lanes))


def draw_spans(drawing, run, top, begin, end, name):
    """Three rows of one step's tail: compute, communication, waiting."""
    left, width = 130, 806
    scale = width / (end - begin)
    rows = {"compute": (top, 26, COMPUTE), "communication": (top + 34, 58, GRADIENTS), "waiting": (top + 34 * 3, 26, WAITING)}
    drawing.text(16, top - 10, name)
    for row, (y, height, fill) in rows.items():
        drawing.text(16, y + height / 2 + 5, row, "small")
        inside = [[s[0], s[1], max(s[2], begin), min(s[3], end)] for s in run["spans"] if s[0] == row and min(s[3], end) > max(s[2], begin)]
        placed, lanes = lanes_of(inside) if row == "communication" else ([(0, s) for s in inside], 1)
        for lane, (_, what, first, last) in placed:
            x, wide, high = left + (first - begin) * scale, max((last - first) * scale, 0.8), height / lanes
            label = what.replace("all_reduce of ", "").split(" ")[0] if row == "communication" else ""
            drawing.box(x, y + lane * high, wide, high - 1, fill, label if wide > 8 * len(label) and high > 12 else "", "in small")
    return left, scale


def traced(run):
    """Which of FILES was traced, by the elements of a block."""
    for name in FILES:
        block = f" of {plan_of('04_zero3', name, 2).block:,} "
        if any(block in what for _, what, *_ in run["spans"]):
            return name
    raise RenderError(f"{run['command']}: its trace is of none of {', '.join(FILES.values())}")


def took(run, row, kind=""):
    """Milliseconds in one row of a traced step, of operations of a kind."""
    return sum(end - begin for of, name, begin, end in run["spans"] if of == row and name.startswith(kind)) / 1e3


def steps_text(run):
    """How long the steps were of which one is drawn, and how much of that they waited."""
    def spread(key, form):
        return "{median:{form}} ms, {lowest:{form}} to {highest:{form}}".format(form=form, **{name: us / 1e3 for name, us in run[key].items()})
    return f"a usual one of {run['runs']} runs, whose steps take {spread('steps_microseconds', '.0f')}, and wait {spread('waited_microseconds', '.1f')}"


@figure
def overlap_trace():
    if not has("lesson_01_trace"):
        return None
    found = record("lesson_01_trace")
    on, off = found["overlap"]["on"], found["overlap"]["off"]
    shown = 1.05 * max(run["microseconds"] - min(s[2] for s in run["spans"] if s[0] == "communication") for run in (on, off))
    alt = ("Rank 0's last part of a step, from two real traces. With overlap the all-reduces of the blocks run while backward still computes, and little "
           "waiting is left at its end. Without overlap all of them start when backward has ended, and the rank waits for them one after another.")
    drawing = Drawing(430, "A step's end on rank 0: what travels while backward computes", alt, "measured; numbers: elements of a bucket")
    tick = 10 ** math.floor(math.log10(shown / 4)) * (1 if shown / 10 ** math.floor(math.log10(shown / 4)) < 8 else 2)
    for top, name, run in ((76, "overlap=on", on), (254, "overlap=off", off)):
        begin = run["microseconds"] - shown
        left, scale = draw_spans(drawing, run, top, begin, run["microseconds"], f"{name}: step of {run['microseconds'] / 1e3:.1f} ms, the last {shown / 1e3:.1f} ms")
        for i in range(int(shown / tick) + 1):
            x = left + (shown - i * tick) * scale
            drawing.line(x, top - 4, x, top + 132)
            drawing.text(x, top + 146, f"-{i * tick / 1e3:g} ms" if i else "end", "small mid")
    return drawing.done(f"Record docs/results/lesson_01_trace.json, rank 0 of 2, `{command_of(on['command'], traced(on))}`, and with `overlap=off`; {load_text('lesson_01_trace')}. With overlap: step {on['step']}, {steps_text(on)}. Without: step {off['step']}, {steps_text(off)}. "
                        "An operation lasts until the other rank has come, too, so that a bucket of few elements may be drawn long.")


def workload_file(run):
    return re.search(r"--workload (\S+)", run["command"])[1]


@figure
def gpu_trace():
    if not has("gpu_trace"):
        return None
    found = record("gpu_trace")
    run = found["lessons"]["01_data_parallel"]
    sent, waited, whole = took(run, "communication"), took(run, "waiting"), run["microseconds"]
    alt = (f"Rank 0 of {found['world']} GPUs in one step of {whole / 1e3:.1f} ms: the buckets are all-reduced while backward computes, for {sent:.1f} ms together; "
           f"the compute stream waits for {waited:.2f} ms of them, at the end.")
    drawing = Drawing(252, f"A step on {found['world']} GPUs: {sent:.1f} ms of all-reduces, {waited:.2f} ms of waiting", alt, "measured by events")
    left, scale = draw_spans(drawing, run, 76, 0, whole, f"step of {whole / 1e3:.1f} ms")
    for i in range(6):
        x = left + whole * i / 5 * scale
        drawing.line(x, 72, x, 208)
        drawing.text(x, 222, f"{whole * i / 5e3:.1f} ms", "small mid" if i < 5 else "small end")
    return drawing.done(f"Record docs/results/gpu_trace.json: rank 0, step {found['step']}, {found['versions'].get('GPU', 'GPU')}, {workload_file(run)}.")


def smooth(values, window):
    return [sum(values[max(0, i - window + 1):i + 1]) / len(values[max(0, i - window + 1):i + 1]) for i in range(len(values))]


@figure
def learning_rate_scaling():
    if not has("lesson_01_lr"):
        return None
    found = record("lesson_01_lr")
    named = "; ".join(f"{run['name']}: {run['validation_loss']:.2f}" for run in found["runs"])
    alt = f"Loss over tokens of {len(found['runs'])} runs that see the same tokens in steps of 12 or 48 rows. Validation loss at the end: {named}."
    drawing = Drawing(440, "The same tokens in steps four times as large", alt, "measured; mean over 6,144 tokens")
    most = max(run["rows"] * run["steps"] for run in found["runs"]) * found["tokens_a_row"]
    curves = []
    for run in found["runs"]:
        window = 48 // run["rows"]
        curves.append([((i + 1) * run["rows"] * found["tokens_a_row"], loss) for i, loss in enumerate(smooth(run["loss"], window))][window - 1::window])
    low = math.floor(10 * min(y for c in curves for _, y in c)) / 10
    plot = Plot(drawing, 70, 70, 860, 260, (0, most), (low, 4.2))
    plot.axes([(most * i / 5, f"{most * i / 5:,.0f}") for i in range(6)], [(low + i * (4.2 - low) / 4, f"{low + i * (4.2 - low) / 4:.2f}") for i in range(5)],
              "tokens trained on", f"loss, nats a token (the curves start at {found['runs'][0]['loss'][0]:.1f}, above the plot)")
    for i, (run, points) in enumerate(zip(found["runs"], curves)):
        inside = [(a, b) for a, b in points if b <= 4.2]
        plot.curve(inside, LINES[i], dashed=run["warmup_steps"] == 0)
        x, y = 70 + 290 * (i % 3), 396 + 22 * (i // 3)
        drawing.polyline([(x, y), (x + 24, y)], LINES[i], run["warmup_steps"] == 0)
        drawing.text(x + 30, y + 4, run["name"], "small")
    return drawing.done(f"Record docs/results/lesson_01_lr.json, {file_text(found['runs'][0])}.")


@figure
def precision_curves():
    if not has("gpu_precision_124m"):
        return None
    found = record("gpu_precision_124m")
    runs, window = found["runs"], found["window"]
    alt = (f"Loss of GPT-2 124M over {window * len(runs[0]['loss'])} steps in {len(runs)} precisions. The curves lie on each other: "
           f"at most {100 * max(r['largest_difference'] for r in runs):.2f} % from the first's, as means of {window} steps.")
    drawing = Drawing(400, "GPT-2 124M in four precisions: one curve", alt, f"measured; mean of {window} steps")
    steps = [window * (i + 1) for i in range(len(runs[0]["loss"]))]
    low, high = math.floor(min(min(r["loss"]) for r in runs)), math.ceil(max(max(r["loss"]) for r in runs))
    plot = Plot(drawing, 70, 70, 860, 250, (0, steps[-1]), (low, high))
    plot.axes([(steps[-1] * i / 6, f"{steps[-1] * i / 6:.0f}") for i in range(7)], [(v, str(v)) for v in range(low, high + 1)], "step", "loss, nats a token")
    x = 70
    for i, run in enumerate(runs):
        plot.curve(list(zip(steps, run["loss"])), LINES[i], dashed=i > 0)
        drawing.polyline([(x, 382), (x + 24, 382)], LINES[i], i > 0)
        name = f"{run['precision'].replace(', gradients same', '')}: {run['tokens_per_second'] / 1e3:.0f}k tok/s"
        drawing.text(x + 30, 386, name, "small")
        x += 60 + 6.6 * len(name)
    return drawing.done(f"Record docs/results/gpu_precision_124m.json: {found['versions']['GPU']}, the same workload and tokens; only the dtypes differ.")
