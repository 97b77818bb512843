"""Tables of docs/choosing.md, from choosing.json: what lessons/choose.sh says of some machines, and how far
it is from steps that were timed."""
import statistics
import textwrap

from .palette import ACTIVATIONS, OPTIMIZER, PARAMETERS, READING
from .registry import COURSE, RenderError, figure, record, renders, source, table_of, two_digits
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
        "tokens per second": lambda row: two_digits(row["tokens_per_second"])
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
    return f"{said}, {found['sure']}: `{found['command']}` ({source(page, 'choosing')})."


@renders
def choosing_quickest(page, plan, count):
    """The quickest rows of one plan, and what they wait for."""
    found = record("choosing")["plans"][plan]
    rows = table_of(
        found["quickest"][: int(count)],
        {
            "lesson": lambda row: row["lesson"],
            "settings": settings,
            "a step": lambda row: row["waits_for"],
            "batch.micro": lambda row: row["micro"],
            "tokens per second": lambda row: two_digits(row["tokens_per_second"]),
        },
        left=3,
    )
    return f"{rows}\n\n{said_by(page, found)}"


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
            "predicted ms": lambda row: f"{1e3 * row['predicted']:.1f}"
            if "seconds" in row
            else two_digits(1e3 * row["predicted"]),
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
    "11_combined": ("each of these, each on its own link", "several nodes with a slow link between them"),
    "12_context_parallel": (
        "keys and values travel in every block; states are whole",
        "a row's activations do not fit, and 10 has no more heads to divide",
    ),
}


def of_each():
    """lesson -> its first row on eight GPUs and its quickest, lesson 00's on one; nothing where the model is
    not taken, or there is no row."""
    plans = record("choosing")["plans"]
    rows = [*plans["7b x8"]["rows"], *plans["7b x1"]["rows"]]
    quickest = {row["lesson"]: row for row in quickest_of_each(rows)}
    return {
        lesson: next(
            ((row, quickest[lesson]) for row in rows if row["lesson"] == lesson and "micro" in row), ()
        )
        for lesson in EVERY
    }


def seconds_of(row):
    return two_digits(row["seconds"]) if row["fits"] else "does not fit"


@renders
def every_lesson(page):
    """Memory, seconds, cost and use of each lesson, of one model on one machine."""
    rows = table_of(
        of_each().items(),
        {
            "lesson": lambda lesson, _: page.lesson(lesson),
            "GB on a GPU, with `batch.micro`": lambda _, rows: " ".join(
                f"{gb(row['device'])}, {row['micro']}" for row in rows[:1]
            ),
            "GB in host memory / on disk": lambda _, rows: " ".join(
                f"{gb(row['host'])} / {gb(row['disk'])}" for row in rows[:1]
            ),
            "seconds per step; with the best settings": lambda _, rows: "; ".join(
                dict.fromkeys(map(seconds_of, rows))
            ),
            "what it costs": lambda lesson, _: EVERY[lesson][0],
            "use it when": lambda lesson, _: EVERY[lesson][1],
        },
        last=2,
    )
    sure = record("choosing")["plans"]["7b x8"]["sure"]
    said = (
        f"Estimated, {sure}; the plainest settings of each that fit, with their memory, and then the "
        "quickest, in 06 with most states on the GPU"
    )
    return f"{rows}\n\n{said} ({source(page, 'choosing')})."


@renders
def every_lesson_commands(page):
    """The command of each row that fits."""
    lines = dict.fromkeys(row["command"] for rows in of_each().values() for row in rows if row["fits"])
    return "<!-- commands: gpu -->\n```sh\n" + "\n".join(lines) + "\n```"


