"""Runs notebooks, and keeps what their cells print and draw. A picture is kept as it is as long as
matplotlib, asked for SVG, draws the same."""
import base64
import contextlib
import hashlib
import io
import json

try:
    from PIL import Image  # matplotlib needs it, too
except ImportError:
    pass

from . import plots
from .registry import ROOT, RenderError

FOLDER = "notebooks"
SETTINGS = {
    "figure.figsize": (8, 3.6),
    "figure.dpi": 80,
    "font.size": 10,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.alpha": 0.4,
    "figure.subplot.bottom": 0.15,
    "figure.subplot.top": 0.96,
    "svg.fonttype": "none",
    "svg.hashsalt": "stagecraft",
}


def code_cells(notebook):
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def picture(figure):
    """A figure as a notebook keeps it; `drawn` tells whether another one shows the same numbers."""
    whole, kept, exact = io.BytesIO(), io.BytesIO(), io.StringIO()
    figure.savefig(whole, format="png")
    Image.open(whole).convert("RGB").quantize(128).save(kept, "png", optimize=True)  # a third of the bytes
    figure.savefig(exact, format="svg", metadata={"Date": None, "Creator": None})
    plots.pyplot.close(figure)
    data = {"image/png": base64.b64encode(kept.getvalue()).decode(), "text/plain": ["a picture"]}
    return {
        "output_type": "display_data",
        "data": data,
        "metadata": {"drawn": hashlib.sha256(exact.getvalue().encode()).hexdigest()[:16]},
    }


def outputs_of(cell, name, scope):
    """What a cell prints, then what it draws."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile("".join(cell["source"]), name, "exec"), scope)
    lines = printed.getvalue().splitlines(keepends=True)
    said = [{"name": "stdout", "output_type": "stream", "text": lines}] if lines else []
    return said + [picture(plots.pyplot.figure(number)) for number in plots.pyplot.get_fignums()]


def run(name, notebook, folder):
    """The outputs of each code cell, one after the other in this process, in a folder from which docs/results
    is found."""
    plots.matplotlib.use("Agg")
    scope = {}
    with contextlib.chdir(folder), plots.matplotlib.rc_context(SETTINGS):
        return [
            outputs_of(cell, f"{name}, code cell {count}", scope)
            for count, cell in enumerate(code_cells(notebook), start=1)
        ]


def without_pictures(outputs):
    """What must be the same wherever it is run."""
    return [{**one, "data": ""} if one["output_type"] == "display_data" else one for one in outputs]


def with_outputs(notebook, outputs):
    for count, (cell, found) in enumerate(zip(code_cells(notebook), outputs), start=1):
        cell["execution_count"] = count
        if without_pictures(cell["outputs"]) != without_pictures(found):
            cell["outputs"] = found
    return json.dumps(notebook, indent=1) + "\n"


def rendered():
    """(path, text) of every notebook."""
    for path in sorted((ROOT / FOLDER).glob("*.ipynb")):
        name, text = f"{FOLDER}/{path.name}", path.read_text()
        if plots.missing():
            yield name, text
            continue
        notebook = json.loads(text)
        try:
            yield name, with_outputs(notebook, run(name, notebook, ROOT))
        except Exception as error:  # whatever a cell may raise
            raise RenderError(f"{name}: {error!r}") from error
