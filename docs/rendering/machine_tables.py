"""What GPUs and links do: docs/results/gpu_*.json and the sweeps of collectives. What is not there is left
out."""
import importlib.util

from .registry import ROOT, record, renders, source, table, table_of


# tests/benchmarks/gpu_table.py prints the same tables on a terminal, so its functions are used here.
spec = importlib.util.spec_from_file_location("gpu_table", ROOT / "tests/benchmarks/gpu_table.py")
gpu_table = importlib.util.module_from_spec(spec)
spec.loader.exec_module(gpu_table)


def beside_copies(row):
    """Programs of a run that measures what awake links cost; empty for other runs."""
    return [name for name in gpu_table.BESIDE_COPIES if name in row["programs"]]


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
    """A lesson's rate over the run's first program, scaling, or what a peer is compared with over it: the
    first program, or the lesson that splits the same."""
    of, ratios = gpu_table, row["ratios"]
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
    """A line for each program of each run, then what a stored rate is, which kernel computes attention, and
    what failed."""
    of, lines, sources, failed, attention = gpu_table, [], {}, [], {}
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
    found = record("gpu_compile_modes")
    return (
        f"{heading} Modes of torch.compile\n\nIn runs of their own, on "
        f"{' and '.join(sorted({row['gpu'] for row in found['rows'].values()}))}; in turns; a mode with "
        "fewer turns than the others says so.\n\n"
        + gpu_table.explained(gpu_table.markdown(found).rstrip("\n"))
        + f"\n\nFrom {source(page, 'gpu_compile_modes')}."
    )


@renders
def gpu_scaling(page, heading="##"):
    """Lessons 01 and 03 on several GPUs over the same program on one, within a round."""

    def rate(row, name):
        return f"{gpu_table.median_of(row, name, 'tokens_per_second') / 1e3:.1f}"

    runs = [
        (row, one, lesson, row["ratios"][scaling])
        for row in record("gpu_peers")["rows"].values()
        for one, (lesson, scaling) in gpu_table.SCALING.items()
        if scaling in row["ratios"] and not beside_copies(row)
    ]
    return (
        f"{heading} Scaling on GPUs\n\nThe rate on N GPUs over N times the rate on one, with equal rows a "
        "GPU. The one is the slowest of the N, which train apart at the same time: 100 % would mean that "
        "communication cost nothing.\n\n"
        + table_of(
            runs,
            {
                "lesson": lambda _, __, lesson, ___: gpu_table.LESSON_OF.get(lesson, "01"),
                "workload": lambda row, *_: f"`{row['workload']}`, {row['rows_a_rank']} rows a GPU",
                "GPUs": lambda row, *_: row["world"],
                "k tok/s, 1 GPU": lambda row, one, *_: rate(row, one),
                "k tok/s, all": lambda row, _, lesson, __: rate(row, lesson),
                "efficiency, median round (lowest to highest)": lambda *run: gpu_table.spread_text(
                    run[-1], lambda share: f"{100 * share:.1f}", " %"
                ),
            },
            left=2,
        )
        + f"\n\nFrom {source(page, 'gpu_peers')}; the peers beside it: [GPUs]("
        + page.link("docs/gpus.md")
        + ")."
    )


def held_back_by_host(row):
    """Whether FSDP2's GPUs stayed below the power that lesson 01 drew: they waited, for the host or for each
    other."""
    watts, ours = (gpu_table.median_of(row, name, "power", "watts", "median") for name in ("fsdp", "ours"))
    return bool(watts and ours and watts < 0.98 * ours)


@renders
def gpu_precision(page):
    """What the number format alone changes."""
    found = record("gpu_precision_124m")
    first = found["runs"][0]
    return (
        table_of(
            found["runs"],
            {
                "precision": lambda run: run["precision"],
                "k tok/s": lambda run: f"{run['tokens_per_second'] / 1e3:.1f}",
                "over fp32": lambda run: f"{run['tokens_per_second'] / first['tokens_per_second']:.1f}",
                "largest distance from fp32's loss": lambda run: f"{100 * run['largest_difference']:.2f} %",
                "validation loss": lambda run: f"{run['validation_loss']:.4f}",
                "SM MHz": lambda run: f"{run['power']['sm_mhz']['median']:.0f}",
                "W": lambda run: f"{run['power']['watts']['median']:.0f}",
            },
        )
        + f"\n\nFrom {source(page, 'gpu_precision_124m')} ({found['versions']['GPU']}, GPT-2 124M, "
        f"{found['workload']['batch.global']} rows of {found['workload']['batch.sequence']} tokens a step)."
    )
