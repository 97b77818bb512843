"""docs/gpus.md and docs/records/gpu_peers.md: what runs beside which peer, where that is less than the aim,
and traces."""
import pathlib
import re

from . import checks, registry
from .lesson_figures import took
from .machine_tables import beside_copies, gpu_table, held_back_by_host, short
from .plans import stored, workload
from .registry import COURSE, ROOT, RenderError, record, renders, source, table, table_of, times_text
from .zero_figures import forward_begins
from .zero_tables import LESSONS

# The speed aimed at, relative to a peer that does the same work, by number of GPUs and kind of peer.
AIMS = {
    1: {"torch.compile": 1.15, "llm.c": 1.08},
    2: {"DDP": 1.10, "ZeroRedundancyOptimizer": 1.15, "FSDP2": 1.10},
}
SCALING_AIM = 0.97
LESSON_AIMS = {
    "zero1": 0.98,
    "zero2": 0.98,
    "zero3": 0.96,
}  # over lesson 01, on several GPUs, one micro-batch each
# Bytes that AdamW moves for one parameter: it reads the 16-bit gradient, master, momentum and variance, and
# writes the latter three and the 16-bit parameter.
ADAMW_BYTES = 28
WHY = (
    "docs/records/gpu_peers.md",
    "how-far-ahead-and-why-not-further",
)  # where the page says what keeps a ratio down
KINDS = {
    "llmc": "llm.c",
    "zero": "ZeroRedundancyOptimizer",
    "zero_stored": "ZeroRedundancyOptimizer",
    "fsdp": "FSDP2",
    "fsdp_stored": "FSDP2",
    "wire": "DDP",
}


def kind_of(peer, world):
    """Settings of one peer are one kind, measured and stored rates, too; None of one that does less work."""
    usual = "torch.compile" if world == 1 else "DDP"
    return None if peer.startswith("bf16") else KINDS.get(peer, usual)


def beside_peers():
    """Runs in which anything but lessons took turns, or stands there stored."""
    return {
        key: row
        for key, row in record("gpu_peers")["rows"].items()
        if any(name.startswith("ours_over_") for name in row["ratios"])
    }


def closest(ratios, wanted):
    """The lowest of the ratios whose names match: that of the fastest peer."""
    found = [ratio for name, ratio in ratios.items() if re.fullmatch(wanted, name)]
    return min(found, key=lambda ratio: ratio["median"], default=None)


def closest_text(row, wanted):
    """The median, and whether it is stored; the record's page has spreads."""
    ratio = closest(row["ratios"], wanted)
    return re.sub(r" \([^)]*\)", "", gpu_table.spread_text(ratio)) if ratio else ""


def comparisons():
    """(run, lesson, peer's label, ratio, aim) of every kind of peer, the closest of its settings and rates:
    beside the lesson that splits what it splits, or else lesson 00 or 01. Then lessons 02 to 04 beside lesson
    01, and the scaling of lessons 01 and 03."""
    found = []
    for key, row in record("gpu_peers")["rows"].items():
        own, closest_of = ("ours", *gpu_table.SCALING, *gpu_table.ZERO), {}
        for peer, program in row["programs"].items():
            kin = [
                (lesson.rstrip(","), row["ratios"].get(f"{z}_over_{peer}"))
                for z, lesson in gpu_table.LESSON_OF.items()
            ]
            if all(ratio is None for _, ratio in kin):
                kin = [("01" if row["world"] > 1 else "00", row["ratios"].get(f"ours_over_{peer}"))]
            kind = None if peer in own else kind_of(peer, row["world"])
            for lesson, ratio in kin:
                if (
                    kind
                    and ratio
                    and (kind not in closest_of or ratio["median"] < closest_of[kind][3]["median"])
                ):
                    closest_of[kind] = key, lesson, program["label"], ratio, AIMS[min(2, row["world"])][kind]
        found += closest_of.values()
        if row["world"] > 1 and row.get("micro_batches", 1) == 1:
            found += [
                (key, gpu_table.LESSON_OF[z], "lesson 01", ratio, aim)
                for z, aim in LESSON_AIMS.items()
                if (ratio := row["ratios"].get(f"{z}_over_ours"))
            ]
        found += [
            (
                key,
                gpu_table.LESSON_OF.get(lesson, "01"),
                f"{row['world']} times one GPU",
                row["ratios"][scaling],
                SCALING_AIM,
            )
            for lesson, scaling in gpu_table.SCALING.values()
            if scaling in row["ratios"] and not beside_copies(row)
        ]
    return found


