"""docs/results.md: the runs that are quoted everywhere, as they were configured
(docs/results/quoted.json)."""
from .registry import RenderError, record, renders, source, table, table_of

# Seconds for one epoch and peak GB that the documents print for these runs.
QUOTED = {
    "data parallel, fp32": ("125.67", "13.62"),
    "ZeRO-1": ("52.10", "9.64"),
    "ZeRO-2": ("52.56", "10.55"),
    "ZeRO-3, 774M": ("106.47", "21.03"),
    "offload, 774M": ("352 to 375", "10.10"),
}


def runs(world=1):
    """{(name, packing): run} on so many GPUs."""
    return {(run["name"], run["packing"]): run for run in record("quoted")["runs"] if run["world"] == world}


def loss(run):
    return f"{run['first_loss']:.2f} to {run['last_loss']:.2f}" if run and run["whole"] else "as ZeRO-3"


@renders
def quoted_runs(page):
    """Each next to what is quoted."""
    found, all_runs, rows = record("quoted"), runs(), []
    for (name, packing), run in all_runs.items():
        if packing != "pack":
            continue
        seconds, peak = QUOTED.get(name, ("", ""))
        padded = all_runs.get((name, "pad_unmasked"))
        packed = loss(run) if run["whole"] else ""
        rows.append(
            [
                name,
                run["dtype"],
                seconds,
                f"{run['epoch_seconds']:.2f}",
                peak,
                f"{run['peak_bytes'] / 1e9:.2f}",
                packed,
                loss(padded) if run["whole"] else "",
            ]
        )
    heads = [
        "run",
        "format",
        "quoted s an epoch",
        "here",
        "quoted peak GB",
        "here",
        "loss, packed rows",
        "loss, padded rows",
    ]
    return table(heads, rows, left=2) + (
        f"\n\nFrom {source(page, 'quoted')}: one {found['machine']}, {found['samples']:,} samples of "
        f"{found['tokens']} tokens, two epochs, random initial weights; 4 samples a step at 355M, 2 at 774M "
        "and 1558M. Seconds: the median step times the steps of an epoch. Peak: bytes that the run holds on "
        f"the GPU, measured. Loss: of the first step, and the mean of the last {found['last']}."
    )


@renders
def quoted_on_two(page):
    """The quoted runs' work, shared by two GPUs."""
    alone = runs()
    pairs = [
        (name, alone[name, packing], run) for (name, packing), run in runs(2).items() if packing == "pack"
    ]
    for name, one, run in pairs:
        if run["whole"] and loss(run) != loss(one):
            raise RenderError(
                f"quoted.json: {name}: two GPUs end at {loss(run)}, one at {loss(one)}; the page calls them "
                "equal"
            )
    cards = ", ".join(sorted({run["versions"]["GPU"] for _, _, run in pairs}))
    return (
        table_of(
            pairs,
            {
                "run": lambda name, *_: name,
                "s an epoch, one GPU": lambda _, one, __: f"{one['epoch_seconds']:.2f}",
                "two": lambda *pair: f"{pair[-1]['epoch_seconds']:.2f}",
                "peak GB, one GPU": lambda _, one, __: f"{one['peak_bytes'] / 1e9:.2f}",
                "of each of two": lambda *pair: f"{pair[-1]['peak_bytes'] / 1e9:.2f}",
            },
        )
        + f"\n\nFrom {source(page, 'quoted')}; one GPU: {record('quoted')['machine']}; two: {cards}."
    )


@renders
def quoted_ratios(page):
    """What the same numbers say when one thing at a time differs."""
    all_runs = runs()

    def seconds(name):
        return all_runs[name, "pack"]["step_seconds"]

    def peak(name):
        return all_runs[name, "pack"]["peak_bytes"]

    one, fp32 = "data parallel, fp16", "data parallel, fp32"
    rows = [
        [
            "ZeRO-1 against data parallel",
            "fp16 against fp32",
            f"{125.67 / 52.10:.2f}",
            f"{seconds(fp32) / seconds('ZeRO-1'):.2f}",
        ],
        ["the same", "nothing", "not given", f"{seconds(one) / seconds('ZeRO-1'):.2f}"],
        ["ZeRO-2 against data parallel", "nothing", "not given", f"{seconds(one) / seconds('ZeRO-2'):.2f}"],
        [
            "peak of ZeRO-1 against data parallel",
            "fp16 against fp32",
            f"{9.64 / 13.62:.2f}",
            f"{peak('ZeRO-1') / peak(fp32):.2f}",
        ],
        ["the same", "nothing", "not given", f"{peak('ZeRO-1') / peak(one):.2f}"],
    ]
    return table(["times as fast, or as large", "what else differs", "quoted", "here"], rows, left=2) + (
        f"\n\nFrom {source(page, 'quoted')}."
    )