# By lesson: what every GPU no longer holds or has, and its fill; lessons 00 and 01 have none.
LEAVES = {
    "02": (OPTIMIZER, "optimizer states divided"),
    "04": (PARAMETERS, "parameters too"),
    "05": (READING, "reading host or disk"),
    "06": (READING, ""),
    "11": (ACTIVATIONS, "activations travel"),
}
TREE_KEY = [("none", "nothing divided"), *(entry for entry in LEAVES.values() if entry[1])]
MODELS = {"gpt2_355m": "GPT-2 355M", "gpt2_1558m": "GPT-2 1.5B", "gpt_7b": "7B", "gpt_70b": "70B"}
TREE_CAPTION = (
    "What `lessons/choose.sh` advises, asked of each machine (choosing.json). It predicts: no lesson has run "
    "on cards of 24 GB, or on more than four GPUs, and two lessons may differ by less than its error."
)


def tree_alt():
    said = "; ".join(
        f"{machine}: {', '.join(advice.split()[1][:2] if advice else '-' for advice in advised.values())}"
        for machine, _, advised in machines()
    )
    return (
        f"For each machine and model ({', '.join(MODELS.values())}) the lesson that choose advises. {said}."
    )


def machines():
    """(the machine, its links and its hosts' memory, {model: advice}) of all that were asked of."""
    for machine, one in record("choosing")["tree"].items():
        words = one["command"].split()
        flags = dict(zip(words[1::2], words[2::2]))
        links = {"--link": "GPUs' links", "--node-link": "between nodes"}
        more = [f"{name} {flags[flag]}" for flag, name in links.items() if flag in flags]
        yield machine, [*more, f"host memory {flags['--host-memory']}"], one["advice"]


def draw_leaf(drawing, x, y, wide, high, advice, name=""):
    """What was advised: its lesson, and below it the settings."""
    _, folder, *settings = (advice or " ").split(" ")
    fill = LEAVES.get(folder[:2], ("none",))[0]
    words = " ".join(settings).replace("activations=", "").replace("schedule=", "")
    lines = [
        name + (COURSE[folder]["name"] if folder else "nothing fits"),
        *textwrap.wrap(words, int(wide / 8)),
    ]
    if folder:
        drawing.box(x, y, wide, high, fill, kind_of_box="bare" if fill == "none" else "box")
    for i, line in enumerate(lines):
        place = y + high / 2 + 4 - 7 * (len(lines) - 1) + 14 * i
        drawing.text(x + wide / 2, place, line, "small mid" if fill == "none" else "in small")


@figure
def choosing_tree():
    """Which lesson, as choose says."""
    rows, top, row_high = list(machines()), 84, 92
    drawing = Drawing(
        top + row_high * len(rows) + 36, "Which lesson?", tree_alt(), "advised by choose, not measured"
    )
    for i, model in enumerate(MODELS.values()):
        drawing.text(272 + 190 * i, top - 12, model, "mid")
    for row, (machine, more, advised) in enumerate(rows):
        y = top + row_high * row
        drawing.text(16, y + 36, machine)
        drawing.lines(16, y + 54, 16, *more)
        for i, advice in enumerate(advised.values()):
            draw_leaf(drawing, 180 + 190 * i, y, 184, row_high - 6, advice)
    drawing.legend(16, top + row_high * len(rows) + 18, TREE_KEY)
    return drawing.done(TREE_CAPTION)


@figure
def choosing_tree_narrow():
    """For narrow screens: the leaves of a machine below its name."""
    rows, top, high = list(machines()), 66, 178
    drawing = Drawing(top + high * len(rows) + 66, "Which lesson?", tree_alt(), width=480)
    for row, (machine, more, advised) in enumerate(rows):
        y = top + high * row
        drawing.text(16, y, f"{machine}: {', '.join(more)}")
        for i, (model, advice) in enumerate(advised.items()):
            draw_leaf(
                drawing, 16 + 226 * (i % 2), y + 10 + 76 * (i // 2), 220, 70, advice, f"{MODELS[model]}: "
            )
    for i in (0, 2, 4):
        drawing.legend(16, top + high * len(rows) + 4 + 11 * i, TREE_KEY[i : i + 2])
    return drawing.done(TREE_CAPTION)
