"""Tables of lessons 02 to 04: what ranks hold and send under ZeRO-1, 2, 3; formulas beside plans and runs (docs/results/zero_*.json)."""
from .lesson_tables import ALIGN, MODELS, equal_text, file_text, tail, units_of
from .registry import RenderError, bytes_text, record, renders, table
from .workloads import with_settings, workload, workload_of

LESSONS = {"01_data_parallel": "01 data parallel", "02_zero1": "02 ZeRO-1", "03_zero2": "03 ZeRO-2", "04_zero3": "04 ZeRO-3"}
STATES = ("parameters", "gradients", "master", "momentum", "variance")
OPTIONS = {"bucket": 0, "prefetch": 1, "reshard_after_forward": True, "persist_below": 0}


class Shape:
    """A workload on N ranks with a lesson's settings, in the READMEs' symbols."""

    def __init__(self, work, ranks, settings=""):
        words = settings.split() if isinstance(settings, str) else list(settings)
        own = [one for one in words if one.split("=")[0] in OPTIONS]
        work = with_settings(work, [one for one in words if one not in own])
        self.options = {**OPTIONS, **with_settings({}, own)}
        self.N, self.units = ranks, units_of(work["model"], ranks)
        self.P, self.L, self.block = sum(self.units), work["model"]["layers"], self.units[1]
        self.ends = self.units[0] + self.units[-1]
        whole = whole_units(work["model"], self.options["persist_below"], ranks)
        self.W, self.block_whole, self.ends_whole = sum(whole), whole[1], whole[0] + whole[-1]
        self.M = -(-work["batch"]["global"] // (work["batch"]["micro"] * ranks))
        self.e = 4 if work["precision"]["dtype"] == "fp32" else 2
        self.optimizer = 8 if self.e == 4 else 12  # momentum, variance; and a master beside 16 bits
        self.pool = min(self.L, self.options["prefetch"] + 1) if self.options["reshard_after_forward"] else self.L

    def bucket(self):
        """Elements of a full bucket, as long on every rank."""
        if not self.options["bucket"]:
            return 0
        size = -(-(-(-self.options["bucket"] // self.N)) // ALIGN) * ALIGN * self.N
        return min(size, self.P)

    def full(self):
        """Elements of full gradients that are alive: unit 0, two blocks, the last unit."""
        return self.ends + min(2, self.L) * self.block

    def parameters(self, lesson):
        if lesson != "04_zero3":
            return self.e * self.P
        return self.e * ((self.P - self.W) // self.N + self.W + self.ends - self.ends_whole + self.pool * (self.block - self.block_whole))

    def gradients(self, lesson):
        if lesson in ("01_data_parallel", "02_zero1"):
            return self.e * self.P
        scratch = (self.bucket() or self.full()) // self.N if self.M > 1 else 0
        return self.e * (self.P // self.N + self.full() + scratch)

    def states(self, lesson):
        sharded = 1 if lesson == "01_data_parallel" else self.N
        return self.parameters(lesson) + self.gradients(lesson) + self.optimizer * self.P // sharded

    def gathers(self):
        """Of blocks, in one step of lesson 04."""
        return self.L + (2 * self.M - 1) * (self.L - self.pool)

    def moved(self, lesson):
        """Elements of reduce-scatters and all-gathers in one step, before the factor (N - 1) / N."""
        if lesson in ("01_data_parallel", "02_zero1"):
            return 2 * self.P
        if lesson == "03_zero2":
            return (self.M + 1) * self.P
        return self.M * self.P + self.W + self.ends - self.ends_whole + self.gathers() * (self.block - self.block_whole)

    def sent(self, lesson):
        """Bytes; with the all-reduce of four fp64 numbers."""
        return (self.e * self.moved(lesson) * (self.N - 1) + 64 * (self.N - 1)) // self.N


def sent_of(operations, ranks):
    """Bytes of a plan's list of operations."""
    size = {"f64": 8, "f32": 4, "bf16": 2, "f16": 2}
    return sum(count * elements * size[dtype] * (2 if kind == "all_reduce" else 1) * (ranks - 1) for kind, count, elements, dtype in operations) // ranks


def checked(what, ours, theirs):
    if ours != theirs:
        raise RenderError(f"{what}: the formula gives {ours:,}, the program {theirs:,}")
    return ours


def states_of(found):
    return sum(found["bytes"].get(purpose, 0) for purpose in STATES)


def runs_of(lesson):
    """(N, run) of 20 steps, each checked against the formulas."""
    for n, run in record("zero_order")["lessons"][lesson].items():
        shape = Shape(workload(workload_of(run)), int(n))
        checked(f"{run['command']}: states", shape.states(lesson), states_of(run))
        if shape.N > 1 and shape.N != 3:  # three ranks round the four numbers' pieces
            checked(f"{run['command']}: bytes sent", shape.sent(lesson), run["bytes_sent"])
        yield shape, run


@renders
def zero_held(page, lesson):
    """What a rank held of each purpose, on one to four ranks, beside data parallelism."""
    others = dict(runs_of("01_data_parallel")) if lesson != "01_data_parallel" else {}
    data_parallel = {shape.N: run for shape, run in others.items()}
    rows = []
    for shape, run in runs_of(lesson):
        bytes_ = run["bytes"]
        rows.append([shape.N, *(f"{bytes_[purpose]:,}" for purpose in ("parameters", "gradients")), f"{bytes_['momentum'] + bytes_['variance']:,}",
                     f"{run['predicted_bytes']['total']:,}", f"{bytes_['total']:,}", equal_text(run["predicted_bytes"], bytes_),
                     f"{data_parallel[shape.N]['bytes']['total']:,}"])
    return (table(["N", "parameters", "gradients", "momentum, variance", "all purposes, predicted", "measured", "", "lesson 01 holds"], rows)
            + tail(page, "zero_order", more=f"every purpose is compared, not the sum alone; rank 0 of 20 steps of {file_text(run)}"))


@renders
def zero_sent(page, lesson):
    """What a rank sent."""
    rows = []
    for shape, run in runs_of(lesson):
        rows.append([shape.N, shape.M, f"{shape.moved(lesson):,}", sum(op["count"] for op in run["operations"]), f"{run['predicted_bytes_sent']:,}",
                     f"{run['bytes_sent']:,}", equal_text((run["predicted_operations"], run["predicted_bytes_sent"]), (run["operations"], run["bytes_sent"]))])
    return (table(["N", "M", "elements moved", "operations a step", "bytes sent, predicted", "measured", ""], rows)
            + tail(page, "zero_order", more=f"{file_text(run)}; elements before the factor (N-1)/N; bytes sent contain the four numbers; kinds, sizes and counts of operations are compared"))


@renders
def zero_predicted(page, lesson, before):
    """What a rank held and sent, predicted beside measured, and what the lesson before held."""
    others, rows = {shape.N: run for shape, run in runs_of(before)}, []
    for shape, run in runs_of(lesson):
        if any(run[f"predicted_{key}"] != run[key] for key in ("bytes", "operations", "bytes_sent")):
            raise RenderError(f"{run['command']}: not as predicted")
        counts = (others[shape.N]["bytes"]["total"], run["predicted_bytes"]["total"], run["bytes"]["total"], run["predicted_bytes_sent"], run["bytes_sent"])
        rows.append([shape.N, *(f"{count:,}" for count in counts)])
    heads = ["N", f"lesson {before[:2]} holds", f"lesson {lesson[:2]} holds, predicted", "measured", "sends a step, predicted", "measured"]
    return table(heads, rows) + tail(page, "zero_order", more=f"rank 0 of 20 steps of {file_text(run)}")


@renders
def zero_same_loss(page, lesson):
    """Beside lesson 00 with the lesson's order of sums."""
    found = record("zero_order")
    order, rows = found["order_of"][lesson], []
    for n, run in found["lessons"][lesson].items():
        virtual = found["orders"][order][n]
        same = all(run[key] == virtual[key] for key in ("weights_sha256", "loss"))
        rows.append([n, f"`{run['loss'][-1]!r}`", f"`{run['weights_sha256'][:12]}`", f"`{virtual['loss'][-1]!r}`", f"`{virtual['weights_sha256'][:12]}`",
                     "equal" if same else "DIFFERENT"])
    return (table(["N", f"{lesson[:2]} on N ranks: loss of step 20", "its weights", f"00, N virtual ranks, `--reduce-every {order}`", "its weights", "20 losses and weights"],
                  rows, left=6)
            + tail(page, "zero_order", more=f"{file_text(run)}; weights: the first 12 digits of the SHA-256 of the file that `--save` wrote"))


@renders
def zero_all(page, *worlds):
    """What the strategies hold, what they send, and that their losses are lesson 00's."""
    found, rows = record("zero_order"), []
    for n in worlds or ("2", "4"):
        for lesson, name in LESSONS.items():
            run = dict((str(shape.N), run) for shape, run in runs_of(lesson))[n]
            order = found["order_of"][lesson]
            same = all(run[key] == found["orders"][order][n][key] for key in ("weights_sha256", "loss"))
            bytes_ = run["bytes"]
            rows.append([n, name, *(f"{bytes_[purpose]:,}" for purpose in ("parameters", "gradients")), f"{bytes_['momentum'] + bytes_['variance']:,}",
                         f"{bytes_['total']:,}", f"{run['bytes_sent']:,}", f"{run['loss'][-1]:.10f}", f"{'equal' if same else 'DIFFERENT'}, `{order}`"])
    return (table(["N", "lesson", "parameters", "gradients", "momentum, variance", "all purposes", "a rank sends a step", "loss of step 20", "beside lesson 00's, order of sums"],
                  rows, left=2)
            + tail(page, "zero_order", more=f"bytes of rank 0 as measured, equal to what was predicted; {file_text(run)}, default settings"))


@renders
def zero_states(page, lesson):
    """Model states by formula, equal to the plan's, on 1 to 1024 GPUs."""
    rows = []
    for name, file in (MODELS[2], MODELS[4]):
        for n in ("1", "2", "4", "8", "64", "1024"):
            shape, plan = Shape(workload(file), int(n)), record("zero_plans")["models"][file][lesson][n]
            ours = checked(plan["command"], shape.states(lesson), states_of(plan))
            bytes_ = plan["bytes"]
            optimizer = bytes_["master"] + bytes_["momentum"] + bytes_["variance"]
            rows.append([name, n, bytes_text(bytes_["parameters"]), bytes_text(bytes_["gradients"]), bytes_text(optimizer), bytes_text(ours),
                         f"{16 * shape.P / ours:.2f}", bytes_text(bytes_["total"])])
    return (table(["model", "N", "parameters", "gradients", "master, momentum, variance", "states", "16 P over it", "whole plan"], rows, left=1)
            + tail(page, "zero_plans", more="`--plan --world N --device cuda`, bf16; the formula equals the plan's buffers to the byte"))


@renders
def zero_sent_of_models(page, file):
    """Bytes a rank sends in a step of one model, every strategy; the formula is checked where the plan's operations are on record."""
    rows = []
    for lesson, name in LESSONS.items():
        plan = record("zero_plans")["models"][file][lesson]["2"]
        checked(f"{plan['command']}: bytes sent", Shape(workload(file), 2).sent(lesson), sent_of(plan["operations"], 2))
        rows.append([name, *(bytes_text(Shape(workload(file), n).sent(lesson)) for n in (2, 4, 8, 32))])
    heads = [f"N = {n}, M = {Shape(workload(file), n).M}" for n in (2, 4, 8, 32)]
    return table(["lesson", *heads], rows) + tail(page, "zero_plans", more=f"`configs/{file}.json`: {workload(file)['batch']['global']} rows a step in micro-batches of "
                                                  f"{workload(file)['batch']['micro']}; M micro-batches a rank; formulas, equal to the plans' operations at N = 2")


@renders
def zero_settings_table(page, lesson):
    """A lesson in several settings, two steps on two ranks, as measured."""
    rows, first = [], None
    for run in record("zero_settings")["runs"]:
        if run["lesson"] != lesson:
            continue
        if not run["as_predicted"] or run["predicted_bytes"] != run["bytes"] or run["predicted_operations"] != run["operations"]:
            raise RenderError(f"{run['command']}: not as predicted")
        shape = Shape(workload(workload_of(run)), 2, run["settings"])
        checked(f"{run['command']}: states", shape.states(lesson), states_of(run))
        checked(f"{run['command']}: bytes sent", shape.sent(lesson), run["bytes_sent"])
        first = first or run
        rows.append([f"`{run['settings']}`" if run["settings"] else "as shipped", f"{run['bytes']['parameters']:,}", f"{run['bytes']['gradients']:,}",
                     f"{run['bytes'].get('communication', 0):,}", f"{run['bytes']['total']:,}", sum(op["count"] for op in run["operations"]), f"{run['bytes_sent']:,}"])
    return (table(["settings", "parameters", "gradients", "communication", "all purposes", "operations a step", "bytes sent"], rows)
            + tail(page, "zero_settings", more=f"rank 0 of 2, {file_text(first)}, measured and equal to what was predicted"))


@renders
def zero_paper(page):
    """The paper's example: 7.5 G parameters on 64 GPUs."""
    said = {"01_data_parallel": "120", "02_zero1": "31.4", "03_zero2": "16.6", "04_zero3": "1.9"}
    terms = {"01_data_parallel": ("16 P", lambda p, n: 16 * p), "02_zero1": ("4 P + 12 P/N", lambda p, n: 4 * p + 12 * p / n),
             "03_zero2": ("2 P + 14 P/N", lambda p, n: 2 * p + 14 * p / n), "04_zero3": ("16 P/N", lambda p, n: 16 * p / n)}
    rows = []
    for lesson, name in LESSONS.items():
        plan = record("zero_plans")["paper"][lesson]
        p = record("zero_plans")["paper"]["02_zero1"]["bytes"]["parameters"] // 2
        states, (text, formula) = states_of(plan), terms[lesson]
        alone = formula(p, 64)
        sharded = sum(sum(plan["buffers"].get(b, [])) for b in ("params_full", "grads_full", "master_full", "momentum_full", "variance_full"))
        if lesson != "01_data_parallel":
            names = ["master_shard", "momentum_shard", "variance_shard"]
            names += ["params_full", "grads_full"] if lesson == "02_zero1" else ["params_full", "grads_shard"] if lesson == "03_zero2" else ["params_shard", "grads_shard"]
            sharded = sum(sum(plan["buffers"][b]) for b in names)
        checked(f"{plan['command']}: the buffers of the formula", round(alone), sharded)
        digits = len(said[lesson].partition(".")[2])
        if f"{alone / 1e9:.{digits}f}" != said[lesson]:
            raise RenderError(f"{plan['command']}: {alone / 1e9} GB are not the paper's {said[lesson]}")
        rows.append([name, f"`{text}`", said[lesson], f"{alone / 1e9:.3f}", bytes_text(states - sharded) if states != sharded else "", f"{states / 1e9:.3f}"])
    return (table(["lesson", "formula", "the paper, GB", "planned, GB", "whole for a moment", "states of the plan, GB"], rows, left=2)
            + tail(page, "zero_plans", more=f"`{record('zero_plans')['paper']['04_zero3']['command']}` and the like: P = "
                   f"{record('zero_plans')['paper']['02_zero1']['bytes']['parameters'] // 2:,}; GB = 10^9 bytes"))


@renders
def zero_buckets(page):
    """Settings of ZeRO-2 beside ZeRO-1, on two GPUs."""
    rows = []
    for name, file in (MODELS[2], MODELS[4]):
        one, two = (record("zero_plans")["models"][file][lesson]["2"] for lesson in ("02_zero1", "03_zero2"))
        for key, plan in (("", two), *record("zero_plans")["zero2"][file].items()):
            checked(f"{plan['command']}: states", Shape(workload(file), 2, key).states("03_zero2"), states_of(plan))
            checked(f"{plan['command']}: bytes sent", Shape(workload(file), 2, key).sent("03_zero2"), sent_of(plan["operations"], 2))
        several = [("ZeRO-1", one), ("ZeRO-2, as shipped", two), *((f"ZeRO-2, `{key}`", plan) for key, plan in record("zero_plans")["zero2"][file].items())]
        for what, plan in several:
            more = plan["bytes"]["total"] - one["bytes"]["total"]
            rows.append([name, what, bytes_text(plan["bytes"]["gradients"]), bytes_text(plan["bytes"].get("communication", 0)),
                         bytes_text(plan["bytes"]["gradients"] + plan["bytes"].get("communication", 0)), f"{more / 1e6:+,.0f} MB" if more else "",
                         bytes_text(sent_of(plan["operations"], 2))])
    return (table(["model, N = 2", "strategy", "gradients", "communication", "together", "total over ZeRO-1's", "a rank sends a step"], rows, left=2)
            + tail(page, "zero_plans", more="plans, bf16; 16 and 32 micro-batches a rank"))


@renders
def zero_pool(page):
    """Prefetch and reshard_after_forward of ZeRO-3, on two GPUs."""
    rows = []
    for name, file in (MODELS[2], MODELS[4]):
        plans = {"prefetch=1": record("zero_plans")["models"][file]["04_zero3"]["2"], **record("zero_plans")["zero3"][file]}
        for key in ("prefetch=0", "prefetch=1", "prefetch=2", "prefetch=4", "reshard_after_forward=off"):
            shape, plan = Shape(workload(file), 2, key), plans[key]
            checked(f"{plan['command']}: states", shape.states("04_zero3"), states_of(plan))
            checked(f"{plan['command']}: bytes sent", shape.sent("04_zero3"), sent_of(plan["operations"], 2))
            rows.append([name, f"`{key}`", shape.pool, bytes_text(shape.e * shape.pool * shape.block), bytes_text(plan["bytes"]["parameters"]),
                         f"{shape.gathers():,}", bytes_text(plan["bytes"]["total"]), bytes_text(shape.sent("04_zero3"))])
    return (table(["model, N = 2", "setting", "block buffers", "their bytes", "parameters in all", "gathers of blocks a step", "whole plan", "a rank sends a step"], rows, left=2)
            + tail(page, "zero_plans", more="plans, bf16; 16 and 32 micro-batches a rank; formulas equal to the plans"))


def small_tensors(model, below):
    """Elements of the tensors that stay whole, by unit."""
    d, vocabulary = model["width"], -(-model["vocab"] // 128) * 128
    block = [3 * d * d, d * d, 4 * d * d, 4 * d * d, 3 * d, d, 4 * d, d, d, d, d, d]
    units = [[vocabulary * d, model["context"] * d], *[block] * model["layers"], [d, d]]
    return [[size for size in unit if size < below] for unit in units]


def whole_units(model, below, ranks):
    """Elements of each unit that stay whole, as stored: every tensor from a multiple of 64 elements, every segment a multiple of 64 a rank."""
    padded = [sum(-(-size // ALIGN) * ALIGN for size in unit) for unit in small_tensors(model, below)]
    return [-(-size // (ALIGN * ranks)) * ALIGN * ranks for size in padded]


@renders
def zero_persist(page):
    """Which tensors persist_below keeps whole."""
    rows = []
    for name, file in MODELS[1:]:
        model = workload(file)["model"]
        kept = [[size for unit in small_tensors(model, below) for size in unit] for below in (100_000, 1_000_000)]
        rows.append([name, *(f"{len(sizes):,} / {sum(sizes):,}" for sizes in kept), bytes_text(2 * sum(kept[0]))])
        plan = record("zero_plans")["zero3"].get(file)
        if plan:
            shape, plan = Shape(workload(file), 2, "persist_below=100000"), plan["persist_below=100000"]
            checked(f"{plan['command']}: params_whole", shape.e * shape.W, sum(plan["buffers"]["params_whole"]))
            checked(f"{plan['command']}: states", shape.states("04_zero3"), states_of(plan))
            checked(f"{plan['command']}: bytes sent", shape.sent("04_zero3"), sent_of(plan["operations"], 2))
    return (table(["model", "tensors / elements below 100,000", "below 1,000,000", "bytes of bf16 at 100,000"], rows)
            + "\n\nCounted from the tensors' shapes, before padding; asserted in [param_layout_test.cpp](" + page.link("tests/model/param_layout_test.cpp") + ").")


@renders
def zero_formula_of_pages(page):
    """Three formulas for ZeRO-2 beside what lesson 03 holds."""
    formulas = {"2 P + 14 P/N": lambda p, n: 2 * p + 14 * p / n, "2 P + 18 P/N": lambda p, n: 2 * p + 18 * p / n, "4 P + 16 P/N": lambda p, n: 4 * p + 16 * p / n}
    rows = []
    for n in ("2", "8", "64"):
        plan = record("zero_plans")["models"]["gpt2_1558m"]["03_zero2"][n]
        shape = Shape(workload("gpt2_1558m"), int(n))
        checked(plan["command"], shape.states("03_zero2"), states_of(plan))
        kept = 2 * shape.P + 14 * shape.P // shape.N
        rows.append([n, *(f"{formula(shape.P, shape.N) / 1e9:.2f}" for formula in formulas.values()), f"{kept / 1e9:.2f}", f"{(states_of(plan) - kept) / 1e9:.2f}",
                     f"{states_of(plan) / 1e9:.2f}"])
    return (table(["N", *(f"`{text}`" for text in formulas), "lesson 03: slices and parameters", "full gradients of four units, scratch", "together"], rows)
            + tail(page, "zero_plans", more="GB of GPT-2 1.5B, bf16 beside an fp32 master"))


@renders
def zero_beside_pipelines(page, *cases):
    """What lesson 04 sends where pipedream's comparison has 6 g P (N - 1) / N. A case: WORKLOAD,RANKS,ROWS,MICROBATCHES."""
    rows = []
    for case in cases:
        name, ranks, micro, microbatches = case.split(",")
        shape = Shape(workload(name), int(ranks), f"batch.micro={micro} batch.global={int(micro) * int(microbatches)}")
        textbook = 6 * shape.M * shape.P * (shape.N - 1) // shape.N
        work, sent = workload(name), shape.sent("04_zero3")
        if not (2 * shape.M + 2) * shape.P * (shape.N - 1) // shape.N <= sent <= textbook:
            raise RenderError(f"{name}: lesson 04 sends {sent} bytes, which is not between pipedream's bounds")
        stage = 4 * int(microbatches) * int(micro) * work["batch"]["sequence"] * work["model"]["width"]
        rows.append([{file: model for model, file in MODELS}[name], shape.N, shape.M, f"{shape.L} + {2 * shape.M - 1} x {shape.L - shape.pool} = {shape.gathers():,}", f"{2 * shape.M * shape.L:,}",
                     bytes_text(sent), bytes_text(textbook), f"{sent / textbook:.2f}", bytes_text(stage), f"{sent / stage:.2f}"])
    return (table(["model", "N", "g", "gathers of blocks in lesson 04", "2 g L", "lesson 04 sends", "6 g P (N - 1) / N", "lesson 04 over that", "an interior stage sends",
                   "lesson 04 over that"], rows)
            + "\n\nComputed from the layout, `prefetch` 1, bf16; lesson 04's page compares the same formula with plans and runs.")
