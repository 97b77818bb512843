"""Drawings of lessons 02 to 04: who holds what, bytes by purpose side by side, what travels when."""
from .lesson_figures import COMPUTED, lanes_of, steps_text, took, traced
from .lesson_tables import bytes_text, is_busy, load_text
from .plans import plan_of
from .registry import RenderError, figure, has, record
from .svg import FILLS, LINES, Drawing, Plot
from .workloads import command_of, workload, workload_of
from .zero_tables import LESSONS, states_of

RANKS = 4
PARAMETERS, GRADIENTS, OPTIMIZER, REST, PLAIN, MOMENT = FILLS[0], FILLS[1], FILLS[2], FILLS[7], "none", FILLS[6]


def unit_row(drawing, x, y, units, fill, kept):
    """One vector of one rank: its units, each cut into RANKS slices; filled are those for which kept(unit, slice)."""
    wide = 190 / units
    for unit in range(units):
        for piece in range(RANKS):
            has_it = kept(unit, piece)
            drawing.box(x + unit * wide + piece * (wide - 4) / RANKS, y, (wide - 4) / RANKS, 22, fill if has_it else PLAIN, kind_of_box="box" if has_it else "bare")


def holds(lesson, whole, moment, title, note):
    """A column a rank; `whole`: vectors kept in full; `moment`: by vector, how many blocks are whole for a moment beside units 0 and L + 1."""
    planned = plan_of("04_zero3", "tiny", 2)
    layers, units = planned.L, len(planned.units)
    names = (("parameters", PARAMETERS), ("gradients", GRADIENTS), ("momentum", OPTIMIZER), ("variance", OPTIMIZER))
    kept = ", ".join(name for name, _ in names if name in whole) or "nothing"
    alt = (f"{RANKS} ranks in {LESSONS[lesson]}. Whole on every rank: {kept}. Of the other vectors a rank keeps its slice of every unit, one of {RANKS}."
           + (f" Whole for a moment: {'; '.join(f'{name}: units 0 and {units - 1}, and {blocks} blocks' for name, blocks in moment.items())}." if moment else ""))
    drawing = Drawing(122 + 34 * 4 + 30 * len(moment), title, alt, f"{units} units (not to scale), {RANKS} slices each; filled: held")
    for rank in range(RANKS):
        drawing.text(130 + rank * 206 + 95, 62, f"rank {rank}", "mid")
    y = 86
    for name, fill in names:
        drawing.text(16, y + 16, name)
        for rank in range(RANKS):
            x = 130 + rank * 206
            unit_row(drawing, x, y, units, fill, lambda unit, piece, mine=rank, all_of_it=name in whole: all_of_it or piece == mine)
            if name == "parameters":
                for unit in range(units) if units < 10 else (0, units - 1):
                    drawing.text(x + (unit + 0.5) * 190 / units - 2, y - 4, str(unit), "small mid")
            if name in moment:
                unit_row(drawing, x, y + 30, units, MOMENT, lambda unit, piece, blocks=moment[name]: unit == 0 or unit > layers - blocks)
        if name in moment:
            drawing.text(16, y + 46, "for a moment", "small")
        y += 64 if name in moment else 34
    drawing.text(16, y + 20, note, "small")
    return drawing.done(f"{COMPUTED}: the layout of configs/tiny.json on {RANKS} ranks.")


@figure
def zero1_holds():
    return holds("02_zero1", ("parameters", "gradients"), {}, "ZeRO-1: the optimizer's state is cut, everything else is whole",
                 "Gradients go to the slice's owner (reduce-scatter), updated parameters come back from it (all-gather).")


@figure
def zero2_holds():
    return holds("03_zero2", ("parameters",), {"gradients": 2}, "ZeRO-2: gradients are cut too",
                 "Full gradients live in four buffers: unit 0, two blocks in turn, the last unit; with several micro-batches a slice of each comes on top (scratch).")


@figure
def zero3_holds():
    planned = plan_of("04_zero3", "tiny", 2)
    pool = planned.pool()
    return holds("04_zero3", (), {"parameters": pool, "gradients": 2},
                 "ZeRO-3: parameters are cut too", f"Gathered parameters live in {2 + pool} buffers: unit 0, the last unit, and a pool of prefetch + 1 = {pool} for "
                 f"all {planned.L} blocks.")


