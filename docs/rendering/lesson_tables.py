"""Tables of lessons 00 and 01, from docs/results/lesson_*.json."""
import statistics

from .plans import stored
from .registry import RenderError, bytes_text, record, renders, source, table
from .workloads import FILES, named, shown, workload, workload_of

MODELS = (
    ("tiny", "tiny"),
    ("GPT-2 124M", "gpt2_124m"),
    ("GPT-2 355M", "gpt2_355m"),
    ("GPT-2 774M", "gpt2_774m"),
    ("GPT-2 1.5B", "gpt2_1558m"),
)
CPU_WARM_UP = 5  # steps of tests/benchmarks/cpu.py that are not timed


def loads(value):
    """Every `load_before` of a record: cores that were busy with something else before a turn."""
    if isinstance(value, list):
        return [load for item in value for load in loads(item)]
    if not isinstance(value, dict):
        return []
    return [load for key, item in value.items() for load in ([item] if key == "load_before" else loads(item))]


def is_busy(name):
    return max(loads(record(name))) > 0.5


def load_text(name):
    """Whether times can be believed."""
    most = max(loads(record(name)))
    return f"up to {most:.1f} cores busy with other work before a turn" + (
        ": **the machine was busy, so these times are no result**" if is_busy(name) else ""
    )


def machine_text(name):
    found = record(name)
    return f"{found['cpu']}, {found['cores']} cores, {found['threads']} thread a rank, commit {found['commit']}, {load_text(name)}"


def equal_text(predicted, measured):
    return "equal" if predicted == measured else "DIFFERENT"


def file_text(run):
    return f"`{FILES[workload_of(run)]}`"


def tail(page, *names, more=""):
    return (
        "\n\nFrom " + ", ".join(source(page, name) for name in names) + (f" ({more})" if more else "") + "."
    )


@renders
def states_of_models(page):
    """Bytes of model states: fp32, and 16 bits with an fp32 master."""
    rows = [
        [name, f"{p:,}", bytes_text(16 * p)]
        for name, p in ((name, stored(workload(file)["model"])) for name, file in MODELS)
    ]
    return table(["model", "P as stored", "states, 16 P"], rows)


def median_of(rounds, key):
    """Median, lowest and highest round."""
    values = sorted(turn[key] for turn in rounds)
    return statistics.median(values), values[0], values[-1]


def turns_text(rounds):
    return f"median of {len(rounds)} rounds of {rounds[0]['steps']} steps"


@renders
def activation_modes(page):
    """Bytes of a run, as predicted and measured, and its time, by what it keeps of its activations."""
    runs = record("lesson_00")["activations"]
    first = runs["keep"]
    rows = []
    for mode, run in runs.items():
        if run["loss"] != first["loss"]:
            raise RenderError(f"lesson_00: the losses of `{mode}` differ from those of `keep`")
        if run["predicted_bytes"] != run["bytes"]:
            raise RenderError(f"lesson_00: `{mode}` did not hold what was predicted")
        over = statistics.median(a["seconds"] / b["seconds"] for a, b in zip(run["rounds"], first["rounds"]))
        milliseconds = f"{1000 * median_of(run['rounds'], 'seconds')[0]:.1f}" + (
            "" if run is first else f" (x {over:.2f})"
        )
        rows.append(
            [
                f"`{mode}`",
                *(f"{count:,}" for count in (run["bytes"]["activations"], run["bytes"]["total"])),
                milliseconds,
            ]
        )
    heads = ["`activations`", "bytes of activations", "of all purposes", "ms per step"]
    more = (
        f"{file_text(first)}; {turns_text(first['rounds'])}, {record('lesson_00')['cores']} cores, one thread"
    )
    return table(heads, rows) + tail(page, "lesson_00", more=more)


