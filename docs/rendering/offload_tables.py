"""Tables of lesson 05: bytes by place, a slow link, late updates (docs/results/lesson_05*.json), rates on a
GPU (gpu_offload.json)."""
import statistics

from .lesson_tables import is_busy, tail
from .plans import stored, workload
from .registry import RenderError, as_predicted, bytes_text, record, renders, source, table, table_of

# Runs of the record lesson_05.json that the tables show.
COLUMNS = ("default", "sharded", "delayed")
ROWS = (
    ("device", "parameters", ("parameters",)),
    ("device", "gradients", ("gradients",)),
    ("device", "momentum, variance", ("momentum", "variance")),
    ("device", "activations and the rest", ("activations", "workspace", "communication")),
    ("device", "total", ("total",)),
    ("pinned", "parameters", ("parameters",)),
    ("pinned", "gradients", ("gradients",)),
    ("pinned", "scalars", ("workspace",)),
    ("host", "momentum, variance", ("momentum", "variance")),
)
# Seconds of a step beside computing: its last copies down and its first copies up.
SECONDS_BESIDE = 0.002
GPU_ROWS = {"355m": "355M, 16 rows of 1024", "774m": "774M, 2 rows of 512"}


def at(measured, place):
    return measured if place == "device" else measured.get(place, {})


@renders
def offload_bytes(page):
    """Rank 0's bytes by place: lesson 04, and lesson 05 with whole and with sharded parameters. Stops where a
    run was not as planned."""
    runs = [as_predicted(record("lesson_05")[name], "bytes") for name in COLUMNS]
    every = {"lesson 04": record("lesson_04")["default"], "`whole`": runs[0], "`sharded`": runs[1]}

    def cell(run, place, purposes):
        count = sum(at(run["bytes"], place).get(one, 0) for one in purposes)
        return f"{count:,}" if count else ""

    return table_of(
        ROWS,
        {
            "place": lambda place, *_: place,
            "purpose": lambda _, what, __: what,
            **{name: lambda place, _, of, run=run: cell(run, place, of) for name, run in every.items()},
        },
        left=2,
    ) + tail(page, "lesson_05", "lesson_04", more="bytes of rank 0 of 2, exact updates")


@renders
def offload_delayed(page):
    """Where whole runs end, exact and one update behind, by learning rate."""
    losses = {}
    for run in record("lesson_05_delayed")["runs"]:
        losses.setdefault(run["lr"], []).append(f"{run['validation_loss']:.3f}")
    rows = [[f"{rate:g}", *found] for rate, found in losses.items()]
    heads = ["learning rate", "exact", "delayed, 2 warm steps", "delayed, 40 warm steps"]
    return table(heads, rows) + tail(
        page, "lesson_05_delayed", more="validation loss after 400 steps, two ranks, default workload"
    )


@renders
def offload_link(page):
    """Milliseconds a step, copies beside the device and one after the other, with and without a limit."""
    found = record("lesson_05_link")
    runs = {(run["link_mbps"], run["overlap"]): run for run in found["runs"]}
    if len({tuple(run["loss"]) for run in runs.values()}) != 1:
        raise RenderError("lesson_05_link: losses differ between runs that must be equal")

    def cell(mbps, overlap):
        return f"{1e3 * statistics.median(turn['seconds'] for turn in runs[mbps, overlap]['rounds']):.0f} ms"

    rows = [
        [f"{mbps} MB/s" if mbps else "no limit", cell(mbps, "on"), cell(mbps, "off")]
        for mbps in sorted({mbps for mbps, _ in runs})
    ]
    busy = (
        "; other work ran on the machine, so only the order of these times counts"
        if is_busy("lesson_05_link")
        else ""
    )
    return table(["link", "`overlap=on`", "`overlap=off`"], rows) + tail(
        page, "lesson_05_link", more=f"median step, two ranks, `batch.micro=6`; the losses are equal{busy}"
    )


def thousands(rate):
    return f"{rate / 1e3:.{1 if rate >= 1e4 else 2}f}"


def host_seconds(model, found):
    """What the host's AdamW alone takes of a model."""
    return stored(workload(f"gpt2_{model}")["model"]) / found["adam"]["params_per_second"]


@renders
def offload_gpu(page):
    """A line a run on one GPU: bytes on the device, milliseconds a step, tokens a second, those over lesson
    00's."""
    found = record("gpu_offload")

    def rate(model, kind):
        runs = found["runs"][model]
        return runs[kind]["tokens_per_second"] if kind in runs else 0

    def early(_, __, run):
        form = "{:.0%}, {made_again}"
        counts = run.get("counts")
        return (
            form.format(counts["begun_before_the_norm"] / counts["pieces_updated"], **counts)
            if counts
            else ""
        )

    rows = table_of(
        [(model, kind, run) for model in GPU_ROWS for kind, run in found["runs"][model].items()],
        {
            "model, batch": lambda model, *_: GPU_ROWS[model],
            "run": lambda _, kind, __: "lesson 00" if kind == "one_device" else kind,
            "bytes on the GPU": lambda *row: bytes_text(row[-1]["device_bytes"]),
            "ms a step": lambda *row: f"{1e3 * row[-1]['median_seconds']:.1f}",
            "k tokens per second": lambda *row: thousands(row[-1]["tokens_per_second"]),
            "of lesson 00": lambda model, kind, _: f"{rate(model, kind) / rate(model, 'one_device'):.2f}"
            if rate(model, "one_device")
            else "",
            "pieces begun before the norm; made again": early,
        },
        left=2,
        repeats=False,
    )
    return f"{rows}\n\nFrom {source(page, 'gpu_offload')} (one {found['gpu']})."


