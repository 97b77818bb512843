"""Tables of lessons 02 to 04: what ranks hold and send under ZeRO-1, 2, 3, planned and measured (docs/results/zero_*.json, plans.json)."""
from .lesson_tables import MODELS, file_text, tail
from .plans import SIZES, STATES, gathers_of, plan_of
from .registry import RenderError, bytes_text, record, renders, table
from .workloads import workload, workload_of

LESSONS = {
    "01_data_parallel": "01 data parallel",
    "02_zero1": "02 ZeRO-1",
    "03_zero2": "03 ZeRO-2",
    "04_zero3": "04 ZeRO-3",
}


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
    """(N, run) of 20 steps; stops where one did not hold and send what was planned."""
    for n, run in record("zero_order")["lessons"][lesson].items():
        if any(run[f"predicted_{key}"] != run[key] for key in ("bytes", "operations", "bytes_sent")):
            raise RenderError(f"{run['command']}: not as predicted")
        yield int(n), run


@renders
def zero_held(page, lesson):
    """What a rank held of each purpose, on one to four ranks, beside the lessons before."""
    before, rows = {other: dict(runs_of(other)) for other in reversed(LESSONS) if other < lesson}, []
    for n, run in runs_of(lesson):
        bytes_ = run["bytes"]
        rows.append(
            [
                n,
                *(f"{bytes_[purpose]:,}" for purpose in ("parameters", "gradients")),
                f"{bytes_['momentum'] + bytes_['variance']:,}",
                f"{bytes_['total']:,}",
                *(f"{of[n]['bytes']['total']:,}" for of in before.values()),
            ]
        )
    return table(
        [
            "N",
            "parameters",
            "gradients",
            "momentum, variance",
            "all purposes",
            *(f"lesson {other[:2]} holds" for other in before),
        ],
        rows,
    ) + tail(
        page, "zero_order", more=f"equal to the plan in every purpose; rank 0 of 20 steps of {file_text(run)}"
    )


@renders
def zero_predicted(page, lesson, before):
    """What a rank held and sent, as predicted and measured, and what the lesson before held."""
    others, rows = dict(runs_of(before)), []
    for n, run in runs_of(lesson):
        rows.append(
            [
                n,
                *(
                    f"{count:,}"
                    for count in (others[n]["bytes"]["total"], run["bytes"]["total"], run["bytes_sent"])
                ),
            ]
        )
    heads = ["N", f"lesson {before[:2]} holds", f"lesson {lesson[:2]} holds", "sends per step"]
    return table(heads, rows) + tail(
        page, "zero_order", more=f"bytes of rank 0, predicted and measured; {file_text(run)}"
    )


@renders
def zero_send_once(page, *worlds):
    """Gradients of several micro-batches: added up whole and sent once per step (lesson 02), or sent in each of them (lesson 03)."""
    rows = []
    for n in map(int, worlds):
        found = {}
        for lesson, way in (
            ("02_zero1", "summed, once per step (02)"),
            ("03_zero2", "of every micro-batch (03)"),
        ):
            run = dict(runs_of(lesson))[n]
            batch, sums = workload(workload_of(run))["batch"], [
                op for op in run["operations"] if op["kind"] == "reduce_scatter"
            ]
            found[lesson] = sum(op["count"] for op in sums), sent_of(
                [[op[key] for key in ("kind", "count", "elements", "dtype")] for op in sums], n
            )
            M = batch["global"] // (batch["micro"] * n)
            rows.append(
                [
                    f"{n}, {M}",
                    way,
                    f"{run['bytes']['gradients']:,}",
                    found[lesson][0],
                    f"{found[lesson][1]:,}",
                    f"{run['bytes_sent']:,}",
                ]
            )
        if found["03_zero2"] != tuple(M * once for once in found["02_zero1"]):
            raise RenderError(f"{run['command']}: not {M} times what lesson 02 sends of gradients")
    return table(
        [
            "N, M",
            "gradients sent",
            "gradients held",
            "reduce-scatters",
            "bytes they send",
            "bytes sent in all",
        ],
        rows,
        left=2,
    ) + tail(
        page,
        "zero_order",
        more=f"bytes of rank 0 as measured, equal to what was predicted; per step; {file_text(run)}",
    )


