"""Tables of lesson 08: copies of weights, staleness, times and losses by rule
(docs/results/lesson_08*.json)."""
from .lesson_tables import is_busy, tail
from .registry import RenderError, record, renders, table, table_of

RULES = ("none", "stash", "vertical_sync", "two_buffers")
# The run of rule `stash` with one update per step.
ONCE = "stash_12"
NAMES = {**{rule: f"`{rule}`" for rule in RULES}, ONCE: "`stash`, `update_every=12`"}
TWIN_OF = {
    "none": "small_steps",
    "stash": "small_steps",
    "vertical_sync": "small_steps",
    "two_buffers": "one_device",
    ONCE: "one_device",
}
STAGES, MICRO_BATCHES = 4, 12


def rate_text(key):
    """A record's "4e-3", as the command says it."""
    return f"{float(key):g}"


def losses():
    """Runs by learning rate. Lesson 07's is lesson 00's, bit for bit: so 1F1B is the twin of the rules with
    an update per step."""
    found = record("lesson_08_losses")
    for rate, runs in found["rates"].items():
        if any(runs["1f1b"][key] != runs["one_device"][key] for key in ("loss", "validation_loss")):
            raise RenderError(f"lesson_08_losses: at {rate} lesson 07 differs from lesson 00")
    return found


@renders
def versions_bytes(page):
    """Bytes of older weights on every rank. Stops where they are not as predicted."""

    def held(rule, stage):
        rank = record("lesson_08")["rules"][rule]["ranks"][stage]
        if rank["bytes"] != rank["predicted"]:
            raise RenderError(f"lesson_08: {rule}, rank {stage}: not as predicted")
        count = rank["bytes"].get("stash", 0)
        return f"{count:,} ({count // rank['bytes']['parameters']})" if count else "0"

    return by_stage(NAMES, held) + tail(
        page,
        "lesson_08",
        more="bytes of older versions; in brackets: copies of the stage's weights; fp32, default workload",
    )


def by_stage(rules, cell):
    """A row for each rule, a column for each stage."""
    columns = {f"stage {s}": lambda rule, s=s: cell(rule, s) for s in range(STAGES)}
    return table_of(rules, {"rule": NAMES.get, **columns})


@renders
def versions_behind(page):
    """How many versions forward and backward of nearly all micro-batches are behind, by stage. Stops where
    these are not the page's formulas, which hold in the steady state; with one update per step the first S -
    1 - s micro-batches of each step but the first are one behind."""

    def behind(rule, stage):
        counts, late = record("lesson_08")["rules"][rule]["updates_behind"][stage], STAGES - 1 - stage
        usual = [int(max(counts[what], key=counts[what].get)) for what in ("forward", "backward")]
        lacks = {"vertical_sync": STAGES - 1, "two_buffers": 1, ONCE: 0}.get(rule, late)
        steps = sum(counts["forward"].values()) // MICRO_BATCHES
        if usual != [lacks, 0 if rule == "none" else lacks] or (
            rule == ONCE and any(found.get("1", 0) != (steps - 1) * late for found in counts.values())
        ):
            raise RenderError(
                f"lesson_08: {rule}, stage {stage}: weights are {counts} updates behind, which is not what "
                "the page says"
            )
        return f"1, 1 for {late} of {MICRO_BATCHES}" if rule == ONCE and late else "{}, {}".format(*usual)

    return by_stage(NAMES, behind) + tail(
        page,
        "lesson_08",
        more="updates behind, of forward and of backward, after the first micro-batches; 12 micro-batches "
        "per step",
    )


@renders
def versions_time(page):
    """A step of 12 micro-batches, paced: measured, and by the simulator."""
    found = record("lesson_08")
    runs = [("1F1B (lesson 07)", found["flush"]["rows"], "1")]
    runs += [
        (name, found["rules"][rule]["rows"], "12" if TWIN_OF[rule] == "small_steps" else "1")
        for rule, name in NAMES.items()
    ]
    busy = "; other work ran on the machine" if is_busy("lesson_08") else ""
    return table_of(
        runs,
        {
            "rule": lambda name, *_: name,
            "a step": lambda _, rows, __: f"{1e3 * rows['measured']['seconds']:.0f} ms",
            "simulated": lambda _, rows, __: f"{1e3 * rows['paced']['seconds']:.0f} ms",
            "idle": lambda _, rows, __: f"{100 * rows['measured']['idle']:.1f} %",
            "updates per step": lambda *run: run[-1],
        },
    ) + tail(page, "lesson_08", more=f"two cores, 4 ranks, the median of a run's steps{busy}")


