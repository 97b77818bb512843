"""Tables of docs/side_by_side.md, from side_by_side.json: all lessons on one workload."""
from .lesson_tables import tail
from .registry import RenderError, record, renders, table, table_of

NAME = "side_by_side"
PLACES = ("device", "pinned", "host", "disk")
SENT = "sent to other ranks"


def rows_of():
    """Every run, which held and moved what was predicted."""
    rows = record(NAME)["rows"]
    for row in rows:
        if not row["as_predicted"] or any(
            row[what]["predicted"] != row[what]["measured"] for what in ("held", "moved")
        ):
            raise RenderError(f"{row['command']}: not as predicted")
    return rows


@renders
def side_by_side(page):
    """Bytes of the rank that holds most, by place, and of the rank that sends most."""
    lesson = {"lesson": lambda row: page.lesson(row["lesson"])}
    held = {place: lambda row, place=place: f"{row['held']['measured'][place]:,}" for place in PLACES}
    sent = {"sent per step": lambda row: f"{row['moved']['measured'][SENT]:,}"}
    return table_of(rows_of(), {**lesson, **held, **sent}) + tail(
        page, NAME, more="bytes of the rank that holds or sends most, each as predicted"
    )


@renders
def side_by_side_bits(page):
    """Whose bits the weights are after 20 steps."""
    lessons = {}
    for row in rows_of():
        order = row["order"]
        if order and order["weights_sha256"] != row["weights_sha256"]:
            raise RenderError(f"{row['command']}: its weights are not those of {order['command']}")
        flags = "" if not order else " ".join(order["command"].split("tiny.json")[1].split()[:-2])
        equal = (
            "none: gradients are of older weights"
            if not order
            else "lesson 00" + (f" with `{flags}`" if flags else "")
        )
        lessons.setdefault((f"`{row['weights_sha256'][:12]}`", equal), []).append(row["lesson"][:2])
    rows = [[", ".join(numbers), *key] for key, numbers in lessons.items()]
    return table(["lessons", "SHA-256 of the weights", "equal to"], rows, left=3) + tail(
        page, NAME, more="20 steps"
    )
