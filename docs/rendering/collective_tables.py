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
        rows.append([f"`{kind}`", f"{rounds if rounds > 1 else ''}{' ' if rounds > 1 else ''}(N-1)", f"{'2 ' if rounds > 1 else ''}(N-1)/N n",
                     *[f"{rounds * (n - 1)}, {rounds * (n - 1) / n:.4g} n" for n in GROUPS]])
    rows.append(["`broadcast`, a chain", "N-1 for the first piece", "n (the last rank: none)", *[f"{n - 1}, n" for n in GROUPS]])
    return table(["operation on n bytes", "messages that follow one another", "bytes a rank sends", *[f"N = {n}" for n in GROUPS]], rows, left=3)


def records():
    return [(path.stem, json.loads(path.read_text())) for path in sorted(RESULTS.glob("collectives_*.json"))]


def size_text(count):
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:g} {unit}"
    return f"{count} B"


def time_text(seconds):
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


def place_of(said):
    return f"{said['ranks']} ranks, {said['device']}, {said['link']}, {said['dtype']}"


@renders
def sweep(page, every="4"):
    """Every measured sweep: one table a record, each `every`-th size."""
    parts = []
    for name, said in records():
        kinds = {operation["kind"]: operation for operation in said["operations"]}
        sizes = list(range(0, len(kinds["all_reduce"]["sizes"]), int(every)))
        last = len(kinds["all_reduce"]["sizes"]) - 1
        rows = []
        for i in [*sizes, *([last] if last not in sizes else [])]:
            cells = [size_text(kinds["all_reduce"]["sizes"][i]["bytes"])]
            for kind, rounds in KINDS.items():
                at = kinds[kind]["sizes"][i]
                sent = rounds * (said["ranks"] - 1) / said["ranks"] * at["bytes"]
                cells.append(f"{time_text(at['seconds_median'])} ({time_text(at['seconds_p10'])} to {time_text(at['seconds_p90'])})")
                cells.append(f"{sent / at['seconds_median'] / 1e9:.2f}")
            rows.append(cells)
        heads = ["n"]
        for kind in KINDS:
            heads += [f"`{kind}`", "GB/s"]
        busy = said.get("load_before", 0)
        parts.append(f"{place_of(said)}: median of {said['rounds']} rounds (p10 to p90); GB/s is what a rank sends over the time.\n\n" + table(heads, rows, left=1)
                     + f"\n\nFrom {source(page, name)} (`{said['command']}`; load of the machine before it {busy}).")
    return "\n\n".join(parts)


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
            half = fit["latency_s"] * bandwidth * said["ranks"] if bandwidth else None
            largest = operation["sizes"][-1]
            rate = rounds * (said["ranks"] - 1) / said["ranks"] * largest["bytes"] / largest["seconds_median"]
            rows.append([source(page, name), said["ranks"], f"`{operation['kind']}`", time_text(call_seconds(rounds, said["ranks"], fit)), time_text(fit["latency_s"]),
                         f"{bandwidth / 1e9:.2f}" if bandwidth else "-", f"{rate / 1e9:.2f}", size_text(round(half)) if half is None or half < 1024 else
                         f"{half / 1024:.0f} KiB" if half < 1 << 20 else f"{half / (1 << 20):.1f} MiB",
                         f"{100 * error['lowest']:+.0f} to {100 * error['highest']:+.0f} %"])
    return table(["record", "N", "operation", "a call of no bytes", "latency α: that over its messages", "bandwidth 1/β, GB/s", "reached at the largest n, GB/s", "n where both terms are equal, N α/β",
                  "fit over measured"], rows, left=3)


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

    rows = [[f"rank {first} first: ({' + '.join(f't{(first + i) % 4}' for i in range(4))})", repr(add([(first + i) % 4 for i in range(4)])),
             f"1 + {round((add([(first + i) % 4 for i in range(4)]) - 1) / 2.0**-23)} x 2^-23"] for first in range(4)]
    return ("With t0 = 1 on rank 0 and t1 = t2 = t3 = 2^-24 on the others, in fp32:\n\n"
            + table(["order of a ring that starts at", "sum", "that is"], rows, left=3))


@renders
def ragged_all_reduce(page):
    """What each rank sends where N does not divide n."""
    n, ranks = 4, 3
    piece = -(-n // ranks)
    rows, total = [], 0
    for r in range(ranks):
        mine = min(n, (r + 1) * piece) - min(n, r * piece)
        sent = n - mine + (ranks - 1) * mine
        total += sent
        rows.append([r, mine, f"{n - mine} + {ranks - 1} x {mine} = {sent}", 8 * sent])
    rows.append(["all", n, f"2 (N-1) n = {total}", 8 * total])
    return table(["rank", "elements of its slice", "elements it sends: others' slices, then its own to all", "bytes, fp64"], rows, left=1)
