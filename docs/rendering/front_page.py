"""The front page: a step under every strategy, what a rank holds, lines of a program and of its output."""

import dataclasses

from .lesson_figures import COMPUTED
from .outputs import lines_between
from .palette import COMPUTE, GRADIENTS, OPTIMIZER, PARAMETERS, WAITING
from .registry import ROOT, RenderError, figure, record, renders
from .svg import Drawing
from .zero_tables import LESSONS, states_of

BLOCKS = 4
LAST = BLOCKS + 1  # the unit behind the blocks: the last norm and the head
RANKS = 4
PREFETCH = 1  # lesson 04's, so that PREFETCH + 1 blocks have a buffer
AHEAD = 2  # units that lessons 02 and 03 gather ahead of forward
# Lengths of a schematic: chosen so that everything can be seen, in no unit.
FORWARD = {0: 0.5, LAST: 0.7}
BACKWARD = {0: 0.5, LAST: 0.9}
SENT = {0: 0.5, LAST: 0.25}  # a reduce-scatter or an all-gather of a unit; an all-reduce is both
BLOCK_FORWARD, BLOCK_BACKWARD, BLOCK_SENT, UPDATE = 1.0, 2.0, 0.7, 1.9
PALE = {PARAMETERS: "#dbe9fc", GRADIENTS: "#fdecd5"}


@dataclasses.dataclass
class Span:
    row: str  # compute, communication, waiting
    what: str
    unit: int
    begin: float
    end: float


def unit_name(unit):
    return "E" if unit == 0 else "H" if unit == LAST else str(unit)


class Step:
    """One step of a rank: work in order, and a link that carries one operation at a time, as issued."""

    def __init__(self):
        self.now, self.link, self.spans = 0.0, 0.0, []

    def compute(self, what, unit, length):
        self.spans.append(Span("compute", what, unit, self.now, self.now + length))
        self.now += length

    def send(self, what, unit):
        """Issues an operation; returns when it will have ended."""
        begin = max(self.now, self.link)
        self.link = begin + SENT.get(unit, BLOCK_SENT) * (2 if what == "all-reduce" else 1)
        self.spans.append(Span("communication", what, unit, begin, self.link))
        return self.link

    def wait(self, until):
        if until <= self.now:
            return
        if self.spans[-1].row == "waiting":
            self.spans[-1].end = until
        else:
            self.spans.append(Span("waiting", "wait", -1, self.now, until))
        self.now = until


def step_of(lesson):
    """The step of lessons 00 to 04, as their train_step orders it, with one micro-batch. Written here again, because plans have no
    order and stored traces do not name what computes."""
    step, arrives, reduced = Step(), {}, []
    publishes, gathers = lesson in ("02_zero1", "03_zero2"), lesson == "04_zero3"
    sends = "all-reduce" if lesson == "01_data_parallel" else "reduce-scatter"
    for unit in range(LAST + 1):
        if publishes or gathers:
            for one in range(len(arrives), min(LAST, unit + (AHEAD if publishes else PREFETCH)) + 1):
                arrives[one] = step.send("all-gather", one)
            step.wait(arrives[unit])
        step.compute("forward", unit, FORWARD.get(unit, BLOCK_FORWARD))
    resident = range(BLOCKS - PREFETCH, BLOCKS + 1)  # blocks whose buffers forward has left as they were
    for unit in range(LAST, -1, -1):
        if gathers and 1 <= unit <= BLOCKS:
            step.wait(arrives[unit])
        step.compute("backward", unit, BACKWARD.get(unit, BLOCK_BACKWARD))
        if lesson != "00_one_device":
            reduced.append(step.send(sends, unit))
        freed = unit - PREFETCH - 1  # takes over the buffer that this block has just left
        if gathers and unit <= BLOCKS and freed >= 1 and freed not in resident:
            arrives[freed] = step.send("all-gather", freed)
    for end in reduced:
        step.wait(end)
    step.compute("update", -1, UPDATE / (1 if lesson in ("00_one_device", "01_data_parallel") else RANKS))
    return step


def colour_of(span):
    if span.row == "waiting":
        return WAITING
    if span.row == "compute":
        return OPTIMIZER if span.what == "update" else COMPUTE
    return PARAMETERS if span.what == "all-gather" else GRADIENTS


def draw_span(drawing, span, left, y, scale, height):
    label = {"update": "AdamW", "wait": ""}.get(span.what, unit_name(span.unit))
    wide = (span.end - span.begin) * scale
    drawing.box(
        left + span.begin * scale,
        y,
        max(1.5, wide - 1),
        height,
        colour_of(span),
        label if wide > 8 * len(label) + 2 else "",
        "in small",
    )


def arrow_with_words(drawing, x1, x2, y, words):
    drawing.line(x1, y, x2, y, "arrow", tip=True)
    drawing.text((x1 + x2) / 2, y - 6, words, "small mid")


def ends_of(step, what):
    spans = [span for span in step.spans if span.what == what]
    return spans[0].begin, spans[-1].end


