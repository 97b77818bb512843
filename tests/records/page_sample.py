#!/usr/bin/env python3
"""Data of the form that common/records/page/template.html shows, from a small simulated step; no run is needed.

usage: page_sample.py LESSON [--ranks N] [--blocks N] [--micro N] [--steps N] > page.html   (lessons: 01, 04, 05, 07)

Every rank is a generator that says what it does next; a clock for each rank and one for each link say when.
"""

import argparse
import json
import math
import pathlib
import random
import sys

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[2] / "common/records/curves"))
from run_page import page_of  # noqa: E402

BLOCK, EMBEDDING, LAST, SAVED, STREAM = 50_048, 32_768, 128, 123_904, 8_192  # elements
NAMES = {
    "01_data_parallel": "How do ranks that each hold the whole model share one batch, and stay equal without ever "
    "sending a parameter?",
    "04_zero3": "How does a rank compute with parameters that it does not hold, and what does it pay for that?",
    "05_offload": "What if the optimizer's states lie in the host's memory, and the host updates them?",
    "07_pipeline": "What if each rank holds a few layers, and micro-batches flow through them?",
}
COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather")


class Rank:
    """One rank's marks, and its clock in microseconds."""

    def __init__(self, rank, seed):
        self.rank, self.now, self.random = rank, 0.0, random.Random(seed * 100 + rank)
        self.spans, self.operations, self.holds, self.begins = [], [], [], []
        self.lanes = {"compute": 0.0, "host": 0.0, "copy": 0.0}

    def work(self, lane, what, unit, micro, cost, name=""):
        begin = self.now if lane == "compute" else max(self.now, self.lanes[lane])
        length = cost * self.random.uniform(0.92, 1.12)
        self.spans.append([lane, what, unit, micro, begin, length, name])
        self.lanes[lane] = begin + length
        if lane == "compute":
            self.now = begin + length
        return begin + length

    def hold(self, what, unit, state, at=None, copies=None):
        row = [self.now if at is None else at, what, unit, state]
        self.holds.append(row if copies is None else row + [copies])


class Op:
    """An operation that all its members issue; it is resolved when they have."""

    def __init__(self, kind, purpose, unit, elements, began=(), done=()):
        self.kind, self.purpose, self.unit, self.elements = kind, purpose, unit, elements
        self.began, self.done = list(began), list(done)  # holds: (what, unit, state[, copies])
        self.ended = None


class World:
    """Ranks that run to their next wait, and links that take one message at a time."""

    def __init__(self, size, link=2.2, seed=1):
        self.ranks = [Rank(r, seed) for r in range(size)]
        self.size, self.link, self.free = size, link, {}  # link: elements per nanosecond, times 1e3
        self.step, self.waiting = 0, {}

    def bytes_of(self, op):
        return op.elements * (8 if op.purpose == "sums" else 4)

    def sent(self, op):
        share = (self.size - 1) / self.size
        factor = {"all_reduce": 2 * share, "reduce_scatter": share, "all_gather": share, "send": 1}.get(
            op.kind, 0
        )
        return round(self.bytes_of(op) * factor)

    def issue(self, rank, op, key=None, peer=-1):
        """`key` names the operation on all members; copies have none and are timed at once."""
        op.rank, op.peer, op.issued, op.step = rank, peer, rank.now, self.step
        op.row = [
            op.kind,
            op.purpose,
            op.unit,
            peer,
            self.bytes_of(op),
            self.sent(op),
            rank.now,
            -1,
            -1,
            -1,
            -1,
            self.step,
        ]
        rank.operations.append(op.row)
        if key is None:
            begin = max(rank.now, rank.lanes["copy"])
            self.resolve([op], begin, begin + 20 + op.elements / 90)
            rank.lanes["copy"] = op.ended
            return op
        members = self.waiting.setdefault(key, [])
        members.append(op)
        if len(members) == (self.size if op.kind in COLLECTIVES else 2):
            del self.waiting[key]
            link = (
                "all"
                if op.kind in COLLECTIVES
                else tuple(sorted(m.rank.rank for m in members)) + (op.purpose,)
            )
            ready = max(m.issued for m in members)
            begin = max(ready, self.free.get(link, 0.0))
            end = (
                begin + 25 + 1e3 * self.sent(members[0]) / 4 / (self.link * 8_000)
                if op.kind in COLLECTIVES
                else begin + 60 + op.elements / 40
            )
            self.free[link] = end
            self.resolve(members, begin, end)
        return op

    def resolve(self, members, begin, end):
        for op in members:
            op.ended, op.row[7], op.row[8] = end, begin, end
            for what, unit, state, *copies in op.began:
                op.rank.hold(what, unit, state, begin, *copies)
            for what, unit, state, *copies in op.done:
                op.rank.hold(what, unit, state, end, *copies)

    def run(self, programs):
        """Generators yield the operation that they wait for, or a number: a time before which the rank does not go on."""
        alive = dict(enumerate(programs))
        blocked = {}
        while alive:
            moved = False
            for r, program in list(alive.items()):
                rank = self.ranks[r]
                while True:
                    op = blocked.get(r)
                    if isinstance(op, Op):
                        if op.ended is None:
                            break
                        if op.ended > rank.now:
                            op.row[9], op.row[10] = rank.now, op.ended
                            rank.now = op.ended
                    elif op is not None:
                        if op > rank.now:
                            rank.spans.append(["wait", "", -1, -1, rank.now, op - rank.now, "the host"])
                            rank.now = op
                    blocked.pop(r, None)
                    moved = True
                    try:
                        blocked[r] = next(program)
                    except StopIteration:
                        del alive[r]
                        break
            assert moved, "no rank can go on"


