"""Lesson 09: its story as run.sh prints it, what saving costs a run, a save during the steps, and which bytes
of a checkpoint other runs read (docs/results/lesson_09*.json)."""
import statistics

from . import plots
from .lesson_tables import is_busy
from .palette import ARROW, COMMUNICATION, COMPUTE, OPTIMIZER, PARAMETERS, READING, WAITING, WRITING
from .plans import plan_of, workload_of
from .registry import RenderError, bytes_text, figure, record, renders, source, table_of
from .svg import Drawing

ROWS = {"off": "`--save-async off`", "on": "`--save-async on`"}


def middle(run, key):
    """The median over all saves, in ms."""
    return f"{1000 * statistics.median(value for one in run['rounds'] for value in one[key]):.0f} ms"


@renders
def checkpoint_story(page):
    """What lessons/09_checkpoint_and_faults/run.sh prints, but for the paths and settings that `checkpoint
    diff` names."""
    said = [
        line.rstrip()
        for line in record("lesson_09")["said"]
        if not line.strip().startswith(("A: ", "B: ", "strategy."))
    ]
    return "```text\n" + "\n".join(said) + "\n```"


@renders
def checkpoint_cost(page):
    """What a save blocks and takes."""
    runs = record("lesson_09")["runs"]
    return table_of(
        ROWS,
        {
            "": ROWS.get,
            "a save blocks the run for": lambda key: middle(runs[key], "blocked"),
            "durable after": lambda key: middle(runs[key], "durable"),
        },
    ) + (
        f"\n\nFrom {source(page, 'lesson_09')} (medians of three runs with 6 saves each, two ranks, default "
        "workload)."
    )


def named(run):
    return f"{run['model'].upper()}, lesson {run['lesson'][:2]}" + (
        ", two GPUs" if run.get("ranks", 1) == 2 else ""
    )


@renders
def checkpoint_gpu(page):
    """What a save blocks and takes of a run on GPUs."""
    found = record("gpu_checkpoints")
    rows = table_of(
        found["runs"],
        {
            "first save of a run": named,
            "GB": lambda run: f"{run['on']['bytes'] / 1e9:.1f}",
            "`off` blocks for": lambda run: f"{run['off']['saves'][0]['blocked']:.1f} s",
            "`on` blocks for": lambda run: f"{run['on']['saves'][0]['blocked']:.1f} s",
            "durable after": lambda run: f"{run['on']['saves'][0]['seconds']:.1f} s",
            "steps meanwhile": lambda run: "{:+.1f} %".format(
                100 * (run["on"]["step_seconds_beside"] / run["none"]["step_seconds"] - 1)
            ),
        },
    )
    equal = "; ".join(named(run) for run in found["resumed"] if run["exit"] == 0)
    cards = {
        count: " and ".join(
            sorted({run["versions"]["GPU"] for run in found["runs"] if run.get("ranks", 1) == count})
        )
        for count in (1, 2)
    }
    return rows + (
        f"\n\nFrom {source(page, 'gpu_checkpoints')} (one {cards[1]}, or two {cards[2]}; each on its host's "
        "disk; single runs, next to one that saves nothing). Equal to the bit after a resume, with `--ops "
        f"deterministic`: {equal}."
    )


