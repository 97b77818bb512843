"""What the programs plan (docs/results/plans.json, which tests/benchmarks/plans.py makes), in the pages'
symbols; numbers of a sentence that follow, `<!-- value: tiny@2 8*P+8*P//N ,d -->`; and workloads' files, and
which of them a run on record was made with."""
import hashlib
import json
import shlex

from .registry import ROOT, RenderError, record

FILES = {
    "tiny": "configs/tiny.json",
    "four_blocks": "tests/workloads/four_blocks.json",
}  # of the records of CPU runs


def file_of(name):
    return FILES.get(name, f"configs/{name}.json")


def workload(name):
    return json.loads((ROOT / file_of(name)).read_text())


def resolved(work, prefix=""):
    """(key, value) as a run resolves them (common/config/workload_table.h)."""
    for key, value in work.items():
        if isinstance(value, dict):
            yield from resolved(value, f"{prefix}{key}.")
        else:
            yield prefix + key, ("off", "on")[value] if isinstance(
                value, bool
            ) else f"{value:g}" if isinstance(value, float) else str(value)


def hash_of(work, settings=()):
    """What a run's record has as its workload's hash; settings of the strategy are no part of it."""
    values = dict(resolved(work))
    values.update(one.split("=", 1) for one in settings if one.split("=")[0] in values)
    return hashlib.sha256(
        "".join(f"{key}={value}\n" for key, value in sorted(values.items())).encode()
    ).hexdigest()


def hash_before(work, settings=()):
    """The workload's hash as in records of the time when evaluations were counted in micro-batches
    (common/config/other_names.h)."""
    data, micro = dict(work["data"]), work["batch"]["micro"]
    data["validation_batches"] = data.pop("validation_rows") // micro
    return hash_of({**work, "data": data}, settings)


def settings_in(command):
    """What --set and --steps say in a command."""
    words = shlex.split(command)
    return [
        value if flag == "--set" else f"steps={value}"
        for flag, value in zip(words, words[1:])
        if flag in ("--set", "--steps")
    ]


def named(workload_hash, settings):
    """The file of FILES whose values have that hash with these settings."""
    for name in FILES:
        if workload_hash in (hash_of(workload(name), settings), hash_before(workload(name), settings)):
            return name
    raise RenderError(
        f"a run with the settings {' '.join(settings)}: its workload is none of "
        f"{', '.join(FILES.values())}; make its record again"
    )


def workload_of(run):
    return named(run["workload_hash"], settings_in(run["command"]))


STATES = ("parameters", "gradients", "master", "momentum", "variance")
SIZES = {"f64": 8, "f32": 4, "bf16": 2, "f16": 2}


class Plan:
    """A row of plans.json."""

    def __init__(self, row):
        self.lesson, self.buffers, self.operations, self.sent = (
            row[key] for key in ("lesson", "buffers", "operations", "bytes_sent")
        )
        self.N, self.M = row["world"], row["micro_batches"]
        # Plans of lesson 11 and of runs whose axes share its links have a mesh, one row for each kind of
        # rank:
        # [rank, ranks like it, bytes of its device, {axis: [messages, bytes sent]}].
        self.mesh = row.get("mesh", [])
        self.fullest = row.get(
            "fullest", {}
        )  # of the cheat sheet's plans: {"rank", "sent", "places": {place: {purpose: bytes}}}
        self.pairs = row.get("pairs")  # of lesson 12: [rank, hop, chunk of queries, chunk of keys]
        self.parameters, self.units = zip(
            *(unit[:2] for unit in row["units"] for _ in range(unit[2]))
        )  # of each unit; units as stored
        self.P, self.L, self.block = sum(self.units), len(self.units) - 2, self.units[1]

    def bytes(self, purpose, name=""):
        """The bytes of rank 0's buffers whose names begin with `name`."""
        return sum(sum(each) for what, each in self.buffers.get(purpose, {}).items() if what.startswith(name))

    def states(self):
        return sum(self.bytes(purpose) for purpose in STATES)

    def pool(self):
        """Blocks that have a buffer for gathered parameters."""
        return len(self.buffers["parameters"]["params_full, a block"])

    def gathers(self):
        """The number of gathers of blocks in one step."""
        return gathers_of(self.operations, self.block)


def gathers_of(operations, elements):
    return sum(count for kind, count, size, _ in operations if (kind, size) == ("all_gather", elements))


def plans(name, ranks):
    """Every plan of a workload on so many ranks with the lessons' own settings, by lesson."""
    return {
        row["lesson"]: Plan(row)
        for row in record("plans")["plans"]
        if (row["workload"], row["world"], row["settings"]) == (name, ranks, [])
    }


def plan_of(lesson, name, ranks, *settings):
    for row in record("plans")["plans"]:
        if (row["lesson"], row["workload"], row["world"], row["settings"]) == (
            lesson,
            name,
            ranks,
            list(settings),
        ):
            return Plan(row)
    raise RenderError(
        f"plans.json has no {lesson} of {name} on {ranks} ranks, {settings}; fix: a line in "
        "tests/benchmarks/plans.py"
    )


def on_one_rank(model):
    for row in record("plans")["plans"]:
        if row["world"] == 1 and workload(row["workload"])["model"] == model:
            return Plan(row)
    raise RenderError(
        f"plans.json has no plan on one rank of {model}; fix: a line in tests/benchmarks/plans.py"
    )


def stored(model):
    """P of a model on one rank."""
    return on_one_rank(model).P


def of_zero2(plan, zero2):
    """F, and from how many blocks of this size on ZeRO-2 holds less than ZeRO-1: P > F (N + 1) / (N - 1)."""
    full = zero2.bytes("gradients", "grads_full") // (zero2.bytes("parameters", "params_full") // plan.P)
    ends = plan.units[0] + plan.units[-1]
    return {"F": full, "least_blocks": (full * (plan.N + 1) // (plan.N - 1) - ends) // plan.block + 1}


def symbols(name):
    """The symbols that stand for the numbers of WORKLOAD@RANKS."""
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
