"""Tables of lessons 00 and 01, from docs/results/lesson_*.json."""
import statistics

from .plans import FILES, named, stored, workload, workload_of
from .registry import RenderError, as_predicted, bytes_text, record, renders, source, table_of

MODELS = (
    ("tiny", "tiny"),
    ("GPT-2 124M", "gpt2_124m"),
    ("GPT-2 355M", "gpt2_355m"),
    ("GPT-2 774M", "gpt2_774m"),
    ("GPT-2 1.5B", "gpt2_1558m"),
)
# tests/benchmarks/cpu.py leaves so many first steps untimed.
CPU_WARM_UP = 5


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
    return (
        f"{found['cpu']}, {found['cores']} cores, {found['threads']} thread a rank, commit "
        f"{found['commit']}, {load_text(name)}"
    )


def file_text(run):
    return f"`{FILES[workload_of(run)]}`"


def tail(page, *names, more=""):
    return (
        "\n\nFrom " + ", ".join(source(page, name) for name in names) + (f" ({more})" if more else "") + "."
    )


@renders
def states_of_models(page):
    """Bytes of model states: fp32, and 16 bits with an fp32 master."""
    return table_of(
        [(name, stored(workload(file)["model"])) for name, file in MODELS],
        {
            "model": lambda name, _: name,
            "P as stored": lambda _, P: f"{P:,}",
            "states, 16 P": lambda _, P: bytes_text(16 * P),
        },
    )


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
    for mode, run in runs.items():
        if as_predicted(run, "bytes")["loss"] != first["loss"]:
            raise RenderError(f"lesson_00: the losses of `{mode}` differ from those of `keep`")

    def milliseconds(_, run):
        over = statistics.median(a["seconds"] / b["seconds"] for a, b in zip(run["rounds"], first["rounds"]))
        shown = f"{1000 * median_of(run['rounds'], 'seconds')[0]:.1f}"
        return shown if run is first else f"{shown} (x {over:.2f})"

    more = (
        f"{file_text(first)}; {turns_text(first['rounds'])}, {record('lesson_00')['cores']} cores, one thread"
    )
    return table_of(
        runs.items(),
        {
            "`activations`": lambda mode, _: f"`{mode}`",
            "bytes of activations": lambda _, run: f"{run['bytes']['activations']:,}",
            "of all purposes": lambda _, run: f"{run['bytes']['total']:,}",
            "ms per step": milliseconds,
        },
    ) + tail(page, "lesson_00", more=more)


@renders
def data_parallel_bytes(page):
    """What rank 0 of lesson 01 holds and sends: formula, prediction, measurement."""
    runs = [
        (int(n), as_predicted(run, "bytes", "bytes_sent"))
        for n, run in record("lesson_01_order")["ranks"].items()
    ]
    more = f"bytes of rank 0, predicted and measured; {file_text(runs[0][1])}; N = 3 and 4 round P up"
    return table_of(
        runs,
        {
            "N": lambda n, _: n,
            "holds": lambda _, run: f"{run['bytes']['total']:,}",
            "4 P x 2 (N-1)/N": lambda n, run: f"{run['bytes']['parameters'] * 2 * (n - 1) / n:,.0f}",
            "sends per step": lambda _, run: f"{run['bytes_sent']:,}",
        },
    ) + tail(page, "lesson_01_order", more=more)


