"""Tables of lesson 08: copies of weights, staleness, times and losses by rule (docs/results/lesson_08*.json)."""
from .lesson_tables import is_busy, tail
from .registry import RenderError, has, record, renders, table

RULES = ("none", "stash", "vertical_sync", "two_buffers")
ONCE = "stash_12"  # stash with one update per step
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
    """Runs by learning rate. Lesson 07's is lesson 00's, bit for bit: so 1F1B is the twin of the rules with an update per step."""
    found = record("lesson_08_losses")
    for rate, runs in found["rates"].items():
        if any(runs["1f1b"][key] != runs["one_device"][key] for key in ("loss", "validation_loss")):
            raise RenderError(f"lesson_08_losses: at {rate} lesson 07 differs from lesson 00")
    return found


@renders
def versions_bytes(page):
    """Bytes of older weights on every rank. Stops where they are not as predicted."""
    if not has("lesson_08"):
        return ""
    rows = []
    for rule, name in NAMES.items():
        cells = []
        for stage, rank in enumerate(record("lesson_08")["rules"][rule]["ranks"]):
            held, parameters = rank["bytes"].get("stash", 0), rank["bytes"]["parameters"]
            if rank["bytes"] != rank["predicted"]:
                raise RenderError(f"lesson_08: {rule}, rank {stage}: not as predicted")
            cells.append(f"{held:,} ({held // parameters})" if held else "0")
        rows.append([name, *cells])
    heads = ["rule", *(f"stage {stage}" for stage in range(STAGES))]
    return table(heads, rows) + tail(
        page,
        "lesson_08",
        more="bytes of older versions; in brackets: copies of the stage's weights; fp32, default workload",
    )


def behind_by_rule(rule, stage):
    """The page's formulas in the steady state: updates that forward's and backward's weights lack when the gradient is complete."""
    behind = {
        "none": STAGES - 1 - stage,
        "stash": STAGES - 1 - stage,
        "vertical_sync": STAGES - 1,
        "two_buffers": 1,
    }[rule]
    return {"forward": behind, "backward": 0 if rule == "none" else behind}


def behind_once(counts, stage):
    """With one update per step the first S - 1 - s micro-batches of each step but the first are one behind."""
    late = STAGES - 1 - stage
    steps = sum(counts["forward"].values()) // MICRO_BATCHES
    if any(found.get("1", 0) != (steps - 1) * late for found in counts.values()):
        raise RenderError(
            f"lesson_08: {ONCE}, stage {stage}: weights are {counts} updates behind, which is not what the page says"
        )
    return f"1, 1 for {late} of {MICRO_BATCHES}" if late else "0, 0"


@renders
def versions_behind(page):
    """Of nearly all micro-batches, by stage: forward's and backward's. Stops where these are not the formula's."""
    if not has("lesson_08"):
        return ""
    found, rows = record("lesson_08")["rules"], []
    for rule in RULES:
        cells = []
        for stage, counts in enumerate(found[rule]["updates_behind"]):
            usual = {what: int(max(counts[what], key=counts[what].get)) for what in ("forward", "backward")}
            if usual != behind_by_rule(rule, stage):
                raise RenderError(
                    f"lesson_08: {rule}, stage {stage}: weights are {usual} updates behind, which is not what the page says"
                )
            cells.append(f"{usual['forward']}, {usual['backward']}")
        rows.append([NAMES[rule], *cells])
    rows.append(
        [
            NAMES[ONCE],
            *(behind_once(counts, stage) for stage, counts in enumerate(found[ONCE]["updates_behind"])),
        ]
    )
    heads = ["rule", *(f"stage {stage}" for stage in range(STAGES))]
    return table(heads, rows) + tail(
        page,
        "lesson_08",
        more="updates behind, of forward and of backward, after the first micro-batches; 12 micro-batches per step",
    )


def times_of(rows):
    return (
        f"{1e3 * rows['measured']['seconds']:.0f} ms",
        f"{1e3 * rows['paced']['seconds']:.0f} ms",
        f"{100 * rows['measured']['idle']:.1f} %",
    )


@renders
def versions_time(page):
    """A step of 12 micro-batches, paced: measured, and by the simulator."""
    if not has("lesson_08"):
        return ""
    found = record("lesson_08")
    rows = [["1F1B (lesson 07)", *times_of(found["flush"]["rows"]), "1"]]
    rows += [
        [name, *times_of(found["rules"][rule]["rows"]), "12" if TWIN_OF[rule] == "small_steps" else "1"]
        for rule, name in NAMES.items()
    ]
    busy = "; other work ran on the machine" if is_busy("lesson_08") else ""
    return table(["rule", "a step", "simulated", "idle", "updates per step"], rows) + tail(
        page, "lesson_08", more=f"two cores, 4 ranks, the median of a run's steps{busy}"
    )


@renders
def versions_validation(page):
    """Validation losses by rule and learning rate, each next to its twin's."""
    if not has("lesson_08_losses"):
        return ""
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


LATE = 40  # steps: where the loss rises after them is a spike (checks.py), not the beginning


@renders
def versions_seeds(page):
    """What staleness costs with three seeds at learning rate 0.001."""
    if not has("lesson_08_seeds"):
        return ""
    found = record("lesson_08_seeds")
    seeds, rows = {"1": losses()["rates"]["1e-3"], **found["seeds"]}, []
    for rule, name in NAMES.items():
        above = [
            runs[rule]["validation_loss"] - runs[TWIN_OF[rule]]["validation_loss"] for runs in seeds.values()
        ]
        rows.append([name, *(f"{one:.2f}" for one in above)])
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
    """A step of each rule on two GPUs: what --plan said by lesson 07's costs, and what it took. Stops where bytes are not as planned."""
    if not has("gpu_versions"):
        return ""
    found, rows = record("gpu_versions"), []
    for key, name in ON_GPUS.items():
        run, predicted = found["runs"][key], found["predicted"][key]["seconds"]
        if not run["as_predicted"] or any(rank["measured"] != rank["predicted"] for rank in run["ranks"]):
            raise RenderError(f"gpu_versions: {key} is not as predicted")
        older = " / ".join(f"{rank['measured'].get('stash', 0) / 1e9:.2f}" for rank in run["ranks"])
        rows.append(
            [
                name,
                f"{1e3 * predicted:.1f}",
                f"{1e3 * run['seconds']:.1f}",
                f"{100 * (predicted / run['seconds'] - 1):+.1f} %",
                f"{found['tokens_per_step'] / run['seconds'] / 1e3:.0f}",
                older,
            ]
        )
    stage, micro_batches = found["costs"]["times"][0], 8
    passes, update = stage["forward"] + stage["backward_input"] + stage["backward_weights"], stage["step"]
    sides = f"On stage 0 (M - 1) u is {1e3 * (micro_batches - 1) * update:.1f} ms, and (S - 1)(f + b) {1e3 * passes:.1f} ms."
    heads = [
        "rule",
        "predicted ms",
        "measured ms per step",
        "error",
        "k tok/s",
        "GB of older weights, stage 0 / 1",
    ]
    return (
        table(heads, rows)
        + tail(
            page,
            "gpu_versions",
            more=f"two {found['gpu']}, GPT-2 355M with an untied head, 8 micro-batches of 4 rows per step, means of two rounds of "
            f"{found['steps'] - found['warm_up']} steps in turns, commit {found['commit']}; bytes as planned on every rank",
        )
        + "\n\n"
        + sides
    )