@renders
def versions_validation(page):
    """Validation losses by rule and learning rate, each next to its twin's."""
    found = losses()
    rates, rows = found["rates"], []
    for rule, name in NAMES.items():
        cells = [
            f"{rates[rate][run]['validation_loss']:.3f}" for rate in rates for run in (rule, TWIN_OF[rule])
        ]
        rows.append(
            [
                name,
                f"{found['steps'] * (found['micro_batches'] if TWIN_OF[rule] == 'small_steps' else 1):,}",
                *cells,
            ]
        )
    heads = ["rule", "updates", *(head for rate in rates for head in (f"rate {rate_text(rate)}", "its twin"))]
    return table(heads, rows) + tail(
        page,
        "lesson_08_losses",
        more="validation loss after 2,400 micro-batches; single runs of a small model",
    )


def above_twin(runs, rule):
    """Nats of validation loss that a rule costs."""
    return runs[rule]["validation_loss"] - runs[TWIN_OF[rule]]["validation_loss"]


# A rise of the loss after so many steps is a spike (checks.py), and before them part of the beginning.
LATE = 40


@renders
def versions_seeds(page):
    """What staleness costs with three seeds at learning rate 0.001."""
    seeds = {"1": losses()["rates"]["1e-3"], **record("lesson_08_seeds")["seeds"]}
    rows = [
        [name, *(f"{above_twin(runs, rule):.2f}" for runs in seeds.values())] for rule, name in NAMES.items()
    ]
    heads = ["rule", *(f"seed {seed}" for seed in seeds)]
    return table(heads, rows) + tail(
        page,
        "lesson_08_seeds",
        more="nats of validation loss above the twin's, learning rate 0.001; seed 1: lesson_08_losses.json",
    )


ON_GPUS = {
    "1f1b": "1F1B (lesson 07)",
    "1f1b_eager": "1F1B, no graph",
    **{rule: f"`{rule}`" for rule in RULES},
    "stash_8": "`stash`, `update_every=8`",
}


@renders
def versions_gpu(page):
    """A step of each rule on two GPUs: what --plan said by lesson 07's costs, and what it took. Stops where
    bytes are not as planned."""
    found = record("gpu_versions")
    for key, run in found["runs"].items():
        if not run["as_predicted"] or any(rank["measured"] != rank["predicted"] for rank in run["ranks"]):
            raise RenderError(f"gpu_versions: {key} is not as predicted")

    def error(_, run, predicted):
        return f"{100 * (predicted / run['seconds'] - 1):+.1f} %"

    def older(_, run, __):
        return " / ".join(f"{rank['measured'].get('stash', 0) / 1e9:.2f}" for rank in run["ranks"])

    columns = {
        "rule": lambda name, *_: name,
        "predicted ms": lambda *row: f"{1e3 * row[-1]:.1f}",
        "measured ms per step": lambda _, run, __: f"{1e3 * run['seconds']:.1f}",
        "error": error,
        "k tok/s": lambda _, run, __: f"{found['tokens_per_step'] / run['seconds'] / 1e3:.0f}",
        "GB of older weights, stage 0 / 1": older,
    }
    runs = [(name, found["runs"][key], found["predicted"][key]["seconds"]) for key, name in ON_GPUS.items()]
    stage, micro_batches = found["costs"]["times"][0], 8
    passes, update = stage["forward"] + stage["backward_input"] + stage["backward_weights"], stage["step"]
    sides = (
        f"On stage 0 (M - 1) u is {1e3 * (micro_batches - 1) * update:.1f} ms, and (S - 1)(f + b) "
        f"{1e3 * passes:.1f} ms."
    )
    more = (
        f"two {found['gpu']}, GPT-2 355M with an untied head, 8 micro-batches of 4 rows per step, means of "
        f"two rounds of {found['steps'] - found['warm_up']} steps in turns, commit {found['commit']}; bytes "
        "as planned on every rank"
    )
    return f"{table_of(runs, columns)}{tail(page, 'gpu_versions', more=more)}\n\n{sides}"
