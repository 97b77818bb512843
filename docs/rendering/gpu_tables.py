"""docs/gpus.md and docs/records/gpu_peers.md: what runs beside which peer, where that is less than the aim, and traces."""
import pathlib
import re

from . import checks, registry
from .lesson_figures import took
from .machine_tables import beside_copies, gpu_table, has_peer, held_back_by_host, short
from .plans import stored
from .registry import ROOT, RenderError, has, record, renders, source, table, times_text
from .workloads import workload
from .zero_figures import forward_begins
from .zero_tables import LESSONS

# The aims, over peers that do the same work: by how many GPUs there are and the kind of peer.
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
ADAMW_BYTES = 28  # a parameter: 16-bit gradient, master, momentum and variance read; these three and the 16-bit parameter written
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
    if peer.startswith("bf16"):
        return None
    return KINDS.get(peer, "torch.compile" if world == 1 else "DDP")


def rows_of_peers():
    return record("gpu_peers")["rows"] if has("gpu_peers") else {}


def beside_peers():
    """Runs that have a peer."""
    return {key: row for key, row in rows_of_peers().items() if has_peer(row)}


def closest(ratios, wanted):
    """The lowest of the ratios whose names match: that of the fastest peer."""
    found = [ratio for name, ratio in ratios.items() if re.fullmatch(wanted, name)]
    return min(found, key=lambda ratio: ratio["median"], default=None)


def closest_text(row, *wanted):
    """The median for each pattern, and whether it is stored; the record's page has spreads."""
    found = [closest(row["ratios"], pattern) for pattern in wanted]
    return "; ".join(re.sub(r" \([^)]*\)", "", gpu_table().spread_text(ratio)) for ratio in found if ratio)


def comparisons():
    """(run, lesson, peer's label, ratio, aim) of every kind of peer, the closest of its settings and rates: beside the lesson that splits what it splits, or
    else lesson 00 or 01. Then lessons 02 to 04 beside lesson 01, and the scaling of lessons 01 and 03."""
    names = gpu_table()
    found = []
    for key, row in rows_of_peers().items():
        own, closest_of = ("ours", *names.SCALING, *names.ZERO), {}
        for peer, program in row["programs"].items():
            kin = [
                (lesson.rstrip(","), row["ratios"].get(f"{z}_over_{peer}"))
                for z, lesson in names.LESSON_OF.items()
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
                (key, names.LESSON_OF[z], "lesson 01", ratio, aim)
                for z, aim in LESSON_AIMS.items()
                if (ratio := row["ratios"].get(f"{z}_over_ours"))
            ]
        found += [
            (
                key,
                names.LESSON_OF.get(lesson, "01"),
                f"{row['world']} times one GPU",
                row["ratios"][scaling],
                SCALING_AIM,
            )
            for lesson, scaling in names.SCALING.values()
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
                f"of {times_text(count, 'comparison')} {what} {missing or 'none'} {'are' if missing > 1 else 'is'} below the aim"
            )
    text = "; ".join(words)
    return text[:1].upper() + text[1:], below


@renders
def gpu_ratios(page):
    """A line a run."""
    runs, rate = beside_peers(), gpu_table().median_of
    if not runs:
        return ""
    if wrong := [
        key for key, row in runs.items() if "zero3_over_fsdp" in row["ratios"] and not held_back_by_host(row)
    ]:
        raise RenderError(f"gpu_peers: FSDP2 was not held back in {', '.join(wrong)}, and the page says so")
    rows = [
        [
            f"`{key}`",
            row["world"],
            f"{rate(row, 'ours', 'tokens_per_second') / 1e3:.1f}",
            closest_text(row, r"ours_over_(compile|wire).*"),
            closest_text(row, "ours_over_llmc"),
            closest_text(row, "zero3_over_fsdp_stored"),
        ]
        for key, row in runs.items()
    ]
    gpu = " and ".join(sorted({row["gpu"] for row in runs.values()}))
    return (
        table(["run", "GPUs", "k tok/s", "over torch.compile", "over llm.c", "lesson 04 over FSDP2"], rows)
        + f"\n\n{missed()[0]} ([which, and why]({page.link(WHY[0])}#{WHY[1]}))."
        + f"\n\nFrom {source(page, 'gpu_peers')} ({gpu})."
    )


@renders
def gpu_margins(page):
    """Which comparisons are below their aim, the farthest first."""
    words, below = missed()
    if not words:
        return ""
    words += ", the farthest first:" if below else "."
    rows = [
        [f"`{key}`", lesson, short(label), gpu_table().spread_text(ratio), f"{aim:.2f}"]
        for key, lesson, label, ratio, aim in below
    ]
    return (
        words
        + ("\n\n" + table(["run", "lesson", "over", "within a round", "aim"], rows, left=3) if rows else "")
        + f"\n\nFrom {source(page, 'gpu_peers')}."
    )


