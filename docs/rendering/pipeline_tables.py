"""Tables of lesson 07: equal bits of every schedule, and what its stages hold (docs/results/pipeline_order.json)."""
from .lesson_tables import file_text, tail
from .registry import record, renders, table


@renders
def pipeline_same_bits(page):
    """Each schedule on each number of stages beside lesson 00 in the same order of sums."""
    shapes = record("pipeline_order")["shapes"]
    schedules = list(next(iter(shapes.values()))["schedules"])
    rows = []
    for shape, found in shapes.items():
        stages, replicas = shape.split("x")
        reference = found["reference"]
        same = [all(found["schedules"][name][key] == reference[key] for key in ("weights_sha256", "loss")) for name in schedules]
        rows.append([f"{stages} x {replicas}", f"`{reference['weights_sha256'][:12]}`", *("equal" if one else "DIFFERENT" for one in same)])
    return (table(["stages x replicas", "lesson 00's weights", *(f"`{name}`" for name in schedules)], rows, left=7)
            + tail(page, "pipeline_order", more=f"20 losses and the SHA-256 of the saved weights; {file_text(reference)}"))