@renders
def bytes_sent_of_models(page):
    """Bytes sent by models that need GPUs: bf16 gradients."""

    def sent(file, n):
        planned = record("zero_plans")["models"][file]["01_data_parallel"][str(n)]
        return bytes_text(planned["bytes"]["gradients"] * 2 * (n - 1) / n)

    return table_of(
        MODELS[1:],
        {
            "model, bf16 gradients (2 P)": lambda name, _: name,
            **{f"N = {n}": lambda _, file, n=n: sent(file, n) for n in (2, 4, 8, 64)},
            "states a rank holds, 16 P, for every N": lambda _, file: bytes_text(
                16 * stored(workload(file)["model"])
            ),
        },
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
    found = record("lesson_01_variants")["variants"]

    def spread(run, key, scale, form):
        return "{:{form}} ({:{form}} to {:{form}})".format(
            *(scale * value for value in median_of(run["rounds"], key)), form=form
        )

    return table_of(
        found,
        {
            "bucket": lambda run: f"`{run['bucket']}`",
            "overlap": lambda run: f"`{run['overlap']}`",
            "operations a step": lambda run: sum(op["count"] for op in run["operations"]),
            "waiting": lambda run: spread(run, "wait_share", 100, ".1f").replace(" (", " % (", 1),
            "k tok/s": lambda run: spread(run, "tokens_per_second", 1e-3, ".2f"),
        },
        left=2,
    ) + tail(
        page,
        "lesson_01_variants",
        more=f"{the_same(found, 'bytes_sent'):,} bytes sent in each; {turns_text(found[0]['rounds'])}, "
        f"lowest and highest round in brackets; {file_text(found[0])} in micro-batches of 6 rows, 2 ranks; "
        f"{machine_text('lesson_01_variants')}",
    )


@renders
def batch_cuts(page):
    """One global batch as micro-batches of several sizes."""
    runs = record("lesson_01_batch")["runs"]
    apart = max(abs(run["loss"][-1] - runs[0]["loss"][-1]) for run in runs)
    return table_of(
        runs,
        {
            "rows a micro-batch": lambda run: run["micro"],
            "micro-batches a rank": lambda run: run["accumulation"],
            "activations, bytes": lambda run: f"{run['bytes']['activations']:,}",
            "total, bytes": lambda run: f"{run['bytes']['total']:,}",
            "loss of step 25": lambda run: f"{run['loss'][-1]:.10f}",
            "ms a step": lambda run: f"{1000 * median_of(run['rounds'], 'seconds')[0]:.1f}",
        },
        left=0,
    ) + tail(
        page,
        "lesson_01_batch",
        more=f"{file_text(runs[0])}, 2 ranks, 12 rows a step, {the_same(runs, 'bytes_sent'):,} bytes sent "
        f"in each; the losses are {apart:.1e} apart at most; times: {turns_text(runs[0]['rounds'])}, "
        f"{machine_text('lesson_01_batch')}",
    )


@renders
def learning_rates(page):
    found = record("lesson_01_lr")
    runs = [{**run, "tokens": run["rows"] * run["steps"] * found["tokens_a_row"]} for run in found["runs"]]
    tokens = the_same(runs, "tokens")
    return table_of(
        runs,
        {
            "rows a step": lambda run: run["rows"],
            "steps": lambda run: run["steps"],
            "peak learning rate": lambda run: f"{run['lr_peak']:g}",
            "warm-up steps": lambda run: run["warmup_steps"],
            "loss after a tenth of the tokens": lambda run: f"{run['loss'][run['steps'] // 10]:.4f}",
            "validation loss": lambda run: f"{run['validation_loss']:.4f}",
        },
        left=0,
    ) + tail(page, "lesson_01_lr", more=f"{file_text(runs[0])}, {tokens:,} tokens")


@renders
def whole_runs(page):
    """Lessons 00 and 01 over all steps."""
    return table_of(
        [record("lesson_00")["default"], record("lesson_01")["default"]],
        {
            "run": lambda run: f"`{run['command']}`",
            "first loss": lambda run: f"{run['loss'][0]:.4f}",
            "last loss": lambda run: f"{run['loss'][-1]:.4f}",
            "validation loss": lambda run: f"{run['validation_loss']:.6f}",
            "bytes a rank holds": lambda run: f"{run['bytes']['total']:,}",
            "bytes a rank sends a step": lambda run: f"{run['bytes_sent']:,}",
        },
    ) + tail(page, "lesson_00", "lesson_01")


def cpu_file():
    found = record("cpu_tiny")
    steps = CPU_WARM_UP + found["timed_steps"]
    return f"`{FILES[named(found['workload_hash'], [f'steps={steps}'])]}`"


@renders
def cpu_rates(page):
    """One device, one rank, two ranks, and eager PyTorch on the same cores."""
    found = record("cpu_tiny")
    rounds, ratio = found["tokens_per_second"], found["ratios"]["two_ranks_over_one"]
    names = {
        "one_device": "lesson 00",
        "one_rank": "lesson 01, 1 rank",
        "two_ranks": "lesson 01, 2 ranks",
        **{
            f"zero{n}_{ranks}": f"lesson 0{n + 1}, {words}"
            for ranks, words in (("one_rank", "1 rank"), ("two_ranks", "2 ranks"))
            for n in (1, 2, 3)
        },
        "pytorch": "eager PyTorch, 1 thread",
    }

    def over(key):
        form = "{median:.3f} ({lowest:.3f} to {highest:.3f})"
        return form.format(**found["ratios"][f"{key}_over_01"]) if f"{key}_over_01" in found["ratios"] else ""

    rates = table_of(
        [key for key in names if key in rounds[0]],
        {
            cpu_file(): names.get,
            "k tok/s": lambda key: f"{median_of(rounds, key)[0] / 1e3:.1f}",
            "lowest to highest round": lambda key: "{:.1f} to {:.1f}".format(
                *(rate / 1e3 for rate in median_of(rounds, key)[1:])
            ),
            "over lesson 01, within a round": over,
        },
    )
    return (
        f"{rates}\n\nTwo ranks over one, the median of ratios within rounds: {ratio['median']:.2f} times "
        f"({ratio['lowest']:.2f} to {ratio['highest']:.2f}), so {100 * ratio['median'] / 2:.0f} % of two "
        f"cores ({100 * ratio['lowest'] / 2:.0f} to {100 * ratio['highest'] / 2:.0f})."
    ) + tail(
        page,
        "cpu_tiny",
        more=f"{found['cpu']}, {found['cores']} cores, {len(rounds)} rounds of {found['timed_steps']} "
        f"steps, commit {found['commit']}" + (f"; {load_text('cpu_tiny')}" if loads(found) else ""),
    )