@renders
def data_parallel_bytes(page):
    """What rank 0 of lesson 01 holds and sends: formula, prediction, measurement."""
    rows = []
    for n, run in record("lesson_01_order")["ranks"].items():
        ranks, parameters = int(n), run["bytes"]["parameters"]  # 4 P
        if (run["predicted_bytes"], run["predicted_bytes_sent"]) != (run["bytes"], run["bytes_sent"]):
            raise RenderError(f"{run['command']}: not as predicted")
        rows.append(
            [
                n,
                *(
                    f"{count:,.0f}"
                    for count in (
                        run["bytes"]["total"],
                        parameters * 2 * (ranks - 1) / ranks,
                        run["bytes_sent"],
                    )
                ),
            ]
        )
    heads = ["N", "holds", "4 P x 2 (N-1)/N", "sends per step"]
    more = f"bytes of rank 0, predicted and measured; {file_text(run)}; N = 3 and 4 round P up"
    return table(heads, rows) + tail(page, "lesson_01_order", more=more)


@renders
def bytes_sent_of_models(page):
    """The same for models that need GPUs: bf16 gradients."""
    rows = []
    for name, file in MODELS[1:]:
        planned = record("zero_plans")["models"][file]["01_data_parallel"]
        rows.append(
            [name]
            + [bytes_text(planned[str(n)]["bytes"]["gradients"] * 2 * (n - 1) / n) for n in (2, 4, 8, 64)]
            + [bytes_text(16 * stored(workload(file)["model"]))]
        )
    return table(
        [
            "model, bf16 gradients (2 P)",
            "N = 2",
            "N = 4",
            "N = 8",
            "N = 64",
            "states a rank holds, 16 P, for every N",
        ],
        rows,
    )


def the_same(runs, key):
    """What all runs have; stops where they differ."""
    values = {run[key] for run in runs}
    if len(values) != 1:
        raise RenderError(f"runs that should agree in {key} have {sorted(values)}")
    return values.pop()


@renders
def variants(page):
    """Buckets and overlap."""
    found = record("lesson_01_variants")
    rows = []
    for run in found["variants"]:
        rate, low, high = median_of(run["rounds"], "tokens_per_second")
        share, least, most = median_of(run["rounds"], "wait_share")
        operations = sum(op["count"] for op in run["operations"])
        rows.append(
            [
                f"`{run['bucket']}`",
                f"`{run['overlap']}`",
                operations,
                f"{100 * share:.1f} % ({100 * least:.1f} to {100 * most:.1f})",
                f"{rate / 1e3:.2f} ({low / 1e3:.2f} to {high / 1e3:.2f})",
            ]
        )
    return table(["bucket", "overlap", "operations a step", "waiting", "k tok/s"], rows, left=2) + tail(
        page,
        "lesson_01_variants",
        more=f"{the_same(found['variants'], 'bytes_sent'):,} bytes sent in each; {turns_text(found['variants'][0]['rounds'])}, lowest and highest round in brackets; "
        f"{file_text(found['variants'][0])} in micro-batches of 6 rows, 2 ranks; {machine_text('lesson_01_variants')}",
    )


@renders
def batch_cuts(page):
    """One global batch as micro-batches of several sizes."""
    found = record("lesson_01_batch")
    first = found["runs"][0]
    rows = [
        [
            run["micro"],
            run["accumulation"],
            f"{run['bytes']['activations']:,}",
            f"{run['bytes']['total']:,}",
            f"{run['loss'][-1]:.10f}",
            f"{1000 * median_of(run['rounds'], 'seconds')[0]:.1f}",
        ]
        for run in found["runs"]
    ]
    apart = max(abs(run["loss"][-1] - first["loss"][-1]) for run in found["runs"])
    return table(
        [
            "rows a micro-batch",
            "micro-batches a rank",
            "activations, bytes",
            "total, bytes",
            "loss of step 25",
            "ms a step",
        ],
        rows,
        left=0,
    ) + tail(
        page,
        "lesson_01_batch",
        more=f"{file_text(first)}, 2 ranks, 12 rows a step, {the_same(found['runs'], 'bytes_sent'):,} bytes sent in each; the losses are {apart:.1e} apart at most; times: {turns_text(first['rounds'])}, "
        f"{machine_text('lesson_01_batch')}",
    )


