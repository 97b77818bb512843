"""Operations of records and traces without what they carry: alike in kind, dtype, elements and ranks, as
stored results have them."""
import re

NAMES = ("stride", "purpose", "unit")


def without_names(operations):
    """Rows of record.json, alike ones together, in their order."""
    found = {}
    for row in operations:
        alike = {key: value for key, value in row.items() if key not in NAMES}
        key = tuple(sorted((key, value) for key, value in alike.items() if key != "count"))
        found.setdefault(key, {**alike, "count": 0})["count"] += row["count"]
    return list(found.values())


def span_without_names(name):
    """ "all_reduce of block 7's gradients (50,048 f32)" is "all_reduce of 50,048 f32"."""
    return re.sub(r" of .+ \(([\d,]+ \w+)\)$", r" of \1", name)