def missed():
    """How many comparisons are below their aim, in words, and these, closest to it last."""
    every, words = comparisons(), []
    below = sorted(
        (one for one in every if one[3]["median"] < one[4]), key=lambda one: one[3]["median"] / one[4]
    )
    for what, of_lessons in (
        ("with peers and with one GPU", False),
        ("of lessons 02 to 04 with lesson 01", True),
    ):
        count, missing = (
            sum((one[2] == "lesson 01") == of_lessons for one in some) for some in (every, below)
        )
        if count:
            words.append(
                f"of {times_text(count, 'comparison')} {what} {missing or 'none'} "
                f"{'are' if missing > 1 else 'is'} below the aim"
            )
    text = "; ".join(words)
    return text[:1].upper() + text[1:], below


@renders
def gpu_ratios(page):
    """A line a run."""
    runs = beside_peers()
    if wrong := [
        key for key, row in runs.items() if "zero3_over_fsdp" in row["ratios"] and not held_back_by_host(row)
    ]:
        raise RenderError(f"gpu_peers: FSDP2 was not held back in {', '.join(wrong)}, and the page says so")
    gpu = " and ".join(sorted({row["gpu"] for row in runs.values()}))
    return (
        table_of(
            runs.items(),
            {
                "run": lambda key, _: f"`{key}`",
                "GPUs": lambda _, row: row["world"],
                "k tok/s": lambda _, row: (
                    f"{gpu_table.median_of(row, 'ours', 'tokens_per_second') / 1e3:.1f}"
                ),
                "over torch.compile": lambda _, row: closest_text(row, r"ours_over_(compile|wire).*"),
                "over llm.c": lambda _, row: closest_text(row, "ours_over_llmc"),
                "lesson 04 over FSDP2": lambda _, row: closest_text(row, "zero3_over_fsdp_stored"),
            },
        )
        + f"\n\n{missed()[0]} ([which, and why]({page.link(WHY[0])}#{WHY[1]}))."
        + f"\n\nFrom {source(page, 'gpu_peers')} ({gpu})."
    )


@renders
def gpu_margins(page):
    """Which comparisons are below their aim, the farthest first."""
    words, below = missed()
    columns = {
        "run": lambda key, *_: f"`{key}`",
        "lesson": lambda _, lesson, *__: lesson,
        "over": lambda *one: short(one[2]),
        "within a round": lambda *one: gpu_table.spread_text(one[3]),
        "aim": lambda *one: f"{one[4]:.2f}",
    }
    rows = f", the farthest first:\n\n{table_of(below, columns, left=3)}" if below else "."
    return f"{words}{rows}\n\nFrom {source(page, 'gpu_peers')}."


@renders
def world_one(page):
    """Lessons 00-04 on one GPU, in turns: what sharding over one rank brings."""
    runs = [
        row
        for row in record("gpu_peers")["rows"].values()
        if row["world"] == 1 and "dp_over_ours" in row["ratios"]
    ]
    lessons = dict(zip(("ours", "dp", "zero1", "zero2", "zero3"), (one["name"] for one in COURSE.values())))
    of = [f"{row['workload']}, {row['rows_a_rank']} rows of {row['sequence']} tokens" for row in runs]
    return (
        table_of(
            [(row, name) for row in runs for name in lessons],
            {
                "lesson": lambda _, name: lessons[name],
                "k tok/s": lambda row, name: (
                    f"{gpu_table.median_of(row, name, 'tokens_per_second') / 1e3:.1f}"
                ),
                "over lesson 00, within a round": lambda row, name: ""
                if name == "ours"
                else f"{row['ratios'][f'{name}_over_ours']['median']:.3f}",
                "bytes held": lambda row, name: f"{row['programs'][name]['bytes_measured']:,.0f}",
            },
        )
        + f"\n\nFrom {source(page, 'gpu_peers')}: {'; '.join(of)}."
    )


def flops_a_token(shape, sequence):
    """6 N + 6 L d T, as common/records/mfu.h counts; N as stored, since GPT-2's tensors need no padding but
    the vocabulary's."""
    return 6 * stored(shape) + 6 * shape["layers"] * shape["width"] * sequence


def peak_of(gpu):
    """FLOP/s of dense 16-bit products by the data sheet, from the table of common/records/mfu.cpp; None where
    it has no such GPU."""
    known = re.search(rf'{{"{re.escape(gpu)}", (\d+e\d+)}}', (ROOT / "common/records/mfu.cpp").read_text())
    return float(known[1]) if known else None


