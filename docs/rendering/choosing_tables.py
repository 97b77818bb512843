"""Tables of docs/choosing.md, from choosing.json: what lessons/choose.sh says of some machines, and how far it
is from steps that were timed."""
import statistics

from .registry import RenderError, has, record, renders, source, table

KINDS = (  # of timed steps; each belongs to the first that takes it
    ("the [quoted runs](results.md), 1,024 or 2,048 tokens per step", lambda row: row["record"] == "quoted"),
    ("lesson 00, fp32 and fp16", lambda row: row["run"] in ("fp32", "fp16")),
    ("lesson 00, bf16", lambda row: row["lesson"] == "00_one_device"),
    ("lessons 01 to 04, one GPU", lambda row: row["lesson"][:2] <= "04" and row["gpus"] == 1),
    ("lesson 07, pipelines", lambda row: row["lesson"][:2] == "07"),
    ("lesson 10, two GPUs", lambda row: row["lesson"][:2] == "10"),
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


@renders
def choosing_plan(page, plan):
    """The rows of one plan of choosing.json."""
    if not has("choosing"):
        return ""
    found = record("choosing")["plans"][plan]
    host, nodes = "--host-memory" in found["command"], "--node-link" in found["command"]
    rows = []
    for row in found["rows"]:
        if "micro" not in row:
            continue  # a setting that the machine or the model refuses
        rate = f"{row['tokens_per_second']:,.0f}" if row["fits"] else "does not fit"
        rows.append([row["lesson"], settings(row), row["micro"], gb(row["device"]),
                     *([gb(row["host"]) + " / " + gb(row["disk"])] if host else []),
                     *([gb(row["to_nodes"]) if row["fits"] else ""] if nodes else []), rate])
    heads = ["lesson", "settings", "batch.micro", "GB on a GPU", *(["GB in host memory / on disk"] if host else []),
             *(["GB to other nodes"] if nodes else []), "tokens per second"]
    return table(heads, rows, left=2) + "\n\n" + said_by(page, found)


def said_by(page, found):
    words = found["command"].split()
    measured = "--gpu" not in words or words[words.index("--gpu") + 1] == "H200"
    said = "Predicted" if measured else "Estimated"  # as lessons/choose/report.cpp says it
    return f"{said}: `{found['command']}` ({source(page, 'choosing')})."


@renders
def choosing_quickest(page, plan):
    """The quickest rows of one plan, and what they wait for."""
    if not has("choosing"):
        return ""
    rows = [[row["lesson"], settings(row), row["waits_for"], row["micro"], f"{row['tokens_per_second']:,.0f}"]
            for row in record("choosing")["plans"][plan]["quickest"]]
    return table(["lesson", "settings", "a step", "batch.micro", "tokens per second"], rows, left=3)


@renders
def choosing_ahead(page):
    """What is predicted of more GPUs than were ever asked."""
    if not has("choosing"):
        return ""
    rows = [[f"{row['run'].replace(' x', ', ')} {row['gpu']}s", f"{row['lesson']} {settings(row)}".strip(), f"{1e3 * row['predicted']:.1f}"]
            for row in record("choosing")["check"]["ahead"]]
    return table(["run", "lesson and settings", "predicted ms"], rows, left=2) + f"\n\nFrom {source(page, 'choosing')}."


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
    rows = [[f"{row['record']}, {row['run']}", f"{row['lesson']} {settings(row)}".strip(), f"{row['gpus']} {row['gpu']}",
             f"{1e3 * row['seconds']:.1f}", f"{1e3 * row['predicted']:.1f}", f"{100 * row['error']:+.1f} %"]
            for row in record("choosing")["check"]["rows"]]
    heads = ["record, run", "lesson and settings", "GPUs", "measured ms", "predicted ms", "error"]
    return table(heads, rows, left=2) + f"\n\nFrom {source(page, 'choosing')}."
