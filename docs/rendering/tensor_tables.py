"""Tables of lesson 10: what its ranks hold and send, whose bits they end in, and what that costs
(docs/results/lesson_10*.json, gpu_tensor.json, plans.json)."""
import difflib
import itertools
import operator
import re
import statistics

from .lesson_tables import median_of, tail
from .machine_tables import gpu_table, short
from .plans import plan_of
from .registry import (
    ROOT,
    RenderError,
    as_predicted,
    bytes_text,
    record,
    renders,
    same_bits,
    table_of,
    times_text,
)

LESSON = "10_tensor_parallel"
FILE = "`configs/tiny_rows.json`"


def runs_of(tokens):
    """(ranks, run), which ended in the bits of lesson 00 in as many parts."""
    found = record("lesson_10")
    return [
        (ranks, same_bits(as_predicted(found["ranks"][name]), found["parts"][name], "lesson 00 in parts"))
        for ranks in ("2", "4")
        for name in [f"{ranks} {tokens}"]
    ]


@renders
def tensor_predicted(page, tokens):
    """Bytes by purpose, messages and loss, as predicted and as measured: runs_of() stops where these
    differ."""
    runs = dict(runs_of(tokens))
    if any(
        run["bytes"]["parameters"] != run["bytes"][purpose]
        for run in runs.values()
        for purpose in ("gradients", "momentum", "variance")
    ):
        raise RenderError(
            "lesson_10.json: parameters, gradients, momentum and variance differ in bytes; each needs its row"
        )
    names = {"parameters": "parameters, gradients, momentum, variance: each", "total": "all purposes"}
    rows = [
        (names.get(purpose, purpose), lambda run, purpose=purpose: f"{run['bytes'][purpose]:,}")
        for purpose in ("parameters", "activations", "workspace", "communication", "total")
    ]
    rows += [
        ("operations a step", lambda run: sum(op["count"] for op in run["operations"])),
        ("bytes sent a step", lambda run: f"{run['bytes_sent']:,}"),
        ("loss of step 20", lambda run: f"{run['loss'][-1]:.10f}"),
    ]
    columns = {f"`-n {ranks}`": lambda _, cell, run=run: cell(run) for ranks, run in runs.items()}
    return table_of(rows, {"rank 0, predicted = measured": lambda name, _: name, **columns}) + tail(
        page,
        "lesson_10",
        more=f"20 steps of {FILE}, `tokens={tokens}`; lesson 00 with `--tensor-ranks` predicts the loss",
    )


@renders
def tensor_bits(page):
    """Next to lesson 00 in as many parts, and to one device."""
    device = record("lesson_10")["one_device"]
    runs = [(ranks, tokens, run) for tokens in ("split", "whole") for ranks, run in runs_of(tokens)]
    return table_of(
        runs,
        {
            "t": lambda ranks, *_: ranks,
            "`tokens`": lambda _, tokens, __: f"`{tokens}`",
            "loss of step 20": lambda *row: f"`{row[-1]['loss'][-1]!r}`",
            "weights, SHA-256": lambda *row: f"`{row[-1]['weights_sha256'][:12]}`",
            "largest distance from one device's losses": lambda *row: "{:.1e}".format(
                max(abs(ours - one) for ours, one in zip(row[-1]["loss"], device["loss"]))
            ),
        },
        left=2,
    ) + tail(
        page,
        "lesson_10",
        more=f"{FILE}, fp32; all 20 losses and the weights are those of lesson 00 with `--tensor-ranks t`; "
        f"one device: `{device['loss'][-1]!r}`, `{device['weights_sha256'][:12]}`",
    )


TURNS = {
    "one_device": "00, one core",
    "data_parallel": "01, 2 rows a rank",
    "split": "10",
    "whole": "10, `tokens=whole`",
    "lanes": "10, `lanes=2` of 2 rows",
}


@renders
def tensor_turns(page):
    """Lesson 10 next to data parallelism, in turns."""
    runs = record("lesson_10_turns")["runs"]
    alone = [turn["tokens_per_second"] for turn in runs["one_device"]["rounds"]]

    def over_one(_, run):
        ratios = [turn["tokens_per_second"] / one for turn, one in zip(run["rounds"], alone)]
        return f"{statistics.median(ratios):.2f}"

    more = (
        f"{FILE} in micro-batches of 4 rows, medians of {len(alone)} rounds of "
        f"{runs['split']['rounds'][0]['steps']} steps"
    )
    return table_of(
        [(name, runs[key]) for key, name in TURNS.items()],
        {
            "lesson": lambda name, _: name,
            "a rank holds": lambda _, run: bytes_text(run["bytes"]["total"]),
            "sends a step": lambda _, run: bytes_text(run["bytes_sent"]),
            "waits": lambda _, run: f"{100 * median_of(run['rounds'], 'wait_share')[0]:.0f} %",
            "tok/s over lesson 00's": over_one,
        },
    ) + tail(page, "lesson_10_turns", more=more)


