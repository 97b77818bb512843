#!/usr/bin/env python3
"""What `--plan --json` says of the runs that pages and figures work out: docs/results/plans.json.

usage: tests/benchmarks/plans.py [--check] [--programs build/cpu/bin]

--check writes nothing and exits 1 where the programs say something else than the record (ctest runs that).
Nothing is measured: the record is the same on every machine.
"""
import concurrent.futures
import itertools
import json
import sys

import choosing
from harness import CHECKED, ROOT, arguments, said_by, sets, write_or_compare

sys.path.insert(0, str(ROOT / "common/records/curves"))
from report import sent_bytes  # noqa: E402

FILES = {
    "tiny": "configs/tiny.json",
    "tiny_rows": "configs/tiny_rows.json",
    "tiny_long": "configs/tiny_long.json",
    "four_blocks": "tests/workloads/four_blocks.json",
}  # on the CPU; all others on a GPU
READ = ("parameters", "gradients", "master", "momentum", "variance", "activations")  # purposes
TENSOR = "10_tensor_parallel"  # whose pages read the others, too
COMBINED, CONTEXT = "11_combined", "12_context_parallel"
MESHES = [
    f"{s}x{d}x{8 // s // d}" for s in (8, 4, 2, 1) for d in (8, 4, 2, 1) if 8 % (s * d) == 0
]  # stages x data x tensor
ONE, ALL = "00_one_device", ("01_data_parallel", "02_zero1", "03_zero2", "04_zero3")
# The settings of the example in docs/figures/cheat_sheet.svg.
SMALL = ("batch.micro=4", "batch.global=128")
SHEET = (
    (ONE, "gpt2_355m", 1, SMALL),
    *(
        (lesson, "gpt2_355m", 8, SMALL)
        for lesson in (*ALL, "05_offload", "06_infinity", "07_pipeline", TENSOR, "12_context_parallel")
    ),
    ("08_weight_versions", "gpt2_355m", 8, (*SMALL, "model.tied=false")),
    (COMBINED, "gpt2_355m", 8, (*SMALL, "mesh=2x2x2")),
)
# One row in a micro-batch, eight in a step, of ever longer rows.
LONG = tuple(
    (lesson, "gpt2_355m", 8, ("batch.micro=1", "batch.global=8", f"batch.sequence={T}", f"model.context={T}"))
    for lesson in ("01_data_parallel", "04_zero3", TENSOR, CONTEXT)
    for T in (4096, 16384, 65536, 262144)
)
# Meshes of four GPUs, and the runs that took turns with them.
LAID = tuple(
    (lesson, f"gpt2_{size}", gpus, (f"batch.global={rows}", f"batch.micro={micro}", *settings))
    for gpus, size, rows, micro, lesson, settings in choosing.AHEAD
    if (gpus, rows) == (4, 64)
)
GPT2 = ("gpt2_124m", "gpt2_355m", "gpt2_774m", "gpt2_1558m")
PLANS = (  # lesson, workload, ranks, settings
    (ONE, "tiny", 1, ()),
    (ONE, "seed_355m", 1, ()),
    *((lesson, "tiny", 2, ()) for lesson in ALL),
    *((lesson, "four_blocks", 2, ()) for lesson in ALL[2:]),
    ("03_zero2", "four_blocks", 4, ()),
    *((lesson, "gpt2_355m", ranks, ()) for ranks in (2, 4, 8, 32) for lesson in ALL),
    *(("04_zero3", name, 1, (f"persist_below={below}",)) for name in GPT2 for below in (100_000, 1_000_000)),
    ("04_zero3", "gpt2_355m", 4, ("batch.micro=4", "batch.global=32")),  # as pipedream's comparison has them
    ("04_zero3", "gpt2_124m", 2, ("batch.micro=64", "batch.global=2048")),
    (TENSOR, "tiny_rows", 2, ()),
    *(
        (TENSOR, "gpt2_1558m", ranks, setting)
        for ranks in (1, 2, 4, 8, 16)
        for setting in ((), ("tokens=whole",))
    ),
    *(
        (lesson, "gpt2_355m", 2, (f"batch.micro={rows // share}",))
        for lesson, share in ((TENSOR, 1), ("04_zero3", 2))
        for rows in (2, 4, 16)
    ),  # rows of both ranks
    *((COMBINED, "gpt2_774m", 8, ("batch.micro=4", f"mesh={mesh}")) for mesh in MESHES),
    *((CONTEXT, "tiny_long", 4, setting) for setting in ((), ("parts=contiguous",))),
    (CONTEXT, "tiny_long", 2, ()),
    *SHEET,
    *LONG,
    *LAID,
)


def printed(programs, lesson, workload, ranks, settings=(), device="cuda"):
    words = ["--plan", "--json", "--world", ranks, "--device", device, "--workload", workload]
    return json.loads(said_by([programs / lesson, *words, *sets(settings)]))


def fullest(plan):
    """The rank that holds most: the first one, but for cuts that are uneven."""
    return max(plan["ranks"], key=lambda rank: rank["bytes"]["device"])