@renders
def gpu_zero_gains(page):
    """How much shorter a step of lessons 02 to 04 is than lesson 01's, next to the time of the AdamW bytes
    that they leave to other ranks."""
    profiled_run = record("gpu_profile")["runs"][0]
    adamw = next(part for part in profiled_run["profile"]["operations"] if part["op"] == "AdamW")
    rate, rows, more = adamw["bytes"] / adamw["milliseconds"], [], []
    for key, row in beside_peers().items():
        if row["world"] == 1 or "zero1_over_ours" not in row["ratios"]:
            continue
        shape = workload(pathlib.PurePath(row["workload"]).stem)["model"]
        saved = ADAMW_BYTES * stored(shape) * (1 - 1 / row["world"]) / rate
        step = 1e3 * gpu_table.median_of(row, "ours", "median_seconds")
        gains = {
            gpu_table.LESSON_OF[z]: {of: step * (1 - 1 / ratio[of]) for of in ("median", "lowest")}
            for z in LESSON_AIMS
            if (ratio := row["ratios"].get(f"{z}_over_ours"))
        }
        rows.append(
            [
                f"`{key}`" + (" (one round)" if len(row["rounds"]) == 1 else ""),
                f"{saved:.2f}",
                *(
                    f"{gains[lesson]['median']:.2f}" if lesson in gains else ""
                    for lesson in ("02", "03", "04")
                ),
            ]
        )
        more += [f"`{key}` lesson {lesson}" for lesson, gain in gains.items() if gain["lowest"] > saved]
    head = [
        "run",
        "AdamW on other ranks' slices, ms",
        "02's step is shorter than 01's by, ms",
        "03's",
        "04's",
    ]
    text = (
        f"\n\nFrom {source(page, 'gpu_peers')}, and AdamW's rate, {rate / 1e9:.2f} TB/s in "
        f"`{part_of(profiled_run['command'])}`, from {source(page, 'gpu_profile')}."
    )
    if more:
        text += (
            f" In every round more than these bytes take is gained in {', '.join(more)}; why is not measured."
        )
    return table(head, rows) + text


def fastest_peer(row):
    """Name and rate of the fastest peer that took turns with `ours`."""
    peers = [pair.removeprefix("ours_over_") for pair in row["ratios"] if pair.startswith("ours_over_")]
    rates = {name: gpu_table.median_of(row, name, "tokens_per_second") for name in peers}
    return max(((rate, name) for name, rate in rates.items() if rate), default=(None, None))[::-1]


@renders
def gpu_limits(page):
    """Share of the peak, ours and that of the fastest peer that ran beside it, and whose clock was lower."""
    runs = beside_peers()

    def share(row, rate):
        work = flops_a_token(workload(pathlib.PurePath(row["workload"]).stem)["model"], row["sequence"])
        return f"{100 * rate * work / (peak_of(row['gpu']) * row['world']):.0f} %" if rate else "-"

    clocks = [
        [
            gpu_table.median_of(row, name, "power", "sm_mhz", "median")
            for name in ("ours", fastest_peer(row)[0])
        ]
        for row in runs.values()
        if fastest_peer(row)[0]
    ]
    both = [of for of in clocks if None not in of]
    return (
        table_of(
            runs.items(),
            {
                "run": lambda key, _: f"`{key}`",
                "MFU, ours": lambda _, row: share(row, gpu_table.median_of(row, "ours", "tokens_per_second")),
                "the peer's": lambda _, row: share(row, fastest_peer(row)[1]),
            },
        )
        + f"\n\nFrom {source(page, 'gpu_peers')}; MFU: (6 N + 6 L d T) FLOPs a token, N the parameters, "
        "over the data sheet's dense 16-bit peak; the peer: the fastest that took turns. "
        f"In {sum(ours < theirs for ours, theirs in both)} of {times_text(len(both), 'run')} our clock is "
        "the lower one."
    )


def run_text(key, row, gpus):
    """A row's key, and its card where a table has more than one."""
    return f"`{key}`" + (f", {gpu_table.gpu_of(row['gpu'])}" if len(gpus) > 1 else "")


