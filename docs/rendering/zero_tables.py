"""Tables of lessons 02 to 04: what ranks hold and send under ZeRO-1, 2, 3, planned and measured
(docs/results/zero_*.json, plans.json)."""
from .lesson_tables import MODELS, file_text, tail
from .plans import SIZES, STATES, gathers_of, plan_of, workload, workload_of
from .registry import (
    COURSE,
    RenderError,
    as_predicted,
    bytes_text,
    record,
    renders,
    same_bits,
    table,
    table_of,
)

LESSONS = {folder: one["name"] for folder, one in COURSE.items() if "01" <= folder < "05"}


def sent_of(operations, ranks):
    """Bytes of a plan's list of operations."""
    return (
        sum(
            count * elements * SIZES[dtype] * (2 if kind == "all_reduce" else 1) * (ranks - 1)
            for kind, count, elements, dtype in operations
        )
        // ranks
    )


def states_of(found):
    return sum(found["bytes"].get(purpose, 0) for purpose in STATES)


def runs_of(lesson):
    """(N, run) of 20 steps."""
    return [(int(n), as_predicted(run)) for n, run in record("zero_order")["lessons"][lesson].items()]


@renders
def zero_held(page, lesson):
    """What a rank held of each purpose, on one to four ranks, beside the lessons before."""
    before = {other: dict(runs_of(other)) for other in reversed(LESSONS) if other < lesson}
    runs = runs_of(lesson)
    return table_of(
        runs,
        {
            "N": lambda n, _: n,
            "parameters": lambda _, run: f"{run['bytes']['parameters']:,}",
            "gradients": lambda _, run: f"{run['bytes']['gradients']:,}",
            "momentum, variance": lambda _, run: f"{run['bytes']['momentum'] + run['bytes']['variance']:,}",
            "all purposes": lambda _, run: f"{run['bytes']['total']:,}",
            **{
                f"lesson {other[:2]} holds": lambda n, _, of=of: f"{of[n]['bytes']['total']:,}"
                for other, of in before.items()
            },
        },
    ) + tail(
        page,
        "zero_order",
        more=f"equal to the plan in every purpose; rank 0 of 20 steps of {file_text(runs[0][1])}",
    )


@renders
def zero_predicted(page, lesson, before):
    """What a rank held and sent, as predicted and measured, and what the lesson before held."""
    others, runs = dict(runs_of(before)), runs_of(lesson)
    return table_of(
        runs,
        {
            "N": lambda n, _: n,
            f"lesson {before[:2]} holds": lambda n, _: f"{others[n]['bytes']['total']:,}",
            f"lesson {lesson[:2]} holds": lambda _, run: f"{run['bytes']['total']:,}",
            "sends per step": lambda _, run: f"{run['bytes_sent']:,}",
        },
    ) + tail(page, "zero_order", more=f"bytes of rank 0, predicted and measured; {file_text(runs[0][1])}")


@renders
def zero_send_once(page, *worlds):
    """Gradients of several micro-batches: added up whole and sent once per step (lesson 02), or sent in each
    of them (lesson 03)."""

    def sums(run, n):
        """Reduce-scatters, and the bytes they send."""
        found = [op for op in run["operations"] if op["kind"] == "reduce_scatter"]
        keys = ("kind", "count", "elements", "dtype")
        return sum(op["count"] for op in found), sent_of([[op[key] for key in keys] for op in found], n)

    rows = []
    for n in map(int, worlds):
        once, each = (dict(runs_of(lesson))[n] for lesson in ("02_zero1", "03_zero2"))
        batch = workload(workload_of(each))["batch"]
        M = batch["global"] // (batch["micro"] * n)
        if sums(each, n) != tuple(M * count for count in sums(once, n)):
            raise RenderError(f"{each['command']}: not {M} times what lesson 02 sends of gradients")
        rows += [
            (f"{n}, {M}", way, run, *sums(run, n))
            for way, run in (("summed, once per step (02)", once), ("of every micro-batch (03)", each))
        ]
    return table_of(
        rows,
        {
            "N, M": lambda *row: row[0],
            "gradients sent": lambda *row: row[1],
            "gradients held": lambda *row: f"{row[2]['bytes']['gradients']:,}",
            "reduce-scatters": lambda *row: row[3],
            "bytes they send": lambda *row: f"{row[4]:,}",
            "bytes sent in all": lambda *row: f"{row[2]['bytes_sent']:,}",
        },
        left=2,
    ) + tail(
        page,
        "zero_order",
        more=f"bytes of rank 0 as measured, equal to what was predicted; per step; {file_text(each)}",
    )


