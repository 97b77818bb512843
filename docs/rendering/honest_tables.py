"""docs/what_the_numbers_hide.md and docs/troubleshooting.md."""
from .registry import RenderError, bytes_text, has, record, renders, source, table


@renders
def dtype_only(page):
    """One program, one GPU, three number formats."""
    if not has("gpu_dtype_only"):
        return ""
    found = record("gpu_dtype_only")
    programs, base = found["programs"], found["programs"]["fp32"]
    rows = []
    for name, program in programs.items():
        ratio = found["ratios"].get(f"fp32_over_{name}")
        rows.append(
            [
                name,
                f"{1e3 * program['median_seconds']:.2f}",
                f"{ratio['median']:.2f}" if ratio else "1",
                bytes_text(program["bytes_measured"]),
                f"{100 * (1 - program['bytes_measured'] / base['bytes_measured']):.0f} %",
            ]
        )
    machine = found["machine"]
    return (
        table(
            [
                "`precision.dtype`",
                "ms per step",
                "speed over fp32, within a round",
                "bytes held",
                "fewer bytes than fp32",
            ],
            rows,
        )
        + f"\n\nFrom {source(page, 'gpu_dtype_only')}: lesson 00 on one {machine.get('gpu', 'GPU')}, "
        f"{found['workload']['batch.global']} rows of {found['workload']['batch.sequence']} tokens a step; fp32 without TF32."
    )


WAYS = {
    "pack": "packed: every target is text",
    "pad_masked": "padded, padding masked",
    "pad_unmasked": "padded, padding counted",
}


def longest():
    runs = record("padding_cpu")["runs"]
    length = max(run["sequence"] for run in runs)
    return length, {run["trained"]: run for run in runs if run["sequence"] == length}


@renders
def padding_matrix(page):
    """Trained in three ways, evaluated in three ways."""
    if not has("padding_cpu"):
        return ""
    length, runs = longest()
    rows = [[WAYS[way], *[f"{run['evaluated'][other]:.3f}" for other in WAYS]] for way, run in runs.items()]
    found = record("padding_cpu")
    return (
        table(
            ["trained on rows that are", *(f"loss on {said.partition(':')[0]}" for said in WAYS.values())],
            rows,
        )
        + f"\n\nFrom {source(page, 'padding_cpu')}: rows of T = {length} tokens, {found['steps']} steps, random initial weights, CPU. "
        f"{100 * runs['pack']['share_of_text']:.1f} % of the padded rows' targets are text."
    )


@renders
def padding_explained(page):
    """The loss of the unmasked run as a mixture."""
    if not has("padding_cpu"):
        return ""
    rows = []
    for run in sorted(
        (r for r in record("padding_cpu")["runs"] if r["trained"] == "pad_unmasked"),
        key=lambda r: r["sequence"],
    ):
        share, text, reported = (
            run["share_of_text"],
            run["evaluated"]["pad_masked"],
            run["evaluated"]["pad_unmasked"],
        )
        filling = (reported - share * text) / (1 - share)
        rows.append(
            [run["sequence"], f"{100 * share:.1f} %", f"{text:.3f}", f"{reported:.3f}", f"{filling:.4f}"]
        )
    return (
        table(["T", "share of text s", "loss of the text l", "reported loss", "loss of the padding"], rows)
        + f"\n\nFrom {source(page, 'padding_cpu')}."
    )


@renders
def refusal(page, name):
    """A command that is refused, and what it says (tests/docs/refusals.py runs it)."""
    found = record("refusals")
    if name not in found:
        raise RenderError(f"docs/results/refusals.json has no '{name}'")
    case = found[name]
    end = [f"(exit code {case['exit_code']})"] if case["exit_code"] is not None else ["..."]
    return "```text\n" + "\n".join([f"$ {case['command']}", *case["said"], *end]) + "\n```"