@renders
def gpu_energy(page, heading="##"):
    """Energy of a token by the GPUs' own counters, ours and that of the quickest peer that took turns with
    it; nothing of records without counters."""
    names = ("gpu_peers", "gpu_compile_modes", "gpu_pipeline", "gpu_tensor", "gpu_deepspeed")
    found = [(name, key, row) for name in names for key, row in record(name)["rows"].items()]
    gpus = {row["gpu"] for _, _, row in found}
    pairs = []
    for name, key, row in found:
        quickest = {}  # ours: (peer, ratio)
        for pair, ratio in row["ratios"].items():
            ours, _, peer = pair.partition("_over_")
            peers = row["programs"].get(peer, {"label": "Stagecraft"})["label"]
            if "per_joule" in ratio and "Stagecraft, " not in peers and peers != "Stagecraft":
                quickest[ours] = min(
                    quickest.get(ours, (peer, ratio)), (peer, ratio), key=lambda one: one[1]["median"]
                )
        pairs += [(name, key, row, ours, *of) for ours, of in quickest.items()]

    def spent(row, program):
        return gpu_table.text_of(gpu_table.median_of(row, program, "joules_per_token"), ".2f", 1e3)

    def label(row, program):
        words = row["programs"][program]["label"].replace("Stagecraft, ", "")
        return words.replace(", bf16 parameters and gradients, fp32 master", "")

    return (
        f"{heading} Energy\n\nJoules that the GPUs counted from the first timed step to the last, over the "
        "tokens of these steps; the host's are not in it. Where a peer's GPUs wait, they draw less power, "
        "and our lead per joule is smaller than in time. `pipeline_M`: M micro-batches per step.\n\n"
        + table_of(
            pairs,
            {
                "run": lambda _, key, row, *__: run_text(key, row, gpus),
                "ours": lambda *pair: label(pair[2], pair[3]),
                "peer": lambda *pair: label(pair[2], pair[4]),
                "J per k tokens, ours / theirs": lambda *pair: " / ".join(
                    spent(pair[2], one) for one in pair[3:5]
                ),
                "ratio in time": lambda *pair: f"{pair[5]['median']:.2f}",
                "tokens per joule, ours over theirs": lambda *pair: gpu_table.spread_text(
                    pair[5]["per_joule"], "{:.2f}".format
                ),
            },
            left=3,
        )
        + f"\n\nFrom {', '.join(dict.fromkeys(source(page, name) for name, *_ in pairs))}."
    )


def counted(names):
    """In the order of their first: name (3 rounds), other name (1 round)."""
    return ", ".join(f"{name} ({times_text(names.count(name), 'round')})" for name in dict.fromkeys(names))


@renders
def gpu_commits(page):
    """Which sources were measured: of every run of gpu_peers.json, and of the other records of GPUs."""
    of_runs = {}
    for key, row in record("gpu_peers")["rows"].items():
        commits = [one["commit"] for one in row["rounds"]]
        several = len(set(commits)) > 1
        words = f"**rounds of more than one commit**, {counted(commits)}" if several else commits[0]
        runners = sorted({one["runner"] for one in row["rounds"] if one.get("runner")} - set(commits))
        words += f" (runner and peers: {', '.join(runners)})" if runners else ""
        of_runs.setdefault(words, []).append(f"`{key}`")
    runs = [f"{', '.join(keys)}: {words}" for words, keys in of_runs.items()]

    def commits_of(found):
        commits = dict.fromkeys(one["commit"] for _, one in checks.measured_parts(found))
        programs = found.get("programs", {}).values()
        built = sorted({program["commit"] for program in programs if "commit" in program} - {*commits})
        return ", ".join(commits) + (f" (its programs say {', '.join(built)})" if built else "")

    others = [
        f"{source(page, name)}: {commits_of(found)}"
        for name, found in checks.gpu_records()
        if name != "gpu_peers"
    ]
    return f"Commits of the programs, by run: {'; '.join(runs)}.\n\nOf other records: {'; '.join(others)}."


@renders
def beside_products(page):
    """What a collective takes from matrix products beside it, as lessons start it and otherwise."""
    found = record("comm_beside_products_2")
    ways = {
        "16 blocks": "16 blocks",
        "NCCL's choice": "blocks as NCCL chooses",
        "window, 16 blocks": "16 blocks, between windows",
        "window, zero": "between windows, by copy engines if they can",
    }
    most = max(cell["bytes"] for cell in found["cells"])

    rows = [
        [
            f"`{cell['kind']}`",
            ways[cell["variant"]],
            *(f"{cell[field]['median']:.3f}" for field in ("alone_ms", "beside_ms", "taken_ms_an_operation")),
        ]
        for cell in found["cells"]
        if cell["variant"] in ways and cell["bytes"] == most
    ]
    return (
        table(
            ["operation", "how", "ms alone", "ms beside products", "ms taken from the products"], rows, left=2
        )
        + f"\n\nMedians at {most / 2**20:.0f} MiB, {found['ranks']} ranks, {found['device']}; spreads and "
        f"smaller operations: {source(page, 'comm_beside_products_2')}."
    )


