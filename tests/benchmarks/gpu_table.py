"""Arithmetic and tables over the JSON of gpu.py."""
import statistics


def quartiles(values):
    values = sorted(values)
    if len(values) < 2:
        return values[0], values[0]
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return first, third


def cell(tokens_a_step, turn, power):
    """What is kept of a program's turn in a round."""
    seconds = turn["seconds"]
    median, (first, third) = statistics.median(seconds), quartiles(seconds)
    return {"tokens_per_second": tokens_a_step / median, "median_seconds": median, "lowest_seconds": min(seconds), "first_quartile": first,
            "third_quartile": third, "highest_seconds": max(seconds), "steps": len(seconds),
            # Of a turn's time, what passed between its steps.
            "outside_steps": None if turn.get("wall_seconds") is None else 1.0 - sum(seconds) / turn["wall_seconds"],
            "power": power}


def spread(values):
    values = sorted(values)
    return {"median": statistics.median(values), "lowest": values[0], "highest": values[-1], "rounds": len(values)}


def ratios_of(row):
    """`ours` over every other program, within a round. A stored program has one rate for all rounds, and says so."""
    found = {}
    rounds = [cells["programs"] for cells in row["rounds"]]
    for name, program in row["programs"].items():
        if name == "ours":
            continue
        if "stored" in program:
            pairs = [(r["ours"], {"tokens_per_second": program["stored"]}) for r in rounds if "ours" in r]
        else:
            pairs = [(r["ours"], r[name]) for r in rounds if "ours" in r and name in r]
        if not pairs:
            continue
        ratio = spread([a["tokens_per_second"] / b["tokens_per_second"] for a, b in pairs])
        if name == "ours_1":
            found["scaling"] = {key: value if key == "rounds" else value / row["world"] for key, value in ratio.items()}
        else:
            found[f"ours_over_{name}"] = {**ratio, **({"stored": True} if "stored" in program else {})}
    return found


def median_of(row, name, *keys):
    """Median over rounds of a number in a program's cells; None where there is none."""
    values = []
    for r in row["rounds"]:
        value = r["programs"].get(name)
        for key in keys:
            value = None if value is None else value.get(key)
        if value is not None:
            values.append(value)
    return statistics.median(values) if values else None


def text_of(value, form, factor=1.0):
    return "-" if value is None else format(value * factor, form)


def ratio_text(row, name):
    ratio = row["ratios"].get("scaling" if name == "ours_1" else f"ours_over_{name}")
    if ratio is None:
        return "-"
    text = f"{ratio['median']:.3f} ({ratio['lowest']:.3f} to {ratio['highest']:.3f})"
    if name == "ours_1":
        return f"scaling {text}"
    return f"{text}, stored" if ratio.get("stored") else text


def program_line(key, row, name):
    program = row["programs"][name]
    label = program["label"]
    if "stored" in program:
        rate, spread_text = program["stored"], "stored"
    else:
        rate = median_of(row, name, "tokens_per_second")
        rates = [r["programs"][name]["tokens_per_second"] for r in row["rounds"] if name in r["programs"]]
        spread_text = f"{min(rates) / 1e3:.1f} to {max(rates) / 1e3:.1f}" if rates else "failed"
    cells = [key, label, text_of(rate, ".1f", 1e-3), spread_text, text_of(median_of(row, name, "median_seconds"), ".2f", 1e3),
             "" if name == "ours" else ratio_text(row, name), text_of(program.get("peak_allocated"), ".2f", 2.0**-30),
             text_of(median_of(row, name, "power", "sm_mhz", "median"), ".0f"),
             text_of(median_of(row, name, "power", "watts", "median"), ".0f")]
    return "| " + " | ".join(cells) + " |"


def shortened(text):
    """How it ended, and what it said last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return ": ".join(lines[:1] + lines[1:][-1:])


def markdown(result):
    """One line a program: medians over rounds, ours over it within a round, peak memory, clock and power of GPU time."""
    lines = ["| run | program | k tok/s | lowest to highest round | ms a step | ours over it, within a round | peak GiB | SM MHz | W |",
             "|---|---|---|---|---|---|---|---|---|"]
    notes = []  # each once
    for key, row in result["rows"].items():
        lines += [program_line(key, row, name) for name in row["programs"]]
        notes += [f"{p['label']}: {p['source']}" for p in row["programs"].values() if "source" in p]
        notes += [f"{key}, {p['label']}: failed: {shortened(p['failure'])}" for p in row["programs"].values() if "failure" in p]
    return "\n".join(lines) + "\n" + "".join(f"\n{note}\n" for note in dict.fromkeys(notes))