@renders
def learning_rates(page):
    found = record("lesson_01_lr")
    tokens = {run["rows"] * run["steps"] * found["tokens_a_row"] for run in found["runs"]}
    if len(tokens) != 1:
        raise RenderError("lesson_01_lr.json: runs of different numbers of tokens")
    rows = [
        [
            run["rows"],
            run["steps"],
            f"{run['lr_peak']:g}",
            run["warmup_steps"],
            f"{run['loss'][run['steps'] // 10]:.4f}",
            f"{run['validation_loss']:.4f}",
        ]
        for run in found["runs"]
    ]
    return table(
        [
            "rows a step",
            "steps",
            "peak learning rate",
            "warm-up steps",
            "loss after a tenth of the tokens",
            "validation loss",
        ],
        rows,
        left=0,
    ) + tail(page, "lesson_01_lr", more=f"{file_text(found['runs'][0])}, {tokens.pop():,} tokens")


@renders
def whole_runs(page):
    """Lessons 00 and 01 over all steps."""
    one, two = record("lesson_00")["default"], record("lesson_01")["default"]
    rows = [
        [
            f"`{shown(run)}`",
            f"{run['loss'][0]:.4f}",
            f"{run['loss'][-1]:.4f}",
            f"{run['validation_loss']:.6f}",
            f"{run['bytes']['total']:,}",
            f"{run['bytes_sent']:,}",
        ]
        for run in (one, two)
    ]
    return table(
        [
            "run",
            "first loss",
            "last loss",
            "validation loss",
            "bytes a rank holds",
            "bytes a rank sends a step",
        ],
        rows,
    ) + tail(page, "lesson_00", "lesson_01")


def cpu_file():
    found = record("cpu_tiny")
    steps = CPU_WARM_UP + found["timed_steps"]
    return f"`{FILES[named(found['workload_hash'], [f'steps={steps}'])]}`"


@renders
def cpu_rates(page):
    """One device, one rank, two ranks, and eager PyTorch on the same cores."""
    found = record("cpu_tiny")
    rounds = found["tokens_per_second"]
    zero = {
        f"zero{n}_{ranks}": f"lesson 0{n + 1}, {words}"
        for ranks, words in (("one_rank", "1 rank"), ("two_ranks", "2 ranks"))
        for n in (1, 2, 3)
    }
    names = {
        "one_device": "lesson 00",
        "one_rank": "lesson 01, 1 rank",
        "two_ranks": "lesson 01, 2 ranks",
        **zero,
        "pytorch": "eager PyTorch, 1 thread",
    }
    names = {key: name for key, name in names.items() if key in rounds[0]}
    rows = []
    for key, name in names.items():
        rate, low, high = median_of(rounds, key)
        over = found["ratios"].get(f"{key}_over_01")
        rows.append(
            [
                name,
                f"{rate / 1e3:.1f}",
                f"{low / 1e3:.1f} to {high / 1e3:.1f}",
                f"{over['median']:.3f} ({over['lowest']:.3f} to {over['highest']:.3f})" if over else "",
            ]
        )
    ratio = found["ratios"]["two_ranks_over_one"]
    return table(
        [cpu_file(), "k tok/s", "lowest to highest round", "over lesson 01, within a round"], rows
    ) + f"\n\nTwo ranks over one, the median of ratios within rounds: {ratio['median']:.2f} times ({ratio['lowest']:.2f} to {ratio['highest']:.2f}), so " f"{100 * ratio['median'] / 2:.0f} % of two cores ({100 * ratio['lowest'] / 2:.0f} to {100 * ratio['highest'] / 2:.0f})." + tail(
        page,
        "cpu_tiny",
        more=f"{found['cpu']}, {found['cores']} cores, {len(rounds)} rounds of {found['timed_steps']} steps, commit {found['commit']}"
        + (f"; {load_text('cpu_tiny')}" if loads(found) else ""),
    )
