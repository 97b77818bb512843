"""The front page: a step under every strategy, what a rank holds, lines of a program and of its output."""

import collections
import dataclasses

from .lesson_figures import COMPUTED
from .outputs import lines_between
from .palette import BACKWARD as BACKWARD_FILL
from .palette import COMMUNICATION, GRADIENTS, OPTIMIZER, PARAMETERS, READING, WAITING, WRITING, done, held
from .palette import FORWARD as FORWARD_FILL
from .registry import COURSE, ROOT, RenderError, figure, record, renders, table_of
from .svg import PALE, Drawing
from .zero_tables import LESSONS, states_of

BLOCKS = 4
# The unit after the blocks: the last norm and the head.
LAST = BLOCKS + 1
RANKS = 4
# Lesson 04 gathers one block ahead, so PREFETCH + 1 blocks have a buffer.
PREFETCH = 1
# Lessons 02 and 03 gather so many units ahead of forward.
AHEAD = 2
# Lengths of the schematic have no unit; they are chosen so that everything can be seen.
FORWARD = {0: 0.5, LAST: 0.7}
BACKWARD = {0: 0.5, LAST: 0.9}
# The length of one unit's reduce-scatter or all-gather; an all-reduce is both.
SENT = {0: 0.5, LAST: 0.25}
BLOCK_FORWARD, BLOCK_BACKWARD, BLOCK_SENT, UPDATE = 1.0, 2.0, 0.7, 1.9
# Lengths for one unit in lessons 05 and 06: host update, disk transfer, copies up and down; WINDOW is in
# units.
ON_HOST, ON_DISK, UP, DOWN, WINDOW = 0.9, 0.55, 0.25, 0.25, 3
# The length of one message in lesson 10.
SENT_TOKENS = 0.15


@dataclasses.dataclass
class Span:
    row: str  # compute, communication, waiting, host, disk
    what: str
    unit: int
    begin: float
    end: float


def unit_name(unit):
    return "E" if unit == 0 else "H" if unit == LAST else str(unit)


class Step:
    """One step of a rank: each row does one thing at a time, in order; the link carries operations as they
    are issued."""

    def __init__(self):
        self.ends = collections.defaultdict(float)  # by row: when it is free
        self.spans, self.last = [], None  # last: what was computed last, or waited for

    @property
    def now(self):
        return self.ends["compute"]

    def do(self, row, what, unit, length, after=0.0):
        """Does it as soon as the row is free, and not before `after`; returns when it will have ended."""
        begin = max(self.ends[row], after)
        self.spans.append(Span(row, what, unit, begin, begin + length))
        self.ends[row] = begin + length
        return begin + length

    def work(self, what, unit, until):
        """Goes on with what it did last, if it is the same."""
        if not self.last or (self.last.what, self.last.unit) != (what, unit):
            self.last = Span("waiting" if what == "wait" else "compute", what, unit, self.now, until)
            self.spans.append(self.last)
        self.ends["compute"] = self.last.end = until

    def compute(self, what, unit, length):
        self.work(what, unit, self.now + length)

    def wait(self, until):
        if until > self.now + 1e-6:
            self.work("wait", -1, until)

    def send(self, what, unit, length=None):
        length = length or SENT.get(unit, BLOCK_SENT) * (2 if what == "all-reduce" else 1)
        return self.do("communication", what, unit, length, self.now)

    def message(self, length=SENT_TOKENS):
        return self.send("activation", -1, length)