@renders
def zero_same_loss(page, *lessons):
    """The bits of lessons and of lesson 00 with their order of sums; stops where they differ."""
    found = record("zero_order")
    order = found["order_of"][lessons[0]]
    for n, virtual in found["orders"][order].items():
        for lesson in lessons:
            run = same_bits(found["lessons"][lesson][n], virtual, f"lesson 00 with `--reduce-every {order}`")
    return table_of(
        found["orders"][order].items(),
        {
            "N": lambda n, _: n,
            "loss of step 20": lambda _, virtual: f"`{virtual['loss'][-1]!r}`",
            "weights": lambda _, virtual: f"`{virtual['weights_sha256'][:12]}`",
        },
        left=3,
    ) + tail(
        page,
        "zero_order",
        more=f"{file_text(run)}; weights: the first 12 digits of the SHA-256 of the file that `--save` "
        "wrote; all 20 losses are compared",
    )


@renders
def zero_states(page, lesson):
    """Model states, planned, on 1 to 1024 GPUs."""
    name, file = MODELS[2]
    plans = record("zero_plans")["models"][file]
    worlds = ("1", "2", "4", "8", "64", "1024")
    return table_of(
        [(n, plans[lesson][n]) for n in worlds],
        {
            "N": lambda n, _: n,
            "parameters": lambda _, plan: bytes_text(plan["bytes"]["parameters"]),
            "gradients": lambda _, plan: bytes_text(plan["bytes"]["gradients"]),
            "master, momentum, variance": lambda _, plan: bytes_text(
                sum(plan["bytes"][one] for one in ("master", "momentum", "variance"))
            ),
            "states": lambda _, plan: bytes_text(states_of(plan)),
            "16 P over it": lambda n, plan: (
                f"{states_of(plans['01_data_parallel'][n]) / states_of(plan):.2f}"
            ),
            "whole plan": lambda _, plan: bytes_text(plan["bytes"]["total"]),
        },
    ) + tail(page, "zero_plans", more=f"{name}, `--plan --world N --device cuda`, bf16")


@renders
def zero_sent_of_models(page, file):
    """Bytes a rank sends in a step of one model, every strategy."""
    worlds = (2, 4, 8, 32)
    rows = [
        [name, *(bytes_text(plan_of(lesson, file, n).sent) for n in worlds)]
        for lesson, name in LESSONS.items()
    ]
    heads = [f"N = {n}, M = {plan_of('04_zero3', file, n).M}" for n in worlds]
    return table(["lesson", *heads], rows) + tail(
        page,
        "plans",
        more=f"`configs/{file}.json`: {workload(file)['batch']['global']} rows a step in micro-batches of "
        f"{workload(file)['batch']['micro']}; M micro-batches a rank",
    )


@renders
def zero_settings_table(page, lesson):
    """A lesson in several settings, two steps on two ranks, as measured."""
    runs = [run for run in record("zero_settings")["runs"] if run["lesson"] == lesson]
    for run in runs:
        if not as_predicted(run, "bytes", "operations")["as_predicted"]:
            raise RenderError(f"{run['command']}: not as predicted")
    columns = {
        "parameters": lambda run: run["bytes"].get("parameters", 0),
        "gradients": lambda run: run["bytes"].get("gradients", 0),
        "communication": lambda run: run["bytes"].get("communication", 0),
        "all purposes": lambda run: run["bytes"]["total"],
        "operations a step": lambda run: sum(op["count"] for op in run["operations"]),
        "bytes sent": lambda run: run["bytes_sent"],
    }
    told = {  # a column with one number says nothing
        head: lambda run, count=count: f"{count(run):,}"
        for head, count in columns.items()
        if len(set(map(count, runs))) > 1
    }
    named = {"settings": lambda run: f"`{run['settings']}`" if run["settings"] else "as shipped"}
    return table_of(runs, {**named, **told}) + tail(
        page,
        "zero_settings",
        more=f"rank 0 of 2, {file_text(runs[0])}, measured and equal to what was predicted",
    )