def rows_of_vocabulary(model):
    """As stored: rounded up to a multiple of 128."""
    return -(-model["vocab"] // 128) * 128


def forward_share(work):
    """The operations of the blocks' forward as a share of a step's: backward is twice forward, and the head
    is no part of it. Counted here, because plans have bytes and no operations of products."""
    model = work["model"]
    d, tokens = model["width"], work["batch"]["sequence"]
    blocks = model["layers"] * (24 * d * d + 2 * d * tokens)
    head = 2 * d * rows_of_vocabulary(model)
    return blocks / (3 * (blocks + head))


def after_forward(seconds, forward, work):
    """What of an update that takes so many seconds ends after a forward: never less than unit 0's share."""
    model = work["model"]
    d = model["width"]
    first = (rows_of_vocabulary(model) + model["context"]) * d
    of_all = first / (first + model["layers"] * (12 * d * d + 13 * d) + 2 * d)
    return max(seconds * of_all, seconds - forward)


@renders
def offload_time(page):
    """The page's formula beside the measured step."""
    found = record("gpu_offload")
    runs = found["runs"]
    device, host = runs["355m"]["one_device"]["median_seconds"], host_seconds("355m", found)
    forward = forward_share(workload("gpt2_355m")) * device
    rows = []
    for model, kind, formula, seconds in (
        (
            "355m",
            "exact",
            f"{1e3 * device:.1f} + ({1e3 * host:.1f} - {1e3 * forward:.1f}) + 2",
            device + after_forward(host, forward, workload("gpt2_355m")) + SECONDS_BESIDE,
        ),
        (
            "355m",
            "delayed",
            f"max({1e3 * device:.1f}, {1e3 * host:.1f}) + 2",
            max(device, host) + SECONDS_BESIDE,
        ),
        (
            "774m",
            "delayed",
            f"{1e3 * host_seconds('774m', found):.1f} + 2",
            host_seconds("774m", found) + SECONDS_BESIDE,
        ),
    ):
        rows.append(
            [
                f"{model[:-1]}M, {kind}",
                formula,
                f"{1e3 * seconds:.0f} ms",
                " and ".join(f"{1e3 * one:.0f}" for one in runs[model][kind]["rounds_seconds"]) + " ms",
            ]
        )
    adam = found["adam"]
    of = f", commit {adam['commit']}" if "commit" in adam else ""
    return table(["run", "by the formula, ms", "predicted", "measured twice"], rows, left=2) + tail(
        page,
        "gpu_offload",
        more="T_gpu is lesson 00's step, its AdamW included, T_forward its share of that by operations; "
        "AdamW alone updates "
        f"{adam['params_per_second'] / 1e9:.1f} G parameters per second on {adam['threads']} "
        f"threads{of}",
    )


# The worked timeline: number of units, and milliseconds of each unit's forward, backward and Adam.
UNITS, FORWARD, BACKWARD, ADAM = 3, 1, 2, 3


def worked_step(kind, resident=0):
    """[(what, unit, begin, end)] from one step's backward to the next one's, by the rules of the page: copies
    take no time, nothing clips."""
    spans, landed, time = [], {}, 0
    for unit in reversed(range(UNITS)):
        spans.append(("backward", unit, time, time + BACKWARD))
        landed[unit] = time = time + BACKWARD
    norm, free, ready = time, 0 if kind == "early" else time, dict.fromkeys(range(resident), time)
    while len(ready) < UNITS:
        waiting = [unit for unit in range(resident, UNITS) if unit not in ready]
        free = max(free, min(landed[unit] for unit in waiting))
        unit = min(unit for unit in waiting if landed[unit] <= free)  # which forward needs first
        spans.append(("AdamW", unit, free, free + ADAM))
        free += ADAM
        ready[unit] = max(free, norm)
    for unit in range(UNITS):
        time = time if kind == "delayed" else max(time, ready[unit])
        spans.append(("forward", unit, time, time + FORWARD))
        time += FORWARD
    return spans, max(time, UNITS * ADAM) if kind == "delayed" else time


@renders
def offload_worked(_page):
    """A step of three units by hand: when the host updates, when forward computes, and how long it takes."""
    rows = []
    for name, kind, resident in (
        ("`exact`", "exact", 0),
        ("`early`", "early", 0),
        ("`early`, `resident=1`", "early", 1),
        ("`delayed`", "delayed", 0),
    ):
        spans, length = worked_step(kind, resident)
        of = {
            what: ", ".join(f"{unit}: {begin} to {end}" for found, unit, begin, end in spans if found == what)
            for what in ("AdamW", "forward")
        }
        rows.append(
            [
                name,
                "beside the whole step" if kind == "delayed" else of["AdamW"],
                of["forward"],
                f"{length} ms",
            ]
        )
    return table(["update", "the host's AdamW, unit: ms", "forward, unit: ms", "a step"], rows, left=3)
