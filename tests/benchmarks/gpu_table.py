"""Arithmetic and tables over the JSON of gpu.py."""
import statistics


def gpu_of(name):
    """The name in the table of GPUs: "H100" for "NVIDIA H100 80GB HBM3"."""
    return name.removeprefix("NVIDIA ").split()[0]


def quartiles(values):
    values = sorted(values)
    if len(values) < 2:
        return values[0], values[0]
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return first, third


def cell(tokens_a_step, turn, power, joules):
    """What is kept of a program's turn in a round. `joules`: of all its GPUs from "began" to "ended", by
    their own counters; None without them."""
    seconds = turn["seconds"]
    median, (first, third) = statistics.median(seconds), quartiles(seconds)
    return {
        "tokens_per_second": tokens_a_step / median,
        "median_seconds": median,
        "lowest_seconds": min(seconds),
        "first_quartile": first,
        "third_quartile": third,
        "highest_seconds": max(seconds),
        "steps": len(seconds),
        # The share of a turn's time that lies between its steps.
        "outside_steps": None
        if turn.get("wall_seconds") is None
        else 1.0 - sum(seconds) / turn["wall_seconds"],
        "power": power,
        "joules": joules,
        "joules_per_token": None if joules is None else joules / (tokens_a_step * len(seconds)),
    }


def spread(values):
    values = sorted(values)
    return {
        "median": statistics.median(values),
        "lowest": values[0],
        "highest": values[-1],
        "rounds": len(values),
    }


KEEPS = {
    f"ours_resident_{units}": units for units in (1, 7, 13)
}  # units whose states lesson 05 leaves on the GPU: the embedding, and 6 or 12 blocks

# Meshes of four and eight GPUs, compared with lesson 01 on the same rows: groups of lesson 04, two pipelines
# of lesson 07, lesson 11.
MESHES = (
    "zero3_by_2",
    "zero3_by_4",
    "replicas_2",
    *(f"mesh_{mesh}" for mesh in ("2x1x2", "1x2x2", "2x2x1", "2x2x2", "1x4x2", "4x2x1", "2x1x4")),
)

# Programs compared with `ours`: lessons that split something, and peers that split the same or add in the
# same order.
ZERO = (
    "text",
    "dp",
    "zero1",
    "zero2",
    "zero3",
    "zero3_gelu",
    "zero3_plain",
    "ours_gpipe",
    "ours_warmup",
    "ours_whole",
    "ours_kept",
    "ours_lanes",
    "ours_lanes_kept",
    "ours_nccl",
    "ours_gather",
    "ours_contiguous",
    "ours_1x2x1",
    "ours_1x1x2",
    "tensor",
    "ours_early",
    "ours_delayed",
    *MESHES,
    *KEEPS,
)
OFFLOAD_PEERS = ("offload", "offload_defaults")
PEERS_OF = {
    "zero1": ("zero", "zero_stored", "stage1", "stage1_defaults"),
    "zero2": ("stage2", "stage2_defaults"),
    "zero3": ("fsdp", "fsdp_stored", "stage3", "stage3_defaults"),
    "zero3_gelu": ("fsdp", "fsdp_stored"),
    "ours_gpipe": ("gpipe",),
    "ours_warmup": ("1f1b",),
    "ours_1x2x1": ("dp",),
    "ours_1x1x2": ("tensor",),
    "ours_early": OFFLOAD_PEERS,
    "ours_delayed": OFFLOAD_PEERS,
    **dict.fromkeys(KEEPS, OFFLOAD_PEERS),
}


BESIDE_COPIES = ("ours_1_awake", "ours_1_within")
ONE = "one_device"  # where it takes turns, every program is compared with it
SCALING = {
    "ours_1": ("ours", "scaling"),
    "zero2_1": ("zero2", "zero2_scaling"),
}  # a lesson on one GPU: the same on all of them, and what their ratio is called


