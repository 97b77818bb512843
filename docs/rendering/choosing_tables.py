"""Tables of docs/choosing.md, from choosing.json: what lessons/choose.sh says of some machines, and how far
it is from steps that were timed."""
import statistics

from .palette import COMMUNICATION, FORWARD, GRADIENTS, OPTIMIZER, PARAMETERS, READING
from .registry import RenderError, figure, record, renders, source, table_of
from .svg import Drawing

KINDS = (  # of timed steps; each belongs to the first that takes it
    ("the [quoted runs](results.md), 1,024 or 2,048 tokens per step", lambda row: row["record"] == "quoted"),
    ("lesson 00, fp32 and fp16", lambda row: row["run"] in ("fp32", "fp16")),
    ("lesson 00, bf16", lambda row: row["lesson"] == "00_one_device"),
    ("lessons 01 to 04, one GPU", lambda row: row["lesson"][:2] <= "04" and row["gpus"] == 1),
    ("lesson 07, pipelines", lambda row: row["lesson"][:2] == "07"),
    ("lesson 10, two GPUs", lambda row: row["lesson"][:2] == "10" and row["gpus"] == 2),
    ("lesson 10, four GPUs", lambda row: row["lesson"][:2] == "10"),
    ("lesson 11, two GPUs", lambda row: row["lesson"][:2] == "11" and row["gpus"] == 2),
    ("lesson 11, four GPUs", lambda row: row["lesson"][:2] == "11"),
    ("lesson 08, no flush", lambda row: row["lesson"][:2] == "08"),
    ("lessons 01 to 04, two GPUs", lambda row: row["gpus"] == 2),
    ("lessons 01 to 04, four GPUs", lambda row: row["gpus"] == 4),
    ("lesson 05, offload", lambda row: row["lesson"] == "05_offload"),
    ("lesson 06, disk", lambda row: row["lesson"] == "06_infinity"),
)


def gb(count):
    return f"{count / 1e9:.1f}" if count >= 5e7 else "0"


def settings(row):
    return " ".join(f"`{setting}`" for setting in row["settings"])


def lesson_and_settings(row):
    return f"{row['lesson']} {settings(row)}".strip()


def quickest_of_each(rows):
    """Each lesson's quickest row that ends in the same bits as exact updates; its first row where none
    fits."""
    found = {}
    for row in rows:
        if (
            "micro" in row and "update=delayed" not in row["settings"]
        ):  # without micro: a setting that the machine or the model refuses
            found.setdefault(row["lesson"], []).append(row)
    return [max(of, key=lambda row: row["tokens_per_second"] if row["fits"] else 0) for of in found.values()]


@renders
def choosing_plan(page, plan):
    """Each lesson's quickest row in one plan of choosing.json."""
    found = record("choosing")["plans"][plan]
    columns = {
        "lesson": lambda row: row["lesson"],
        "settings": settings,
        "batch.micro": lambda row: row["micro"],
        "GB on a GPU": lambda row: gb(row["device"]),
        "GB in host memory / on disk": lambda row: f"{gb(row['host'])} / {gb(row['disk'])}",
        "GB to other nodes": lambda row: gb(row["to_nodes"]) if row["fits"] else "",
        "tokens per second": lambda row: f"{row['tokens_per_second']:,.0f}"
        if row["fits"]
        else "does not fit",
    }
    for flag, head in (
        ("--host-memory", "GB in host memory / on disk"),
        ("--node-link", "GB to other nodes"),
    ):
        if flag not in found["command"]:
            del columns[head]
    return table_of(quickest_of_each(found["rows"]), columns, left=2) + "\n\n" + said_by(page, found)


def said_by(page, found):
    words = found["command"].split()
    measured = "--gpu" not in words or words[words.index("--gpu") + 1] == "H200"
    said = "Predicted" if measured else "Estimated"  # as lessons/choose/report.cpp says it
    return f"{said}: `{found['command']}` ({source(page, 'choosing')})."


@renders
def choosing_quickest(page, plan, count):
    """The quickest rows of one plan, and what they wait for."""
    return table_of(
        record("choosing")["plans"][plan]["quickest"][: int(count)],
        {
            "lesson": lambda row: row["lesson"],
            "settings": settings,
            "a step": lambda row: row["waits_for"],
            "batch.micro": lambda row: row["micro"],
            "tokens per second": lambda row: f"{row['tokens_per_second']:,.0f}",
        },
        left=3,
    )


