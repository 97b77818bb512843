"""The cheat sheet: every lesson in a row. Its formulas are worked out for the plans of its example, and a
wrong one is not drawn."""
import dataclasses
import shlex

from . import checks
from .memory_tables import worked
from .palette import held_in, parts_of
from .pipelines import MICROBATCHES
from .plans import STATES, plan_of, symbols
from .registry import COURSE, ROOT, RenderError, bytes_text, figure, record
from .svg import Drawing

# Width and height of an A4 page, landscape, in pixels.
WIDE, HIGH = 1280, 905
EXAMPLE, RANKS, SMALL = "gpt2_355m", 8, {"batch.micro": 4, "batch.global": 128}
COLUMNS = (
    ("lesson, known as, command", 16),
    ("a rank holds", 268),
    ("a rank sends per step", 540),
    ("what waits", 812),
    ("when to choose it", 1028),
)
# In pixels: top of the first row, height of a row, height of a line in a row, and the longest bar.
TOP, ROW, LINE, BAR = 94, 56, 13, 262
KINDS = {
    "to_host": "link, each way",
    "disk_write": "disk, each way",
    "tensor": "tensor",
    "data": "data",
    "stages": "stages",
}
SIZES = {"f32": 4, "bf16": 2}
A = "L B T (30 d + 16 + 4 H) + (L + 1) 2 B T d"
BUBBLE = "(S - 1) / (M + S - 1)"
# Bytes of a checkpoint: the copy that one rank makes, and the files of all ranks.
CHECKPOINT = ("", "12 P / N"), ("about", "12 P")


@dataclasses.dataclass
class Lesson:
    program: str
    known: str  # elsewhere
    states: str  # a formula, bytes of the device
    activations: tuple  # (words, formula)
    # (words, formula, where: KINDS or ""); words: "" if the formula is exact, "about", "up to", "less than"
    sent: tuple
    waits: tuple
    choose: tuple
    more: tuple = ()  # (words, formula, place, purposes): held elsewhere, or a stash
    settings: tuple = ()  # of the example
    command: str = ""  # what follows run.sh