@renders
def tensor_gpu(page, gpus):
    """Lesson 10 on `gpus` GPUs and its peers, DTensor among them, in turns."""
    found = [row for row in record("gpu_tensor")["rows"].values() if row["world"] == int(gpus)]
    cards = dict.fromkeys(row["gpu"] for row in found)

    def model(row, _):
        card = f", {gpu_table.gpu_of(row['gpu'])}" if len(cards) > 1 else ""
        return re.sub(r".*gpt2_(\d+)m\.json", r"\1M", row["workload"]) + card

    def label(row, name):
        fused = row["programs"][name].get("fused_calls") != 0
        return short(row["programs"][name]["label"]) + ("" if fused else ", which fused nothing")

    def over_one(row, name):
        ratio = row["ratios"].get(f"{name}_over_{gpu_table.ONE}")
        return gpu_table.spread_text(ratio) if ratio else ""

    rows = table_of(
        [
            (row, name)
            for row in found
            for name in sorted(row["programs"], key=lambda name: name != gpu_table.ONE)
        ],
        {
            "model": model,
            "program": label,
            "k tok/s": lambda row, name: f"{gpu_table.median_of(row, name, 'tokens_per_second') / 1e3:.1f}",
            "over lesson 00 on one GPU": over_one,
            "waits, %": lambda row, name: gpu_table.text_of(
                row["programs"][name].get("wait_share"), ".0f", 100
            ).replace("-", ""),
        },
        left=2,
        repeats=False,
    )
    one, commits = found[0], dict.fromkeys(turn["commit"] for row in found for turn in row["rounds"])
    fewest, most = (of_rows(len(row["rounds"]) for row in found) for of_rows in (min, max))
    rounds = (f"{fewest} to " if fewest < most else "") + times_text(most, "round")
    return rows + tail(
        page,
        "gpu_tensor",
        more=f"{one['world']} x {' or '.join(cards)}, {one['rows_a_rank']} rows of {one['sequence']} tokens "
        f"a step, {rounds} in turns, commit {', '.join(commits)}; lessons 01 and 04 have "
        f"{one['rows_a_rank'] // one['world']} rows a GPU; lesson 00 runs on each GPU apart, and the slower "
        "one counts; waits: of a step, in the last round",
    )


@renders
def tensor_or_zero3(page):
    """Bytes sent by lessons 10 and 04 where both ranks together have so many tokens in a micro-batch."""
    plans = [
        (
            1024 * rows,
            plan_of(LESSON, "gpt2_355m", 2, f"batch.micro={rows}"),
            plan_of("04_zero3", "gpt2_355m", 2, f"batch.micro={rows // 2}"),
        )
        for rows in (2, 4, 16)
    ]
    for tokens, tensor, zero3 in plans:
        if tensor.M != zero3.M:
            raise RenderError(f"{tokens} tokens: lesson 10 has {tensor.M} micro-batches, lesson 04 {zero3.M}")
    return table_of(
        plans,
        {
            "tokens of the group's micro-batch": lambda tokens, *_: f"{tokens:,}",
            "over 3.6 d": lambda tokens, *_: f"{tokens / (3.6 * 1024):.2f}",
            "10: a rank sends a step": lambda _, tensor, __: bytes_text(tensor.sent),
            "04: a rank sends a step": lambda _, __, zero3: bytes_text(zero3.sent),
            "10 over 04": lambda _, tensor, zero3: f"{tensor.sent / zero3.sent:.2f}",
        },
        left=0,
    ) + tail(page, "plans", more="GPT-2 355M on 2 GPUs, 512 rows of 1024 tokens a step, bf16")


@renders
def tensor_plans(page):
    """Bytes of GPT-2 1.5B by purpose, over ranks."""
    plans = [
        (ranks, tokens, plan_of(LESSON, "gpt2_1558m", ranks, *settings))
        for ranks in (1, 2, 4, 8, 16)
        for tokens, settings in (("split", ()), ("whole", ("tokens=whole",)))[: 1 if ranks == 1 else 2]
    ]
    return table_of(
        plans,
        {
            "t": lambda ranks, *_: ranks,
            "`tokens`": lambda _, tokens, __: f"`{tokens}`",
            "states": lambda *row: bytes_text(row[-1].states()),
            "activations": lambda *row: bytes_text(row[-1].bytes("activations")),
            "workspace": lambda *row: bytes_text(row[-1].bytes("workspace")),
            "all purposes": lambda *row: bytes_text(
                row[-1].states() + sum(map(row[-1].bytes, ("activations", "workspace", "communication")))
            ),
            "sent per micro-batch": lambda *row: bytes_text(row[-1].sent // row[-1].M),
        },
        left=2,
    ) + tail(page, "plans", more="the rank that holds most, 8 rows of 1024 tokens in a micro-batch, bf16")


def body_of(path, name):
    """A function's lines without its comments. A call that a comment parted from its last line is whole."""
    lines = (ROOT / path).read_text().splitlines()
    begin = next((i for i, line in enumerate(lines) if re.match(rf"\S.*::{name}\(", line)), None)
    if begin is None:
        raise RenderError(f"{path} defines no {name}")
    found = "\n".join(
        line for line in lines[begin : lines.index("}", begin) + 1] if not line.strip().startswith("//")
    )
    joined = re.sub(r",\n +([^\n]*;) +// .*", r", \1", found)
    return [re.sub(r" +// .*", "", line) for line in joined.split("\n")]


@renders
def difference(page, before, after, *names):
    """What became of functions: the lines of their diff, without the functions' comments; `...` stands for
    three lines or more that both have."""
    found = []
    for name in names:
        old, new = (body_of(path, name) for path in (before, after))
        lines = list(difflib.unified_diff(old, new, lineterm="", n=len(old)))[3:]
        near = [any(line[0] != " " for line in lines[max(0, i - 1) : i + 2]) for i in range(len(lines))]
        found += [""] if found else []
        for shown, run in itertools.groupby(zip(near, lines), operator.itemgetter(0)):
            of_run = [line.rstrip() for _, line in run]
            indent = of_run[0][: len(of_run[0]) - len(of_run[0].lstrip())]
            found += of_run if shown or len(of_run) < 3 else [f"{indent}..."]
    return "```diff\n" + "\n".join(found) + "\n```"
