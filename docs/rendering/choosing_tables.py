"""Tables of docs/choosing.md, from choosing.json: what lessons/choose.sh says of some machines, and how far it
is from steps that were timed."""
import statistics

from .palette import COMMUNICATION, FORWARD, GRADIENTS, OPTIMIZER, PARAMETERS, READING
from .registry import ROOT, RenderError, figure, has, record, renders, source, table, without_repeats
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


def quickest_of_each(rows):
    """Of each lesson its quickest row that ends in the same bits as exact updates; its first where none fits."""
    found = {}
    for row in rows:
        if (
            "micro" in row and "update=delayed" not in row["settings"]
        ):  # without micro: a setting that the machine or the model refuses
            found.setdefault(row["lesson"], []).append(row)
    return [max(of, key=lambda row: row["tokens_per_second"] if row["fits"] else 0) for of in found.values()]


@renders
def choosing_plan(page, plan):
    """Of one plan of choosing.json each lesson's quickest row."""
    if not has("choosing"):
        return ""
    found = record("choosing")["plans"][plan]
    host, nodes = "--host-memory" in found["command"], "--node-link" in found["command"]
    rows = []
    for row in quickest_of_each(found["rows"]):
        rate = f"{row['tokens_per_second']:,.0f}" if row["fits"] else "does not fit"
        rows.append(
            [
                row["lesson"],
                settings(row),
                row["micro"],
                gb(row["device"]),
                *([gb(row["host"]) + " / " + gb(row["disk"])] if host else []),
                *([gb(row["to_nodes"]) if row["fits"] else ""] if nodes else []),
                rate,
            ]
        )
    heads = [
        "lesson",
        "settings",
        "batch.micro",
        "GB on a GPU",
        *(["GB in host memory / on disk"] if host else []),
        *(["GB to other nodes"] if nodes else []),
        "tokens per second",
    ]
    return table(heads, rows, left=2) + "\n\n" + said_by(page, found)


def said_by(page, found):
    words = found["command"].split()
    measured = "--gpu" not in words or words[words.index("--gpu") + 1] == "H200"
    said = "Predicted" if measured else "Estimated"  # as lessons/choose/report.cpp says it
    return f"{said}: `{found['command']}` ({source(page, 'choosing')})."


@renders
def choosing_quickest(page, plan, count):
    """The quickest rows of one plan, and what they wait for."""
    if not has("choosing"):
        return ""
    rows = [
        [row["lesson"], settings(row), row["waits_for"], row["micro"], f"{row['tokens_per_second']:,.0f}"]
        for row in record("choosing")["plans"][plan]["quickest"][: int(count)]
    ]
    return table(["lesson", "settings", "a step", "batch.micro", "tokens per second"], rows, left=3)


@renders
def choosing_ahead(page):
    """What was predicted of runs before they were timed, and what some of them then took."""
    if not has("choosing_ahead"):
        return ""
    rows = []
    for row in record("choosing_ahead")["rows"]:
        on = f" ({row['measured_on']})" if row.get("measured_on", row["gpu"]) != row["gpu"] else ""
        timed = (
            [f"{1e3 * row['seconds']:.1f}{on}", f"{100 * (row['predicted'] / row['seconds'] - 1):+.1f}"]
            if "seconds" in row
            else ["", ""]
        )
        where = f"{row['run'].replace(' x', ', ')} {row['gpu']}{'s' if row['gpus'] > 1 else ''}, {row['rows']} rows"
        rows.append(
            [where, f"{row['lesson']} {settings(row)}".strip(), f"{1e3 * row['predicted']:.1f}", *timed]
        )
    heads = ["run", "lesson and settings", "predicted ms", "then measured ms", "error, %"]
    return table(heads, without_repeats(rows), left=2) + f"\n\nFrom {source(page, 'choosing_ahead')}."


@renders
def choosing_errors(page):
    """Predicted over measured seconds, by kind of run; stops where a timed step belongs to no kind."""
    if not has("choosing"):
        return ""
    steps, rows = list(record("choosing")["check"]["rows"]), []
    for name, belongs in KINDS:
        kind = [row for row in steps if belongs(row)]
        steps = [row for row in steps if not belongs(row)]
        errors = [100 * row["error"] for row in kind]
        spread = (statistics.median(errors), min(errors), max(errors))
        rows.append([name, len(kind), *(f"{error:+.1f} %" for error in spread)])
    if steps:
        raise RenderError(f"choosing.json: {steps[0]['record']}, {steps[0]['run']} belongs to no kind")
    heads = ["timed steps", "rows", "median error", "lowest", "highest"]
    return table(heads, rows) + f"\n\nSeconds predicted next to measured, from {source(page, 'choosing')}."