def ratio_of(row, a, b):
    """Program a's rate over b's, within a round; None without a round that has both. A stored program has one
    rate for all rounds, and says so. "per_joule": tokens per joule of a over b's, where every round counted
    both."""
    program, rounds = row["programs"].get(b), [cells["programs"] for cells in row["rounds"]]
    if program is None:
        return None
    stored = {"tokens_per_second": program["stored"]} if "stored" in program else None
    pairs = [(r[a], stored or r[b]) for r in rounds if a in r and (stored or b in r)]
    if not pairs:
        return None
    ratio = spread([x["tokens_per_second"] / y["tokens_per_second"] for x, y in pairs])
    energies = [(x.get("joules_per_token"), y.get("joules_per_token")) for x, y in pairs]
    counted = all(x and y for x, y in energies)
    return {
        **ratio,
        **({"stored": True} if stored else {}),
        **({"per_joule": spread([y / x for x, y in energies])} if counted else {}),
    }


def ratios_of(row):
    """`ours` over every program that is not; lessons 02-04 over `ours` and over the peer that splits what
    they split."""
    pairs = [("ours", name) for name in row["programs"] if name != "ours" and name not in (*ZERO, *SCALING)]
    for name in ZERO:
        pairs += [(name, other) for other in ("ours", *PEERS_OF.get(name, ())) if name in row["programs"]]
    pairs += [(name, ONE) for name in row["programs"] if name != ONE]
    found = {f"{a}_over_{b}": ratio for a, b in pairs if (ratio := ratio_of(row, a, b)) is not None}
    for name in BESIDE_COPIES:
        found.pop(f"ours_over_{name}", None)
        if (ratio := ratio_of(row, name, "ours_1")) is not None:
            found[f"{name}_over_ours_1"] = ratio
    for one, (name, scaling) in SCALING.items():
        if (ratio := ratio_of(row, name, one)) is not None:
            found[scaling] = {
                key: value if key in ("rounds", "per_joule") else value / row["world"]
                for key, value in ratio.items()
            }
    return found


def found_at(value, keys):
    """What is behind these keys; None where one of them is not there."""
    for key in keys:
        value = (value or {}).get(key)
    return value


def median_of(row, *keys):
    """Median over rounds of a number in their programs' cells; None where there is none."""
    values = [found_at(one["programs"], keys) for one in row["rounds"]]
    values = [value for value in values if value is not None]
    return statistics.median(values) if values else None


def text_of(value, form, factor=1.0):
    return "-" if value is None else format(value * factor, form)


def held_text(program):
    """GiB at the peak: the allocator's; of records that lack it the ledger's, and so said."""
    if program.get("peak_allocated") is None and "bytes_measured" in program:
        return f"{program['bytes_measured'] / 2.0**30:.2f} (ledger)"
    return text_of(program.get("peak_allocated"), ".2f", 2.0**-30)


def explained(text):
    """A table that has such a cell says what it is."""
    return text + (
        "\n\n(ledger): buffers by our ledger, without cuBLAS's workspace and what LibTorch rounds up."
        if "(ledger)" in text
        else ""
    )


LESSON_OF = {
    "dp": "01",
    "zero1": "02",
    "zero2": "03",
    "zero3": "04",
    "zero3_gelu": "04, GELU again,",
    "zero3_plain": "04, no windows,",
    "ours_gpipe": "07, GPipe,",
    "ours_warmup": "07, warmup=1,",
    "ours_1x2x1": "11, 1x2x1,",
    "ours_1x1x2": "11, 1x1x2,",
}


def spread_text(ratio, form="{:.3f}".format, unit=""):
    spread_words = (
        "one round" if ratio.get("rounds") == 1 else f"{form(ratio['lowest'])} to {form(ratio['highest'])}"
    )
    text = f"{form(ratio['median'])}{unit} ({spread_words})"
    return f"{text}, stored" if ratio.get("stored") else text