@renders
def choosing_ahead(page):
    """What was predicted of runs before they were timed, and what some of them then took."""

    def measured(row):
        if "seconds" not in row:
            return ""
        on = f" ({row['measured_on']})" if row.get("measured_on", row["gpu"]) != row["gpu"] else ""
        return f"{1e3 * row['seconds']:.1f}{on}"

    rows = table_of(
        record("choosing_ahead")["rows"],
        {
            "run": lambda row: f"{row['run'].replace(' x', ', ')} "
            f"{row['gpu']}{'s' if row['gpus'] > 1 else ''}, {row['rows']} rows",
            "lesson and settings": lesson_and_settings,
            "predicted ms": lambda row: f"{1e3 * row['predicted']:.1f}",
            "then measured ms": measured,
            "error, %": lambda row: f"{100 * (row['predicted'] / row['seconds'] - 1):+.1f}"
            if "seconds" in row
            else "",
        },
        left=2,
        repeats=False,
    )
    return f"{rows}\n\nFrom {source(page, 'choosing_ahead')}."


@renders
def choosing_errors(page):
    """Predicted over measured seconds, by kind of run; stops where a timed step belongs to no kind."""
    kinds = {name: [] for name, _ in KINDS}
    for row in record("choosing")["check"]["rows"]:
        name = next((name for name, belongs in KINDS if belongs(row)), None)
        if name is None:
            raise RenderError(f"choosing.json: {row['record']}, {row['run']} belongs to no kind")
        kinds[name].append(100 * row["error"])
    return (
        table_of(
            kinds.items(),
            {
                "timed steps": lambda name, _: name,
                "rows": lambda _, errors: len(errors),
                "median error": lambda _, errors: f"{statistics.median(errors):+.1f} %",
                "lowest": lambda _, errors: f"{min(errors):+.1f} %",
                "highest": lambda _, errors: f"{max(errors):+.1f} %",
            },
        )
        + f"\n\nSeconds predicted next to measured, from {source(page, 'choosing')}."
    )


@renders
def choosing_check(page):
    """Every timed step."""
    rows = table_of(
        record("choosing")["check"]["rows"],
        {
            "record, run (GPUs)": lambda row: f"{row['record']}, {row['run']} ({row['gpus']} {row['gpu']})",
            "lesson and settings": lesson_and_settings,
            "measured ms": lambda row: f"{1e3 * row['seconds']:.1f}",
            "predicted ms": lambda row: f"{1e3 * row['predicted']:.1f}",
            "error, %": lambda row: f"{100 * row['error']:+.1f}",
        },
        left=2,
        repeats=False,
    )
    return f"{rows}\n\nFrom {source(page, 'choosing')}."


# What each lesson costs and when to use it; the table shows the lessons listed here.
EVERY = {
    "00_one_device": ("nothing is sent", "one GPU holds 16 P bytes and a micro-batch"),
    "01_data_parallel": ("every GPU holds all of it", "several such GPUs, and the plainest program"),
    "02_zero1": ("nothing that 01 does not cost", "instead of 01, whenever memory matters"),
    "03_zero2": ("gradients are sent once per micro-batch", "whole gradients do not fit; M is small"),
    "04_zero3": (
        "parameters are gathered twice per micro-batch",
        "whole parameters do not fit; the link is fast",
    ),
    "05_offload": ("the step waits for AdamW on the host", "few GPUs, much host memory"),
    "06_infinity": ("the step waits for the disk", "the host's memory is too small as well"),
    "07_pipeline": ("stages idle while it fills and drains", "the link is too slow for ZeRO"),
    "08_weight_versions": (
        "gradients of older weights; more copies of weights",
        "a pipeline must not idle, and other bits are accepted",
    ),
    "09_checkpoint_and_faults": (
        "a copy in host memory; writes to the disk",
        "every run that is longer than you would repeat",
    ),
    "10_tensor_parallel": (
        "activations travel in every half of a block",
        "a row's activations do not fit, or there are few rows; one node",
    ),
    "11_combined": ("each of these, each on its own link", "several nodes, and 04 does not fit in one"),
    "12_context_parallel": (
        "keys and values travel in every block; states are whole",
        "a row's activations do not fit, and 10 has no more heads to divide",
    ),
}


def first_of_each():
    """lesson -> its first row on eight GPUs, lesson 00's on one; "" where the model is not taken, or there is
    no row."""
    plans = record("choosing")["plans"]
    rows = [*plans["7b x8"]["rows"], *plans["7b x1"]["rows"]]
    return {
        lesson: next((row for row in rows if row["lesson"] == lesson and "micro" in row), "")
        for lesson in EVERY
    }