@renders
def choosing_check(page):
    """Every timed step."""
    if not has("choosing"):
        return ""
    rows = without_repeats(
        [
            [
                f"{row['record']}, {row['run']} ({row['gpus']} {row['gpu']})",
                f"{row['lesson']} {settings(row)}".strip(),
                f"{1e3 * row['seconds']:.1f}",
                f"{1e3 * row['predicted']:.1f}",
                f"{100 * row['error']:+.1f}",
            ]
            for row in record("choosing")["check"]["rows"]
        ]
    )
    heads = ["record, run (GPUs)", "lesson and settings", "measured ms", "predicted ms", "error, %"]
    return table(heads, rows, left=2) + f"\n\nFrom {source(page, 'choosing')}."


# Of each lesson: what it costs, and when to use it.
EVERY = {
    "00_one_device": ("one device", "nothing is sent", "one GPU holds 16 P bytes and a micro-batch"),
    "01_data_parallel": (
        "data parallel",
        "every GPU holds all of it",
        "several such GPUs, and the plainest program",
    ),
    "02_zero1": ("ZeRO-1", "nothing that 01 does not cost", "instead of 01, whenever memory matters"),
    "03_zero2": (
        "ZeRO-2",
        "gradients are sent once per micro-batch",
        "whole gradients do not fit; M is small",
    ),
    "04_zero3": (
        "ZeRO-3",
        "parameters are gathered twice per micro-batch",
        "whole parameters do not fit; the link is fast",
    ),
    "05_offload": ("offload", "the step waits for AdamW on the host", "few GPUs, much host memory"),
    "06_infinity": ("infinity", "the step waits for the disk", "the host's memory is too small as well"),
    "07_pipeline": ("pipeline", "stages idle while it fills and drains", "the link is too slow for ZeRO"),
    "08_weight_versions": (
        "weight versions",
        "gradients of older weights; more copies of weights",
        "a pipeline must not idle, and other bits are accepted",
    ),
    "09_checkpoint_and_faults": (
        "checkpoint and faults",
        "a copy in host memory; writes to the disk",
        "every run that is longer than you would repeat",
    ),
    "10_tensor_parallel": (
        "tensor parallel",
        "activations travel in every half of a block",
        "a row's activations do not fit, or there are few rows; one node",
    ),
    "11_combined": (
        "combined",
        "each of these, each on its own link",
        "several nodes, and 04 does not fit in one",
    ),
}


def first_of_each():
    """lesson -> its first row on eight GPUs, lesson 00's on one; None where the model is not taken, or there is no row."""
    folders = {path.name for path in (ROOT / "lessons").glob("[0-9]*")}
    if folders != set(EVERY):
        raise RenderError(
            f"choosing_tables.py: EVERY says nothing of {', '.join(sorted(folders ^ set(EVERY)))}, or that is no lesson"
        )
    plans = record("choosing")["plans"]
    rows = [*plans["7b x8"]["rows"], *plans["7b x1"]["rows"]]
    return {
        lesson: next((row for row in rows if row["lesson"] == lesson and "micro" in row), None)
        for lesson in EVERY
    }


@renders
def every_lesson(page):
    """Memory, seconds, cost and use of each lesson, of one model on one machine."""
    rows = []
    for lesson, row in first_of_each().items():
        name, costs, use = EVERY[lesson]
        numbers = [""] * 3
        if row:
            numbers = [
                gb(row["device"]),
                f"{gb(row['host'])} / {gb(row['disk'])}",
                f"{row['seconds']:.1f}" if row["fits"] else "does not fit",
            ]
        rows.append(
            [f"[{lesson[:2]} {name}]({page.link(f'lessons/{lesson}/README.md')})", *numbers, costs, use]
        )
    heads = [
        "lesson",
        "GB on a GPU",
        "GB in host memory / on disk",
        "seconds per step",
        "what it costs",
        "use it when",
    ]
    lines = table(heads, rows, left=1).split("\n")
    lines[1] = "| --- | ---: | ---: | ---: | --- | --- |"
    return (
        "\n".join(lines)
        + f"\n\nEstimated, the plainest settings of each that fit ({source(page, 'choosing')})."
    )


@renders
def every_lesson_commands(page):
    """The command of each row that fits."""
    lines = [row["command"] for row in first_of_each().values() if row and row["fits"]]
    return "<!-- commands: gpu -->\n```sh\n" + "\n".join(lines) + "\n```"


QUESTION_X, QUESTION_WIDE, LEAF_X, LEAF_WIDE, HIGH, ROW = 16, 390, 480, 464, 40, 66
# Question, the answer that ends it, the leaf, its fill; the other answer leads to the next.
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
        "A decision tree: which lesson, by nodes and by the bytes that fit on a GPU. The list below asks the same questions.",
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
