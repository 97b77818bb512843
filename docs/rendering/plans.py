"""What the programs plan (docs/results/plans.json, which tests/benchmarks/plans.py makes), in the pages' symbols."""
from .registry import RenderError, record
from .workloads import workload

STATES = ("parameters", "gradients", "master", "momentum", "variance")
SIZES = {"f64": 8, "f32": 4, "bf16": 2, "f16": 2}


class Plan:
    """A row of plans.json."""

    def __init__(self, row):
        self.lesson, self.buffers, self.operations, self.sent = (
            row[key] for key in ("lesson", "buffers", "operations", "bytes_sent")
        )
        self.N, self.M = row["world"], row["micro_batches"]
        self.mesh = row.get(
            "mesh", []
        )  # of lesson 11, and what took turns with it: [rank, ranks like it, bytes of its device, {axis: [messages, bytes sent]}]
        self.fullest = row.get(
            "fullest", {}
        )  # of the cheat sheet's plans: {"rank", "sent", "places": {place: {purpose: bytes}}}
        self.parameters, self.units = zip(
            *(unit[:2] for unit in row["units"] for _ in range(unit[2]))
        )  # of each unit; units as stored
        self.P, self.L, self.block = sum(self.units), len(self.units) - 2, self.units[1]

    def bytes(self, purpose, name=""):
        """Of rank 0's buffers whose names begin so."""
        return sum(sum(each) for what, each in self.buffers.get(purpose, {}).items() if what.startswith(name))

    def states(self):
        return sum(self.bytes(purpose) for purpose in STATES)

    def pool(self):
        """Blocks that have a buffer for gathered parameters."""
        return len(self.buffers["parameters"]["params_full, a block"])

    def gathers(self):
        """Of blocks, in one step."""
        return gathers_of(self.operations, self.block)


def gathers_of(operations, elements):
    return sum(count for kind, count, size, _ in operations if (kind, size) == ("all_gather", elements))


def moved_of(operations):
    """Elements of reduce-scatters and all-gathers, an all-reduce being both, before the factor (N - 1) / N; without the four numbers."""
    return sum(
        count * elements * (2 if kind == "all_reduce" else 1)
        for kind, count, elements, dtype in operations
        if dtype != "f64"
    )


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
        f"plans.json has no {lesson} of {name} on {ranks} ranks, {settings}; fix: a line in tests/benchmarks/plans.py"
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