FORWARD, INPUT, WEIGHTS = 1_700.0, 1_500.0, 1_650.0


class Model:
    def __init__(self, blocks):
        self.blocks, self.last = blocks, blocks + 1
        self.units = ["embedding"] + [f"block {i}" for i in range(1, blocks + 1)] + ["head"]
        self.sizes = [EMBEDDING] + [BLOCK] * blocks + [LAST]
        self.all = sum(self.sizes)


def start(rank, model, states):
    """The contents when marks begin."""
    for what, state in states.items():
        for unit in range(model.last + 1):
            rank.hold(what, unit, state)


def norm(world, rank):
    rank.work("compute", "norm", -1, -1, 260.0)
    yield world.issue(
        rank, Op("all_reduce", "sums", -1, 4), ("norm", world.step)
    ) if world.size > 1 else rank.now


def backward(rank, unit, micro):
    rank.work("compute", "backward_input", unit, micro, INPUT)


def weights(rank, unit, micro, fresh):
    if fresh:
        rank.hold("G", unit, "whole")
    rank.work("compute", "backward_weights", unit, micro, WEIGHTS)
    rank.hold("A", unit, "free")


def forward(rank, unit, micro, model):
    if unit == model.last:
        return
    rank.work("compute", "forward", unit, micro, FORWARD if unit else 240.0)
    if unit:
        rank.hold("A", unit, "whole")


def data_parallel(world, rank, model, micro):
    sums = {}
    for m in range(micro):
        for unit in range(model.last):
            forward(rank, unit, m, model)
        if m == 0:
            rank.hold("G", model.last, "whole")
            rank.hold("G", 0, "whole")
        rank.work("compute", "head", model.last, m, 2_600.0)

        def send(unit):
            if m == micro - 1 and world.size > 1:
                sums[unit] = world.issue(
                    rank, Op("all_reduce", "gradients", unit, model.sizes[unit]), (unit, world.step)
                )

        send(model.last)
        for unit in range(model.blocks, 0, -1):
            backward(rank, unit, m)
            weights(rank, unit, m, m == 0)
            send(unit)
        rank.work("compute", "embed_backward", 0, m, 420.0)
        send(0)
    for op in sums.values():
        yield op
    yield from norm(world, rank)
    for unit in range(model.last + 1):
        rank.work("compute", "update", unit, -1, 30 + model.sizes[unit] / 110)
        rank.hold("G", unit, "free")


