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


SHORT = (
    ("Stagecraft, ", ""),
    (" (data parallel)", ""),
    (" (ZeRO-1)", ""),
    (" (ZeRO-2)", ""),
    (" (ZeRO-3)", ""),
    ("DDP, torch.compile, ", "DDP, "),
    (", fp32 parameters, bf16 autocast", ", autocast"),
    (", bf16 parameters and AdamW states, no fp32 master", ", no fp32 master"),
    (", fp32 parameters, gathered, computed and summed in bf16", ""),
    (", gradients summed in bf16 (bf16_compress_hook)", ", bf16_compress_hook"),
    (", fp32 between ranks", ""),
)


def short(label):
    """A program's label without what the page says once."""
    for words, instead in SHORT:
        label = label.replace(words, instead)
    return label


def ratio_alone(row, name):
    """A lesson's rate over the run's first program, scaling, or what a peer is compared with over it: the first program, or the lesson that splits the same."""
    of, ratios = gpu_table(), row["ratios"]
    ours = name in of.ZERO or name == "ours"
    pairs = (
        [("", f"{name}_over_ours"), ("", f"{name}_over_ours_1")] if ours or name in of.BESIDE_COPIES else []
    )
    pairs += [("scaling ", of.SCALING[name][1])] if name in of.SCALING else []
    pairs += (
        []
        if ours
        else [
            *((f"{of.LESSON_OF[z]}: ", f"{z}_over_{name}") for z in of.PEERS_OF if z in of.LESSON_OF),
            ("", f"ours_over_{name}"),
        ]
    )
    words, ratio = next(((words, ratios[pair]) for words, pair in pairs if pair in ratios), ("", None))
    return words + of.spread_text({**ratio, "stored": False}) if ratio else ""


def stored_notes(sources):
    """label -> source: what each stored rate was measured on, and once what several have in common."""
    parts = {
        label: source.rpartition("not in this run: ")[2].split("; ") for label, source in sources.items()
    }
    often = [
        clause
        for clause in dict.fromkeys(sum(parts.values(), []))
        if sum(clause in of for of in parts.values()) > 1
    ]
    notes = [
        f"{label}: {'; '.join(own)}."
        for label, of in parts.items()
        if (own := [clause for clause in of if clause not in often])
    ]
    notes += (
        [f"{', '.join(label for label, of in parts.items() if often[0] in of)}: {'; '.join(often)}."]
        if often
        else []
    )
    return [" ".join(notes)] if notes else []


def programs_text(rows):
    """A line for each program of each run, then what a stored rate is, which kernel computes attention, and what failed."""
    of, lines, sources, failed, attention = gpu_table(), [], {}, [], {}
    for key, row in rows.items():
        for i, (name, program) in enumerate(row["programs"].items()):
            stored, turns = program.get("stored"), sum(name in cells["programs"] for cells in row["rounds"])
            label = short(program["label"]) + (
                f" ({turns} of {len(row['rounds'])} rounds)" if 0 < turns < len(row["rounds"]) else ""
            )
            rate = stored or of.median_of(row, name, "tokens_per_second")
            clock, watts = (
                of.text_of(of.median_of(row, name, "power", field, "median"), ".0f")
                for field in ("sm_mhz", "watts")
            )
            share, peak = program.get("wait_share"), of.held_text(program)
            lines.append(
                [
                    "" if i else f"`{key}`",
                    label,
                    "failed" if rate is None else f"{rate / 1e3:.1f}",
                    ratio_alone(row, name),
                    peak + (f", {100 * share:.1f}" if share is not None else ""),
                    "" if stored else f"{clock}, {watts}",
                ]
            )
            if "source" in program:
                sources[label] = program["source"]
            failed += (
                [f"{key}, {label}: failed: {of.shortened(program['failure'])}"]
                if "failure" in program
                else []
            )
            if program.get("attention"):
                attention.setdefault(program["attention"], []).append(f"`{key}`")
    kernels = "; ".join(f"{kernel} in {', '.join(dict.fromkeys(keys))}" for kernel, keys in attention.items())
    notes = [*([f"PyTorch's attention: {kernels}."] if kernels else []), *stored_notes(sources), *failed]
    return of.explained(
        table(
            ["run", "program", "k tok/s", "ratio within a round", "peak GiB, waits %", "SM MHz, W"],
            lines,
            left=2,
        )
    ) + "".join(f"\n\n{note}" for note in notes)


@renders
def gpu_peers(page):
    """Lessons and their peers on the same GPUs."""
    if not has("gpu_peers"):
        return ""
    found = record("gpu_peers")
    runs = [
        [
            f"`{key}`",
            f"`{row['workload']}`",
            row["world"],
            f"{row['rows_a_rank']} x {row['sequence']}"
            + (f" x {row['micro_batches']}" if row.get("micro_batches", 1) > 1 else ""),
            f"{len(row['rounds'])} x {row['timed_steps']}",
        ]
        for key, row in found["rows"].items()
    ]
    return (
        table(
            ["run", "workload", "GPUs", "rows x tokens (x micro-batches) per GPU", "rounds x steps"],
            runs,
            left=2,
        )
        + "\n\n"
        + programs_text(found["rows"])
        + f"\n\nFrom {source(page, 'gpu_peers')}."
    )


@renders
def gpu_compile_modes(page, heading="##"):
    """Lesson 00 next to every mode of torch.compile."""
    if not has("gpu_compile_modes"):
        return ""
    found = record("gpu_compile_modes")
    return (
        f"{heading} Modes of torch.compile\n\nIn runs of their own, on {' and '.join(sorted({row['gpu'] for row in found['rows'].values()}))}; in turns; a mode with fewer turns than the others says so.\n\n"
        + gpu_table().explained(gpu_table().markdown(found).rstrip("\n"))
        + f"\n\nFrom {source(page, 'gpu_compile_modes')}."
    )