def step_of(lesson):
    """The step of lessons 00 to 04, as their train_step orders it, with one micro-batch. Written here again,
    because plans have no order and stored traces do not name what computes."""
    step, arrives = Step(), {}
    gathers, ahead = lesson == "04_zero3", {"02_zero1": AHEAD, "03_zero2": AHEAD, "04_zero3": PREFETCH}.get(
        lesson
    )
    sends = "all-reduce" if lesson == "01_data_parallel" else "reduce-scatter"
    for unit in range(LAST + 1):
        if ahead:
            for one in range(len(arrives), min(LAST, unit + ahead) + 1):
                arrives[one] = step.send("all-gather", one)
            step.wait(arrives[unit])
        step.compute("forward", unit, FORWARD.get(unit, BLOCK_FORWARD))
    for unit in range(LAST, -1, -1):
        step.wait(arrives.get(unit, 0.0))
        step.compute("backward", unit, BACKWARD.get(unit, BLOCK_BACKWARD))
        if lesson != "00_one_device":
            step.send(sends, unit)
        freed = unit - PREFETCH - 1  # takes over the buffer that this block has just left
        if gathers and 1 <= freed < BLOCKS - PREFETCH:  # the others' buffers forward has left as they were
            arrives[freed] = step.send("all-gather", freed)
    step.wait(step.ends["communication"])
    step.compute("update", -1, UPDATE / (1 if lesson in ("00_one_device", "01_data_parallel") else RANKS))
    return step


def offload_step(on_disk):
    """Lessons 05 and 06 from when the norm is known: the host updates unit after unit, forward takes each as
    it comes up. On a disk the units stream through a window of three: the next are read while one is updated
    and the one before is written."""
    step, arrives, there = Step(), [], 0.0
    for unit in range(LAST + 1):
        if on_disk:
            there = step.do("communication", "gradient down", unit, DOWN, step.ends["host"])
            if unit >= WINDOW:
                there = max(there, step.do("disk", "read", unit, ON_DISK))
        updated = step.do("host", "update", unit, ON_HOST, there)
        arrives.append(step.do("communication", "parameters up", unit, UP, updated))
        if on_disk:
            step.do("disk", "write", unit, ON_DISK, updated)
    for unit in range(LAST + 1):
        step.wait(arrives[unit])
        step.compute("forward", unit, FORWARD.get(unit, BLOCK_FORWARD))
    for unit in range(LAST, -1, -1):
        step.compute("backward", unit, BACKWARD.get(unit, BLOCK_BACKWARD))
        if not on_disk:
            step.send("gradient down", unit, DOWN)
        elif unit >= LAST + 1 - WINDOW:  # the next step's first pieces need no gradient
            step.do("disk", "read", LAST - unit, ON_DISK, step.now)
    if not on_disk:
        step.wait(step.ends["communication"])
    return step


def staged_step(lesson, halves=0):
    """What one stage does in a simulated schedule (pipelines.py). halves: each action is so many of lesson
    10's, with its messages."""
    found, step = record("pipedream_steps")["steps"][lesson], Step()
    for what, version, begin, end in found["actions"]:
        gathers = halves and what[0] == "F"
        messages = 2 * halves if gathers else min(halves, 1)  # that nothing hides
        length = (end - begin - messages * SENT_TOKENS) / (halves or 1)
        step.wait(begin)
        for _ in range(halves or 1):
            if gathers:
                step.wait(step.message())
            step.compute(what, version, length)
            if what != "update":
                summed = step.message() if halves else step.message(0.25)
            if gathers:
                step.wait(summed)
    if found["drained"]:
        step.wait(found["drained"])
        if halves:  # what every tensor rank has, and the tied matrix
            step.wait(step.send("sum", -1, BLOCK_SENT / 2))
        step.compute("update", -1, UPDATE / RANKS)
    return step