@renders
def world_one(page):
    """Lessons 00-04 on one GPU, in turns: what sharding over one rank brings."""
    median, rows, runs = gpu_table().median_of, [], []
    for row in rows_of_peers().values():
        if row["world"] != 1 or "dp_over_ours" not in row["ratios"]:
            continue
        runs.append(f"{row['workload']}, {row['rows_a_rank']} rows of {row['sequence']} tokens")
        for name, lesson in (
            ("ours", "00 one device"),
            ("dp", LESSONS["01_data_parallel"]),
            *((f"zero{i}", LESSONS[f"0{i + 1}_zero{i}"]) for i in (1, 2, 3)),
        ):
            program = row["programs"][name]
            ratio = "" if name == "ours" else f"{row['ratios'][f'{name}_over_ours']['median']:.3f}"
            rows.append(
                [
                    lesson,
                    f"{median(row, name, 'tokens_per_second') / 1e3:.1f}",
                    ratio,
                    gpu_table().text_of(program.get("bytes_measured"), ",.0f"),
                ]
            )
    ended = " - : the run was ended before its record." if any(row[-1] == "-" for row in rows) else ""
    return (
        table(["lesson", "k tok/s", "over lesson 00, within a round", "bytes held"], rows)
        + f"\n\nFrom {source(page, 'gpu_peers')}: {'; '.join(runs)}.{ended}"
        if rows
        else ""
    )


def flops_a_token(shape, sequence):
    """6 N + 6 L d T, as common/records/mfu.h counts; N as stored, since GPT-2's tensors need no padding but the vocabulary's."""
    return 6 * stored(shape) + 6 * shape["layers"] * shape["width"] * sequence


def peak_of(gpu):
    """FLOP/s of dense 16-bit products by the data sheet, from the table of common/records/mfu.cpp; None where it has no such GPU."""
    known = re.search(rf'{{"{re.escape(gpu)}", (\d+e\d+)}}', (ROOT / "common/records/mfu.cpp").read_text())
    return float(known[1]) if known else None


