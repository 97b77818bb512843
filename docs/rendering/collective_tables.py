"""docs/collectives.md: costs of collectives by formula, and the measured sweeps."""
import functools
import json
import struct

from . import plots
from .registry import RESULTS, bytes_text, figure, renders, source, table, table_of

KINDS = {"all_reduce": 2, "reduce_scatter": 1, "all_gather": 1}  # how often the pieces go round
GROUPS = (2, 4, 8, 64)


@renders
def collective_costs(page):
    """Messages that follow one another, and bytes that a rank sends, by kind and ranks."""
    rows = [
        [
            f"`{kind}`",
            f"{'2 ' if rounds > 1 else ''}(N-1)",
            f"{'2 ' if rounds > 1 else ''}(N-1)/N n",
            *[f"{rounds * (n - 1)}, {rounds * (n - 1) / n:.4g} n" for n in GROUPS],
        ]
        for kind, rounds in KINDS.items()
    ]
    chain = [
        "`broadcast`, a chain",
        "N-1 for the first piece",
        "n (the last rank: none)",
        *[f"{n - 1}, n" for n in GROUPS],
    ]
    return table(
        [
            "operation on n bytes",
            "messages that follow one another",
            "bytes a rank sends",
            *[f"N = {n}" for n in GROUPS],
        ],
        [*rows, chain],
        left=3,
    )


def records():
    return [(path.stem, json.loads(path.read_text())) for path in sorted(RESULTS.glob("collectives_*.json"))]


def time_text(seconds):
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


def call_seconds(rounds, ranks, fit):
    """What the fit sees: the time of a call that has nothing to send. The latency of the formula is that,
    spread over a ring's messages."""
    return rounds * (ranks - 1) * fit["latency_s"]


@renders
def sweep_fits(page, only=None):
    """Latency and bandwidth of every sweep and kind, or of one kind."""

    def equal_terms(_, ranks, __, fit):
        kib = fit["latency_s"] * (fit["bytes_per_s"] or 0) * ranks / 1024
        return f"{kib:.0f} KiB" if kib < 1024 else f"{kib / 1024:.1f} MiB"

    return table_of(
        [
            (name, said["ranks"], operation["kind"], operation["fit"])
            for name, said in records()
            for operation in said["operations"]
            if only in (None, operation["kind"])
        ],
        {
            "record": lambda name, *_: source(page, name),
            "ranks": lambda _, ranks, *__: str(ranks),
            "operation": lambda _, __, kind, ___: f"`{kind}`",
            "a call of no bytes": lambda _, ranks, kind, fit: time_text(
                call_seconds(KINDS[kind], ranks, fit)
            ),
            "bandwidth 1/β, GB/s": lambda *row: f"{row[-1]['bytes_per_s'] / 1e9:.1f}"
            if row[-1]["bytes_per_s"]
            else "-",
            "n where both terms are equal": equal_terms,
            "fit over measured": lambda *row: "{:+.0f} to {:+.0f} %".format(
                *(100 * row[-1]["relative_error"][end] for end in ("lowest", "highest"))
            ),
        },
        left=3,
    )


def f32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


@renders
def order_example(page):
    """Four numbers whose fp32 sum depends on the order."""
    terms = [1.0, 2.0**-24, 2.0**-24, 2.0**-24]

    def summed(first):
        return functools.reduce(lambda total, i: f32(total + terms[(first + i) % 4]), range(4), 0.0)

    return "With t0 = 1 on rank 0 and t1 = t2 = t3 = 2^-24 on the others, in fp32:\n\n" + table_of(
        range(4),
        {
            "order of a ring that starts at": lambda first: f"rank {first} first: "
            f"({' + '.join(f't{(first + i) % 4}' for i in range(4))})",
            "sum": lambda first: repr(summed(first)),
            "that is": lambda first: f"1 + {round((summed(first) - 1) / 2.0**-23)} x 2^-23",
        },
        left=3,
    )


def fitted(ranks, fit, count):
    """Seconds of an all-reduce."""
    bandwidth = fit["bytes_per_s"]
    sending = KINDS["all_reduce"] * (ranks - 1) / ranks * count / bandwidth if bandwidth else 0
    return call_seconds(KINDS["all_reduce"], ranks, fit) + sending


def round_time(seconds):
    """On an axis."""
    unit, size = next((one for one in (("s", 1.0), ("ms", 1e-3)) if seconds >= one[1]), ("us", 1e-6))
    return f"{seconds / size:g} {unit}"


@figure
def all_reduce_sweep():
    found = [
        (name, said["ranks"], said.get("link", said.get("device", "")), operation["sizes"], operation["fit"])
        for name, said in records()
        for operation in said["operations"]
        if operation["kind"] == "all_reduce"
    ]
    names = ", ".join(f"docs/results/{name}.json" for name, *_ in found)
    alt = (
        "Time of an all-reduce over its bytes, both logarithmic. Small ones take the same time whatever "
        "their size, which is latency; large ones take time in proportion to their bytes, which is "
        "bandwidth. Lines: the fit of a call's time, 2 (N-1) α, plus 2 (N-1)/N bytes over the bandwidth."
    )

    def draw(figure):
        plotted = plots.axes(
            figure,
            72,
            290,
            left=80,
            right=220,
            names=("bytes of the vector", "time"),
            log="xy",
            forms=(lambda value: bytes_text(round(value)).replace(".00", ""), round_time),
        )
        named = plots.lines_of(
            [
                (f"{ranks} ranks, {place}", [(s["bytes"], fitted(ranks, fit, s["bytes"])) for s in measured])
                for _, ranks, place, measured, fit in found
            ]
        )
        plots.curves(plotted, named)
        for (_, colour, _), (*_, measured, _) in zip(named, found):
            plotted.plot(
                [size["bytes"] for size in measured],
                [size["seconds_median"] for size in measured],
                "o",
                color=colour,
                markersize=6,
            )

    return plots.plot(
        420,
        "All-reduce: latency on the left, bandwidth on the right",
        alt,
        f"Records {names}.",
        draw,
        "points: measured medians; lines: fitted",
    )
