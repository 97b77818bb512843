"""Numbers of a sentence that follow from a workload's plans: `<!-- value: tiny@2 8*P+8*P//N ,d -->`, in the READMEs' symbols."""
from .plans import moved_of, on_one_rank, plans
from .registry import RenderError
from .workloads import workload


def of_zero2(plan, zero2):
    """F, and from how many blocks of this size on ZeRO-2 holds less than ZeRO-1: P > F (N + 1) / (N - 1)."""
    full = zero2.bytes("gradients", "grads_full") // (zero2.bytes("parameters", "params_full") // plan.P)
    ends = plan.units[0] + plan.units[-1]
    return {"F": full, "least_blocks": (full * (plan.N + 1) // (plan.N - 1) - ends) // plan.block + 1}


def symbols(name):
    """Of WORKLOAD@RANKS."""
    file, _, ranks = name.partition("@")
    work = workload(file)
    model, batch, rows = work["model"], work["batch"], plans(file, int(ranks))
    plan = next(iter(rows.values())) if rows or ranks != "1" else on_one_rank(model)
    d, T = model["width"], model["context"]
    V = plan.parameters[0] // d - T
    found = {
        "B": batch["micro"],
        "H": model["heads"],
        "L": plan.L,
        "M": plan.M,
        "N": plan.N,
        "P": plan.P,
        "T": T,
        "V": V,
        "d": d,
        "U0": plan.units[0],
        "last": plan.units[-1],
        "block": plan.block,
        "vocab": model["vocab"],
        "rows": batch["global"],
        "parameters": sum(plan.parameters) - (V - model["vocab"]) * d,
        "kept": plan.bytes("activations"),
        "saved": plan.bytes("activations", "saved") // plan.L,
        "states": lambda lesson: rows[lesson].states(),
        "sent": lambda lesson: rows[lesson].sent,
        "moved": lambda lesson: moved_of(rows[lesson].operations),
    }
    if "03_zero2" in rows:
        found |= of_zero2(plan, rows["03_zero2"])
    if "04_zero3" in rows:
        found |= {"pool": rows["04_zero3"].pool(), "gathers": rows["04_zero3"].gathers()}
    return found


def value(name, expression):
    """What the expression comes to; it can use the symbols and nothing else."""
    try:
        return eval(expression, {"__builtins__": {}}, symbols(name))
    except (ArithmeticError, KeyError, NameError, StopIteration, SyntaxError, TypeError, ValueError) as error:
        raise RenderError(
            f"the value {name} {expression}: {error!r}; its plans: tests/benchmarks/plans.py"
        ) from None