def bars(drawing, x, base, height, parts, most, label):
    """Stacked from below: (fill, bytes)."""
    y = base
    for fill, count in parts:
        high = height * count / most
        y -= high
        drawing.box(x, y, 74, high, fill)
    drawing.text(x + 37, y - 6, bytes_text(sum(count for _, count in parts)), "small mid")
    drawing.text(x + 37, base + 16, label, "small mid")


def parts_of(bytes_):
    got = bytes_.get
    return ((PARAMETERS, got("parameters", 0)), (GRADIENTS, got("gradients", 0)), (OPTIMIZER, got("master", 0) + got("momentum", 0) + got("variance", 0)),
            (FILLS[3], got("communication", 0)), (REST, got("activations", 0) + got("workspace", 0)))


def panels_of(lessons):
    """(title, bytes of each lesson): the small model as measured, GPT-2 1.5B as planned."""
    order, plans = record("zero_order")["lessons"], record("zero_plans")["models"]["gpt2_1558m"]
    small = workload_of(order["01_data_parallel"]["2"])
    return ([(f"{small}, N = {n}: measured", {lesson: order[lesson][n]["bytes"] for lesson in lessons}) for n in ("2", "4")]
            + [(f"GPT-2 1.5B, N = {n}: planned", {lesson: plans[lesson][n]["bytes"] for lesson in lessons}) for n in ("2", "4")])