@renders
def zero_paper(page):
    """The paper's example: 7.5 G parameters on 64 GPUs. Stops where the formula is not what the paper says,
    or not what the plan's buffers have."""
    plans = record("zero_plans")["paper"]
    P = plans["02_zero1"]["bytes"]["parameters"] // 2
    states = ("master", "momentum", "variance")
    paper = (  # what it says, its formula, where the states lie that the formula counts
        ("01_data_parallel", "120", "16 P", 16 * P, "full", "full", "full"),
        ("02_zero1", "31.4", "4 P + 12 P/N", 4 * P + 12 * P / 64, "full", "full", "shard"),
        ("03_zero2", "16.6", "2 P + 14 P/N", 2 * P + 14 * P / 64, "full", "shard", "shard"),
        ("04_zero3", "1.9", "16 P/N", 16 * P / 64, "shard", "shard", "shard"),
    )

    def counted(lesson, params, grads, optimizer):
        names = [f"params_{params}", f"grads_{grads}", *(f"{state}_{optimizer}" for state in states)]
        return sum(sum(plans[lesson]["buffers"].get(name, [])) for name in names)

    for lesson, said, formula, alone, *places in paper:
        if round(alone) != counted(lesson, *places):
            raise RenderError(
                f"{plans[lesson]['command']}: {formula} is {alone:,}, not what its buffers have"
            )
        if f"{alone / 1e9:.{len(said.partition('.')[2])}f}" != said:
            raise RenderError(f"{plans[lesson]['command']}: {alone / 1e9} GB are not the paper's {said}")

    def for_a_moment(lesson, _, __, alone, *places):
        more = states_of(plans[lesson]) - counted(lesson, *places)
        return bytes_text(more) if more else ""

    return table_of(
        paper,
        {
            "lesson": lambda lesson, *_: LESSONS[lesson],
            "formula": lambda *row: f"`{row[2]}`",
            "the paper, GB": lambda *row: row[1],
            "planned, GB": lambda *row: f"{row[3] / 1e9:.3f}",
            "whole for a moment": for_a_moment,
            "states of the plan, GB": lambda lesson, *_: f"{states_of(plans[lesson]) / 1e9:.3f}",
        },
        left=2,
    ) + tail(
        page, "zero_plans", more=f"`{plans['04_zero3']['command']}` and the like: P = {P:,}; GB = 10^9 bytes"
    )


@renders
def zero_buckets(page):
    """Settings of ZeRO-2 beside ZeRO-1, on two GPUs."""
    plans, rows = record("zero_plans"), []
    for name, file in (MODELS[2], MODELS[4]):
        one, two = (plans["models"][file][lesson]["2"] for lesson in ("02_zero1", "03_zero2"))
        several = {"ZeRO-1": one, "ZeRO-2, as shipped": two}
        several |= {f"ZeRO-2, `{key}`": plan for key, plan in plans["zero2"][file].items()}
        rows += [
            (name, what, plan, plan["bytes"]["total"] - one["bytes"]["total"])
            for what, plan in several.items()
        ]
    return table_of(
        rows,
        {
            "model, N = 2": lambda name, *_: name,
            "strategy": lambda _, what, *__: what,
            "gradients": lambda *row: bytes_text(row[2]["bytes"]["gradients"]),
            "communication": lambda *row: bytes_text(row[2]["bytes"].get("communication", 0)),
            "total over ZeRO-1's": lambda *row: f"{row[3] / 1e6:+,.0f} MB" if row[3] else "",
        },
        left=2,
    ) + tail(page, "zero_plans", more="plans, bf16; 16 and 32 micro-batches a rank")


@renders
def zero_pool(page):
    """Prefetch and reshard_after_forward of ZeRO-3, on two GPUs."""
    name, file = MODELS[4]
    shipped, others = (
        record("zero_plans")["models"][file]["04_zero3"]["2"],
        record("zero_plans")["zero3"][file],
    )
    plans = [
        (key, {"prefetch=1": shipped, **others}[key])
        for key in ("prefetch=0", "prefetch=1", "prefetch=2", "prefetch=4", "reshard_after_forward=off")
    ]

    def pool(plan):
        return plan["buffers"]["params_full, a block"]

    return table_of(
        plans,
        {
            "setting": lambda key, _: f"`{key}`",
            "block buffers": lambda _, plan: len(pool(plan)),
            "parameters": lambda _, plan: bytes_text(plan["bytes"]["parameters"]),
            "gathers of blocks a step": lambda _, plan: (
                f"{gathers_of(plan['operations'], pool(plan)[0] // SIZES['bf16']):,}"
            ),
            "whole plan": lambda _, plan: bytes_text(plan["bytes"]["total"]),
            "a rank sends a step": lambda _, plan: bytes_text(sent_of(plan["operations"], 2)),
        },
    ) + tail(page, "zero_plans", more=f"{name} on two GPUs, bf16, 32 micro-batches a rank")