def states_panel(drawing, left, base, height):
    """Bars: what a rank holds of a large model's states."""
    ranks, gap = 8, 74
    plans = {lesson: one[str(ranks)] for lesson, one in record("zero_plans")["models"]["gpt2_1558m"].items()}
    most = states_of(plans["01_data_parallel"])
    for i, (lesson, name) in enumerate(LESSONS.items()):
        parameters, gradients, states = (*(plans[lesson]["bytes"][one] for one in ("parameters", "gradients")), states_of(plans[lesson]))
        x, y = left + i * gap, base
        for fill, count in (
            (PARAMETERS, parameters),
            (GRADIENTS, gradients),
            (OPTIMIZER, states - parameters - gradients),
        ):
            y -= height * count / most
            drawing.box(x, y, 52, height * count / most, fill)
        drawing.text(x + 26, y - 6, f"{states / 1e9:.1f} GB", "mid")
        drawing.text(x + 26, base + 18, name.split(" ", 1)[0], "small mid")
        drawing.text(x + 26, base + 34, name.split(" ", 1)[1], "small mid")
    drawing.line(left - 8, base, left + 3 * gap + 60, base)
    return ranks


@figure
def hero():
    step = step_of("01_data_parallel")
    alt = (
        "Left: one step of data parallelism on two ranks. Both compute forward, then backward from the last"
        " block to the first. Each unit's gradient is summed over the ranks while backward computes the next"
        " one; only the last sums are waited for; then both make the same update. Right: bytes of parameters,"
        " gradients and optimizer state that each of eight GPUs holds of GPT-2 1.5B, falling from data"
        " parallelism over ZeRO-1 and ZeRO-2 to ZeRO-3."
    )
    drawing = Drawing(344, "One training step, and the memory each strategy needs for it", alt)
    left, scale = 72, 556 / step.now
    drawing.text(left, 60, "lesson 01: two ranks, one step")
    (begin, turn), (_, end) = ends_of(step, "forward"), ends_of(step, "backward")
    arrow_with_words(drawing, left + begin * scale, left + turn * scale - 3, 90, "forward")
    arrow_with_words(drawing, left + turn * scale, left + end * scale - 3, 90, "backward")
    for rank, y in ((0, 98), (1, 226)):
        drawing.text(16, y + 20, f"rank {rank}")
        for span in step.spans:
            if span.row != "communication":
                draw_span(drawing, span, left, y, scale, 30)
    drawing.text(16, 174, "sums of", "small")
    drawing.text(16, 190, "gradients", "small")
    for span in step.spans:
        if span.row == "communication":
            middle = left + (span.begin + span.end) / 2 * scale
            drawing.line(middle, 164, middle, 130, "arrow", tip=True)
            drawing.line(middle, 192, middle, 224, "arrow", tip=True)
            draw_span(drawing, span, left, 164, scale, 28)
    drawing.text(
        left,
        278,
        f"E embedding, 1 to {BLOCKS} blocks, H head. Each gradient is summed over the ranks while",
        "small",
    )
    drawing.text(left, 294, "backward computes the next one; only the last sums are waited for.", "small")
    drawing.line(650, 50, 650, 300)
    ranks = states_panel(drawing, 670, 258, 158)
    drawing.text(662, 60, f"model states of GPT-2 1.5B, each of {ranks} GPUs")
    drawing.legend(
        16,
        326,
        (
            (COMPUTE, "compute"),
            (PARAMETERS, "parameters"),
            (GRADIENTS, "gradients"),
            (OPTIMIZER, "optimizer's states and step"),
            (WAITING, "waiting"),
        ),
    )
    return drawing.done(
        f"{COMPUTED}: lengths are chosen so that all can be seen; bytes as planned, docs/results/zero_plans.json."
    )


ROWS = (
    (
        "00_one_device",
        "00 one device",
        ("forward, backward, update:", "the step that all others must", "reproduce bit for bit"),
    ),
    (
        "01_data_parallel",
        "01 data parallel",
        ("each rank takes other rows;", "gradients are summed during", "backward (all-reduce)"),
    ),
    (
        "02_zero1",
        "02 ZeRO-1",
        (
            "a rank receives its slice of the",
            "sum (reduce-scatter), updates it;",
            "forward gathers the slices",
        ),
    ),
    (
        "03_zero2",
        "03 ZeRO-2",
        ("a block's full gradient leaves", "at once, and the next block", "uses its buffer again"),
    ),
    (
        "04_zero3",
        "04 ZeRO-3",
        (
            "parameters too: gathered before",
            "a block computes, released after;",
            "gathered again for backward",
        ),
    ),
)
HELD = {
    "00_one_device": ("all", "all", "all"),
    "01_data_parallel": ("all", "all", "all"),
    "02_zero1": ("all", "all", "slice"),
    "03_zero2": ("all", "pale", "slice"),
    "04_zero3": ("pale", "pale", "slice"),
}


def draw_held(drawing, x, y, held):
    """Three vectors, cut into RANKS slices each."""
    for i, (name, fill, how) in enumerate(zip("PGO", (PARAMETERS, GRADIENTS, OPTIMIZER), held)):
        drawing.text(x, y + 20 * i + 12, name, "small")
        for piece in range(RANKS):
            full = how == "all" or piece == 1
            drawing.box(
                x + 16 + 24 * piece,
                y + 20 * i,
                22,
                15,
                fill if full else PALE[fill] if how == "pale" else None,
                kind_of_box="box" if full or how == "pale" else "bare",
            )