def bytes_of(lessons, title, across):
    """A panel a model and N, `across` of them beside each other; panels of one model have one scale."""
    if not (has("zero_order") and has("zero_plans")):
        return None
    panels = panels_of(lessons)
    totals = "; ".join(f"{name}: " + ", ".join(f"{LESSONS[lesson]} {bytes_text(bytes_['total'])}" for lesson, bytes_ in one.items()) for name, one in panels)
    rests = [[dict(parts_of(bytes_))[REST] for bytes_ in one.values()] for _, one in panels]
    apart = max(max(rest) - min(rest) for rest in rests)
    same = f"the same for all but for {apart} bytes at most" if apart else "the same for all"
    alt = f"Bytes of a rank by purpose under {'four' if len(lessons) == 4 else 'two'} strategies. {totals}. Activations and workspace are {same}."
    down, wide = len(panels) // across, 400 // (across // 2)
    small, large = (workload(name)["model"]["layers"] for name in (workload_of(record("zero_order")["lessons"]["01_data_parallel"]["2"]), "gpt2_1558m"))
    drawing = Drawing(80 + 290 * down, title, alt, f"{'left' if across == 4 else 'above'}: a model of {small} blocks; {'right' if across == 4 else 'below'}: one of {large}")
    for i, (name, one) in enumerate(panels):
        x, base = 50 + 920 // across * (i % across), 300 + 290 * (i // across)
        most = max(sum(count for _, count in parts_of(bytes_)) for _, group in panels[2 * (i // 2):2 * (i // 2) + 2] for bytes_ in group.values())
        drawing.text(x, base - 222, name)
        drawing.line(x, base, x + wide, base)
        for j, (lesson, bytes_) in enumerate(one.items()):
            bars(drawing, x + 12 + 98 * j, base, 190, parts_of(bytes_), most, LESSONS[lesson])
    drawing.legend(50, 64 + 290 * down, ((PARAMETERS, "parameters"), (GRADIENTS, "gradients"), (OPTIMIZER, "master, momentum, variance"), (FILLS[3], "communication"),
                                         (REST, "activations, workspace")))
    return drawing.done("Records docs/results/zero_order.json (20 steps, measured) and docs/results/zero_plans.json (`--plan`, 8 or 16 rows a micro-batch, no run).")


@figure
def zero_bytes():
    return bytes_of(tuple(LESSONS), "Bytes of a rank, lessons 01 to 04", 2)


@figure
def zero1_bytes():
    return bytes_of(("01_data_parallel", "02_zero1"), "Bytes of a rank before and after: data parallelism, ZeRO-1", 4)


@figure
def zero2_bytes():
    return bytes_of(("02_zero1", "03_zero2"), "Bytes of a rank before and after: ZeRO-1, ZeRO-2", 4)


@figure
def zero_states_over_ranks():
    """States of GPT-2 1.5B over N."""
    if not has("zero_plans"):
        return None
    plans = record("zero_plans")["models"]["gpt2_1558m"]
    at = {lesson: {n: states_of(plan) for n, plan in one.items()} for lesson, one in plans.items()}
    alt = ("Model states of GPT-2 1.5B a rank, planned, over 1 to 1024 GPUs. " + "; ".join(
        f"{LESSONS[lesson]}: {bytes_text(one['1'])} at N = 1, {bytes_text(one['8'])} at 8, {bytes_text(one['1024'])} at 1024" for lesson, one in at.items()) + ".")
    drawing = Drawing(400, "GPT-2 1.5B: states of a rank over the number of ranks", alt, "planned, not run")
    plot = Plot(drawing, 70, 70, 640, 270, (0, 10), (0, 28))
    plot.axes([(i, str(2**i)) for i in range(11)], [(v, str(v)) for v in range(0, 29, 7)], "ranks N (each step doubles)", "GB")
    for i, (lesson, one) in enumerate(at.items()):
        plot.curve([(j, one[str(2**j)] / 1e9) for j in range(11)], LINES[i])
        drawing.polyline([(730, 100 + 30 * i), (754, 100 + 30 * i)], LINES[i])
        drawing.text(760, 104 + 30 * i, LESSONS[lesson])
    return drawing.done("Record docs/results/zero_plans.json: `--plan --world N --device cuda --workload configs/gpt2_1558m.json`.")


CPU_NARROWEST, GPU_NARROWEST = 10, 14  # points of an operation: enough for its unit, of one digit or two
KINDS = {"all_gather": PARAMETERS, "reduce_scatter": GRADIENTS, "all_reduce": FILLS[4]}


def units_of(spans, gathers):
    """The unit of each operation by its size and turn. Gathers: unit 0, blocks upwards, the last unit, in backward some blocks again, downwards.
    Reductions: the last unit, blocks downwards, among them unit 0. The all-reduce of four numbers has none."""
    sizes = [name.split(" ")[2] for _, name, *_ in spans if not name.startswith("all_reduce")]
    block = max(set(sizes), key=sizes.count)
    blocks = sizes.count(block) if not gathers else sizes.index(next(size for size in sizes[1:] if size != block)) - 1
    ends = [0, blocks + 1] if gathers else [blocks + 1, 0]
    again = sizes.count(block) - blocks
    order = [*range(1, blocks + 1), *range(again, 0, -1)] if gathers else [*range(blocks, 0, -1)]
    units = [str(of.pop(0)) for size in sizes if (of := order if size == block else ends)]
    if order or ends or len(units) != len(sizes):
        raise RenderError("a trace's operations are not those of a step with one micro-batch")
    return units + [""] * (len(spans) - len(sizes))


def draw_timeline(drawing, run, narrowest):
    """narrowest: points that even a short operation gets, so that it is seen with its unit."""
    left, width = 130, 806
    scale = width / run["microseconds"]
    for row, y, high in (("compute", 58, 30), ("gathers", 96, 44), ("reductions", 148, 44), ("waiting", 200, 22)):
        drawing.text(16, y + high / 2 + 5, row, "small")
        drawing.line(left, y + high + 3, left + width, y + high + 3)
    for row, _, begin, end in run["spans"]:
        if row == "compute" or row == "waiting" and (end - begin) * scale >= 1:  # a thinner wait would be drawn as its outline
            y, high, fill = (58, 30, FILLS[2]) if row == "compute" else (200, 22, FILLS[3])
            drawing.box(left + begin * scale, y, max((end - begin) * scale, 0.8), high, fill)
    for gathers, y in ((True, 96), (False, 148)):
        several = [s for s in run["spans"] if s[0] == "communication" and s[1].startswith("all_gather") == gathers]
        wide = [[unit, s[1], s[2], max(s[3], s[2] + narrowest / scale)] for s, unit in zip(several, units_of(several, gathers))]
        placed, lanes = lanes_of(wide)
        for lane, (unit, name, begin, end) in placed:
            drawing.box(left + begin * scale, y + lane * 44 / lanes, (end - begin) * scale, 44 / lanes - 1, KINDS[name.split(" ")[0]], unit if lanes < 5 else "", "in small")
    begins = min(s[2] for s in run["spans"] if s[1].startswith("reduce_scatter"))
    drawing.line(left + begins * scale, 50, left + begins * scale, 226)
    drawing.text(left + begins * scale + 4, 240, "the first gradient is complete", "small")
    for i in range(6):
        drawing.text(left + width * i / 5, 256, f"{run['microseconds'] * i / 5e3:.0f} ms", "small mid")
    drawing.legend(130, 276, ((FILLS[2], "compute"), (PARAMETERS, "all-gather of parameters"), (GRADIENTS, "reduce-scatter of gradients"),
                              (FILLS[4], "all-reduce of four numbers"), (FILLS[3], "waiting")))


def timeline(lesson, title, what):
    found = record("zero_trace") if has("zero_trace") else {"lessons": {}}
    if lesson not in found["lessons"]:
        return None
    run = found["lessons"][lesson]
    alt = f"Rank 0 of 2 in one step of lesson {LESSONS[lesson]}, from a real trace. {what}"
    drawing = Drawing(288, title, alt, "measured on a busy machine: order, no times" if is_busy("zero_trace") else "measured")
    draw_timeline(drawing, run, CPU_NARROWEST)
    return drawing.done(f"Record docs/results/zero_trace.json, rank 0 of 2, step {run['step']}: {steps_text(run)}; `{command_of(run['command'], traced(run))}`; {load_text('zero_trace')}; "
                        f"operations last until the other rank has come, and are drawn at least {CPU_NARROWEST} points wide; a number: the unit. Waits of less than a point are not drawn.")


def forward_begins(run):
    """Microseconds into a traced step: the end of its first wait for parameters, or where nothing is gathered compute's begin."""
    waits = [end for row, name, _, end in run["spans"] if row == "waiting" and "all_gather" in name]
    return min(waits or [begin for row, _, begin, _ in run["spans"] if row == "compute"])


def gpu_timeline(lesson):
    """The same on GPUs, where times are measured by events."""
    found = record("gpu_trace") if has("gpu_trace") else {"lessons": {}}
    if lesson not in found["lessons"]:
        return None
    run = found["lessons"][lesson]
    waited, waits, whole = took(run, "waiting"), sum(row == "waiting" for row, *_ in run["spans"]), run["microseconds"] / 1e3
    alt = (f"Rank 0 of {found['world']} GPUs in one step of lesson {LESSONS[lesson]}, {whole:.1f} ms: {took(run, 'communication', 'all_gather'):.1f} ms of all-gathers (forward begins at "
           f"{forward_begins(run) / 1e3:.1f} ms), {took(run, 'communication', 'reduce_scatter'):.1f} ms of reduce-scatters behind backward, the last beyond its end; the compute stream waits for {waited:.2f} ms of them. "
           "An operation lasts until the other rank has come, too.")
    title = f"{LESSONS[lesson]} on {found['world']} GPUs: a step of {whole:.1f} ms, {waited:.2f} ms of it in {waits} waits"
    drawing = Drawing(288, title, alt, "measured by events")
    draw_timeline(drawing, run, GPU_NARROWEST)
    return drawing.done(f"Record docs/results/gpu_trace.json, rank 0, step {found['step']} of {whole:.1f} ms, {found['versions'].get('GPU', 'GPU')}: `{run['command']}`; operations "
                        f"are drawn at least {GPU_NARROWEST} points wide (a number: the unit), and last from this rank's start until the other rank has come and all is there; waits of less than a point are not drawn.")


@figure
def zero1_trace():
    return timeline("02_zero1", "ZeRO-1: gathers under the step's own forward, reductions behind backward",
                    "Gathers are issued two units ahead of forward; embedding waits for unit 0 alone. Reduce-scatters follow one another while backward computes.")


@figure
def zero2_trace():
    return timeline("03_zero2", "ZeRO-2: gathers under forward, reductions behind backward, out of four buffers",
                    "With one micro-batch the order is lesson 02's: gathers two units ahead of forward, reduce-scatters behind backward.")


@figure
def zero3_trace():
    return timeline("04_zero3", "ZeRO-3: gathers all along, reductions behind backward",
                    "Gathers come one unit ahead of compute in forward; in backward the blocks that are no longer in the pool are gathered again, while gradients leave.")


@figure
def zero1_gpu_trace():
    return gpu_timeline("02_zero1")


@figure
def zero2_gpu_trace():
    return gpu_timeline("03_zero2")


@figure
def zero3_gpu_trace():
    return gpu_timeline("04_zero3")