@renders
def gpu_scaling(page, heading="##"):
    """Lessons 01 and 03 on several GPUs over the same program on one, within a round."""
    names = gpu_table()
    rows = (
        [row for row in record("gpu_peers")["rows"].values() if not beside_copies(row)]
        if has("gpu_peers")
        else []
    )
    lines = []
    for row in rows:
        for one, (lesson, scaling) in names.SCALING.items():
            if scaling in row["ratios"]:
                rates = [names.median_of(row, name, "tokens_per_second") for name in (one, lesson)]
                lines.append(
                    [
                        names.LESSON_OF.get(lesson, "01"),
                        f"`{row['workload']}`, {row['rows_a_rank']} rows a GPU",
                        row["world"],
                        *(f"{rate / 1e3:.1f}" for rate in rates),
                        names.spread_text(row["ratios"][scaling], lambda share: f"{100 * share:.1f}", " %"),
                    ]
                )
    if not lines:
        return ""
    return (
        f"{heading} Scaling on GPUs\n\nThe rate on N GPUs over N times the rate on one, with equal rows a GPU. The one is the slowest of the N, which train apart at the same time: 100 % would mean that communication cost nothing.\n\n"
        + table(
            [
                "lesson",
                "workload",
                "GPUs",
                "k tok/s, 1 GPU",
                "k tok/s, all",
                "efficiency, median round (lowest to highest)",
            ],
            lines,
            left=2,
        )
        + f"\n\nFrom {source(page, 'gpu_peers')}; the peers beside it: [GPUs]("
        + page.link("docs/gpus.md")
        + ")."
    )


def held_back_by_host(row):
    """Whether FSDP2's GPUs stayed below the power that lesson 01 drew: they waited, for the host or for each other."""
    watts, ours = (gpu_table().median_of(row, name, "power", "watts", "median") for name in ("fsdp", "ours"))
    return bool(watts and ours and watts < 0.98 * ours)


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
            rows.append(
                [
                    f"`{in_todays_keys(run['command']).split(' --save')[0].replace(' -q --oversubscribe --bind-to none', '')}`",
                    f"`{run['last_loss']!r}`",
                    f"`{run['weights_sha256'][:12]}`",
                    ("equal" if group["equal_weights"] and group["equal_losses"] else "different")
                    if name == group["runs"][-1]
                    else "",
                ]
            )
    versions = next(iter(found["runs"].values()))["versions"]
    return (
        table(["run", f"loss of step {found['steps']}", "weights", "beside those above"], rows, left=1)
        + f"\n\nFrom {source(page, 'gpu_bits')} ({world} x {versions['GPU']}, bf16; all {found['steps']} losses and norms are compared, and the file of `--save`: the first 12 digits of its "
        "SHA-256)."
    )


@renders
def gpu_precision(page):
    """What the number format alone changes."""
    found = record("gpu_precision_124m")
    first = found["runs"][0]
    rows = [
        [
            run["precision"],
            f"{run['tokens_per_second'] / 1e3:.1f}",
            f"{run['tokens_per_second'] / first['tokens_per_second']:.1f}",
            f"{100 * run['largest_difference']:.2f} %",
            f"{run['validation_loss']:.4f}",
        ]
        for run in found["runs"]
    ]
    heads = ["precision", "k tok/s", "over fp32", "largest distance from fp32's loss", "validation loss"]
    if all(run.get("power") for run in found["runs"]):  # earlier records have no samples
        heads += ["SM MHz", "W"]
        rows = [
            [*row, *(f"{run['power'][field]['median']:.0f}" for field in ("sm_mhz", "watts"))]
            for row, run in zip(rows, found["runs"])
        ]
    return (
        table(heads, rows)
        + f"\n\nFrom {source(page, 'gpu_precision_124m')} ({found['versions']['GPU']}, GPT-2 124M, {found['workload']['batch.global']} rows of "
        f"{found['workload']['batch.sequence']} tokens a step)."
    )


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
    return 2 * (ranks - 1) * fit["latency_s"] + (
        2 * (ranks - 1) / ranks * count / bandwidth if bandwidth else 0
    )


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
    alt = (
        "Time of an all-reduce over its bytes, both logarithmic. Small ones take the same time whatever their size, which is latency; large ones take time in "
        "proportion to their bytes, which is bandwidth. Lines: the fit of a call's time, 2 (N-1) α, plus 2 (N-1)/N bytes over the bandwidth."
    )

    def draw(figure):
        plotted = plots.axes(
            figure, 72, 290, left=80, right=220, names=("bytes of the vector", "time"), log="xy"
        )
        named = plots.lines_of(
            [
                (f"{ranks} ranks, {place}", [(s["bytes"], fitted(ranks, fit, s["bytes"])) for s in measured])
                for _, ranks, place, measured, fit in found
            ]
        )
        plots.curves(plotted, named)
        for (_, colour, _), (*_, measured, _) in zip(named, found):
            plotted.plot(
                [size["bytes"] for size in measured],
                [size["seconds_median"] for size in measured],
                "o",
                color=colour,
                markersize=6,
            )
        plotted.xaxis.set_major_formatter(lambda value, _: bytes_text(round(value)).replace(".00", ""))
        plotted.yaxis.set_major_formatter(lambda value, _: time_text(value))

    return plots.plot(
        420,
        "All-reduce: latency on the left, bandwidth on the right",
        alt,
        f"Records {names}.",
        draw,
        "points: measured medians; lines: fitted",
    )
