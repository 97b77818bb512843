"""What a program printed, from the record of its run."""
from .registry import RenderError, record, renders


def lines_between(said, first, last):
    """From the line that starts with `first` to the first one after it that starts with `last`; empty texts:
    from the start, to the end."""
    begin = next((i for i, line in enumerate(said) if line.strip().startswith(first)), None) if first else 0
    if begin is None:
        raise RenderError(f"the run printed no line that starts with '{first}'")
    if not last:
        return said[begin:]
    ends = [i for i in range(begin, len(said)) if said[i].strip().startswith(last)]
    if not ends:
        raise RenderError(f"the run printed no line that starts with '{last}' after '{first}'")
    return said[begin : ends[0]]


@renders
def output(page, name, run, first="", last=""):
    """What the run `run` of a record printed, from a line that starts with `first` up to one that starts with
    `last`."""
    said = lines_between(record(name)[run]["said"], first, last)
    return "```text\n" + "\n".join(line.rstrip() for line in said).strip("\n") + "\n```"