def tensor_step():
    """Lesson 10: the tokens' norms are gathered before each half of a block and its results summed behind it;
    backward hides its messages behind the products of weights' gradients."""
    step = Step()
    step.compute("forward", 0, FORWARD[0])
    for unit in [*(unit for unit in range(1, LAST) for _ in range(2)), LAST]:
        step.wait(step.message())  # the half before, summed
        step.wait(step.message())
        step.compute("forward", unit, FORWARD.get(unit, BLOCK_FORWARD / 2))
    step.compute("backward", LAST, BACKWARD[LAST])
    step.wait(step.message())
    gradient = step.message()
    for unit in (unit for unit in range(BLOCKS, 0, -1) for _ in range(2)):
        step.message()  # norms of all tokens again
        step.wait(gradient)
        step.compute("backward", unit, BLOCK_BACKWARD / 4)
        step.message()
        step.compute("backward", unit, BLOCK_BACKWARD / 8)
        gradient = step.message()
        step.compute("backward", unit, BLOCK_BACKWARD / 8)
    step.wait(gradient)
    step.compute("backward", 0, BACKWARD[0])
    step.wait(step.message())  # the gradients of what every rank has
    step.compute("update", -1, UPDATE / RANKS)
    return step


def context_step():
    """Lesson 12: keys and values go round behind attention; in backward they leave before the block's second
    half, own ones are last, and sums of gradients go home meanwhile."""
    step = Step()

    def hops(what, unit, length, all_hops, arrives, sums):
        for hop in all_hops:
            if hop > 0:
                step.wait(arrives)
            if 0 < hop < RANKS - 1:
                arrives = step.message()
            step.compute(what, unit, length / RANKS)
            home = step.message(2 * SENT_TOKENS) if sums and hop > 0 else 0.0
            ends.append(home)

    ends = []
    step.compute("forward", 0, FORWARD[0])
    for unit in range(1, LAST):
        hops("forward", unit, BLOCK_FORWARD, range(RANKS), step.message(), False)
    step.compute("forward", LAST, FORWARD[LAST])
    step.compute("backward", LAST, BACKWARD[LAST])
    step.send("all-reduce", LAST)
    for unit in range(BLOCKS, 0, -1):
        arrives = step.message()
        step.compute("backward", unit, BLOCK_BACKWARD / 2)
        hops("backward", unit, BLOCK_BACKWARD / 2, (*range(1, RANKS), 0), arrives, True)
        step.wait(max(ends))
        step.send("all-reduce", unit)
    step.compute("backward", 0, BACKWARD[0])
    step.send("all-reduce", 0)
    step.wait(step.ends["communication"])
    step.compute("update", -1, UPDATE)
    return step


STEPS = {
    "05_offload": lambda: offload_step(False),
    "06_infinity": lambda: offload_step(True),
    "07_pipeline": lambda: staged_step("07"),
    "08_weight_versions": lambda: staged_step("08"),
    "10_tensor_parallel": tensor_step,
    "12_context_parallel": context_step,
    "11_combined": lambda: staged_step("11", halves=2),
}


def colour_of(span):
    if span.row == "compute" and span.what != "update":
        return FORWARD_FILL if span.what[0] in "fF" else BACKWARD_FILL
    return {
        "wait": WAITING,
        "update": OPTIMIZER,
        "all-gather": PARAMETERS,
        "parameters up": PARAMETERS,
        "activation": COMMUNICATION,
        "read": READING,
        "write": WRITING,
    }.get(span.what, GRADIENTS)


TOP_AND_HEIGHT = {
    "compute": (2, 32),
    "waiting": (2, 32),
    "communication": (40, 22),
    "host": (66, 18),
    "disk": (88, 18),
}


def draw_span(drawing, span, left, y, scale, height):
    label = {"update": "update", "wait": "", "activation": ""}.get(span.what, unit_name(span.unit))
    if span.row == "host":
        label = unit_name(span.unit)
    elif span.what[0] in "FB":
        label = span.what
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


def states_panel(drawing, left, base, height, gap=74):
    """Bars: what a rank holds of a large model's states."""
    ranks = 8
    plans = {lesson: one[str(ranks)] for lesson, one in record("zero_plans")["models"]["gpt2_1558m"].items()}
    most = states_of(plans["01_data_parallel"])
    drawing.text(left - 8, base - height - 40, f"model states of GPT-2 1.5B, each of {ranks} GPUs")
    for i, (lesson, name) in enumerate(LESSONS.items()):
        parameters, gradients, states = (
            *(plans[lesson]["bytes"][one] for one in ("parameters", "gradients")),
            states_of(plans[lesson]),
        )
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


