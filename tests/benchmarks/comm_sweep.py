#!/usr/bin/env python3
"""Times of all-reduce, reduce-scatter and all-gather over sizes, and what latency and bandwidth explain of
them.

  tests/benchmarks/comm_sweep.py --ranks 2                             # CPU ranks; on an idle machine
  tests/benchmarks/comm_sweep.py --ranks 4 --device cuda --dtype bf16  # GPUs of one host
  tests/benchmarks/comm_sweep.py --ranks 2 --out docs/results/collectives_cpu.json
  tests/benchmarks/comm_sweep.py --fit docs/results/collectives_cpu.json    # fits again what was measured

Builds the target comm_sweep in build/cpu or build/cuda where it is not there yet (--program: one that is).

The fit is of  t(n) = messages * latency + factor * n / bandwidth  with, for N ranks and n bytes of the whole
vector,
  all_reduce                   messages 2 (N-1)   factor 2 (N-1) / N
  reduce_scatter, all_gather   messages N-1       factor (N-1) / N
and minimises the sum over all sizes of ((fitted - measured) / measured)^2: sizes are spaced evenly on a
logarithmic scale, and each counts as much as any other. Two unknowns, both linear, so the minimum is the
solution of two equations; a negative one is set to 0.
"""
import json
import os
import pathlib
import subprocess
import sys

import gpu_watch
from harness import MPIRUN, OF_MPI, ONE_THREAD, ROOT, arguments, said_by

ENVIRONMENT = {**OF_MPI, **ONE_THREAD}
GIB = 1 << 30


def terms(kind, ranks):
    """Messages that follow one another, and the share of the vector that each rank sends."""
    rounds = 2 if kind == "all_reduce" else 1
    return rounds * (ranks - 1), rounds * (ranks - 1) / ranks


def fit(kind, ranks, sizes):
    """latency_s and bytes_per_s (None: nothing in the times grows with the bytes), and how far off they are
    at most."""
    messages, factor = terms(kind, ranks)
    # Each row is divided by its measured time: u * latency + v / bandwidth = 1 for every size.
    rows = [(messages / s["seconds_median"], factor * s["bytes"] / s["seconds_median"]) for s in sizes]
    uu, uv, vv = sum(u * u for u, _ in rows), sum(u * v for u, v in rows), sum(v * v for _, v in rows)
    u1, v1 = sum(u for u, _ in rows), sum(v for _, v in rows)
    determinant = uu * vv - uv * uv
    latency, inverse = (u1 * vv - v1 * uv) / determinant, (v1 * uu - u1 * uv) / determinant
    if latency < 0:
        latency, inverse = 0.0, v1 / vv
    elif inverse < 0:
        latency, inverse = u1 / uu, 0.0
    errors = [u * latency + v * inverse - 1 for u, v in rows]
    return {
        "latency_s": float(f"{latency:.4g}"),
        "bytes_per_s": float(f"{1 / inverse:.4g}") if inverse else None,
        "relative_error": {
            "lowest": round(min(errors), 3),
            "highest": round(max(errors), 3),
            "root_mean_square": round((sum(e * e for e in errors) / len(errors)) ** 0.5, 3),
        },
    }


def link(result):
    """What joins the ranks: for GPUs what nvidia-smi says of the first two."""
    if result["ranks_per_host"] < result["ranks"]:
        return f"network between hosts of {result['ranks_per_host']} ranks"
    if result["kind"] == "cpu":
        return "memory of one host"
    try:
        said = subprocess.run(
            ["nvidia-smi", "topo", "-m"], capture_output=True, text=True, timeout=30, check=True
        ).stdout
        return next(
            line.split()[2] for line in said.splitlines() if line.startswith("GPU0")
        )  # NV18: 18 NVLinks
    except (OSError, subprocess.SubprocessError, StopIteration, IndexError):
        return "unknown: nvidia-smi topo -m does not say"


def measure(args):
    program = args.program or ROOT / "build" / args.preset / "bin/tests/comm_sweep"
    if not args.program:
        subprocess.run(
            ["cmake", "--build", ROOT / "build" / args.preset, "--target", "comm_sweep"],
            check=True,
            stdout=sys.stderr,
        )
    words = ["--device", args.device, *args.windows, "--dtype", args.dtype, "--rounds", args.rounds]
    words = [str(word) for word in (*words, "--min-bytes", args.min_bytes, "--max-bytes", args.max_bytes)]
    command = [*MPIRUN, "-n", str(args.ranks), str(program), *words]
    result = json.loads(said_by(command, ENVIRONMENT))
    result["link"] = link(result) + (", by copy engine" if args.windows else "")
    if args.device == "cuda":
        result["machine"] = gpu_watch.machine()
    result["load_before"] = args.load
    result["command"] = " ".join(["tests/benchmarks/comm_sweep.py", "--ranks", str(args.ranks), *words])
    return result


def rows(operation, ranks):
    factor = terms(operation["kind"], ranks)[1]
    for size in operation["sizes"]:
        yield (
            f"{operation['kind']:<15} {size['bytes']:>12} bytes {size['seconds_median'] * 1e6:>12.1f} us"
            f" ({size['seconds_p10'] * 1e6:.1f} to {size['seconds_p90'] * 1e6:.1f})"
            f" {factor * size['bytes'] / size['seconds_median'] / 1e9:>9.2f} GB/s on the wire"
        )


def text(result):
    """The record: one line a size, so that a difference between two records can be read."""
    head = {k: v for k, v in result.items() if k != "operations"}
    lines = json.dumps(head, indent=1)[:-2] + ',\n "operations": ['
    parts = []
    for operation in result["operations"]:
        sizes = ",\n    ".join(json.dumps(size) for size in operation["sizes"])
        parts.append(
            f'\n  {{"kind": "{operation["kind"]}", "fit": {json.dumps(operation["fit"])},\n   "sizes": [\n  '
            f"  {sizes}]}}"
        )
    return lines + ",".join(parts) + "\n ]\n}\n"


ASKED = {
    "--ranks": {"type": int, "default": 2},
    "--device": {"choices": ["cpu", "cuda"], "default": "cpu"},
    "--dtype": {"choices": ["f32", "bf16"], "default": "f32"},
    "--windows": {
        "action": "store_const",
        "const": ["--windows"],
        "default": [],
        "help": "on GPUs: in memory that all ranks reach, by copy engine",
    },
    "--rounds": {"type": int, "default": 25, "help": "measurements of each size"},
    "--min-bytes": {"type": int, "default": 1024},
    "--max-bytes": {"type": int, "help": "256 MiB; 1 GiB on GPUs"},
    "--program": {"type": pathlib.Path, "help": "comm_sweep, built already"},
    "--fit": {
        "type": pathlib.Path,
        "metavar": "RECORD",
        "help": "measure nothing: fit what this record holds",
    },
    "--out": {"type": pathlib.Path, "help": "where the record goes"},
}


def main():
    args = arguments(__doc__, ASKED)
    args.preset = "cuda" if args.device == "cuda" else "cpu"
    args.max_bytes = args.max_bytes or (GIB if args.device == "cuda" else GIB // 4)
    args.load = round(os.getloadavg()[0], 2)
    result = json.loads(args.fit.read_text()) if args.fit else measure(args)
    for operation in result["operations"]:
        operation["fit"] = fit(operation["kind"], result["ranks"], operation["sizes"])
        print(*rows(operation, result["ranks"]), sep="\n")
        print(f"{operation['kind']:<15} fit: {json.dumps(operation['fit'])}")
    if args.out or args.fit:
        (args.out or args.fit).write_text(text(result))


if __name__ == "__main__":
    main()
