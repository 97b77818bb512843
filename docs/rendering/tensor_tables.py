"""Tables of lesson 10: what its ranks hold and send, whose bits they end in, and what that costs (docs/results/lesson_10*.json, gpu_tensor.json, plans.json)."""
import difflib
import re
import statistics

from .lesson_tables import median_of, tail
from .machine_tables import gpu_table, short
from .plans import plan_of
from .registry import ROOT, RenderError, bytes_text, has, record, renders, table, times_text

LESSON = "10_tensor_parallel"
FILE = "`configs/tiny_rows.json`"


def runs_of(tokens):
    """ranks -> (run, lesson 00's in as many parts), which held and sent what was planned."""
    found = record("lesson_10")
    for ranks in ("2", "4"):
        run = found["ranks"][f"{ranks} {tokens}"]
        if any(run[f"predicted_{key}"] != run[key] for key in ("bytes", "operations", "bytes_sent")):
            raise RenderError(f"{run['command']}: not as predicted")
        if any(run[key] != found["parts"][f"{ranks} {tokens}"][key] for key in ("loss", "weights_sha256")):
            raise RenderError(f"{run['command']}: its losses or weights are not those of lesson 00 in parts")
        yield ranks, run, found["parts"][f"{ranks} {tokens}"]


@renders
def tensor_predicted(page, tokens):
    """Bytes by purpose, messages and loss, as predicted and as measured: runs_of() stops where these differ."""
    columns, rows = list(runs_of(tokens)), []
    held = [run["bytes"] for _, run, _ in columns]
    if any(
        one["parameters"] != one[purpose] for one in held for purpose in ("gradients", "momentum", "variance")
    ):
        raise RenderError(
            "lesson_10.json: parameters, gradients, momentum and variance differ in bytes; each needs its row"
        )
    names = {"parameters": "parameters, gradients, momentum, variance: each", "total": "all purposes"}
    for purpose in ("parameters", "activations", "workspace", "communication", "total"):
        rows.append([names.get(purpose, purpose), *(f"{one[purpose]:,}" for one in held)])
    rows.append(
        ["operations a step", *(sum(op["count"] for op in run["operations"]) for _, run, _ in columns)]
    )
    rows.append(["bytes sent a step", *(f"{run['bytes_sent']:,}" for _, run, _ in columns)])
    rows.append(["loss of step 20", *(f"{run['loss'][-1]:.10f}" for _, run, _ in columns)])
    heads = ["rank 0, predicted = measured", *(f"`-n {ranks}`" for ranks, *_ in columns)]
    return table(heads, rows) + tail(
        page,
        "lesson_10",
        more=f"20 steps of {FILE}, `tokens={tokens}`; lesson 00 with `--tensor-ranks` predicts the loss",
    )


