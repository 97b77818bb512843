"""docs/what_the_numbers_hide.md and docs/troubleshooting.md."""
from . import plots
from .registry import RenderError, bytes_text, figure, record, renders, source, table_of


@renders
def dtype_only(page):
    """One program, one GPU, three number formats."""
    found = record("gpu_dtype_only")
    held = {name: program["bytes_measured"] for name, program in found["programs"].items()}
    over = {name: found["ratios"].get(f"fp32_over_{name}") for name in held}
    return (
        table_of(
            found["programs"],
            {
                "`precision.dtype`": lambda name: name,
                "ms per step": lambda name: f"{1e3 * found['programs'][name]['median_seconds']:.2f}",
                "speed over fp32, within a round": lambda name: f"{over[name]['median']:.2f}"
                if over[name]
                else "1",
                "bytes held": lambda name: bytes_text(held[name]),
                "fewer bytes than fp32": lambda name: f"{100 * (1 - held[name] / held['fp32']):.0f} %",
            },
        )
        + f"\n\nFrom {source(page, 'gpu_dtype_only')}: lesson 00 on one "
        f"{found['machine'].get('gpu', 'GPU')}, {found['workload']['batch.global']} rows of "
        f"{found['workload']['batch.sequence']} tokens a step; fp32 without TF32."
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
    length, runs = longest()
    return (
        table_of(
            runs.items(),
            {
                "trained on rows that are": lambda way, _: WAYS[way],
                **{
                    f"loss on {said.partition(':')[0]}": lambda _, run, way=way: (
                        f"{run['evaluated'][way]:.3f}"
                    )
                    for way, said in WAYS.items()
                },
            },
        )
        + f"\n\nFrom {source(page, 'padding_cpu')}: rows of T = {length} tokens, "
        f"{record('padding_cpu')['steps']} steps, random initial weights, CPU. "
        f"{100 * runs['pack']['share_of_text']:.1f} % of the padded rows' targets are text."
    )


@renders
def padding_explained(page):
    """The loss of the unmasked run as a mixture."""

    def of_padding(run):
        share, said = run["share_of_text"], run["evaluated"]
        return f"{(said['pad_unmasked'] - share * said['pad_masked']) / (1 - share):.4f}"

    runs = [run for run in record("padding_cpu")["runs"] if run["trained"] == "pad_unmasked"]
    return (
        table_of(
            sorted(runs, key=lambda run: run["sequence"]),
            {
                "T": lambda run: run["sequence"],
                "share of text s": lambda run: f"{100 * run['share_of_text']:.1f} %",
                "loss of the text l": lambda run: f"{run['evaluated']['pad_masked']:.3f}",
                "reported loss": lambda run: f"{run['evaluated']['pad_unmasked']:.3f}",
                "loss of the padding": of_padding,
            },
        )
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


# A drawn point is the mean of so many steps.
WINDOW = 10


def windows(losses):
    return [sum(losses[i : i + WINDOW]) / WINDOW for i in range(0, len(losses) - WINDOW + 1, WINDOW)]


@figure
def padding_losses():
    """Reported losses of three runs that learn the same text."""
    length, runs = longest()
    steps = record("padding_cpu")["steps"]
    ends = "; ".join(f"{WAYS[way]}: {run['loss_at_end']:.2f}" for way, run in runs.items())
    alt = (
        f"Training loss over {steps} steps of three models on the same text, as each run reports it. Mean of "
        f"the last {runs['pack']['last_steps']} training steps: {ends}. The lowest curve counts padding."
    )
    curves = [
        (WAYS[way], [(WINDOW * (k + 1), loss) for k, loss in enumerate(windows(run["loss"]))])
        for way, run in runs.items()
    ]

    def draw(figure):
        plotted = plots.axes(figure, 72, 270, right=300, names=("step", "reported loss, nats a target"))
        plots.curves(plotted, plots.lines_of(curves), ylim=(0, None))

    return plots.plot(
        400,
        f"The same text, three ways to count, T = {length}",
        alt,
        "Record docs/results/padding_cpu.json.",
        draw,
        f"measured; mean of {WINDOW} steps",
    )
