"""Numbers of a sentence that follow from a workload: `<!-- value: tiny@2 8*P+8*P//N ,d -->`, in the READMEs' symbols."""
from .memory_tables import Sizes
from .registry import RenderError
from .workloads import workload
from .zero_tables import Shape


def least_blocks(shape):
    """From how many blocks of this size on ZeRO-2 holds less than ZeRO-1: P > F (N + 1) / (N - 1)."""
    return (shape.full() * (shape.N + 1) // (shape.N - 1) - shape.ends) // shape.block + 1


def symbols(name):
    """Of WORKLOAD@RANKS."""
    file, _, ranks = name.partition("@")
    work = workload(file)
    shape, sizes, model = Shape(work, int(ranks)), Sizes(work, int(ranks)), work["model"]
    d, vocab, T, L = model["width"], model["vocab"], model["context"], model["layers"]
    found = {"B": work["batch"]["micro"], "F": shape.full(), "H": model["heads"], "L": L, "M": shape.M, "N": shape.N, "P": shape.P, "T": T, "V": sizes.V, "d": d,
             "U0": shape.units[0], "last": shape.units[-1], "block": shape.block, "pool": shape.pool, "vocab": vocab, "rows": work["batch"]["global"],
             "parameters": (vocab + T) * d + L * (12 * d + 13) * d + 2 * d, "kept": sizes.kept(), "saved": sizes.saved(),
             "gathers": shape.gathers(), "states": shape.states, "sent": shape.sent, "moved": shape.moved}
    return {**found, "least_blocks": least_blocks(shape)} if shape.N > 1 else found


def value(name, expression):
    """What the expression comes to; it can use the symbols and nothing else."""
    try:
        return eval(expression, {"__builtins__": {}}, symbols(name))
    except (ArithmeticError, KeyError, NameError, SyntaxError, TypeError, ValueError) as error:
        raise RenderError(f"the value {name} {expression}: {error}") from None