@renders
def gpu_zero_gains(page):
    """By how much lessons 02 to 04 are shorter than lesson 01, beside what the bytes that their AdamW leaves to other ranks would take."""
    if not has("gpu_profile"):
        return ""
    profiled_run = record("gpu_profile")["runs"][0]
    adamw = next(part for part in profiled_run["profile"]["operations"] if part["op"] == "AdamW")
    rate, rows, more = adamw["bytes"] / adamw["milliseconds"], [], []
    for key, row in beside_peers().items():
        if row["world"] == 1 or "zero1_over_ours" not in row["ratios"]:
            continue
        shape = workload(pathlib.PurePath(row["workload"]).stem)["model"]
        saved = ADAMW_BYTES * stored(shape) * (1 - 1 / row["world"]) / rate
        step = 1e3 * gpu_table().median_of(row, "ours", "median_seconds")
        gains = {
            gpu_table().LESSON_OF[z]: {of: step * (1 - 1 / ratio[of]) for of in ("median", "lowest")}
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
    if not rows:
        return ""
    return (
        table(
            [
                "run",
                "AdamW on other ranks' slices, ms",
                "02's step is shorter than 01's by, ms",
                "03's",
                "04's",
            ],
            rows,
        )
        + f"\n\nFrom {source(page, 'gpu_peers')}, and AdamW's rate, {rate / 1e9:.2f} TB/s in `{part_of(profiled_run['command'])}`, from {source(page, 'gpu_profile')}."
        + (
            f" In every round more than these bytes take is gained in {', '.join(more)}; why is not measured."
            if more
            else ""
        )
    )


@renders
def gpu_limits(page):
    """Share of the peak, ours and that of the fastest peer that ran beside it, and whose clock was lower."""
    rows, slower, both = [], 0, 0
    median = gpu_table().median_of
    for key, row in beside_peers().items():
        peers = {
            name: rate
            for name in row["programs"]
            if f"ours_over_{name}" in row["ratios"] and (rate := median(row, name, "tokens_per_second"))
        }
        fastest = max(peers, key=peers.get, default=None)
        clocks = [
            median(row, name, "power", "sm_mhz", "median") if name else None for name in ("ours", fastest)
        ]
        if None not in clocks:
            both, slower = both + 1, slower + (clocks[0] < clocks[1])
        work, peak = flops_a_token(
            workload(pathlib.PurePath(row["workload"]).stem)["model"], row["sequence"]
        ), peak_of(row["gpu"])
        shares = [
            f"{100 * rate * work / (peak * row['world']):.0f} %" if peak and rate else "-"
            for rate in (median(row, "ours", "tokens_per_second"), peers.get(fastest))
        ]
        rows.append([f"`{key}`", *shares])
    if not rows:
        return ""
    return (
        table(["run", "MFU, ours", "the peer's"], rows)
        + f"\n\nFrom {source(page, 'gpu_peers')}; MFU: (6 N + 6 L d T) FLOPs a token, N the parameters, over the data sheet's dense 16-bit peak; the peer: the fastest that took turns. In {slower} of {times_text(both, 'run')} our clock "
        "is the lower one."
    )


def run_text(key, row, gpus):
    """A row's key, and its card where a table has more than one."""
    return f"`{key}`" + (f", {gpu_table().gpu_of(row['gpu'])}" if len(gpus) > 1 else "")


@renders
def gpu_energy(page, heading="##"):
    """Energy of a token by the GPUs' own counters, ours and that of the quickest peer that took turns with it; nothing of records without counters."""
    names, rows, sources = gpu_table(), [], []
    found = [
        (name, key, row)
        for name in ("gpu_peers", "gpu_compile_modes", "gpu_pipeline", "gpu_tensor", "gpu_deepspeed")
        if has(name)
        for key, row in record(name)["rows"].items()
    ]
    gpus = {row["gpu"] for _, _, row in found}
    for name, key, row in found:
        labels = {
            program: facts["label"].replace("Stagecraft, ", "") for program, facts in row["programs"].items()
        }
        quickest = {}  # ours: (peer, ratio)
        for pair, ratio in row["ratios"].items():
            ours, _, peer = pair.partition("_over_")
            if (
                "per_joule" in ratio and peer in labels and labels[peer] == row["programs"][peer]["label"]
            ):  # not another of ours
                quickest[ours] = min(
                    quickest.get(ours, (peer, ratio)), (peer, ratio), key=lambda one: one[1]["median"]
                )
        for ours, (peer, ratio) in quickest.items():
            spent = [
                names.text_of(names.median_of(row, one, "joules_per_token"), ".2f", 1e3)
                for one in (ours, peer)
            ]
            rows.append(
                [
                    run_text(key, row, gpus),
                    labels[ours],
                    labels[peer].replace(", bf16 parameters and gradients, fp32 master", ""),
                    " / ".join(spent),
                    f"{ratio['median']:.2f}",
                    names.spread_text(ratio["per_joule"], "{:.2f}".format),
                ]
            )
            sources.append(source(page, name))
    if not rows:
        return ""
    return (
        f"{heading} Energy\n\nJoules that the GPUs counted from the first timed step to the last, over the tokens of these steps; the host's are not in it. Where a peer's GPUs wait, they draw less power, "
        "and our lead per joule is smaller than in time. `pipeline_M`: M micro-batches per step.\n\n"
        + table(
            [
                "run",
                "ours",
                "peer",
                "J per k tokens, ours / theirs",
                "ratio in time",
                "tokens per joule, ours over theirs",
            ],
            rows,
            left=3,
        )
        + f"\n\nFrom {', '.join(dict.fromkeys(sources))}."
    )


def counted(names):
    """In the order of their first: name (3 rounds), other name (1 round)."""
    return ", ".join(f"{name} ({times_text(names.count(name), 'round')})" for name in dict.fromkeys(names))


@renders
def gpu_commits(page):
    """Which sources were measured: of every run of gpu_peers.json, and of the other records of GPUs."""
    of_runs = {}
    for key, row in rows_of_peers().items():
        commits = [one["commit"] for one in row["rounds"]]
        words = (
            commits[0]
            if len(set(commits)) == 1
            else f"**rounds of more than one commit**, {counted(commits)}"
        )
        runners = sorted({one["runner"] for one in row["rounds"] if one.get("runner")} - set(commits))
        words += f" (runner and peers: {', '.join(runners)})" if runners else ""
        of_runs.setdefault(words, []).append(f"`{key}`")
    runs = [f"{', '.join(keys)}: {words}" for words, keys in of_runs.items()]
    others = []
    for name, found in checks.gpu_records():
        if name != "gpu_peers":
            commits = dict.fromkeys(
                one.get("commit") or "**none**" for _, one in checks.measured_parts(found)
            )
            built = {program.get("commit") for program in found.get("programs", {}).values()} - {
                None,
                *commits,
            }
            others.append(
                f"{source(page, name)}: {', '.join(commits)}"
                + (f" (its programs say {', '.join(sorted(built))})" if built else "")
            )
    return f"Commits of the programs, by run: {'; '.join(runs)}.\n\nOf other records: {'; '.join(others)}."


@renders
def beside_products(page):
    """What a collective takes from matrix products beside it, as lessons start it and otherwise."""
    if not has("comm_beside_products_2"):
        return ""
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
        + f"\n\nMedians at {most / 2**20:.0f} MiB, {found['ranks']} ranks, {found['device']}; spreads and smaller operations: {source(page, 'comm_beside_products_2')}."
    )