ALL, STAGE = ("", "A"), ("about", "min(M, S - s) l A / L")
ZERO2_SENT = (("", "2 P (M + 1) (N - 1) / N", ""),)
OFFLOADED = "2 P + 2 P / N + 2 F + 2 F / N"
LESSONS = (
    Lesson(
        "00_one_device",
        "a plain loop",
        "16 P",
        ALL,
        (),
        ("nothing",),
        ("16 P, A and the workspace", "fit on one GPU."),
    ),
    Lesson(
        "01_data_parallel",
        "DDP",
        "16 P",
        ALL,
        (("", "4 P (N - 1) / N", ""),),
        ("the update, for the last", "gradients' sum"),
        ("16 P and A fit on each GPU; 02 sends", "as much and holds less."),
    ),
    Lesson(
        "02_zero1",
        "DeepSpeed stage 1",
        "4 P + 12 P / N",
        ALL,
        (("", "4 P (N - 1) / N", ""),),
        ("the update, for the last sum;", "forward, for a unit's parameters"),
        ("4 P + 12 P / N and A fit. Sends no", "byte more than 01."),
    ),
    Lesson(
        "03_zero2",
        "DeepSpeed stage 2",
        "2 P + 14 P / N + 2 F + 2 F / N",
        ALL,
        ZERO2_SENT,
        ("as 02; backward, for a", "gradient buffer that is on its way"),
        ("2 P + 14 P / N and A fit, with few", "micro-batches: each sends gradients."),
    ),
    Lesson(
        "04_zero3",
        "FSDP2, DeepSpeed stage 3",
        "16 P / N + 4 F + 2 F / N",
        ALL,
        (("up to", "6 P M (N - 1) / N", ""),),
        ("each block, where its gather takes", "longer than the block before it"),
        (
            "16 P / N and A fit. A larger",
            "batch.micro makes M smaller;",
            "shard_ranks keeps gathers in a node.",
        ),
    ),
    Lesson(
        "05_offload",
        "ZeRO-Offload",
        OFFLOADED,
        ALL,
        (*ZERO2_SENT, ("", "2 P / N", "to_host")),
        (
            "forward, for AdamW on the host,",
            "unit by unit; delayed: only where",
            "AdamW takes longer than all else",
        ),
        ("Few GPUs, a host with room for", "16 P, many tokens per step."),
        (("host", "12 P / N", "host", STATES), ("pinned", "4 P / N", "pinned", STATES)),
    ),
    Lesson(
        "06_infinity",
        "ZeRO-Infinity",
        OFFLOADED,
        ALL,
        (*ZERO2_SENT, ("", "2 P / N", "to_host"), ("about", "12 P / N", "disk_write")),
        ("forward, for the disk, which reads", "as much as it writes"),
        ("The host has no 16 P either, a disk", "has. More tokens per step hide it."),
        (("disk", "12 P / N", "disk", STATES),),
    ),
    Lesson(
        "07_pipeline",
        "GPipe, 1F1B, interleaved, zero bubble",
        "16 Pr",
        STAGE,
        (("", "4 M B T d", ""),),
        ("stages, for each other:", f"{BUBBLE} of a step"),
        (
            "The link is too slow for 02 to 04:",
            "messages grow with tokens, not",
            "with P. Many micro-batches.",
        ),
    ),
    Lesson(
        "08_weight_versions",
        "PipeDream, PipeDream-2BW",
        "16 Pr",
        STAGE,
        (("", "4 M B T d", ""),),
        ("nothing, once the pipeline is full",),
        ("As 07, where gradients that are up to", "S - 1 updates old still train well."),
        (("older weights", "2 Pr (S - 1 - s)", "device", ("stash",)),),
        settings=("model.tied=false",),
    ),
    Lesson(
        "09_checkpoint_and_faults",
        "save, resume, reshard",
        "",
        (),
        (),
        ("the next step, for the disk; with", "--save-async on for a copy"),
        ("Always. Loads into any lesson on", "any number of ranks."),
    ),
    Lesson(
        "10_tensor_parallel",
        "Megatron-LM, sequence parallel",
        "16 Pr",
        ("less than", "A / t"),
        (("about", "2 M (10 L + 4) B T d (t - 1) / t", ""),),
        ("each half of a forward block,", "for a gather and a sum"),
        ("A does not fit, or there are too few", "rows for all ranks. Needs a link as", "fast as NVLink."),
        command=" -n 2",
    ),
    Lesson(
        "12_context_parallel",
        "ring attention",
        "16 P",
        ("less than", "1.02 A / c"),
        (("", "4 P (c - 1) / c + 16 M L B T d (c - 1) / c", ""),),
        ("attention, for keys that", "are still on their way"),
        ("Rows so long that their activations", "do not fit: A / c, whatever the heads."),
        command=" -n 2",
    ),
    Lesson(
        "11_combined",
        "3D parallelism",
        "4 Pr + 12 Pr / D",
        ("less than", "min(M, S - s) l A / (L t)"),
        (
            ("about", "2 M (10 l + 2) B T d (t - 1) / t", "tensor"),
            ("", "4 Pr (D - 1) / D", "data"),
            ("", "2 M B T d / t", "stages"),
        ),
        ("tensor groups as 10, stages as 07,", "the update as 01"),
        ("Several nodes: tensor groups inside", "one, stages or replicas across."),
        settings=("mesh=2x2x2",),
    ),
)


def example(lesson):
    ranks = 1 if lesson.program.startswith("00") else RANKS
    return plan_of(
        lesson.program, EXAMPLE, ranks, *(f"{key}={count}" for key, count in SMALL.items()), *lesson.settings
    )


