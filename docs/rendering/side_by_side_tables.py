"""Tables of docs/side_by_side.md, from side_by_side.json: all lessons on one workload."""
from .lesson_tables import tail
from .registry import RenderError, record, renders, table

NAME = "side_by_side"
PLACES = ("device", "pinned", "host", "disk")


def shown(count):
    return f"{count:,}" if count else "0"


def rows_of():
    """Every run, which held and moved what was predicted."""
    rows = record(NAME)["rows"]
    for row in rows:
        if not row["as_predicted"] or any(row[what]["predicted"] != row[what]["measured"] for what in ("held", "moved")):
            raise RenderError(f"{row['command']}: not as predicted")
    return rows


def named(page, row):
    number, name = row["lesson"].split("_", 1)
    return f"[{number} {name.replace('_', ' ').replace('zero', 'ZeRO-')}]({page.link('lessons/' + row['lesson'] + '/README.md')})"


@renders
def side_by_side_held(page):
    """Bytes of the rank that holds most, by place."""
    rows = [[named(page, row), *(shown(row["held"]["measured"][place]) for place in PLACES)] for row in rows_of()]
    return table(["lesson", *PLACES], rows) + tail(page, NAME, more="bytes of the rank that holds most, each as predicted")


@renders
def side_by_side_moved(page):
    """Bytes of a step of the rank that moves most."""
    rows = [[named(page, row), *map(shown, row["moved"]["measured"].values())] for row in rows_of()]
    return table(["lesson", *next(iter(rows_of()))["moved"]["measured"]], rows) + tail(page, NAME, more="bytes per step of the rank that moves most, each as predicted")


@renders
def side_by_side_bits(page):
    """Whose bits the weights are after 20 steps."""
    rows = []
    for row in rows_of():
        order = row["order"]
        if order and order["weights_sha256"] != row["weights_sha256"]:
            raise RenderError(f"{row['command']}: its weights are not those of {order['command']}")
        flags = "" if not order else " ".join(order["command"].split("tiny.json")[1].split()[:-2])
        equal = "none: gradients are of older weights" if not order else "lesson 00" + (f" with `{flags}`" if flags else "")
        rows.append([named(page, row), f"`{row['weights_sha256'][:12]}`", equal])
    return table(["lesson", "SHA-256 of the weights", "equal to"], rows, left=3) + tail(page, NAME, more="20 steps")