def published_attention(command):
    """{operation: FLOP/s} of the best published kernels for the shape of a command's attention; empty where none is known."""
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
    """{operations: (ms a step, rate, share of the bound)} of a profiled run, in the order of the table. Attention's bound is the best published kernel's rate."""
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


SHORT_MS = 0.5  # operations of less a step stand in one row


def part_of(command):
    """Which part of the workloads a command names: configs/gpt2_355m.json is 355m."""
    return re.search(r"--workload configs/(?:gpt2_)?([^ .]+)", command)[1]


@renders
def gpu_profiles(page):
    """Milliseconds of a step by class of operation, and of communication beside it, each with the share of its bound: runs beside each other. Short operations stand together."""
    if not has("gpu_profile"):
        return ""
    runs, notes, names = {}, [], []
    for run in record("gpu_profile")["runs"]:
        what = f"{LESSONS[run['lesson']][:2]}, {part_of(run['command'])}" + (
            f" x{run['world']}" if run["world"] > 1 else ""
        )
        p, sensors = run["profile"], run["profile"]["sensors"]
        if what in runs:
            raise RenderError(
                f"docs/results/gpu_profile.json has two profiles of {what}; fix: name one folder of each to records.py --gpu-profile"
            )
        runs[what] = profiled(run)
        clock = f", {sensors['sm_mhz']:.0f} MHz, {sensors['watts']:.0f} W" if sensors else ""
        notes.append(
            f"`{what}`: lesson {LESSONS[run['lesson']]}, mean of {p['steps']} steps without a graph on {run['versions']['GPU']}{clock}"
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
    """Milliseconds of a step by class of operation, of lessons beside each other on one GPU. Those of about equal length stand together."""
    if not has("gpu_profile_one"):
        return ""
    runs = sorted(record("gpu_profile_one")["runs"], key=lambda run: run["lesson"])
    # What must be the same, or the columns say nothing of lessons.
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
            "docs/results/gpu_profile_one.json: runs that differ in more than the lesson, or of several GPUs; fix: name one folder a lesson to records.py --gpu-profile, of runs on one GPU"
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
        + f"\n\nFrom {source(page, 'gpu_profile_one')}: {runs[0]['versions']['GPU']}, mean of {runs[0]['profile']['steps']} steps without a graph, one run of each lesson."
    )


@renders
def gpu_traces(page):
    """Operations and waits of one traced step of each lesson on several GPUs."""
    if not has("gpu_trace"):
        return ""
    found = record("gpu_trace")
    rows, models = [], set()
    # Lessons 02 and 03 as they were when all gathers were a step's first work.
    older = record("gpu_trace_all_at_once") if has("gpu_trace_all_at_once") else {**found, "lessons": {}}
    if any(older[key] != found[key] for key in ("world", "step", "versions")):
        raise RenderError(
            "docs/results/gpu_trace_all_at_once.json: of other GPUs, libraries, or another step than gpu_trace.json"
        )
    before = {lesson: run for lesson, run in older["lessons"].items() if lesson in ("02_zero1", "03_zero2")}
    for lesson, run, words in [
        *((*one, "") for one in found["lessons"].items()),
        *((*one, ", all gathers at the step's start") for one in before.items()),
    ]:
        models |= set(re.findall(r"--workload (\S+)", run["command"]))
        rows.append(
            [
                LESSONS[lesson] + words,
                "" if words else f"{run['microseconds'] / 1e3:.1f}",
                f"{forward_begins(run) / 1e3:.2f}",
                f"{took(run, 'waiting'):.2f}",
            ]
        )
    return (
        table(["lesson", "ms of the step", "forward begins at", "waited for"], rows)
        + f"\n\nFrom {source(page, 'gpu_trace')}{' and ' + source(page, 'gpu_trace_all_at_once') if before else ''}: rank 0 of {found['world']}, step {found['step']}, {found['versions'].get('GPU', 'GPU')}, {', '.join(f'`{model}`' for model in sorted(models))}. An operation lasts until the other rank has come, so its length is not shown."
    )
