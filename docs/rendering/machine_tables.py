"""What GPUs and links do: docs/results/gpu_*.json and the sweeps of collectives. What is not there is left out."""
import importlib.util
import json

from . import plots
from .registry import RESULTS, ROOT, bytes_text, figure, has, record, renders, source, table
from .workloads import in_todays_keys


def gpu_table():
    """tests/benchmarks/gpu_table.py, which makes the same table on a terminal."""
    spec = importlib.util.spec_from_file_location("gpu_table", ROOT / "tests/benchmarks/gpu_table.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def has_peer(row):
    """Of a run of gpu_peers.json: whether anything but lessons took turns, or stands there stored."""
    return any(name.startswith("ours_over_") for name in row["ratios"])


def beside_copies(row):
    """Programs of a run that measures what awake links cost; empty for other runs."""
    return [name for name in gpu_table().BESIDE_COPIES if name in row["programs"]]


@renders
def gpu_peers(page):
    """Lessons and their peers on the same GPUs."""
    if not has("gpu_peers"):
        return ""
    found = record("gpu_peers")
    runs = [[f"`{key}`", f"[{row['workload']}]({page.link(row['workload'])})", f"{row['rows_a_rank']} x {row['sequence']}", row["world"], row.get("micro_batches", 1),
             f"{len(row['rounds'])} of {row['timed_steps']} steps"] for key, row in found["rows"].items()]
    return (table(["run", "workload", "rows x tokens of a micro-batch", "GPUs", "micro-batches", "rounds"], runs, left=2)
            + "\n\n" + gpu_table().markdown(found).rstrip("\n") + f"\n\nFrom {source(page, 'gpu_peers')}.")


@renders
def gpu_compile_modes(page, heading="##"):
    """Lesson 00 next to every mode of torch.compile."""
    if not has("gpu_compile_modes"):
        return ""
    found = record("gpu_compile_modes")
    return (f"{heading} Modes of torch.compile\n\nIn runs of their own, on {' and '.join(sorted({row['gpu'] for row in found['rows'].values()}))}; a mode had its turn in the rounds that its line names.\n\n"
            + gpu_table().markdown(found).rstrip("\n") + f"\n\nFrom {source(page, 'gpu_compile_modes')}.")


@renders
def gpu_scaling(page, heading="##"):
    """Lessons 01 and 03 on several GPUs over the same program on one, within a round."""
    names = gpu_table()
    rows = [row for row in record("gpu_peers")["rows"].values() if not beside_copies(row)] if has("gpu_peers") else []
    lines = []
    for row in rows:
        for one, (lesson, scaling) in names.SCALING.items():
            if scaling in row["ratios"]:
                rates = [names.median_of(row, name, "tokens_per_second") for name in (one, lesson)]
                lines.append([names.LESSON_OF.get(lesson, "01"), f"`{row['workload']}`, {row['rows_a_rank']} rows a GPU", row["world"], *(f"{rate / 1e3:.1f}" for rate in rates),
                              names.spread_text(row["ratios"][scaling], lambda share: f"{100 * share:.1f}", " %")])
    if not lines:
        return ""
    return (f"{heading} Scaling on GPUs\n\nScaling efficiency is the rate on N GPUs over N times the rate on one, with equal rows a GPU. The one is the slowest of the N, which train apart at the same time, because ranks wait for the slowest: 100 % would mean that communication cost nothing.\n\n"
            + table(["lesson", "workload", "GPUs", "k tok/s, 1 GPU", "k tok/s, all", "efficiency, median round (lowest to highest)"], lines, left=2)
            + f"\n\nFrom {source(page, 'gpu_peers')}; the peers beside it: [GPUs](" + page.link("docs/gpus.md") + ").")


def held_back_by_host(row):
    """Whether FSDP2's GPUs stayed below the power that lesson 01 drew: they waited, for the host or for each other."""
    watts, ours = (gpu_table().median_of(row, name, "power", "watts", "median") for name in ("fsdp", "ours"))
    return bool(watts and ours and watts < 0.98 * ours)


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
    return (f"{heading} On GPUs\n\nThe programs of a run took turns within each round; ratios are of rates within a round: median (lowest to highest). Peaks are those "
            "of LibTorch's allocator and of windows, which NCCL allocates: the ledger's bytes and what libraries take, in GiB (1.074 GB). What the runs are: [record](" + page.link("docs/records/gpu_peers.md") + "#side-by-side).\n\n"
            + table(["run", "program", "k tok/s", "over lesson 01" + (" (on one GPU: 00)" if any(row["world"] == 1 for _, row in shown) else ""), "lessons over this peer", "waiting, last round", "peak planned, GiB", "measured, GiB"], lines, left=2)
            + f"\n\nFrom {source(page, 'gpu_peers')}; all programs of these runs, clocks and power: [record](" + page.link("docs/records/gpu_peers.md") + ").")


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
           "proportion to their bytes, which is bandwidth. Lines: the fit of a call's time, 2 (N-1) α, plus 2 (N-1)/N bytes over the bandwidth.")
    def draw(figure):
        plotted = plots.axes(figure, 72, 290, left=80, right=220, names=("bytes of the vector", "time"), log="xy")
        named = plots.lines_of([(f"{ranks} ranks, {place}", [(s["bytes"], fitted(ranks, fit, s["bytes"])) for s in measured]) for _, ranks, place, measured, fit in found])
        plots.curves(plotted, named)
        for (_, colour, _), (*_, measured, _) in zip(named, found):
            plotted.plot([size["bytes"] for size in measured], [size["seconds_median"] for size in measured], "o", color=colour, markersize=6)
        plotted.xaxis.set_major_formatter(lambda value, _: bytes_text(round(value)).replace(".00", ""))
        plotted.yaxis.set_major_formatter(lambda value, _: time_text(value))

    return plots.plot(420, "All-reduce: latency on the left, bandwidth on the right", alt, f"Records {names}.", draw, "points: measured medians; lines: fitted")


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
            + table(["record", "N", "between the ranks", "a call of no bytes, 2 (N-1) α", "α", "bandwidth 1/β", "bytes at which both halves are equal, N α/β", "fit over measured"],
                    rows, left=3)
            + "\n\nWhat is fitted is the time of a *call*: issuing it, its 2 (N - 1) messages one after another, and the wait. a is that over 2 (N - 1), the formula's "
            "latency of a message; no single message was timed, so do not take it for one, nor carry it to another N. Below the bytes of the last column but one an all-reduce mostly costs latency, so that many small buckets are slower than one large one; above, it "
            "costs bandwidth, and the number of buckets hardly matters.")