@renders
def tensor_bits(page):
    """Next to lesson 00 in as many parts, and to one device."""
    device, rows = record("lesson_10")["one_device"], []
    for tokens in ("split", "whole"):
        for ranks, run, _ in runs_of(tokens):
            apart = max(abs(ours - one) for ours, one in zip(run["loss"], device["loss"]))
            rows.append(
                [
                    ranks,
                    f"`{tokens}`",
                    f"`{run['loss'][-1]!r}`",
                    f"`{run['weights_sha256'][:12]}`",
                    f"{apart:.1e}",
                ]
            )
    heads = [
        "t",
        "`tokens`",
        "loss of step 20",
        "weights, SHA-256",
        "largest distance from one device's losses",
    ]
    return table(heads, rows, left=2) + tail(
        page,
        "lesson_10",
        more=f"{FILE}, fp32; all 20 losses and the weights are those of lesson 00 with `--tensor-ranks t`; one device: `{device['loss'][-1]!r}`, `{device['weights_sha256'][:12]}`",
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
    if not has("lesson_10_turns"):
        return ""
    runs, rows = record("lesson_10_turns")["runs"], []
    alone = [turn["tokens_per_second"] for turn in runs["one_device"]["rounds"]]
    for key, name in TURNS.items():
        run = runs[key]
        ratios = [turn["tokens_per_second"] / one for turn, one in zip(run["rounds"], alone)]
        rows.append(
            [
                name,
                bytes_text(run["bytes"]["total"]),
                bytes_text(run["bytes_sent"]),
                f"{100 * median_of(run['rounds'], 'wait_share')[0]:.0f} %",
                f"{statistics.median(ratios):.2f}",
            ]
        )
    more = f"{FILE} in micro-batches of 4 rows, medians of {len(alone)} rounds of {runs['split']['rounds'][0]['steps']} steps"
    return table(["lesson", "a rank holds", "sends a step", "waits", "tok/s over lesson 00's"], rows) + tail(
        page, "lesson_10_turns", more=more
    )


@renders
def tensor_gpu(page, gpus):
    """The same on so many GPUs, in turns with DTensor, too."""
    if not has("gpu_tensor"):
        return ""
    of, rows, failed = gpu_table(), [], []
    found = {key: row for key, row in record("gpu_tensor")["rows"].items() if row["world"] == int(gpus)}
    cards = dict.fromkeys(row["gpu"] for row in found.values())
    for row in found.values():
        model = re.sub(r".*gpt2_(\d+)m\.json", r"\1M", row["workload"]) + (
            f", {of.gpu_of(row['gpu'])}" if len(cards) > 1 else ""
        )
        for name in sorted(row["programs"], key=lambda name: name != of.ONE):
            program, rate, ratio = (
                row["programs"][name],
                of.median_of(row, name, "tokens_per_second"),
                row["ratios"].get(f"{name}_over_{of.ONE}"),
            )
            label = short(program["label"]) + (
                ", which fused nothing" if program.get("fused_calls") == 0 else ""
            )
            if "failure" in program:
                failed.append(f"{model}, {label}: failed: {of.shortened(program['failure'])}")
            share = program.get("wait_share")
            rows.append(
                [
                    "" if any(above[0] == model for above in rows) else model,
                    label,
                    "failed" if rate is None else f"{rate / 1e3:.1f}",
                    of.spread_text(ratio) if ratio else "",
                    "" if share is None else f"{100 * share:.0f}",
                ]
            )
    one = next(iter(found.values()))
    commits = dict.fromkeys(turn["commit"] for row in found.values() for turn in row["rounds"])
    fewest, most = (of_rows(len(row["rounds"]) for row in found.values()) for of_rows in (min, max))
    rounds = (f"{fewest} to " if fewest < most else "") + times_text(most, "round")
    more = (
        f"{one['world']} x {' or '.join(cards)}, {one['rows_a_rank']} rows of {one['sequence']} tokens a step, {rounds} in turns, commit "
        f"{', '.join(commits)}; lessons 01 and 04 have {one['rows_a_rank'] // one['world']} rows a GPU; lesson 00 runs on each GPU apart, and the slower one counts; waits: of a step, in the last round"
    )
    return (
        table(["model", "program", "k tok/s", "over lesson 00 on one GPU", "waits, %"], rows, left=2)
        + tail(page, "gpu_tensor", more=more)
        + "".join(f"\n\n{line}" for line in failed)
    )


@renders
def tensor_or_zero3(page):
    """Bytes sent by lessons 10 and 04 where both ranks together have so many tokens in a micro-batch."""
    rows = []
    for count in (2, 4, 16):
        tensor, zero3 = plan_of(LESSON, "gpt2_355m", 2, f"batch.micro={count}"), plan_of(
            "04_zero3", "gpt2_355m", 2, f"batch.micro={count // 2}"
        )
        if tensor.M != zero3.M:
            raise RenderError(f"{count} rows: lesson 10 has {tensor.M} micro-batches, lesson 04 {zero3.M}")
        tokens = 1024 * count
        rows.append(
            [
                f"{tokens:,}",
                f"{tokens / (3.6 * 1024):.2f}",
                bytes_text(tensor.sent),
                bytes_text(zero3.sent),
                f"{tensor.sent / zero3.sent:.2f}",
            ]
        )
    heads = [
        "tokens of the group's micro-batch",
        "over 3.6 d",
        "10: a rank sends a step",
        "04: a rank sends a step",
        "10 over 04",
    ]
    return table(heads, rows, left=0) + tail(
        page, "plans", more="GPT-2 355M on 2 GPUs, 512 rows of 1024 tokens a step, bf16"
    )


@renders
def tensor_plans(page):
    """Bytes of GPT-2 1.5B by purpose, over ranks."""
    rows = []
    for ranks in (1, 2, 4, 8, 16):
        for tokens in ("split", "whole") if ranks > 1 else ("split",):
            plan = plan_of(LESSON, "gpt2_1558m", ranks, *(("tokens=whole",) if tokens == "whole" else ()))
            kept = [plan.states(), *(plan.bytes(purpose) for purpose in ("activations", "workspace"))]
            rows.append(
                [
                    ranks,
                    f"`{tokens}`",
                    *(bytes_text(count) for count in kept),
                    bytes_text(sum(kept) + plan.bytes("communication")),
                    bytes_text(plan.sent // plan.M),
                ]
            )
    heads = ["t", "`tokens`", "states", "activations", "workspace", "all purposes", "sent per micro-batch"]
    return table(heads, rows, left=2) + tail(
        page, "plans", more="the rank that holds most, 8 rows of 1024 tokens in a micro-batch, bf16"
    )


def body_of(path, name):
    """A function's lines without its comments."""
    lines = (ROOT / path).read_text().splitlines()
    begin = next((i for i, line in enumerate(lines) if re.match(rf"\S.*::{name}\(", line)), None)
    if begin is None:
        raise RenderError(f"{path} defines no {name}")
    found = lines[begin : lines.index("}", begin) + 1]
    return [re.sub(r" +// .*", "", line) for line in found if not line.strip().startswith("//")]


@renders
def difference(page, before, after, *names):
    """What became of functions: the lines of their diff, without the functions' comments."""
    found = []
    for name in names:
        old, new = (body_of(path, name) for path in (before, after))
        lines = list(difflib.unified_diff(old, new, lineterm="", n=1))[2:]
        found += [*([""] if found else []), *(line.rstrip() for line in lines if not line.startswith("@@"))]
    return "```diff\n" + "\n".join(found) + "\n```"
