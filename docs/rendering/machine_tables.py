"""What GPUs and links do: docs/results/gpu_*.json and the sweeps of collectives. What is not there is left out."""
import importlib.util
import json
import math
import pathlib

from .plans import stored
from .registry import RESULTS, ROOT, bytes_text, figure, has, record, renders, source, table, times_text
from .svg import LINES, Drawing, Plot
from .workloads import in_todays_keys, workload


def gpu_table():
    """tests/benchmarks/gpu_table.py, which makes the same table on a terminal."""
    spec = importlib.util.spec_from_file_location("gpu_table", ROOT / "tests/benchmarks/gpu_table.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ZERO_LESSONS = "zero1", "zero2", "zero3"


def has_peer(row):
    """Of a run of gpu_peers.json: whether anything but lessons took turns, or stands there stored."""
    return any(name.startswith("ours_over_") for name in row["ratios"])


def beside_copies(row):
    """Programs of a run that measures what awake links cost; empty for other runs."""
    return [name for name in gpu_table().BESIDE_COPIES if name in row["programs"]]


def runs_in_words(page):
    """What the first column of the tables of gpu_peers.json means."""
    found = []
    for key, row in record("gpu_peers")["rows"].items():
        tutorial = ", the run of tutorials that fine-tune on one GPU" if row["workload"].endswith("seed_355m.json") else ""
        ranks = f" a GPU, {row['world']} GPUs" if row["world"] > 1 else ""
        tokens = row.get("tokens")
        tokens = {None: "lessons on the workload's text, peers on random tokens, ours always first", "random": "random tokens"}.get(tokens, f"tokens of {tokens}")
        alone = "" if has_peer(row) else ", lessons among themselves"
        alone += ", where nothing is sharded" if row["world"] == 1 and "zero1" in row["programs"] else ""
        count = row.get("micro_batches", 1)
        count = "one micro-batch" if count == 1 else f"{count} micro-batches"
        found.append(f"- `{key}`: [{row['workload']}]({page.link(row['workload'])}), {row['rows_a_rank']} rows of {row['sequence']} tokens a micro-batch{ranks}, {count} a step, {tokens}{tutorial}{alone}, {times_text(len(row['rounds']), 'round')}" + (f" of {row['timed_steps']} steps" if "timed_steps" in row else ""))
    return "Runs:\n\n" + "\n".join(found)


def replayed_in_words():
    """A peer whose peak leaves out what its captured graphs hold: exactly the fp32 parameters and AdamW's two averages are counted."""
    found = []
    for key, row in record("gpu_peers")["rows"].items():
        parameters = stored(workload(pathlib.PurePath(row["workload"]).stem)["model"])
        for program in row["programs"].values():
            if "reduce-overhead" in program.get("label", "") and abs((program.get("peak_allocated") or 0) / (12 * parameters) - 1) < 0.001:
                found.append(f"The peak of `{key}`, {program['label']}, is no peak of a step: its steps are replayed graphs, whose gradients and activations lie in a pool that "
                             f"LibTorch's counter leaves out once it is made. What is counted is 12 P bytes, parameters, momentum and variance; reserved are "
                             f"{program['peak_reserved'] / 2**30:.2f} GiB.")
    return " ".join(found)


@renders
def gpu_peers(page):
    """Lessons and their peers on the same GPUs."""
    if not has("gpu_peers"):
        return ""
    return (runs_in_words(page) + "\n\n"
            + gpu_table().markdown(record("gpu_peers")) + "\n" + replayed_in_words() + "\n\n" + other_words() + f"\n\nFrom {source(page, 'gpu_peers')}.")


@renders
def gpu_scaling(page, heading="##"):
    """Lesson 01 on several GPUs over the same program on one, within a round."""
    rows = [row for row in record("gpu_peers")["rows"].values() if "scaling" in row["ratios"] and not beside_copies(row)] if has("gpu_peers") else []
    if not rows:
        return ""
    rate = gpu_table().median_of
    lines = []
    for row in rows:
        scaling = row["ratios"]["scaling"]
        one, all_of_them = rate(row, "ours_1", "tokens_per_second"), rate(row, "ours", "tokens_per_second")
        lines.append([f"`{row['workload']}`", row["world"], f"{row['rows_a_rank']}", f"{one / 1e3:.1f}", f"{all_of_them / 1e3:.1f}",
                      gpu_table().spread_text(scaling, lambda share: f"{100 * share:.1f}", " %")])
    return (f"{heading} Scaling on GPUs\n\nScaling efficiency is the rate on N GPUs over N times the rate on one, with equal rows a GPU. The one is the slowest of the N, which train apart at the same time, because ranks wait for the slowest: 100 % would mean that communication cost nothing.\n\n"
            + table(["workload", "GPUs", "rows a GPU", "k tok/s, 1 GPU", "k tok/s, all", "efficiency, median round (lowest to highest)"], lines)
            + f"\n\nFrom {source(page, 'gpu_peers')}; the peers beside it: [GPUs](" + page.link("docs/gpus.md") + ").")


def held_back_by_host(key, row, peer="fsdp"):
    """A peer on several GPUs where they stayed below the power that lesson 01 drew, in words; None elsewhere."""
    watts, mhz, ours = (gpu_table().median_of(row, name, "power", field, "median") for name, field in ((peer, "watts"), (peer, "sm_mhz"), ("ours", "watts")))
    name = {"fsdp": "FSDP2", "zero": "ZeroRedundancyOptimizer", "compile": "DDP"}[peer]
    return f"`{key}`: {name}'s GPUs drew {watts:.0f} W at {mhz:.0f} MHz, ours {ours:.0f} W" if row["world"] > 1 and watts and ours and watts < 0.98 * ours else None


def below_the_limit(key, row):
    """Peers on one GPU that drew clearly less power than lesson 00, in words; None without any."""
    median, less = gpu_table().median_of, []
    ours = median(row, "ours", "power", "watts", "median") if row["world"] == 1 else None
    for name, program in row["programs"].items():
        watts = median(row, name, "power", "watts", "median") if ours and name != "ours" else None
        if watts and watts < 0.95 * ours:
            less.append(f"{program['label']} {watts:.0f} W")
    return f"In `{key}` ours drew {ours:.0f} W, {', '.join(less)}" if less else None


def waiting_in_words(idle):
    return (f"{'; '.join(idle)}: they waited, for the host that launches their operations or for each other. Read these ratios as "
            "those of this host; a stored rate is of another.")


def other_words():
    """What the table of gpu_peers.json cannot say in its cells."""
    rows = record("gpu_peers")["rows"]
    mixed = [f"`{key}`" for key, row in rows.items() if len({tuple(sorted(r["programs"])) for r in row["rounds"]}) > 1]
    # A peer that has milliseconds of its own chose for itself; later gpu.sh measures once a row, before anything else runs.
    noisy = [f"`{key}`" for key, row in rows.items()
             if row["world"] == 1 and any(p.get("attention") == "flash" and p.get("attention_milliseconds") for p in row["programs"].values())]
    rested = {f"`{key}`": row["warm_up"] for key, row in rows.items() if row["world"] > 1 and "warm_seconds" not in row}
    once_rested = {key: row for key, row in rows.items() if row["world"] > 1 and "warm_seconds" in row and "warm_from" not in row}
    fresh = {f"`{key}`": row["warm_up"] for key, row in rows.items() if "warm_seconds" not in row and any("llmc" in r["programs"] for r in row["rounds"])}
    idle = [text for key, row in rows.items() for peer in ("compile", "zero", "fsdp") if (text := held_back_by_host(key, row, peer))]
    found = []
    if mixed:
        found.append(f"In {', '.join(mixed)} not every program had its turn in every round: ratios are of rounds that both had, rates are medians of each program's own.")
    if rested:
        found.append(f"In {', '.join(rested)} a lesson's turn began after some seconds of rest, while its ranks started, and was timed after {min(rested.values())} steps; "
                     "DDP and FSDP2 began right behind the turn before: this favours the lessons, by how much is not measured.")
    if once_rested:
        only = [f"`{key}`" for key, row in once_rested.items() if len(row["rounds"]) == 1]
        found.append(f"In {', '.join(f'`{key}`' for key in once_rested)} the first turn of a lesson" + (f" (its only one in {', '.join(only)})" if only else "") + f" began on chips that had rested while its ranks started, and was timed after "
                     f"{min(row['warm_up'] for row in once_rested.values())} steps; in later turns it computed for some seconds first. Peers began right behind the turn before. This favours the lessons.")
    if fresh:
        found.append(f"In {', '.join(fresh)} llm.c's first turn was timed {min(fresh.values())} steps after its start, on a chip that had rested; before later ones it computed for some seconds.")
    if noisy:
        found.append(f"Peers choose cuDNN's attention or flash attention by a measurement at their start; those of {', '.join(noisy)} measured while others started beside them, and some took flash, "
                     "which alone is the slower one on this GPU (numbers of the two-GPU rows): their ratios may be a few percent too good.")
    if launching := [text for key, row in rows.items() if (text := below_the_limit(key, row))]:
        found.append(f"{'; '.join(launching)}: a GPU that draws less waits for launches, or has less to do at once.")
    if idle:
        found.append(waiting_in_words(idle))
    return "\n\n".join(found)


def zero_in_words(shown, names):
    """What the rows of lessons 02 to 04 come to: rates beside lesson 01's with one micro-batch and with several, and peaks beside FSDP2's."""
    of = gpu_table()
    for name in names:
        ratios = [(row.get("micro_batches", 1), row["ratios"][f"{name}_over_ours"]["median"]) for _, row in shown if row["world"] > 1 and f"{name}_over_ours" in row["ratios"]]
        one = [f"{ratio:.3f}" for count, ratio in sorted(ratios) if count == 1]
        several = [f"{ratio:.3f} with {count}" for count, ratio in ratios if count > 1]
        if one:
            yield (f"Over the runs above lesson {of.LESSON_OF[name]} has {' to '.join(dict.fromkeys((one[0], one[-1])))} times the rate of lesson 01 with one micro-batch a GPU"
                   f"{', ' + ', '.join(several) if several else ''}.")
    peaks = []
    for key, row in shown if "zero3" in names else ():
        own, again, theirs = (row["programs"].get(name, {}).get("peak_allocated") for name in ("zero3", "zero3_gelu", "fsdp"))
        if own and theirs:
            price = of.ratio_of(row, "zero3_gelu", "zero3")
            peaks.append(f"`{key}` {own / 2**30:.2f} and {theirs / 2**30:.2f}" + (f", with GELU computed again {again / 2**30:.2f} at {price['median']:.3f} times lesson 04's rate" if again and price else ""))
    if peaks:
        yield f"Peaks of lesson 04 and of FSDP2 beside it, GiB: {'; '.join(peaks)}."


@renders
def gpu_zero(page, heading, *names):
    """Lessons 02 to 04 on several GPUs beside lesson 01 and beside what splits the same in PyTorch; `names` of gpu.py, or all."""
    table_of = gpu_table()
    asked = names or tuple(table_of.LESSON_OF)
    shown = [(key, row) for key, row in record("gpu_peers")["rows"].items() if any(name in row["programs"] for name in asked)] if has("gpu_peers") else []
    if not shown:
        return ""
    lines = []
    for key, row in shown:
        wanted = [name for name in asked if name in row["programs"]]
        peers = list(dict.fromkeys(other for name in wanted for other in table_of.PEERS_OF.get(name, ()) if other in row["programs"]))
        for name in ["ours", *wanted, *peers]:
            program = row["programs"][name]
            rate = program.get("stored") or table_of.median_of(row, name, "tokens_per_second")
            over = row["ratios"].get(f"{name}_over_ours")
            kin = [f"lesson {table_of.LESSON_OF[z]} {table_of.spread_text(row['ratios'][k])}" for z in wanted if (k := f"{z}_over_{name}") in row["ratios"]] if name in peers else []
            waits, planned, peak = program.get("wait_share"), program.get("peak_planned"), program.get("peak_allocated")
            lines.append([f"`{key}`", program["label"].replace("Stagecraft, ", ""), f"{rate / 1e3:.1f}", table_of.spread_text(over) if over else "", "; ".join(kin),
                          "" if waits is None else f"{100 * waits:.1f} %", "" if planned is None else f"{planned / 2**30:.2f}", "" if peak is None else f"{peak / 2**30:.2f}"])
    told = " ".join(zero_in_words(shown, [name for name in asked if name in ZERO_LESSONS]))
    idle = [text for key, row in shown if (text := held_back_by_host(key, row))] if any("FSDP2" in line[1] for line in lines) else []
    words = (f"\n\n{told}" if told else "") + (f"\n\n{waiting_in_words(idle)}" if idle else "")
    return (f"{heading} On GPUs\n\nThe programs of a run took turns within each round; ratios are of rates within a round: median (lowest to highest). Peaks are those "
            "of LibTorch's allocator and of windows, which NCCL allocates: the ledger's bytes and what libraries take, in GiB (1.074 GB). What the runs are: [record](" + page.link("docs/records/gpu_peers.md") + "#side-by-side).\n\n"
            + table(["run", "program", "k tok/s", "over lesson 01" + (" (on one GPU: 00)" if any(row["world"] == 1 for _, row in shown) else ""), "lessons over this peer", "waiting, last round", "peak planned, GiB", "measured, GiB"], lines, left=2)
            + words + f"\n\nFrom {source(page, 'gpu_peers')}; all programs of these runs, clocks and power: [record](" + page.link("docs/records/gpu_peers.md") + ").")


@renders
def gpu_bits(page, world):
    """Runs on GPUs that end in the same bits, or do not."""
    found = record("gpu_bits").get(f"world {world}") if has("gpu_bits") else None
    if found is None:
        return ""
    rows = []
    for group in found["groups"].values():
        for name in group["runs"]:
            run = found["runs"][name]
            rows.append([f"`{in_todays_keys(run['command']).split(' --save')[0].replace(' -q --oversubscribe --bind-to none', '')}`", f"`{run['last_loss']!r}`", f"`{run['weights_sha256'][:12]}`",
                         ("equal" if group["equal_weights"] and group["equal_losses"] else "different") if name == group["runs"][-1] else ""])
    versions = next(iter(found["runs"].values()))["versions"]
    return (table(["run", f"loss of step {found['steps']}", "weights", "beside those above"], rows, left=1)
            + f"\n\nFrom {source(page, 'gpu_bits')} ({world} x {versions['GPU']}, bf16; all {found['steps']} losses and norms are compared, and the file of `--save`: the first 12 digits of its "
            "SHA-256).")


@renders
def gpu_precision(page):
    """What the number format alone changes."""
    found = record("gpu_precision_124m")
    first = found["runs"][0]
    rows = [[run["precision"], f"{run['tokens_per_second'] / 1e3:.1f}", f"{run['tokens_per_second'] / first['tokens_per_second']:.1f}",
             f"{100 * run['largest_difference']:.2f} %", f"{run['validation_loss']:.4f}"] for run in found["runs"]]
    heads = ["precision", "k tok/s", "over fp32", "largest distance from fp32's loss", "validation loss"]
    if all(run.get("power") for run in found["runs"]):  # earlier records have no samples
        heads += ["SM MHz", "W"]
        rows = [[*row, *(f"{run['power'][field]['median']:.0f}" for field in ("sm_mhz", "watts"))] for row, run in zip(rows, found["runs"])]
    return (table(heads, rows)
            + f"\n\nFrom {source(page, 'gpu_precision_124m')} ({found['versions']['GPU']}, GPT-2 124M, {found['workload']['batch.global']} rows of "
            f"{found['workload']['batch.sequence']} tokens a step).")


def sweeps():
    """Measured all-reduces: (record's name, ranks, place, sizes, fit)."""
    found = []
    for path in sorted([*RESULTS.glob("collectives_*.json"), *RESULTS.glob("allreduce_*.json")]):
        said = json.loads(path.read_text())
        for operation in said.get("operations", [{"kind": "all_reduce", **said}]):
            if operation["kind"] == "all_reduce":
                place = said.get("link", said.get("device", ""))
                found.append((path.stem, said["ranks"], place, operation["sizes"], operation["fit"]))
    return found


def fitted(ranks, fit, count):
    bandwidth = fit["bytes_per_s"]
    return 2 * (ranks - 1) * fit["latency_s"] + (2 * (ranks - 1) / ranks * count / bandwidth if bandwidth else 0)


def time_text(seconds):
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:g} {unit}"
    return f"{seconds * 1e6:g} us"