def meaning(lesson, plan):
    """What the sheet's symbols are on the rank of the example that holds most."""
    held = plan.fullest["places"]["device"]
    found = {
        **symbols(f"{EXAMPLE}@{RANKS}"),
        "B": SMALL["batch.micro"],
        "M": plan.M,
        "min": min,
        "Pr": held["parameters"] // 2,
    }
    found["A"] = worked(A, found)
    if lesson.program.startswith(("07", "08")):
        found |= {
            "S": RANKS,
            "s": plan.fullest["rank"],
            "l": found["Pr"] // plan.block,
        }  # a stage between the ends: blocks alone
    elif lesson.program[:2] in ("10", "12"):
        found["t" if lesson.program[:2] == "10" else "c"] = RANKS
    elif lesson.program.startswith("11"):
        S, D, t = map(int, lesson.settings[0].split("=")[1].split("x"))
        found |= {"S": S, "s": plan.fullest["rank"] // (D * t), "D": D, "t": t, "l": blocks_of(plan)}
    return found


def blocks_of(plan):
    """The number of blocks on a rank of lesson 11: the data group reduces each block in one operation for its
    matrix part and one for what tensor ranks share."""
    return max(count for kind, count, _, _ in plan.operations if kind == "reduce_scatter" and count < plan.L)


def differs(words, said, planned):
    """Whether a formula's value is not what the plan has; the four numbers of every step's last sum are in no
    formula."""
    if words in ("up to", "less than"):
        return not 0.75 * said < planned <= said
    return abs(said - planned) > (0.02 if words == "about" else 1e-5) * planned


def compared(lesson, plan):
    """(what, words, formula, its value, the plan's number) of everything in a row."""
    used, held = meaning(lesson, plan), plan.fullest["places"]
    states = sum(held["device"].get(purpose, 0) for purpose in STATES)
    yield "states", "", lesson.states, worked(lesson.states, used), states
    words, formula = lesson.activations
    yield "activations", words, formula, worked(formula, used), held["device"]["activations"]
    for words, formula, place, purposes in lesson.more:
        yield words, "", formula, worked(formula, used), sum(
            held[place].get(purpose, 0) for purpose in purposes
        )
    for words, formula, kind in lesson.sent:
        yield f"sent {kind}".strip(), words, formula, worked(formula, used), sent_of(plan, kind)


def sent_of(plan, kind):
    """On one axis of a mesh, over the link or the disk; or to all ranks."""
    if kind in ("to_host", "disk_write"):
        return sum(
            count * elements * SIZES[dtype]
            for one, count, elements, dtype in plan.operations
            if one == kind and dtype in SIZES
        )
    return plan.mesh[0][3][kind][1] if kind else plan.fullest["sent"]


def saved_of(run):
    """(what, words, formula, its value, the record's number) of lesson 09, which no plan has."""
    used = symbols("tiny@2")
    copy, files = CHECKPOINT
    yield "its copy", *copy, worked(copy[1], used), run["on"]["bytes"]["host"]["checkpoint"]
    yield "its files", *files, worked(files[1], used), sum(
        size for name, size in run["off"]["files"].items() if name.startswith("rank-")
    )


def checked():
    """Stops where a formula is not what plans and records have, and where a command is not one that a page
    has and a test runs."""
    rows = [
        (COURSE[lesson.program]["name"], row)
        for lesson in LESSONS
        if lesson.states
        for row in compared(lesson, example(lesson))
    ]
    rows += [("09 checkpoint", row) for row in saved_of(record("lesson_09")["runs"])]
    for name, (what, words, formula, said, planned) in rows:
        if differs(words, said, planned):
            raise RenderError(
                f"the cheat sheet, {name}, {what}: {words} {formula} is {said:,.0f}, planned are {planned:,}"
            )
    for m in MICROBATCHES:
        for row in record(f"pipedream_m{m}")["rows"]:
            formula = worked(BUBBLE, {"S": row["stages"], "M": m})
            if row["schedule"] in ("gpipe", "1f1b") and differs("", formula, 1 - row["utilization"]):
                raise RenderError(
                    f"the cheat sheet: {BUBBLE} is not how long {row['schedule']} idles with {m} "
                    "micro-batches"
                )
    for lesson in LESSONS:
        page = f"lessons/{lesson.program}/README.md"
        if command(lesson) not in {
            shlex.join(one.words)
            for one in checks.commands_of(page, (ROOT / page).read_text())
            if not one.not_run
        }:
            raise RenderError(f"the cheat sheet: {page} has no command {command(lesson)}")


def command(lesson):
    return f"lessons/{lesson.program}/run.sh{lesson.command}"


def held_by(plan):
    return plan.fullest["places"]["device"].values()


def joined(words, formula):
    return f"{words} {formula}".strip()


def held_lines(lesson):
    if not lesson.states:
        return [
            "what the lesson that it saves holds",
            f"host: {CHECKPOINT[0][1]} with --save-async on",
            f"disk: {CHECKPOINT[1][1]} in all, and names",
        ]
    more = [
        f"and {formula} of older weights" if place == "device" else f"{place}: {formula}"
        for _, formula, place, _ in lesson.more
    ]
    return [
        f"states {lesson.states}",
        f"activations {joined(*lesson.activations)}",
        *([", ".join(more)] if more else []),
    ]


def sent_lines(lesson, plan):
    if not lesson.sent:
        return ["nothing" if lesson.states else "nothing more"]
    lines = [
        (f"{KINDS[kind]}: " if kind else "") + joined(words, formula) for words, formula, kind in lesson.sent
    ]
    return [*lines, bytes_text(plan.fullest["sent"])]


def draw_lesson(drawing, lesson, y, scale):
    plan = example(lesson) if lesson.states else None
    left = [x for _, x in COLUMNS]
    drawing.line(16, y - 6, WIDE - 16, y - 6)
    drawing.text(left[0], y + 8, COURSE[lesson.program]["name"])
    for column, lines in enumerate(
        (
            [lesson.known, command(lesson)],
            held_lines(lesson),
            sent_lines(lesson, plan),
            lesson.waits,
            lesson.choose,
        )
    ):
        for i, line in enumerate(lines):
            drawing.text(left[column], y + 8 + LINE * (i + (column == 0)), line, "small")
    if plan:
        x, wide = left[1], 0
        for fill, count in parts_of(plan.fullest["places"]["device"]):
            if count:
                drawing.box(x + wide, y + 38, count * scale, 9, fill)
            wide += count * scale
        drawing.text(x + wide + 6, y + 47, bytes_text(sum(held_by(plan))), "small")


@figure
def cheat_sheet():
    checked()
    plans = [example(lesson) for lesson in LESSONS if lesson.states]
    most = max(sum(held_by(plan)) for plan in plans)
    rows = [
        f"{COURSE[lesson.program]['name']} holds {bytes_text(sum(held_by(plan)))} on a GPU and sends "
        f"{bytes_text(plan.fullest['sent'])} per step"
        for lesson, plan in zip([one for one in LESSONS if one.states], plans)
    ]
    alt = (
        "A sheet with a row for every lesson: what a rank holds, what it sends, what waits, when to choose "
        f"it, the command. GPT-2 355M on {RANKS} GPUs, lesson 00 on one: {'; '.join(rows)}."
    )
    note = (
        f"bytes in bf16 with an fp32 master; bars and totals: GPT-2 355M, {SMALL['batch.global']} rows of "
        f"1024 tokens per step in micro-batches of {SMALL['batch.micro']}, {RANKS} GPUs (lesson 00: one)"
    )
    drawing = Drawing(HIGH, "Stagecraft on one sheet", alt, note, width=WIDE)
    drawing.legend(268, 54, held_in([parts_of(plan.fullest["places"]["device"]) for plan in plans]))
    for title, at in COLUMNS:
        drawing.text(at, 78, title)
    for i, lesson in enumerate(LESSONS):
        draw_lesson(drawing, lesson, TOP + ROW * i, (BAR - 66) / most)
    y = TOP + ROW * len(LESSONS)
    drawing.line(16, y - 6, WIDE - 16, y - 6)
    for i, line in enumerate(SYMBOLS):
        drawing.text(16, y + 12 + 16 * i, line, "small")
    return drawing.done(
        "Computed, not measured: plans.json; every formula is worked out for these plans before it is drawn."
    )


SYMBOLS = (
    "P: parameters as stored; Pr: a rank's part of them. N ranks, M micro-batches of a rank per step, of B "
    "rows of T tokens. L blocks, l of a rank; width d, H heads.",
    "S stages, s the rank's, from 0; D data, t tensor, c context ranks. 07, 08, 11: on the rank that holds "
    "most; in 07 and 08 it has two neighbours. 08 with model.tied=false, 11 with mesh=2x2x2.",
    f"A: activations of a micro-batch, {A}; less with activations=recompute. "
    "F: elements of full gradients that are alive, of two blocks and both ends.",
    "Four numbers that all ranks sum come on top of what is sent. --plan prints all of it for any model and "
    "any number of ranks.",
)