def ratio_text(row, name):
    """The ratio that a table shows. Lessons 02 to 04: over lesson 01. A peer: ours over it, or the ratios of
    the lessons that split what it splits. With one device among the programs: over that."""
    ratios = row["ratios"]
    if ONE in row["programs"]:
        ratio = ratios.get(f"{name}_over_{ONE}")
        own = ratios.get(f"ours_over_{name}")
        return (
            ""
            if name == ONE
            else "-"
            if ratio is None
            else f"{spread_text(ratio)} of one GPU" + (f"; ours {spread_text(own)}" if own else "")
        )
    if name == "ours":
        return ""
    kin = [
        f"lesson {LESSON_OF[z]} {spread_text(ratios[key])}"
        for z in ZERO
        if (key := f"{z}_over_{name}") in ratios
    ]
    if name in ZERO and not kin:
        ratio = ratios.get(f"{name}_over_ours")
        lesson = row.get("lesson", "01" if row["world"] > 1 else "00")
        return "-" if ratio is None else f"{spread_text(ratio)} of lesson {lesson}"
    if name in BESIDE_COPIES:
        ratio = ratios.get(f"{name}_over_ours_1")
        return "-" if ratio is None else f"{spread_text(ratio)} of one GPU"
    if name in SCALING:
        lesson, scaling = SCALING[name]
        return (
            f"scaling{'' if lesson == 'ours' else ' of lesson ' + LESSON_OF[lesson]} "
            f"{spread_text(ratios[scaling])}"
            if scaling in ratios
            else "-"
        )
    own = ratios.get(f"ours_over_{name}")
    return "; ".join(kin) or ("-" if own is None else spread_text(own))


def program_line(key, row, name):
    program = row["programs"][name]
    label = program["label"]
    if "stored" in program:
        rate, low_high = program["stored"], "stored"
    else:
        rate = median_of(row, name, "tokens_per_second")
        rates = [r["programs"][name]["tokens_per_second"] for r in row["rounds"] if name in r["programs"]]
        low_high = f"{min(rates) / 1e3:.1f} to {max(rates) / 1e3:.1f}" if rates else "failed"
    if "stored" not in program and 0 < len(rates) < len(row["rounds"]):
        label += f"; {len(rates)} of {len(row['rounds'])} rounds"
    if program.get("attention") in ("cudnn", "flash"):
        label += f"; attention: {program['attention']}"
    cells = [
        key,
        label,
        text_of(rate, ".1f", 1e-3),
        low_high,
        text_of(median_of(row, name, "median_seconds"), ".2f", 1e3),
        ratio_text(row, name),
        held_text(program),
        text_of(median_of(row, name, "power", "sm_mhz", "median"), ".0f"),
        text_of(median_of(row, name, "power", "watts", "median"), ".0f"),
        text_of(median_of(row, name, "joules_per_token"), ".2f", 1e3),
    ]
    return "| " + " | ".join(cells) + " |"


def shortened(text):
    """How it ended, and what it said last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return ": ".join(lines[:1] + lines[1:][-1:])


def markdown(result):
    """One line a program: medians over rounds, ours over it within a round, peak memory, clock and power of
    GPU time, energy by the GPUs' counters."""
    lines = [
        "| run | program | k tok/s | lowest to highest round | ms a step | ours over it, within a round | "
        "peak GiB | SM MHz | W | J per k tok |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    notes = []  # each once
    for key, row in result["rows"].items():
        lines += [program_line(key, row, name) for name in row["programs"]]
        notes += [f"{p['label']}: {p['source']}" for p in row["programs"].values() if "source" in p]
        notes += [
            f"{key}, {p['label']}: failed: {shortened(p['failure'])}"
            for p in row["programs"].values()
            if "failure" in p
        ]
    return "\n".join(lines) + "\n" + "".join(f"\n{note}\n" for note in dict.fromkeys(notes))