def step_panel(drawing, left, scale):
    """Lesson 01's step on two ranks, sums between them."""
    step = step_of("01_data_parallel")
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


HERO_ALT = (
    "One step of data parallelism on two ranks: each unit's gradient is summed over the ranks while backward "
    "computes the next one. Next to it: what each of eight GPUs holds of GPT-2 1.5B, less from data "
    "parallelism to ZeRO-3."
)
HERO_CAPTION = f"{COMPUTED}: lengths are chosen; bytes as planned, docs/results/zero_plans.json."
HERO_KEY = (
    *done(FORWARD_FILL, BACKWARD_FILL),
    *held(PARAMETERS, GRADIENTS),
    (OPTIMIZER, "optimizer states, update"),
    *done(WAITING),
)


@figure
def hero():
    drawing = Drawing(344, "One training step, and the model states that each strategy holds", HERO_ALT)
    step_panel(drawing, 72, 556 / step_of("01_data_parallel").now)
    drawing.text(
        72,
        278,
        f"E embedding, 1 to {BLOCKS} blocks, H head. Each gradient is summed over the ranks while",
        "small",
    )
    drawing.text(72, 294, "backward computes the next one; only the last sums are waited for.", "small")
    drawing.line(650, 50, 650, 300)
    states_panel(drawing, 670, 258, 158)
    drawing.legend(16, 326, HERO_KEY)
    return drawing.done(HERO_CAPTION)


@figure
def hero_narrow():
    """For narrow screens, which show a wide figure too small to read: the panels below each other."""
    drawing = Drawing(590, "A step, and the memory it needs", HERO_ALT, width=480)
    step_panel(drawing, 76, 388 / step_of("01_data_parallel").now)
    drawing.line(16, 276, 464, 276)
    states_panel(drawing, 60, 496, 150, gap=106)
    drawing.legend(16, 556, HERO_KEY[:4])
    drawing.legend(16, 578, HERO_KEY[4:])
    return drawing.done(HERO_CAPTION)


ROWS = (  # lesson, what is new, what a rank's device holds of parameters, gradients and states
    (
        "00_one_device",
        ("forward, backward, update:", "the step that all others but 08", "reproduce bit for bit"),
        ("all", "all", "all"),
    ),
    (
        "01_data_parallel",
        ("each rank takes other rows;", "gradients are summed during", "backward (all-reduce)"),
        ("all", "all", "all"),
    ),
    (
        "02_zero1",
        (
            "a rank receives its slice of the",
            "sum (reduce-scatter), updates it;",
            "forward gathers the slices",
        ),
        ("all", "all", "slice"),
    ),
    (
        "03_zero2",
        ("a block's full gradient leaves", "at once, and the next block", "uses its buffer again"),
        ("all", "pale", "slice"),
    ),
    (
        "04_zero3",
        (
            "parameters too: gathered before",
            "a block computes, released after;",
            "gathered again for backward",
        ),
        ("pale", "pale", "slice"),
    ),
    (
        "05_offload",
        ("states and AdamW are the host's;", "forward pulls each unit as soon", "as the host has updated it"),
        ("all", "pale", "on the host"),
    ),
    (
        "06_infinity",
        (
            "states stream from a disk through",
            "a window: read, update, write;",
            "the next update's first are read",
            "during backward",
        ),
        ("all", "pale", "on the disk"),
    ),
    (
        "07_pipeline",
        (
            "ranks hold different blocks, and",
            "micro-batches follow each other:",
            "here 1F1B on the second of four",
        ),
        ("slice", "slice", "slice"),
    ),
    (
        "08_weight_versions",
        (
            "no draining: an update after every",
            "backward; v: the version it reads,",
            "older ones are kept until then",
        ),
        ("slice", "slice", "slice"),
    ),
    (
        "10_tensor_parallel",
        (
            "all ranks have the same rows,",
            "each a part of every matrix; tokens",
            "travel around each half of a block",
        ),
        ("slice", "slice", "slice"),
    ),
    (
        "12_context_parallel",
        ("all ranks have the same rows,", "each some of their tokens; keys", "go round during attention"),
        ("all", "all", "all"),
    ),
    (
        "11_combined",
        (
            "two stages of two tensor ranks:",
            "07's list, 10's messages in every",
            "action; data ranks would sum last",
        ),
        ("slice", "slice", "slice"),
    ),
)