def zero3(world, rank, model, micro, prefetch=1):
    pool = [None] * (prefetch + 1)
    gathered, reduced = {}, {}
    resident = set()

    def gather(unit):
        if unit in resident:
            return
        freed = []
        if 0 < unit < model.last:
            slot = unit % len(pool)
            if pool[slot] is not None:
                resident.discard(pool[slot])
                freed = [("P", pool[slot], "slice")]
            pool[slot] = unit
        resident.add(unit)
        gathered[unit] = world.issue(
            rank,
            Op(
                "all_gather",
                "parameters",
                unit,
                model.sizes[unit],
                freed + [("P", unit, "arriving")],
                [("P", unit, "whole")],
            ),
            ("gather", unit, world.step, len([o for o in rank.operations if o[0] == "all_gather"])),
        )

    def reduce(unit, m):
        reduced[unit] = world.issue(
            rank,
            Op(
                "reduce_scatter",
                "gradients",
                unit,
                model.sizes[unit],
                [("G", unit, "leaving")],
                [("G", unit, "slice")],
            ),
            ("reduce", unit, m, world.step),
        )

    for m in range(micro):
        ahead = 0
        for unit in range(model.last + 1):
            while ahead <= min(model.last, unit + prefetch):
                gather(ahead)
                ahead += 1
            yield gathered[unit]
            forward(rank, unit, m, model)
        for unit in (0, model.last):
            if unit in reduced:
                yield reduced.pop(unit)
            rank.hold("G", unit, "whole")
        rank.work("compute", "head", model.last, m, 2_600.0)
        reduce(model.last, m)
        ahead = model.blocks
        for unit in range(model.blocks, 0, -1):
            while ahead > max(1, unit - prefetch):
                ahead -= 1
                gather(ahead)
            yield gathered[unit]
            backward(rank, unit, m)
            for above in (unit + 2, unit):
                if above in reduced and above <= model.blocks:
                    yield reduced.pop(above)
            weights(rank, unit, m, True)
            reduce(unit, m)
        rank.work("compute", "embed_backward", 0, m, 420.0)
        reduce(0, m)
    for op in reduced.values():
        yield op
    yield from norm(world, rank)
    for unit in range(model.last + 1):
        rank.work("compute", "update", unit, -1, 20 + model.sizes[unit] / 110 / world.size)
        rank.hold("G", unit, "free")
    for unit in sorted(resident):
        rank.hold("P", unit, "slice")