@figure
def all_reduce_sweep():
    found = sweeps()
    if not found:
        return None
    names = ", ".join(f"docs/results/{name}.json" for name, *_ in found)
    alt = ("Time of an all-reduce over its bytes, both logarithmic. Small ones take the same time whatever their size, which is latency; large ones take time in "
           "proportion to their bytes, which is bandwidth. Lines: the fit of a call's time, 2 (N-1) a, plus 2 (N-1)/N bytes over the bandwidth.")
    drawing = Drawing(430, "All-reduce: latency on the left, bandwidth on the right", alt, "points: measured medians; lines: fitted")
    sizes = [size["bytes"] for _, _, _, s, _ in found for size in s]
    times = [size["seconds_median"] for _, _, _, s, _ in found for size in s]
    low, high = math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))
    plot = Plot(drawing, 80, 70, 850, 270, (min(sizes), max(sizes)), (10**low, 10**high), math.log10, math.log10)
    powers = range(math.ceil(math.log10(min(sizes))), math.floor(math.log10(max(sizes))) + 1)
    plot.axes([(10**e, bytes_text(10**e).replace(".00", "")) for e in powers], [(10**e, time_text(10.0**e)) for e in range(low, high + 1)],
              "bytes of the vector", "time")
    x = 80
    for i, (name, ranks, place, measured, fit) in enumerate(found):
        plot.curve([(s["bytes"], fitted(ranks, fit, s["bytes"])) for s in measured], LINES[i % len(LINES)])
        for size in measured:
            drawing.parts.append(f'<circle cx="{plot.x(size["bytes"]):.2f}" cy="{plot.y(size["seconds_median"]):.2f}" r="3.5" fill="{LINES[i % len(LINES)]}"/>')
        label = f"{ranks} ranks, {place}"
        drawing.polyline([(x, 402), (x + 24, 402)], LINES[i % len(LINES)])
        drawing.text(x + 30, 406, label, "small")
        x += 60 + 6.6 * len(label)
    return drawing.done(f"Records {names}.")