def draw_held(drawing, x, y, vectors):
    """Three vectors, cut into RANKS slices each."""
    for i, (name, fill, how) in enumerate(zip("PGO", (PARAMETERS, GRADIENTS, OPTIMIZER), vectors)):
        drawing.text(x, y + 20 * i + 12, name, "small")
        if how not in ("all", "pale", "slice"):
            drawing.text(x + 16, y + 20 * i + 12, how, "small")
            continue
        for piece in range(RANKS):
            full = how == "all" or piece == 1
            drawn = full or how == "pale"
            drawing.box(
                x + 16 + 24 * piece,
                y + 20 * i,
                22,
                15,
                fill if drawn else "none",
                kind_of_box="box" if drawn else "bare",
                share=1 if full else PALE,
            )


STRATEGIES_ALT = (
    "One step of each lesson on a clock: what a rank computes, what travels meanwhile, where it waits;"
    " and which of parameters, gradients and optimizer states its device holds whole, or as a slice."
    " Lessons 00 to 02 hold parameters and gradients whole, 03 parameters, 04 neither; from 05 on "
    "states leave the device or are divided, and 12 holds them whole."
)
STRATEGIES_CAPTION = (
    f"{COMPUTED}: each lesson's order with one micro-batch, or several (07, 08, 11); lengths are chosen, and "
    f"lessons' do not compare. E embedding, 1 to {BLOCKS} blocks, H head. In 05 and 06 the collectives of 03 "
    "come on top."
)
STRATEGIES_KEY = (
    *done(FORWARD_FILL, BACKWARD_FILL),
    (PARAMETERS, "P parameters"),
    (GRADIENTS, "G gradients"),
    (OPTIMIZER, "O optimizer states, update"),
    *done(WAITING),
    (COMMUNICATION, "message of activations"),
    *done(READING, WRITING),
)
STRATEGIES_NOTE = (
    "Pale: a few units at once. Outlined: not held. A slice:",
    "in 07, 08 a stage's blocks, in 10 parts of matrices, in 11 both.",
)
# Height of a lesson's clock; of the others CLOCK.
CLOCKS, CLOCK = {"05_offload": 84, "06_infinity": 106}, 78


def all_steps():
    return {lesson: STEPS[lesson]() if lesson in STEPS else step_of(lesson) for lesson, *_ in ROWS}


def draw_words(drawing, y, lesson, words):
    drawing.text(16, y + 12, COURSE[lesson]["name"])
    drawing.lines(16, y + 30, 16, *words)


def draw_clock(drawing, lesson, step, left, y, wide):
    scale = wide / step.now
    for span in step.spans:
        top, height = TOP_AND_HEIGHT[span.row]
        draw_span(drawing, span, left, y + top, scale, height)
        if lesson == "08_weight_versions" and span.unit >= 0:
            drawing.text(left + (span.begin + span.end) / 2 * scale, y + 78, f"v{span.unit}", "small mid")
    if lesson == "00_one_device":
        drawing.text(left, y + 56, "nothing travels", "small")