def offload(world, rank, model, micro):
    """As in ZeRO-2, but the slices go to the host, which updates them."""
    reduced, copied = {}, {}

    def reduce(unit, m):
        reduced[unit] = world.issue(
            rank,
            Op(
                "reduce_scatter",
                "gradients",
                unit,
                model.sizes[unit],
                [("G", unit, "leaving")],
                [("G", unit, "slice")],
            ),
            ("reduce", unit, m, world.step),
        )

    def take(unit, m):
        """The slice is there: after the last micro-batch it goes to the host."""
        yield reduced.pop(unit)
        if m == micro - 1:
            copied[unit] = world.issue(
                rank,
                Op("to_host", "gradients", unit, model.sizes[unit] // world.size, [], [("G", unit, "free")]),
            )

    for m in range(micro):
        for unit in range(model.last):
            forward(rank, unit, m, model)
        for unit in (model.last, 0):
            if unit in reduced:
                yield from take(unit, m - 1)
            rank.hold("G", unit, "whole")
        rank.work("compute", "head", model.last, m, 2_600.0)
        reduce(model.last, m)
        for unit in range(model.blocks, 0, -1):
            backward(rank, unit, m)
            for above in (unit + 2, unit):
                if above in reduced and above <= model.blocks:
                    yield from take(above, m if above > unit else m - 1)
            weights(rank, unit, m, True)
            reduce(unit, m)
        rank.work("compute", "embed_backward", 0, m, 420.0)
        reduce(0, m)
    for unit in sorted(reduced, reverse=True):
        yield from take(unit, micro - 1)
    yield from norm(world, rank)
    back = {}
    for unit in range(model.last + 1):
        yield copied[unit]
        ready = rank.work("host", "update", unit, -1, 40 + model.sizes[unit] / world.size / 28)
        back[unit] = ready
    gathers = []
    for unit in range(model.last + 1):
        yield back[unit]
        yield world.issue(rank, Op("to_device", "parameters", unit, model.sizes[unit] // world.size))
        rank.hold("P", unit, "slice")
        gathers.append(
            world.issue(
                rank,
                Op(
                    "all_gather",
                    "parameters",
                    unit,
                    model.sizes[unit],
                    [("P", unit, "arriving")],
                    [("P", unit, "whole")],
                ),
                ("publish", unit, world.step),
            )
        )
    for op in gathers:
        yield op


def stage_of(model, stages, unit):
    return 0 if unit == 0 else stages - 1 if unit == model.last else (unit - 1) * stages // model.blocks


def pipeline(world, rank, model, micro):
    """1F1B. A stage's units compute as one span, named after the action."""
    s, stages = rank.rank, world.size
    mine = [u for u in range(model.last + 1) if stage_of(model, stages, u) == s]
    blocks = [u for u in mine if 0 < u < model.last]
    kept, sent = 0, []
    warm = min(micro, stages - s)
    order = [("F", m) for m in range(warm)]
    for m in range(micro):
        order.append(("B", m))
        if m + warm < micro:
            order.append(("F", m + warm))
    posted = {}

    def post(kind, m):  # receives are posted when the action before begins
        if kind == "F" and s > 0:
            edge = min(blocks) - 1
            posted[kind, m] = world.issue(
                rank, Op("recv", "activations", edge, STREAM), ("act", s, m, world.step), s - 1
            )
        if kind == "B" and s < stages - 1:
            posted[kind, m] = world.issue(
                rank,
                Op("recv", "activation_gradients", max(blocks), STREAM),
                ("grad", s, m, world.step),
                s + 1,
            )

    post(*order[0])
    for i, (kind, m) in enumerate(order):
        if (kind, m) in posted:
            yield posted[kind, m]
        if kind == "F":
            kept += 1
            for unit in blocks:
                rank.hold("A", unit, "whole", None, kept)
            rank.work("compute", "forward", -1, m, FORWARD * len(blocks), f"F{m}")
            if s < stages - 1:
                sent.append(
                    world.issue(
                        rank,
                        Op("send", "activations", max(blocks), STREAM),
                        ("act", s + 1, m, world.step),
                        s + 1,
                    )
                )
        else:
            if m == 0:
                for unit in mine:
                    rank.hold("G", unit, "whole")
            cost = (INPUT + WEIGHTS) * len(blocks) + (2_600 if model.last in mine else 0)
            rank.work("compute", "backward", -1, m, cost, f"B{m}")
            kept -= 1
            for unit in blocks:
                rank.hold("A", unit, "whole" if kept else "free", None, max(kept, 1))
            if s > 0:
                sent.append(
                    world.issue(
                        rank,
                        Op("send", "activation_gradients", min(blocks) - 1, STREAM),
                        ("grad", s - 1, m, world.step),
                        s - 1,
                    )
                )
        if i + 1 < len(order):
            post(*order[i + 1])
    for op in sent:
        yield op
    yield from norm(world, rank)
    for unit in mine:
        rank.work("compute", "update", unit, -1, 30 + model.sizes[unit] / 110)
        rank.hold("G", unit, "free")


PROGRAMS = {
    "01_data_parallel": (data_parallel, {"P": "whole", "G": "free", "O": "whole", "A": "free"}),
    "04_zero3": (zero3, {"P": "slice", "G": "free", "O": "slice", "A": "free"}),
    "05_offload": (offload, {"P": "whole", "G": "free", "O": "slice", "A": "free"}),
    "07_pipeline": (pipeline, {"P": "whole", "G": "free", "O": "whole", "A": "free"}),
}


def marks_of(lesson, model, size, micro, steps, first_step):
    program, states = PROGRAMS[lesson]
    world = World(size)
    for k in range(steps):
        world.step = first_step + k
        together = max(r.now for r in world.ranks) + 150
        for rank in world.ranks:
            rank.now = together + rank.random.uniform(0, 40)
            rank.begins.append(rank.now)
            if k == 0:
                start(rank, model, states)
                if lesson == "07_pipeline":
                    rank.holds = [
                        h
                        for h in rank.holds
                        if stage_of(model, size, h[2]) == rank.rank
                        and not (h[1] == "A" and h[2] in (0, model.last))
                    ]
                else:
                    rank.holds = [h for h in rank.holds if not (h[1] == "A" and h[2] in (0, model.last))]
        world.run([program(world, rank, model, micro) for rank in world.ranks])
    for rank in world.ranks:
        rank.begins.append(rank.now)
    return world


def bytes_of(lesson, model, size, rank, micro):
    """([[purpose, place, name, formula, bytes], ...])"""
    p, u0, last = model.all, EMBEDDING, LAST
    if lesson == "07_pipeline":
        mine = [u for u in range(model.last + 1) if stage_of(model, size, u) == rank]
        p = sum(model.sizes[u] for u in mine)
        blocks = len([u for u in mine if 0 < u < model.last])
        saved = blocks * min(micro, size - rank) * SAVED
    else:
        saved = model.blocks * SAVED
    full = u0 + last + 2 * BLOCK
    own = sum(math.ceil(s / size) for s in model.sizes)
    rows = [
        ["activations", "device", "saved", "L saved", 4 * saved],
        ["workspace", "device", "workspace", "work + head", 528_640],
        ["workspace", "device", "sums", "8 x 4", 32],
    ]
    if size > 1:
        rows.append(["communication", "device", "mpi scratch", "4 (N - 1) 256 KiB", (size - 1) * 1_048_576])
    if lesson in ("01_data_parallel", "07_pipeline"):
        rows = [
            [n, "device", n, "4 P", 4 * p] for n in ("parameters", "gradients", "momentum", "variance")
        ] + rows
    elif lesson == "04_zero3":
        rows = [
            ["parameters", "device", "params_shard", "4 P/N", 4 * own],
            ["parameters", "device", "params_full, unit 0", "4 unit", 4 * u0],
            ["parameters", "device", "params_full, last unit", "4 unit", 4 * last],
            ["parameters", "device", "params_full, a block", "4 unit", 4 * BLOCK],
            ["parameters", "device", "params_full, a block", "4 unit", 4 * BLOCK],
            ["gradients", "device", "grads_shard", "4 P/N", 4 * own],
            ["gradients", "device", "grads_full", "4 F", 4 * full],
            ["momentum", "device", "momentum_shard", "4 P/N", 4 * own],
            ["variance", "device", "variance_shard", "4 P/N", 4 * own],
        ] + rows
    else:
        rows = [
            ["parameters", "device", "params_full", "4 P", 4 * p],
            ["gradients", "device", "grads_full", "4 F", 4 * full],
            ["gradients", "device", "grads_shard", "4 P/N", 4 * own],
            ["parameters", "pinned", "params_pinned", "4 P/N", 4 * own],
            ["gradients", "pinned", "grads_pinned", "4 P/N", 4 * own],
            ["momentum", "host", "momentum_host", "4 P/N", 4 * own],
            ["variance", "host", "variance_host", "4 P/N", 4 * own],
        ] + rows
    return rows


def summed(buffers):
    found = {}
    for purpose, place, _, _, n in buffers:
        target = found if place == "device" else found.setdefault(place, {})
        target[purpose] = target.get(purpose, 0) + n
    found["total"] = sum(v for v in found.values() if isinstance(v, int))
    return found


def counted(rows, step):
    """record.json's list of operations."""
    found = {}
    for kind, purpose, unit, _, n, *_, at in rows:
        if at == step:
            double = purpose == "sums"
            key = (kind, "f64" if double else "f32", n // (8 if double else 4), purpose, unit)
            found[key] = found.get(key, 0) + 1
    return [
        {"kind": k, "dtype": d, "elements": e, "count": c, "purpose": p, **({"unit": u} if u >= 0 else {})}
        for (k, d, e, p, u), c in found.items()
    ]


def training(steps, size, micro):
    """Columns of steps.jsonl, thinned to at most 2,000 rows."""
    rng = random.Random(7)
    at = (
        sorted({round(i * (steps - 1) / min(steps - 1, 1_999)) for i in range(min(steps, 2_000))})
        if steps > 1
        else [0]
    )
    loss = [2.2 + 3.3 * math.exp(-4 * s / max(steps, 1)) + rng.gauss(0, 0.03) for s in at]
    seconds = [0.085 * rng.uniform(0.95, 1.1) for _ in at]
    return {
        "step": at,
        "loss": [round(v, 4) for v in loss],
        "lr": [
            round(0.004 * (min(1, (s + 1) / 40)) * (0.55 + 0.45 * math.cos(math.pi * s / max(steps, 1))), 7)
            for s in at
        ],
        "grad_norm": [round(1.2 + 4 * math.exp(-s / 30) + abs(rng.gauss(0, 0.15)), 4) for s in at],
        "tokens": [128 * size * micro] * len(at),
        "seconds": [round(v, 6) for v in seconds],
        "waited_seconds": [round(v * rng.uniform(0.06, 0.1), 6) for v in seconds],
        "validation": [
            [s, round(2.3 + 3.3 * math.exp(-4 * s / max(steps, 1)), 4)]
            for s in range(0, steps, max(1, steps // 8))
        ],
    }


def most(rank, what, field):
    """The most of `what` alive at once: units whole, or copies of one."""
    cells, found = {}, 0
    for row in sorted(rank.holds, key=lambda h: h[0]):
        cells[row[1], row[2]] = row
        if row[1] == what:
            whole = [
                h for (w, _), h in cells.items() if w == what and h[3] in ("whole", "arriving", "leaving")
            ]
            found = max(
                [found, len(whole)] if field == "units" else [found] + [h[4] for h in whole if len(h) > 4]
            )
    return found


def sample(lesson, ranks=2, blocks=4, micro=2, steps=400):
    """The dict that the page shows. `limits` are the lesson's rules, not what the simulation did."""
    model = Model(max(blocks, ranks) if lesson == "07_pipeline" else blocks)
    if lesson == "07_pipeline":
        micro = max(micro, 2 * ranks)
    world = marks_of(lesson, model, ranks, micro, 2, 3)
    limits = {
        "01_data_parallel": {"gradients_whole": model.last + 1, "parameters_whole": model.last + 1},
        "04_zero3": {"gradients_whole": 4, "parameters_whole": 4},
        "05_offload": {"gradients_whole": 4, "parameters_whole": model.last + 1},
        "07_pipeline": {"sets": [min(micro, ranks - r) for r in range(ranks)]},
    }[lesson]
    entries, buffers = [], []
    for rank in world.ranks:
        rows = bytes_of(lesson, model, ranks, rank.rank, micro)
        buffers.append(rows)
        operations = counted(rank.operations, 3)
        entries.append(
            {
                "rank": rank.rank,
                "host": "node",
                "cpu": "a processor",
                "cores": 2,
                "memory_bytes": 16_000_000_000,
                "predicted_bytes": summed(rows),
                "measured_bytes": summed(rows),
                "predicted_operations": operations,
                "measured_operations": operations,
            }
        )
    record = {
        "format": 1,
        "lesson": lesson,
        "commit": "0123456789ab",
        "command": f"lessons/{lesson}/run.sh -n {ranks} --steps {steps}",
        "started": "2026-01-01T00:00:00Z",
        "exit_code": 0,
        "message": "",
        "device": "cpu",
        "comm": "mpi",
        "world": ranks,
        "threads": 1,
        "workload": {
            "batch.micro": "1",
            "model.layers": str(model.blocks),
            "precision.dtype": "fp32",
            "precision.grad_dtype": "same",
        },
        "strategy": {},
        "versions": {"LibTorch": "2.11.0", "MPI": "Open MPI 4.1.4", "compiler": "g++ 12.2.0"},
        "as_predicted": True,
        "validation_loss": 2.36,
        "ranks": entries,
    }
    if lesson == "07_pipeline":
        record["timetable"] = {
            "rows": [
                {"name": "measured", "seconds": 0.03, "idle": 0.231},
                {"name": "simulated", "seconds": 0.03, "idle": 0.205},
                {"name": "formula", "seconds": 0.03, "idle": 0.2},
            ]
        }
    rounded = lambda row: [round(v, 1) if isinstance(v, float) else v for v in row]  # noqa: E731
    origin = min(r.begins[0] for r in world.ranks) - 100
    for rank in world.ranks:
        for row in rank.spans:
            row[4] -= origin
        for row in rank.operations:
            for i in range(6, 11):
                row[i] = row[i] - origin if row[i] >= 0 else -1
        for row in rank.holds:
            row[0] -= origin
        rank.begins = [b - origin for b in rank.begins]
    return {
        "format": 1,
        "lesson": lesson,
        "question": NAMES[lesson],
        "record": record,
        "steps": training(steps, ranks, micro),
        "units": model.units,
        "sizes": model.sizes,
        "buffers": buffers,
        "limits": limits,
        "marks": {
            "steps": [3, 4],
            "left_out": "",
            "ranks": [
                {
                    "rank": r.rank,
                    "begins": rounded(r.begins),
                    "spans": [rounded(s) for s in r.spans],
                    "operations": [rounded(o) for o in r.operations],
                    "holds": [rounded(h) for h in sorted(r.holds, key=lambda h: h[0])],
                }
                for r in world.ranks
            ],
        },
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("lesson", choices=["01", "04", "05", "07"])
    for name, value in (("ranks", 2), ("blocks", 4), ("micro", 2), ("steps", 400)):
        parser.add_argument(f"--{name}", type=int, default=value)
    given = vars(parser.parse_args())
    prefix = given.pop("lesson")
    print(page_of(sample(next(n for n in NAMES if n.startswith(prefix)), **given)), end="")
