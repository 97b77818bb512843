"""Figures of docs/what_the_numbers_hide.md."""
import math

from .honest_tables import WAYS, longest
from .palette import LINES
from .registry import figure, has, record
from .svg import Drawing, Plot

WINDOW = 10  # steps that a point is the mean of


def windows(losses):
    return [sum(losses[i:i + WINDOW]) / WINDOW for i in range(0, len(losses) - WINDOW + 1, WINDOW)]


@figure
def padding_losses():
    """Reported losses of three runs that learn the same text."""
    if not has("padding_cpu"):
        return None
    length, runs = longest()
    steps = record("padding_cpu")["steps"]
    ends = "; ".join(f"{WAYS[way]}: {run['loss_at_end']:.2f}" for way, run in runs.items())
    alt = (f"Training loss over {steps} steps of three models on the same text, as each run reports it. Mean of the last {runs['pack']['last_steps']} training steps: "
           f"{ends}. The lowest curve counts padding.")
    drawing = Drawing(400, f"The same text, three ways to count, T = {length}", alt, f"measured; mean of {WINDOW} steps")
    curves = {way: windows(run["loss"]) for way, run in runs.items()}
    high = math.ceil(max(max(curve) for curve in curves.values()))
    plot = Plot(drawing, 70, 70, 860, 250, (0, steps), (0, high))
    plot.axes([(steps * i / 6, f"{steps * i / 6:.0f}") for i in range(7)], [(v, str(v)) for v in range(high + 1)], "step", "reported loss, nats a target")
    x = 70
    for i, (way, curve) in enumerate(curves.items()):
        plot.curve([(WINDOW * (k + 1), loss) for k, loss in enumerate(curve)], LINES[i], dashed=i == 1)
        drawing.polyline([(x, 382), (x + 24, 382)], LINES[i], i == 1)
        drawing.text(x + 30, 386, WAYS[way], "small")
        x += 66 + 6.4 * len(WAYS[way])
    return drawing.done("Record docs/results/padding_cpu.json.")