@figure
def parallelism_strategies():
    left, steps, y = 240, all_steps(), 84
    drawing = Drawing(
        y + sum(CLOCKS.get(lesson, CLOCK) + 16 for lesson in steps) + 66,
        "One step, and what each lesson changes in it",
        STRATEGIES_ALT,
    )
    drawing.text(
        left, 64, "a step of rank 1 of 4, all drawn equally wide: work above, what travels below", "small"
    )
    drawing.text(818, 64, "rank 1's device holds", "small")
    for lesson, words, vectors in ROWS:
        drawing.line(16, y - 10, 944, y - 10)
        draw_words(drawing, y, lesson, words)
        draw_clock(drawing, lesson, steps[lesson], left, y, 560)
        draw_held(drawing, 818, y + 4, vectors)
        y += CLOCKS.get(lesson, CLOCK) + 16
    drawing.legend(16, y + 14, STRATEGIES_KEY[:7])
    drawing.legend(16, y + 40, STRATEGIES_KEY[7:])
    drawing.text(200, y + 40, " ".join(STRATEGIES_NOTE), "small")
    return drawing.done(STRATEGIES_CAPTION)


@figure
def parallelism_strategies_narrow():
    """For narrow screens: the clock of a lesson below its words."""
    steps, y = all_steps(), 84
    heights = [46 + 16 * len(words) + CLOCKS.get(lesson, CLOCK) for lesson, words, _ in ROWS]
    drawing = Drawing(y + sum(heights) + 146, "One step, lesson by lesson", STRATEGIES_ALT, width=480)
    drawing.text(16, 60, "a step of rank 1 of 4, equally wide", "small")
    drawing.text(336, 60, "its device holds", "small")
    for (lesson, words, vectors), high in zip(ROWS, heights):
        drawing.line(16, y - 10, 464, y - 10)
        draw_words(drawing, y, lesson, words)
        draw_held(drawing, 336, y + 4, vectors)
        draw_clock(drawing, lesson, steps[lesson], 16, y + 30 + 16 * len(words), 448)
        y += high
    for row, (first, last) in enumerate(((0, 3), (3, 5), (5, 7), (7, 9))):
        drawing.legend(16, y + 14 + 24 * row, STRATEGIES_KEY[first:last])
    drawing.lines(16, y + 114, 16, *STRATEGIES_NOTE)
    return drawing.done(STRATEGIES_CAPTION)


def block_from(lines, words):
    """The line that contains `words` and those after it, to the end of the block they stand in or its return;
    of `FIRST .. NEXT` up to the line with NEXT. Without comments and empty lines."""
    words, _, until = words.partition(" .. ")
    begin = next((i for i, line in enumerate(lines) if words in line), None)
    if begin is None:
        raise RenderError(f"no line contains '{words}'")
    indent = len(lines[begin]) - len(lines[begin].lstrip())
    found = []
    for line in filter(str.strip, lines[begin:]):
        inner, said = len(line) - len(line.lstrip()), line.strip()
        returns = inner == indent and said.startswith("return ") and found
        if inner < indent or returns or (until and until in line):
            break
        if not said.startswith(("//", "#")):
            found.append(line[indent:])
    return found


@renders
def course(page):
    """The lessons in the order in which they are read, and what each takes and gives."""
    return table_of(
        COURSE.items(),
        {
            "day": lambda _, one: one["day"],
            "lesson": lambda folder, _: page.lesson(folder),
            "hours": lambda _, one: one["hours"],
            "after it you can": lambda _, one: one["after"],
        },
        left=2,
        last=1,
    )


@renders
def code(page, path, *words):
    """Lines of a program: for each of `words`, from the first line with it to the end of its block; a mark
    stands for what lies between."""
    lines = (ROOT / path).read_text().splitlines()
    kind, mark = ("python", "\n# ...\n") if path.endswith(".py") else ("cpp", "\n// ...\n")
    return f"```{kind}\n" + mark.join("\n".join(block_from(lines, one)) for one in words) + "\n```"


@renders
def output_lines(page, name, run, *firsts):
    """The lines that start with `firsts`, in that order, of what the run `run` of a record printed."""
    said, found = record(name)[run]["said"], []
    for first in firsts:
        said = lines_between(said, first, "")
        found.append(said[0].rstrip())
    return "```text\n" + "\n".join(found) + "\n```"