@renders
def all_reduce_fits(page, heading="###"):
    """The fit, and what it says about a vector as large as the tiny model's gradient."""
    found = sweeps()
    if not found:
        return ""
    rows = []
    for name, ranks, place, measured, fit in found:
        bandwidth = fit["bytes_per_s"]
        balance = fit["latency_s"] * bandwidth * ranks if bandwidth else 0  # where 2(N-1) a = 2(N-1)/N n/B
        error = fit.get("relative_error", {})
        rows.append([source(page, name), ranks, place, f"{2 * (ranks - 1) * 1e6 * fit['latency_s']:.1f} us", f"{1e6 * fit['latency_s']:.1f} us", f"{bandwidth / 1e9:.2f} GB/s" if bandwidth else "-", bytes_text(round(balance)),
                     f"{100 * error['lowest']:.0f} to {100 * error['highest']:.0f} %" if error else "-"])
    return (f"{heading} Latency and bandwidth, measured\n\n"
            + table(["record", "N", "between the ranks", "a call of no bytes, 2 (N-1) a", "a", "bandwidth B", "bytes at which both halves are equal, N a B", "fit over measured"],
                    rows, left=3)
            + "\n\nWhat is fitted is the time of a *call*: issuing it, its 2 (N - 1) messages one after another, and the wait. a is that over 2 (N - 1), the formula's "
            "latency of a message; no single message was timed, so do not take it for one, nor carry it to another N. Below the bytes of the last column but one an all-reduce mostly costs latency, so that many small buckets are slower than one large one; above, it "
            "costs bandwidth, and the number of buckets hardly matters.")