@renders
def zero_persist(page):
    """How much persist_below keeps whole, planned."""

    def kept(file, below):
        return plan_of("04_zero3", file, 1, f"persist_below={below}").bytes("parameters", "params_whole")

    return table_of(
        MODELS[1:],
        {
            "model": lambda name, _: name,
            "elements below 100,000": lambda _, file: f"{kept(file, 100_000) // SIZES['bf16']:,}",
            "below 1,000,000": lambda _, file: f"{kept(file, 1_000_000) // SIZES['bf16']:,}",
            "bytes of bf16 at 100,000": lambda _, file: bytes_text(kept(file, 100_000)),
        },
    ) + tail(page, "plans", more="one rank, which needs no padding")


@renders
def zero_formula_of_pages(page):
    """Three formulas for ZeRO-2 beside what lesson 03 holds."""

    def P(plan):
        return plan["bytes"]["parameters"] // SIZES["bf16"]

    def kept(n, plan):
        return 2 * P(plan) + 14 * P(plan) // int(n)

    plans = record("zero_plans")["models"]["gpt2_1558m"]["03_zero2"]
    return table_of(
        [(n, plans[n]) for n in ("2", "8", "64")],
        {
            "N": lambda n, _: n,
            "`2 P + 14 P/N`": lambda n, plan: f"{(2 * P(plan) + 14 * P(plan) / int(n)) / 1e9:.2f}",
            "`2 P + 18 P/N`": lambda n, plan: f"{(2 * P(plan) + 18 * P(plan) / int(n)) / 1e9:.2f}",
            "`4 P + 16 P/N`": lambda n, plan: f"{(4 * P(plan) + 16 * P(plan) / int(n)) / 1e9:.2f}",
            "lesson 03: slices and parameters": lambda n, plan: f"{kept(n, plan) / 1e9:.2f}",
            "full gradients of four units, scratch": lambda n, plan: (
                f"{(states_of(plan) - kept(n, plan)) / 1e9:.2f}"
            ),
            "together": lambda _, plan: f"{states_of(plan) / 1e9:.2f}",
        },
    ) + tail(page, "zero_plans", more="GB of GPT-2 1.5B, bf16 beside an fp32 master")


@renders
def zero_beside_pipelines(page, *cases):
    """What lesson 04 sends where pipedream's comparison has 6 g P (N - 1) / N. A case:
    WORKLOAD,RANKS,ROWS,MICROBATCHES."""
    rows = []
    for case in cases:
        name, *counts = case.split(",")
        ranks, micro, microbatches = map(int, counts)
        settings = (f"batch.micro={micro}", f"batch.global={micro * microbatches}")
        plan, work = plan_of("04_zero3", name, ranks, *settings), workload(name)
        whole = plan.P * (plan.N - 1)
        if not (2 * plan.M + 2) * whole // plan.N <= plan.sent <= 6 * plan.M * whole // plan.N:
            raise RenderError(
                f"{name}: lesson 04 sends {plan.sent} bytes, which is not between pipedream's bounds"
            )
        rows.append(
            (name, plan, 4 * microbatches * micro * work["batch"]["sequence"] * work["model"]["width"])
        )
    return table_of(
        rows,
        {
            "model": lambda name, *_: {file: model for model, file in MODELS}[name],
            "N": lambda _, plan, __: plan.N,
            "g": lambda _, plan, __: plan.M,
            "lesson 04 sends": lambda _, plan, __: bytes_text(plan.sent),
            "an interior stage sends": lambda _, __, stage: bytes_text(stage),
            "lesson 04 over that": lambda _, plan, stage: f"{plan.sent / stage:.2f}",
        },
    ) + tail(page, "plans", more="`04_zero3 --plan`, `prefetch` 1, bf16")
