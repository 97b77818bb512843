"""Drawings of lesson 05: where its bytes lie, and a step's copies."""
from .palette import COMPUTE, GRADIENTS, OPTIMIZER, PARAMETERS
from .registry import figure, has, record
from .svg import Drawing

KINDS = (
    ("parameters", PARAMETERS, ("parameters",)),
    ("gradients", GRADIENTS, ("gradients",)),
    ("optimizer states", OPTIMIZER, ("master", "momentum", "variance")),
    ("activations and the rest", COMPUTE, ("activations", "workspace", "communication")),
)


@figure
def offload_places():
    """Bytes of one rank by place and purpose, 355M: as measured."""
    if not has("gpu_offload"):
        return None
    runs = record("gpu_offload")["runs"]["355m"]
    one = runs["one_device"]["device_bytes"]
    bars = [("lesson 00, device", None, one)]
    for name in ("exact", "delayed"):
        measured = runs[name]["bytes"]
        for place, of in (("device", measured), ("pinned", measured["pinned"]), ("host", measured["host"])):
            bars.append((f"{name}, {place}", of, measured["total"] if place == "device" else sum(of.values())))
    drawing = Drawing(
        96 + 38 * len(bars),
        "Where the bytes of one rank lie: 355M, 16 rows of 1024 tokens",
        "Bars of bytes. " + "; ".join(f"{name}: {total / 1e9:.2f} GB" for name, _, total in bars) + ".",
        "measured, equal to the plan",
    )
    left, width = 150, 690
    for i, (name, of, total) in enumerate(bars):
        y = 50 + 38 * i
        drawing.text(16, y + 19, name)
        x = left
        if of is None:
            drawing.box(x, y, width * total / one, 26, COMPUTE, "all states on the device", "in small")
        for _, fill, purposes in KINDS if of else ():
            size = width * sum(of.get(purpose, 0) for purpose in purposes) / one
            if size > 0.5:
                drawing.box(x, y, size, 26, fill)
            x += size
        drawing.text(left + width * total / one + 8, y + 18, f"{total / 1e9:.2f} GB", "small")
    drawing.legend(left, 76 + 38 * len(bars), [(fill, name) for name, fill, _ in KINDS])
    return drawing.done("One H200, bf16; pinned is the host's memory that the GPU copies from and to (gpu_offload.json).")


@figure
def offload_timeline():
    """A step of 355M with exact and with delayed updates: copies both ways. Backward begins when the first gradient leaves."""
    if not has("gpu_offload"):
        return None
    steps = record("gpu_offload")["steps"]
    end = max(step["milliseconds"] for step in steps.values())
    lanes = (("to_device", "parameters up", PARAMETERS), ("to_host", "gradients down", GRADIENTS))
    drawing = Drawing(
        96 + 138 * len(steps),
        "One step: when parameters come, and gradients leave",
        "Timelines. "
        + " ".join(
            f"{name.capitalize()}: a step takes {step['milliseconds']:.0f} milliseconds; its first gradient leaves at {step['to_host'][0][0]:.0f}."
            for name, step in steps.items()
        ),
        "355M, 16 rows of 1024 tokens, one H200",
    )
    left, right = 130, 940

    def x(ms):
        return left + (right - left) * ms / end

    for i, (name, step) in enumerate(steps.items()):
        top = 52 + 138 * i
        drawing.text(16, top + 4, f"{name}: {step['milliseconds']:.0f} ms")
        turn = step["to_host"][0][0]
        drawing.text(left - 8, top + 32, "GPU", "small end")
        drawing.box(left, top + 14, x(turn) - left, 26, COMPUTE, "forward, as parameters come", "in small")
        drawing.box(x(turn), top + 14, x(step["milliseconds"]) - x(turn), 26, COMPUTE, "backward, norm", "in small")
        for j, (lane, label, fill) in enumerate(lanes, start=1):
            y = top + 14 + 34 * j
            drawing.text(left - 8, y + 18, label, "small end")
            for begin, stop in step[lane]:
                drawing.box(x(begin), y, max(0.8, x(stop) - x(begin)), 26, fill)
    bottom = 52 + 138 * len(steps)
    for tick in range(0, int(end) + 1, 20):
        drawing.line(x(tick), 60, x(tick), bottom - 14)
        drawing.text(x(tick), bottom + 2, f"{tick} ms", "small mid")
    drawing.legend(left, bottom + 28, [(PARAMETERS, "parameters"), (GRADIENTS, "gradients")])
    return drawing.done(
        "Exact: the host is still updating, and forward gets each unit's parameters as they are ready. Delayed: they were ready before the step "
        "began (gpu_offload.json, a traced step)."
    )
