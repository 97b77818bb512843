"""Figures of docs/what_the_numbers_hide.md."""
from . import plots
from .honest_tables import WAYS, longest
from .registry import figure, has, record

WINDOW = 10  # steps that a point is the mean of


def windows(losses):
    return [sum(losses[i : i + WINDOW]) / WINDOW for i in range(0, len(losses) - WINDOW + 1, WINDOW)]


@figure
def padding_losses():
    """Reported losses of three runs that learn the same text."""
    if not has("padding_cpu"):
        return None
    length, runs = longest()
    steps = record("padding_cpu")["steps"]
    ends = "; ".join(f"{WAYS[way]}: {run['loss_at_end']:.2f}" for way, run in runs.items())
    alt = (
        f"Training loss over {steps} steps of three models on the same text, as each run reports it. Mean of the last {runs['pack']['last_steps']} training steps: "
        f"{ends}. The lowest curve counts padding."
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