def summed(pairs):
    """{key: sum of what stands beside it}, in the order in which keys come."""
    found = {}
    for key, count in pairs:
        found[key] = found.get(key, 0) + count
    return found


def listed(pairs):
    """{key: list of what stands beside it}."""
    found = {}
    for key, one in pairs:
        found.setdefault(key, []).append(one)
    return found


def buffers_of(plan, purposes=READ):
    """{purpose: {name: bytes of each buffer of that name}} of its device, on the rank that holds most."""
    here = [one for one in fullest(plan)["buffers"] if one["place"] == "device"]
    several = listed((one["purpose"], one) for one in here if one["purpose"] in purposes)
    return {
        purpose: listed((one["name"], one["bytes"]) for one in buffers)
        for purpose, buffers in several.items()
    }


def held_by_fullest(plan):
    """The rank that holds most: which one it is, what it sends, and {place: {purpose: bytes}}."""
    one = fullest(plan)
    places = listed((buffer["place"], buffer) for buffer in one["buffers"]).items()
    held = {
        place: summed((buffer["purpose"], buffer["bytes"]) for buffer in buffers) for place, buffers in places
    }
    return {"rank": one["rank"], "sent": one["bytes_sent"], "places": held}


def operations_of(plan):
    """[kind, count, elements, dtype] of rank 0's step; alike ones together, of whatever unit."""
    operations = plan["ranks"][0]["operations"]
    counts = summed(((one["kind"], one["elements"], one["dtype"]), one["count"]) for one in operations)
    return [[kind, count, elements, dtype] for (kind, elements, dtype), count in counts.items()]


def axis_of(op, world, stages, tensor):
    ranks, data = op.get("ranks", world), world // stages // tensor
    if op["kind"] in ("send", "recv"):
        return "stages" if stages > 1 else "context"
    if op["purpose"] == "sums" and ranks == world and op["dtype"] == "f64":
        return "world"
    if stages * tensor == 1:  # groups of lesson 04, too
        return "data"
    group = ranks, op.get("stride", 1)
    return (
        "tensor"
        if tensor > 1 and group == (tensor, 1)
        else "data"
        if data > 1 and group == (data, tensor)
        else "ends"
    )


def axes_of(operations, rank, world, stages, tensor):
    """{axis: [messages, bytes that the rank sends]} of a step."""
    found = {}
    for op in operations:
        row = found.setdefault(axis_of(op, world, stages, tensor), [0, 0])
        row[0] += op["count"]
        row[1] += op["count"] * sent_bytes(op, rank, world)
    return found


def mesh_of(plan):
    """[rank, ranks like it, bytes of its device, what axes_of says] of each stage and tensor rank: of its
    data ranks the first, which sends most."""
    rows, tensor = [], plan.get("tensor", 1)
    data = plan["world"] // plan["stages"] // tensor
    for one in plan["ranks"]:
        if one["rank"] // tensor % data > 0:
            rows[-1][1] += one["alike"]
            continue
        axes = axes_of(one["operations"], one["rank"], plan["world"], plan["stages"], tensor)
        if sum(sent for _, sent in axes.values()) != one["bytes_sent"]:
            sys.exit(f"error: rank {one['rank']} sends {one['bytes_sent']} bytes, and along the axes {axes}")
        rows.append([one["rank"], one["alike"], one["bytes"]["device"], axes])
    return rows


def units_of(plan):
    """[parameters, elements as stored, how many such units follow one another]."""
    units = [list(unit.values()) for unit in plan["units"]]
    return [[*unit, len(list(alike))] for unit, alike in itertools.groupby(units)]


def row_of(programs, lesson, workload, ranks, settings):
    plan = printed(
        programs,
        lesson,
        FILES.get(workload, f"configs/{workload}.json"),
        ranks,
        settings,
        "cpu" if workload in FILES else "cuda",
    )
    return {
        "lesson": lesson,
        "workload": workload,
        "world": ranks,
        "settings": settings,
        "micro_batches": plan["micro_batches"],
        "units": units_of(plan),
        "buffers": buffers_of(
            plan, (*READ, "workspace", "communication") if lesson in (TENSOR, COMBINED) else READ
        ),
        "operations": operations_of(plan),
        "bytes_sent": plan["ranks"][0]["bytes_sent"],
        **(
            {"mesh": mesh_of(plan)}
            if lesson == COMBINED or (lesson, workload, ranks, settings) in LAID
            else {}
        ),
        **({"pairs": plan["pairs"]} if lesson == CONTEXT and workload == "tiny_long" else {}),
        **(
            {"fullest": held_by_fullest(plan)}
            if (lesson, workload, ranks, settings) in (*SHEET, *LONG)
            else {}
        ),
    }


def main():
    args = arguments(__doc__, CHECKED)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        rows = list(pool.map(lambda plan: row_of(args.programs, *plan), PLANS))
    return int(write_or_compare(__doc__, "plans", "plans", rows, args.check))


if __name__ == "__main__":
    sys.exit(main())