def published_attention(command):
    """{operation: FLOP/s} of the best published kernels for the shape of a command's attention; empty where
    none is known."""
    config, sequence = workload(pathlib.PurePath(re.search(r"--workload (\S+)", command)[1]).stem), re.search(
        r"batch\.sequence=(\d+)", command
    )
    length = sequence[1] if sequence else str(config["batch"]["sequence"])
    rates = (
        registry.record("peers_stored")["attention, head 64"]["flops_per_second"]
        if config["model"]["width"] == 64 * config["model"]["heads"]
        else {}
    )
    return {op: of_length[length] for op, of_length in rates.items() if length in of_length}


def profiled(run):
    """{operations: (ms a step, rate, share of the bound)} of a profiled run, in the order of the table.
    Attention's bound is the best published kernel's rate."""
    p, published = run["profile"], published_attention(run["command"])

    def cells(part, rate):
        best = published.get(part.get("op"))
        alone = 1e3 * part["flops"] / best if best else part["alone"]
        return (
            part["milliseconds"] / p["steps"],
            rate,
            f"{100 * alone / part['milliseconds']:.0f} %" if alone and part["milliseconds"] else "-",
        )

    found = {
        part["op"]: cells(
            part,
            f"{part['flops'] / part['milliseconds'] / 1e9:.0f} TF/s"
            if part["flops"]
            else f"{part['bytes'] / part['milliseconds'] / 1e9:.2f} TB/s",
        )
        for part in p["operations"]
    }
    found["waits for communication"] = p["waited_milliseconds"], "", ""
    found["between operations"] = p["step_milliseconds"] - sum(ms for ms, _, _ in found.values()), "", ""
    found["a step"] = p["step_milliseconds"], "", ""
    for part in p["communication"]:
        found[f"`{part['kind']}`, beside them"] = cells(
            part, f"{part['sent'] / part['milliseconds'] / 1e6:.0f} GB/s" if part["milliseconds"] else "-"
        )
    return found


# Operations that take less than this in a step share one row.
SHORT_MS = 0.5


def part_of(command):
    """Which part of the workloads a command names: configs/gpt2_355m.json is 355m."""
    return re.search(r"--workload configs/(?:gpt2_)?([^ .]+)", command)[1]


@renders
def gpu_profiles(page):
    """Milliseconds of a step by class of operation, and of communication beside it, each with the share of
    its bound: runs beside each other. Short operations stand together."""
    runs, notes, names = {}, [], []
    for run in record("gpu_profile")["runs"]:
        what = f"{LESSONS[run['lesson']][:2]}, {part_of(run['command'])}" + (
            f" x{run['world']}" if run["world"] > 1 else ""
        )
        p, sensors = run["profile"], run["profile"]["sensors"]
        if what in runs:
            raise RenderError(
                f"docs/results/gpu_profile.json has two profiles of {what}; fix: name one folder of each to "
                "records.py --gpu-profile"
            )
        runs[what] = profiled(run)
        clock = f", {sensors['sm_mhz']:.0f} MHz, {sensors['watts']:.0f} W" if sensors else ""
        notes.append(
            f"`{what}`: lesson {LESSONS[run['lesson']]}, mean of {p['steps']} steps without a graph on "
            f"{run['versions']['GPU']}{clock}"
        )
        names += [name for name in runs[what] if name not in names]
    published = next(iter(published_attention(run["command"]) for run in record("gpu_profile")["runs"]))
    bounds = [f"{rate / 1e12:.0f} TF/s for {op}" for op, rate in published.items()]
    kernel = registry.record("peers_stored")["attention, head 64"]["source"].partition(": ")[0]
    notes += (
        [f"Attention's bounds, {' and '.join(bounds)}: {kernel} ({source(page, 'peers_stored')})"]
        if bounds
        else []
    )
    small = [
        name
        for name in names
        if name
        in {part["op"] for run in record("gpu_profile")["runs"] for part in run["profile"]["operations"]}
        and max(found[name][0] for found in runs.values() if name in found) < SHORT_MS
    ]
    rows = [
        [
            name,
            *(
                cell
                for found in runs.values()
                for cell in ((f"{found[name][0]:.2f}", found[name][2]) if name in found else ("", ""))
            ),
        ]
        for name in names
        if name not in small
    ]
    if small:
        sums = (sum(found[name][0] for name in small if name in found) for found in runs.values())
        rows.insert(
            [row[0] for row in rows].index("waits for communication"),
            [", ".join(small), *(cell for total in sums for cell in (f"{total:.2f}", ""))],
        )
    return (
        table(
            ["operations", *(head for what in runs for head in (f"ms a step, {what}", "share of its bound"))],
            rows,
        )
        + f"\n\nFrom {source(page, 'gpu_profile')}. "
        + ". ".join(notes)
        + "."
    )