@renders
def zero_same_loss(page, *lessons):
    """The bits of lessons and of lesson 00 with their order of sums; stops where they differ."""
    found = record("zero_order")
    order, rows = found["order_of"][lessons[0]], []
    for n, virtual in found["orders"][order].items():
        for run in (found["lessons"][lesson][n] for lesson in lessons):
            if any(run[key] != virtual[key] for key in ("weights_sha256", "loss")):
                raise RenderError(
                    f"{run['command']}: its losses or weights are not those of lesson 00 with `--reduce-every {order}`"
                )
        rows.append([n, f"`{virtual['loss'][-1]!r}`", f"`{virtual['weights_sha256'][:12]}`"])
    return table(["N", "loss of step 20", "weights"], rows, left=3) + tail(
        page,
        "zero_order",
        more=f"{file_text(run)}; weights: the first 12 digits of the SHA-256 of the file that `--save` wrote; all 20 losses are compared",
    )


@renders
def zero_states(page, lesson):
    """Model states, planned, on 1 to 1024 GPUs."""
    rows = []
    name, file = MODELS[2]
    for n in ("1", "2", "4", "8", "64", "1024"):
        bytes_ = record("zero_plans")["models"][file][lesson][n]["bytes"]
        whole, ours = (
            states_of(record("zero_plans")["models"][file][of][n]) for of in ("01_data_parallel", lesson)
        )
        optimizer = bytes_["master"] + bytes_["momentum"] + bytes_["variance"]
        rows.append(
            [
                n,
                bytes_text(bytes_["parameters"]),
                bytes_text(bytes_["gradients"]),
                bytes_text(optimizer),
                bytes_text(ours),
                f"{whole / ours:.2f}",
                bytes_text(bytes_["total"]),
            ]
        )
    return table(
        [
            "N",
            "parameters",
            "gradients",
            "master, momentum, variance",
            "states",
            "16 P over it",
            "whole plan",
        ],
        rows,
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
    rows, first = [], None
    for run in record("zero_settings")["runs"]:
        if run["lesson"] != lesson:
            continue
        if (
            not run["as_predicted"]
            or run["predicted_bytes"] != run["bytes"]
            or run["predicted_operations"] != run["operations"]
        ):
            raise RenderError(f"{run['command']}: not as predicted")
        first = first or run
        rows.append(
            [
                f"`{run['settings']}`" if run["settings"] else "as shipped",
                *(
                    run["bytes"].get(purpose, 0)
                    for purpose in ("parameters", "gradients", "communication", "total")
                ),
                sum(op["count"] for op in run["operations"]),
                run["bytes_sent"],
            ]
        )
    heads = [
        "settings",
        "parameters",
        "gradients",
        "communication",
        "all purposes",
        "operations a step",
        "bytes sent",
    ]
    told = [
        i for i in range(len(heads)) if len({row[i] for row in rows}) > 1
    ]  # a column with one number says nothing
    return table(
        [heads[i] for i in told], [[row[i] if i == 0 else f"{row[i]:,}" for i in told] for row in rows]
    ) + tail(
        page,
        "zero_settings",
        more=f"rank 0 of 2, {file_text(first)}, measured and equal to what was predicted",
    )


@renders
def zero_paper(page):
    """The paper's example: 7.5 G parameters on 64 GPUs."""
    said = {"01_data_parallel": "120", "02_zero1": "31.4", "03_zero2": "16.6", "04_zero3": "1.9"}
    terms = {
        "01_data_parallel": ("16 P", lambda p, n: 16 * p),
        "02_zero1": ("4 P + 12 P/N", lambda p, n: 4 * p + 12 * p / n),
        "03_zero2": ("2 P + 14 P/N", lambda p, n: 2 * p + 14 * p / n),
        "04_zero3": ("16 P/N", lambda p, n: 16 * p / n),
    }
    rows = []
    for lesson, name in LESSONS.items():
        plan = record("zero_plans")["paper"][lesson]
        p = record("zero_plans")["paper"]["02_zero1"]["bytes"]["parameters"] // 2
        states, (text, formula) = states_of(plan), terms[lesson]
        alone = formula(p, 64)
        sharded = sum(
            sum(plan["buffers"].get(b, []))
            for b in ("params_full", "grads_full", "master_full", "momentum_full", "variance_full")
        )
        if lesson != "01_data_parallel":
            names = ["master_shard", "momentum_shard", "variance_shard"]
            names += (
                ["params_full", "grads_full"]
                if lesson == "02_zero1"
                else ["params_full", "grads_shard"]
                if lesson == "03_zero2"
                else ["params_shard", "grads_shard"]
            )
            sharded = sum(sum(plan["buffers"][b]) for b in names)
        if round(alone) != sharded:
            raise RenderError(f"{plan['command']}: {text} is {alone:,}, its buffers have {sharded:,}")
        digits = len(said[lesson].partition(".")[2])
        if f"{alone / 1e9:.{digits}f}" != said[lesson]:
            raise RenderError(f"{plan['command']}: {alone / 1e9} GB are not the paper's {said[lesson]}")
        rows.append(
            [
                name,
                f"`{text}`",
                said[lesson],
                f"{alone / 1e9:.3f}",
                bytes_text(states - sharded) if states != sharded else "",
                f"{states / 1e9:.3f}",
            ]
        )
    return table(
        ["lesson", "formula", "the paper, GB", "planned, GB", "whole for a moment", "states of the plan, GB"],
        rows,
        left=2,
    ) + tail(
        page,
        "zero_plans",
        more=f"`{record('zero_plans')['paper']['04_zero3']['command']}` and the like: P = "
        f"{record('zero_plans')['paper']['02_zero1']['bytes']['parameters'] // 2:,}; GB = 10^9 bytes",
    )


@renders
def zero_buckets(page):
    """Settings of ZeRO-2 beside ZeRO-1, on two GPUs."""
    rows = []
    for name, file in (MODELS[2], MODELS[4]):
        one, two = (record("zero_plans")["models"][file][lesson]["2"] for lesson in ("02_zero1", "03_zero2"))
        several = [
            ("ZeRO-1", one),
            ("ZeRO-2, as shipped", two),
            *((f"ZeRO-2, `{key}`", plan) for key, plan in record("zero_plans")["zero2"][file].items()),
        ]
        for what, plan in several:
            more = plan["bytes"]["total"] - one["bytes"]["total"]
            rows.append(
                [
                    name,
                    what,
                    bytes_text(plan["bytes"]["gradients"]),
                    bytes_text(plan["bytes"].get("communication", 0)),
                    f"{more / 1e6:+,.0f} MB" if more else "",
                ]
            )
    return table(
        ["model, N = 2", "strategy", "gradients", "communication", "total over ZeRO-1's"], rows, left=2
    ) + tail(page, "zero_plans", more="plans, bf16; 16 and 32 micro-batches a rank")


@renders
def zero_pool(page):
    """Prefetch and reshard_after_forward of ZeRO-3, on two GPUs."""
    rows = []
    name, file = MODELS[4]
    plans = {
        "prefetch=1": record("zero_plans")["models"][file]["04_zero3"]["2"],
        **record("zero_plans")["zero3"][file],
    }
    for key in ("prefetch=0", "prefetch=1", "prefetch=2", "prefetch=4", "reshard_after_forward=off"):
        pool, operations = plans[key]["buffers"]["params_full, a block"], plans[key]["operations"]
        rows.append(
            [
                f"`{key}`",
                len(pool),
                bytes_text(plans[key]["bytes"]["parameters"]),
                f"{gathers_of(operations, pool[0] // SIZES['bf16']):,}",
                bytes_text(plans[key]["bytes"]["total"]),
                bytes_text(sent_of(operations, 2)),
            ]
        )
    return table(
        [
            "setting",
            "block buffers",
            "parameters",
            "gathers of blocks a step",
            "whole plan",
            "a rank sends a step",
        ],
        rows,
    ) + tail(page, "zero_plans", more=f"{name} on two GPUs, bf16, 32 micro-batches a rank")


@renders
def zero_persist(page):
    """How much persist_below keeps whole, planned."""
    rows = []
    for name, file in MODELS[1:]:
        kept = [
            plan_of("04_zero3", file, 1, f"persist_below={below}").bytes("parameters", "params_whole")
            for below in (100_000, 1_000_000)
        ]
        rows.append([name, *(f"{count // SIZES['bf16']:,}" for count in kept), bytes_text(kept[0])])
    return table(
        ["model", "elements below 100,000", "below 1,000,000", "bytes of bf16 at 100,000"], rows
    ) + tail(page, "plans", more="one rank, which needs no padding")


@renders
def zero_formula_of_pages(page):
    """Three formulas for ZeRO-2 beside what lesson 03 holds."""
    formulas = {
        "2 P + 14 P/N": lambda p, n: 2 * p + 14 * p / n,
        "2 P + 18 P/N": lambda p, n: 2 * p + 18 * p / n,
        "4 P + 16 P/N": lambda p, n: 4 * p + 16 * p / n,
    }
    rows = []
    for n in ("2", "8", "64"):
        plan = record("zero_plans")["models"]["gpt2_1558m"]["03_zero2"][n]
        P, N = plan["bytes"]["parameters"] // SIZES["bf16"], int(n)
        kept = 2 * P + 14 * P // N
        rows.append(
            [
                n,
                *(f"{formula(P, N) / 1e9:.2f}" for formula in formulas.values()),
                f"{kept / 1e9:.2f}",
                f"{(states_of(plan) - kept) / 1e9:.2f}",
                f"{states_of(plan) / 1e9:.2f}",
            ]
        )
    return table(
        [
            "N",
            *(f"`{text}`" for text in formulas),
            "lesson 03: slices and parameters",
            "full gradients of four units, scratch",
            "together",
        ],
        rows,
    ) + tail(page, "zero_plans", more="GB of GPT-2 1.5B, bf16 beside an fp32 master")


@renders
def zero_beside_pipelines(page, *cases):
    """What lesson 04 sends where pipedream's comparison has 6 g P (N - 1) / N. A case: WORKLOAD,RANKS,ROWS,MICROBATCHES."""
    rows = []
    for case in cases:
        name, ranks, micro, microbatches = case.split(",")
        shape, work = plan_of(
            "04_zero3",
            name,
            int(ranks),
            f"batch.micro={micro}",
            f"batch.global={int(micro) * int(microbatches)}",
        ), workload(name)
        textbook = 6 * shape.M * shape.P * (shape.N - 1) // shape.N
        if not (2 * shape.M + 2) * shape.P * (shape.N - 1) // shape.N <= shape.sent <= textbook:
            raise RenderError(
                f"{name}: lesson 04 sends {shape.sent} bytes, which is not between pipedream's bounds"
            )
        stage = 4 * int(microbatches) * int(micro) * work["batch"]["sequence"] * work["model"]["width"]
        rows.append(
            [
                {file: model for model, file in MODELS}[name],
                shape.N,
                shape.M,
                bytes_text(shape.sent),
                bytes_text(stage),
                f"{shape.sent / stage:.2f}",
            ]
        )
    return table(
        ["model", "N", "g", "lesson 04 sends", "an interior stage sends", "lesson 04 over that"], rows
    ) + tail(page, "plans", more="`04_zero3 --plan`, `prefetch` 1, bf16")
