"""docs/collectives.md: costs of collectives by formula, and the measured sweeps."""
import json
import struct

from .registry import RESULTS, renders, source, table

KINDS = {"all_reduce": 2, "reduce_scatter": 1, "all_gather": 1}  # how often the pieces go round
GROUPS = (2, 4, 8, 64)


@renders
def collective_costs(page):
    """Messages that follow one another, and bytes that a rank sends, by kind and ranks."""
    rows = []
    for kind, rounds in KINDS.items():
        rows.append(
            [
                f"`{kind}`",
                f"{rounds if rounds > 1 else ''}{' ' if rounds > 1 else ''}(N-1)",
                f"{'2 ' if rounds > 1 else ''}(N-1)/N n",
                *[f"{rounds * (n - 1)}, {rounds * (n - 1) / n:.4g} n" for n in GROUPS],
            ]
        )
    rows.append(
        [
            "`broadcast`, a chain",
            "N-1 for the first piece",
            "n (the last rank: none)",
            *[f"{n - 1}, n" for n in GROUPS],
        ]
    )
    return table(
        [
            "operation on n bytes",
            "messages that follow one another",
            "bytes a rank sends",
            *[f"N = {n}" for n in GROUPS],
        ],
        rows,
        left=3,
    )


def records():
    return [(path.stem, json.loads(path.read_text())) for path in sorted(RESULTS.glob("collectives_*.json"))]


def time_text(seconds):
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


def call_seconds(rounds, ranks, fit):
    """What the fit sees: the time of a call that has nothing to send. The latency of the formula is that, spread over a ring's messages."""
    return rounds * (ranks - 1) * fit["latency_s"]


@renders
def sweep_fits(page):
    """Latency and bandwidth of every sweep and kind."""
    rows = []
    for name, said in records():
        for operation in said["operations"]:
            fit = operation["fit"]
            error, bandwidth = fit["relative_error"], fit["bytes_per_s"]
            rounds = KINDS[operation["kind"]]
            half = fit["latency_s"] * bandwidth * said["ranks"] / 1024 if bandwidth else 0
            rows.append(
                [
                    source(page, name),
                    str(said["ranks"]),
                    f"`{operation['kind']}`",
                    time_text(call_seconds(rounds, said["ranks"], fit)),
                    f"{bandwidth / 1e9:.1f}" if bandwidth else "-",
                    f"{half:.0f} KiB" if half < 1024 else f"{half / 1024:.1f} MiB",
                    f"{100 * error['lowest']:+.0f} to {100 * error['highest']:+.0f} %",
                ]
            )
    return table(
        [
            "record",
            "ranks",
            "operation",
            "a call of no bytes",
            "bandwidth 1/β, GB/s",
            "n where both terms are equal",
            "fit over measured",
        ],
        rows,
        left=3,
    )


def f32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


@renders
def order_example(page):
    """Four numbers whose fp32 sum depends on the order."""
    terms = [1.0, 2.0**-24, 2.0**-24, 2.0**-24]

    def add(order):
        total = 0.0
        for i in order:
            total = f32(total + terms[i])
        return total

    rows = [
        [
            f"rank {first} first: ({' + '.join(f't{(first + i) % 4}' for i in range(4))})",
            repr(add([(first + i) % 4 for i in range(4)])),
            f"1 + {round((add([(first + i) % 4 for i in range(4)]) - 1) / 2.0**-23)} x 2^-23",
        ]
        for first in range(4)
    ]
    return "With t0 = 1 on rank 0 and t1 = t2 = t3 = 2^-24 on the others, in fp32:\n\n" + table(
        ["order of a ring that starts at", "sum", "that is"], rows, left=3
    )