@renders
def every_lesson(page):
    """Memory, seconds, cost and use of each lesson, of one model on one machine."""
    rows = table_of(
        first_of_each().items(),
        {
            "lesson": lambda lesson, _: page.lesson(lesson),
            "GB on a GPU": lambda _, row: row and gb(row["device"]),
            "GB in host memory / on disk": lambda _, row: row and f"{gb(row['host'])} / {gb(row['disk'])}",
            "seconds per step": lambda _, row: row
            and (f"{row['seconds']:.1f}" if row["fits"] else "does not fit"),
            "what it costs": lambda lesson, _: EVERY[lesson][0],
            "use it when": lambda lesson, _: EVERY[lesson][1],
        },
        last=2,
    )
    return f"{rows}\n\nEstimated, the plainest settings of each that fit ({source(page, 'choosing')})."


@renders
def every_lesson_commands(page):
    """The command of each row that fits."""
    lines = [row["command"] for row in first_of_each().values() if row and row["fits"]]
    return "<!-- commands: gpu -->\n```sh\n" + "\n".join(lines) + "\n```"


QUESTION_X, QUESTION_WIDE, LEAF_X, LEAF_WIDE, HIGH, ROW = 16, 390, 480, 464, 40, 66
# Each entry: a question, the answer that ends the search, the leaf it leads to, and the leaf's fill. The
# other answer leads to the next entry.
ONE_NODE = (
    (
        "Do one row's activations fit on a GPU, recomputed?",
        "no",
        "10, tensor parallelism: inside one node",
        COMMUNICATION,
    ),
    ("Do 16 P bytes fit as well?", "yes", "00 on one GPU; 01, data parallelism, on several", FORWARD),
    ("Do 4 P + 12 P / N bytes fit?", "yes", "02, ZeRO-1", OPTIMIZER),
    ("Do 2 P + 14 P / N bytes fit?", "yes", "03, ZeRO-2", GRADIENTS),
    (
        "Do 16 P / N bytes and two blocks fit?",
        "yes",
        "04, ZeRO-3; over a slow link 07, a pipeline",
        PARAMETERS,
    ),
    ("Does the host have 16 P bytes?", "yes", "05, offload to the host", READING),
)


@figure
def choosing_tree():
    """Which lesson, by bytes and nodes."""
    top = 52
    drawing = Drawing(
        top + ROW * (len(ONE_NODE) + 3) - 8,
        "Which lesson?",
        "A decision tree: which lesson, by nodes and by the bytes that fit on a GPU. The list below asks "
        "the same questions.",
        "P parameters, N GPUs, G of them in a node",
    )

    def asks(row, question, x=QUESTION_X, wide=QUESTION_WIDE):
        drawing.box(x, top + row * ROW, wide, HIGH, "none", question, "mid", "bare")

    def leads(row, answer, leaf, fill):
        y = top + row * ROW + HIGH / 2
        drawing.line(QUESTION_X + QUESTION_WIDE, y, LEAF_X, y, "arrow", tip=True)
        drawing.text((QUESTION_X + QUESTION_WIDE + LEAF_X) / 2 - 4, y - 6, answer, "mid")
        if fill:
            drawing.box(LEAF_X, top + row * ROW, LEAF_WIDE, HIGH, fill, leaf)
        else:
            asks(row, leaf, LEAF_X, LEAF_WIDE)

    def down(row, answer, x, rows=1):
        drawing.line(x, top + row * ROW + HIGH, x, top + (row + rows) * ROW, "arrow", tip=True)
        drawing.text(x + 24, top + row * ROW + HIGH + 17, answer, "mid")

    asks(0, "Are the GPUs in several nodes?")
    leads(0, "yes", "Do 16 P / G bytes fit on each GPU of a node?", None)
    half = (LEAF_WIDE - 16) / 2
    for at, (answer, leaf, more, fill) in enumerate(
        (
            ("yes", "04, ZeRO-3, shard_ranks=G:", "gathers stay in a node", PARAMETERS),
            ("no", "11, a 3D mesh: tensor in a node,", "stages across, data the rest", COMMUNICATION),
        )
    ):
        x = LEAF_X + at * (half + 16)
        down(0, answer, x + half / 2)
        drawing.box(x, top + ROW, half, HIGH + 6, fill)
        drawing.text(x + half / 2, top + ROW + 19, leaf, "in")
        drawing.text(x + half / 2, top + ROW + 37, more, "in")
    middle = QUESTION_X + QUESTION_WIDE / 2
    down(0, "no", middle, 2)
    for row, (question, answer, leaf, fill) in enumerate(ONE_NODE, 2):
        asks(row, question)
        leads(row, answer, leaf, fill)
        down(row, "no" if answer == "yes" else "yes", middle)
    drawing.box(
        QUESTION_X,
        top + (2 + len(ONE_NODE)) * ROW,
        QUESTION_WIDE,
        HIGH,
        READING,
        "06, infinity: states on a disk",
    )
    return drawing.done("The list below says why. Recompute activations before you change the lesson.")