@renders
def checkpoint_bytes(page):
    """A checkpoint's bytes, by formula and on the disk."""
    run = record("lesson_09")["runs"]["on"]
    P = plan_of("04_zero3", workload_of(run), run["world"]).P
    shards = sum(size for name, size in run["files"].items() if name.startswith("rank-"))
    rows = [
        ("all shards", "12 P, and names", 12 * P, shards),
        ("the copy of a rank", "12 P / N", 12 * P // run["world"], run["bytes"]["host"]["checkpoint"]),
    ]
    return (
        table_of(
            rows,
            {
                "": lambda what, *_: what,
                "formula": lambda _, formula, *__: formula,
                "bytes by it": lambda *row: f"{row[2]:,}",
                "measured": lambda *row: f"{row[3]:,}",
            },
            left=2,
        )
        + f"\n\nFrom {source(page, 'lesson_09')} (two ranks; P = {P:,} as padded for them)."
    )


READERS = (COMMUNICATION, READING, WRITING)  # a rank's; none of them means anything else here


def waits_of(run):
    waits, there = (f"{1e3 * run[key]:.0f} ms" for key in ("blocked", "durable"))
    return f"the run waits {waits}, and the checkpoint is there {there} after the step"


@figure
def checkpoint_behind_steps():
    """Steps of rank 0, how long they wait for its first save, and its file: without and with a copy."""
    found = record("lesson_09_timeline")
    runs = found["drawn"]
    end = max(run["steps"][-1][2] for run in runs.values())
    last = list(runs.values())[-1]
    alt = "Timelines of a rank. " + " ".join(f"--save-async {mode}: {waits_of(runs[mode])}." for mode in runs)

    def draw(figure):
        for top, (mode, run) in zip((72, 206), runs.items()):
            plots.words(figure, 16, top - 10, f"--save-async {mode}: {waits_of(run)}", weight="bold")
            plotted = plots.axes(figure, top, 76, left=96, right=24)
            plots.lanes(plotted, rows_of(run), end)
            plotted.annotate(
                "rename: the checkpoint is there",
                (run["named"][0], 47),
                xytext=(6, 0),
                textcoords="offset points",
                va="center_baseline",
            )
            plotted.plot(
                [run["flushed"][1], run["named"][0]],
                [47, 47],
                color=ARROW,
                linewidth=1.5,
                marker=">",
                markevery=[1],
                markersize=6,
            )
        plots.key(
            figure,
            326,
            [
                (COMPUTE, "a step: forward, backward, update"),
                (WAITING, "waiting for the save"),
                (WRITING, "writing and flushing the file"),
            ],
            left=96,
        )

    late = f"{found['write_delay_microseconds'] / 1e3:g} ms late"
    return plots.plot(
        344,
        "A save during the steps",
        alt,
        f"Rank 0 of two with its first checkpoint, a file of {bytes_text(last['bytes'])}; each of its "
        f"{last['writes']} writes comes {late}, as on a slower disk (lesson_09_timeline.json).",
        draw,
        "measured" + (", on a busy machine" if is_busy("lesson_09_timeline") else ""),
    )


def rows_of(run):
    """Lanes: steps and what they wait for the save; the file. Later gaps are not the save's."""
    steps = run["steps"]
    training = [(begin, end, COMPUTE, f"step {step}") for step, begin, end in steps]
    waits = [
        (end, begin, WAITING, "waits")
        for (_, _, end), (_, begin, _) in zip(steps, steps[1:])
        if end <= run["named"][0]
    ]
    return [
        ("training", 26, training + waits),
        ("its file", 26, [(*run["written"], WRITING, "write"), (*run["flushed"], WRITING, "flush")]),
    ]


def shared_bytes(entry, holds):
    """Parts of an entry of a file, by who reads them: [first byte, the one after the last, {ranks}]."""
    tensor, _, begin, end, first, _ = entry
    ranges = [
        (rank, max(begin, low), min(end, high))
        for rank, held in enumerate(holds)
        for name, low, high in held
        if name == tensor
    ]
    borders = sorted({begin, end, *(at for _, low, high in ranges if low < high for at in (low, high))})
    for low, high in zip(borders, borders[1:]):
        ranks = {rank for rank, held_low, held_high in ranges if held_low <= low and high <= held_high}
        if not ranks:
            raise RenderError(f"lesson_09_reads.json: nobody reads elements {low} to {high} of {tensor}")
        yield [first + 4 * (low - begin), first + 4 * (high - begin), ranks]


def read_parts(file, holds):
    """The whole file, in order; neighbours that the same ranks read are one."""
    parts = []
    for entry in file["entries"]:
        for first, last, ranks in shared_bytes(entry, holds):
            if parts and parts[-1][1:] == [first, ranks]:
                parts[-1][1] = last
            else:
                parts.append([first, last, ranks])
    return parts


def unit_of(tensor):
    if tensor.startswith("h."):
        return ".".join(tensor.split(".")[:2])
    return "wte, wpe" if tensor.startswith("w") else "head"


def draw_content(drawing, x, y, file):
    """What a file holds: of each unit its weights, then both moments."""
    blocks = {}
    for tensor, purpose, _, _, first, last in file["entries"]:
        key = (unit_of(tensor), "weights" if purpose == "parameters" else "moments")
        blocks[key] = (min(first, blocks.get(key, (first, 0))[0]), last)
    for (unit, what), (first, last) in blocks.items():
        drawing.box(
            x(first),
            y,
            x(last) - x(first),
            22,
            PARAMETERS if what == "weights" else OPTIMIZER,
            what if x(last) - x(first) > 50 else "",
            "in small",
        )
        if what == "weights":
            drawing.text((x(first) + x(blocks[unit, "moments"][1])) / 2, y - 6, unit, "small mid")


def reads_text(reader, parts):
    """What each of its ranks reads, of all files."""
    read = [
        sum(last - first for file in parts for first, last, ranks in file if rank in ranks)
        for rank in range(reader["world"])
    ]
    places = "stages" if reader["lesson"].startswith("07") else "ranks"
    head = f"Lesson {reader['lesson'][:2]} on {reader['world']} {places}: "
    texts = [bytes_text(count) for count in read]
    if all(len(ranks) == reader["world"] for file in parts for *_, ranks in file):
        return f"{head}each reads everything, {texts[0]}"
    if len(set(texts)) == 1:
        return f"{head}each reads {texts[0]}"
    return head + ", ".join(f"{places[:-1]} {rank} reads {text}" for rank, text in enumerate(texts))


@figure
def checkpoint_reads():
    """Which bytes of each file of a checkpoint the ranks of three other runs read."""
    found = record("lesson_09_reads")
    files, readers = found["files"], found["readers"]
    parts = [[read_parts(file, reader["holds"]) for file in files.values()] for reader in readers]
    texts = [reads_text(*both) for both in zip(readers, parts)]
    left, right, bar, top, height = 96, 936, 20, 106, 30 + 24 * len(files)
    drawing = Drawing(
        top + height * len(readers) + 52,
        f"Who reads what of a checkpoint by lesson {found['lesson'][:2]} on {found['world']} ranks",
        ". ".join(["Bars: the files of a checkpoint, cut by who reads which bytes", *texts]) + ".",
        "computed from the files' headers",
    )
    most = max(file["bytes"] for file in files.values())

    def x(byte):
        return left + (right - left) * byte / most

    drawing.text(left - 8, 75, "rank-0001", "small end")
    draw_content(drawing, x, 60, files["rank-0001.safetensors"])
    for row, (text, cuts) in enumerate(zip(texts, parts)):
        y = top + height * row
        drawing.text(16, y + 12, text)
        for number, (name, cut) in enumerate(zip(files, cuts)):
            place = y + 22 + 24 * number
            drawing.text(left - 8, place + 14, name.split(".")[0], "small end")
            for first, last, ranks in cut:
                thick = bar / len(ranks)
                for stripe, rank in enumerate(sorted(ranks)):
                    drawing.box(x(first), place + thick * stripe, x(last) - x(first), thick, READERS[rank])
    legend = [(fill, f"rank or stage {rank} reads it") for rank, fill in enumerate(READERS)]
    drawing.legend(left, top + height * len(readers) + 30, legend)
    return drawing.done(
        "Ranges in the files' headers, intersected with those that each reader holds; "
        "a model of four blocks with an untied head (lesson_09_reads.json)."
    )