@renders
def world_one_profile(page):
    """Milliseconds of a step by class of operation, of lessons beside each other on one GPU. Those of about
    equal length stand together."""
    runs = sorted(record("gpu_profile_one")["runs"], key=lambda run: run["lesson"])
    # All runs must agree in these, because the columns would otherwise differ for reasons other than the
    # lessons.
    same = {
        (
            run["world"],
            run["commit"],
            str(run["versions"]),
            run["profile"]["steps"],
            run["command"].replace(run["lesson"], "LESSON"),
        )
        for run in runs
    }
    if len(same) != 1 or runs[0]["world"] != 1 or len({run["lesson"] for run in runs}) != len(runs):
        raise RenderError(
            "docs/results/gpu_profile_one.json: runs that differ in more than the lesson, or of several "
            "GPUs; fix: name one folder a lesson to records.py --gpu-profile, of runs on one GPU"
        )
    found = {LESSONS[run["lesson"]]: {name: ms for name, (ms, *_) in profiled(run).items()} for run in runs}
    names = [
        *dict.fromkeys(name for classes in found.values() for name in classes if name != "a step"),
        "a step",
    ]
    times = {name: [classes.get(name, 0) for classes in found.values()] for name in names}
    alike = [
        name
        for name, of in times.items()
        if name != "a step" and max(of) - min(of) < max(0.1, 0.05 * max(of))
    ]
    times = (
        {
            "all that differ by less than 5 % or 0.1 ms": [
                sum(of) for of in zip(*(times[name] for name in alike))
            ],
            **{name: of for name, of in times.items() if name not in alike},
        }
        if alike
        else times
    )
    rows = [[name, *(f"{ms:.2f}" for ms in of)] for name, of in times.items() if any(of)]
    if all(run["profile"]["sensors"] for run in runs):
        rows.append(["SM MHz", *(f"{run['profile']['sensors']['sm_mhz']:.0f}" for run in runs)])
    return (
        table(["operations, ms a step", *found], rows)
        + f"\n\nFrom {source(page, 'gpu_profile_one')}: {runs[0]['versions']['GPU']}, mean of "
        f"{runs[0]['profile']['steps']} steps without a graph, one run of each lesson."
    )


@renders
def gpu_traces(page):
    """Operations and waits of one traced step of each lesson on several GPUs; lessons 02 and 03 also as they
    were when all gathers were a step's first work."""
    found, older = record("gpu_trace"), record("gpu_trace_all_at_once")
    if any(older[key] != found[key] for key in ("world", "step", "versions")):
        raise RenderError(
            "docs/results/gpu_trace_all_at_once.json: of other GPUs, libraries, or another step than "
            "gpu_trace.json"
        )
    runs = [
        (LESSONS[lesson], run, f"{run['microseconds'] / 1e3:.1f}") for lesson, run in found["lessons"].items()
    ]
    runs += [
        (f"{LESSONS[lesson]}, all gathers at the step's start", older["lessons"][lesson], "")
        for lesson in ("02_zero1", "03_zero2")
    ]
    models = {model for _, run, _ in runs for model in re.findall(r"--workload (\S+)", run["command"])}
    return (
        table_of(
            runs,
            {
                "lesson": lambda words, *_: words,
                "ms of the step": lambda *row: row[-1],
                "forward begins at": lambda _, run, __: f"{forward_begins(run) / 1e3:.2f}",
                "waited for": lambda _, run, __: f"{took(run, 'waiting'):.2f}",
            },
        )
        + f"\n\nFrom {source(page, 'gpu_trace')} and {source(page, 'gpu_trace_all_at_once')}: rank 0 of "
        f"{found['world']}, step {found['step']}, {found['versions'].get('GPU', 'GPU')}, "
        f"{', '.join(f'`{model}`' for model in sorted(models))}. An operation lasts until the other rank "
        "has come, so its length is not shown."
    )