def draw_pipeline(drawing, left, top, scale):
    """Lesson 07 in outline: two of four stages, all forwards and then all backwards."""
    stages, count, wide = 4, 4, 0.62
    for stage in range(2):
        for i in range(count):
            for name, begin, length in (
                (f"F{i}", stage + i, 1),
                (f"B{i}", stages + count - 1 + 2 * (stages - 1 - stage) + 2 * i, 2),
            ):
                drawing.box(
                    left + begin * wide * scale,
                    top + stage * 26,
                    length * wide * scale - 2,
                    22,
                    None,
                    name,
                    "mid small",
                    "bare",
                )


@figure
def parallelism_strategies():
    alt = (
        "One step of each lesson. 00: forward, backward, update on one device. 01: the same on every rank,"
        " with all-reduces of gradients during backward. 02, ZeRO-1: reduce-scatters during backward, a short"
        " update of one slice, all-gathers of parameters during forward. 03, ZeRO-2: the same operations, and"
        " a gradient's memory is used again. 04, ZeRO-3: parameters are gathered before each block, in"
        " forward and again in backward. Next to each: which of parameters, gradients"
        " and optimizer states a rank holds whole, and of which it holds one slice of four. Last, in outline, 07, a"
        " pipeline: two of its stages, each with some of the blocks, forwards and then backwards of four micro-batches."
    )
    top, high = 84, 92
    drawing = Drawing(top + high * (len(ROWS) + 1) + 34, "One step, and what each lesson changes in it", alt)
    left, steps = 240, {lesson: step_of(lesson) for lesson, *_ in ROWS}
    scale = 560 / max(step.now for step in steps.values())
    drawing.text(left, 64, "time of one step, rank 1 of 4: work above, what travels below", "small")
    drawing.text(818, 64, "what rank 1 holds", "small")
    for i, (lesson, name, words) in enumerate(ROWS):
        y = top + high * i
        drawing.line(16, y - 10, 944, y - 10)
        drawing.text(16, y + 12, name)
        for j, line in enumerate(words):
            drawing.text(16, y + 30 + 16 * j, line, "small")
        for span in steps[lesson].spans:
            draw_span(
                drawing,
                span,
                left,
                y + (40 if span.row == "communication" else 2),
                scale,
                22 if span.row == "communication" else 32,
            )
        if lesson == "00_one_device":
            drawing.text(left, y + 56, "nothing travels", "small")
        draw_held(drawing, 818, y + 4, HELD[lesson])
    y = top + high * len(ROWS)
    drawing.line(16, y - 10, 944, y - 10)
    drawing.text(16, y + 12, "07 pipeline, in outline")
    for j, line in enumerate(
        ("ranks hold different blocks;", "activations travel between them,", "in micro-batches")
    ):
        drawing.text(16, y + 30 + 16 * j, line, "small")
    draw_pipeline(drawing, left, y + 6, scale)
    drawing.text(818, y + 18, "its stage: some", "small")
    drawing.text(818, y + 34, "of the blocks, whole", "small")
    drawing.legend(
        16,
        y + high + 12,
        (
            (COMPUTE, "compute"),
            (PARAMETERS, "P parameters"),
            (GRADIENTS, "G gradients"),
            (OPTIMIZER, "O optimizer"),
            (WAITING, "waiting"),
            (PALE[GRADIENTS], "pale: a few units at a time"),
            ("none", "not held"),
        ),
    )
    return drawing.done(
        f"{COMPUTED}: the order is that of each lesson's `train_step` with one micro-batch; lengths are"
        f" chosen. E embedding, 1 to {BLOCKS} blocks, H head."
    )


def block_from(lines, words):
    """The line that contains `words` and those after it, to the end of the block they stand in or its return;
    without comments and empty lines."""
    begin = next((i for i, line in enumerate(lines) if words in line), None)
    if begin is None:
        raise RenderError(f"no line contains '{words}'")
    indent = len(lines[begin]) - len(lines[begin].lstrip())
    found = []
    for line in lines[begin:]:
        if line.strip() and (len(line) - len(line.lstrip()) < indent or line.strip().startswith("return ")):
            break
        if line.strip() and not line.strip().startswith("//"):
            found.append(line[indent:])
    return found


@renders
def code(page, path, *words):
    """Lines of a program: for each of `words`, from the first line with it to the end of its block."""
    lines = (ROOT / path).read_text().splitlines()
    return "```cpp\n" + "\n\n".join("\n".join(block_from(lines, one)) for one in words) + "\n```"


@renders
def output_lines(page, name, run, *firsts):
    """Of what the run `run` of a record printed: the lines that start with `firsts`, in that order."""
    said, found = record(name)[run]["said"], []
    for first in firsts:
        said = lines_between(said, first, "")
        found.append(said[0].rstrip())
    return "```text\n" + "\n".join(found) + "\n```"
