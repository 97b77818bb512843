"""Drawings of lesson 12, from plans.json: who computes which pairs, what goes round, bytes of long rows."""
from . import plots
from .lesson_figures import COMPUTED
from .palette import EDGE, FILLS
from .plans import plan_of, workload
from .registry import COURSE, bytes_text, figure
from .svg import PALE, Drawing

LESSON, RANKS = "12_context_parallel", 4
SIDE = 336  # of a triangle


def pairs_of(*settings):
    """[rank, hop, chunk of queries, chunk of keys]."""
    return plan_of(LESSON, "tiny_long", RANKS, *settings).pairs


def tokens_met(pairs, tokens):
    """By rank the pairs of tokens that it computes of a row."""
    m, counts = tokens // (1 + max(query for *_, query, _ in pairs)), [0] * RANKS
    for rank, _, query, key in pairs:
        counts[rank] += m * (m + 1) // 2 if query == key else m * m
    return counts


@figure
def context_pairs():
    tokens = workload("tiny_long")["batch"]["sequence"]
    both = {"zigzag": pairs_of(), "contiguous": pairs_of("parts=contiguous")}
    counts = {name: tokens_met(pairs, tokens) for name, pairs in both.items()}
    said = {
        name: f"{', '.join(f'{one:,}' for one in of)}, mean over largest {sum(of) / RANKS / max(of):.0%}"
        for name, of in counts.items()
    }
    alt = (
        "Chunks of a row, queries down and keys across, coloured by the rank that computes them. "
        f"Pairs of tokens by rank: zigzag {said['zigzag']}; contiguous {said['contiguous']}."
    )
    drawing = Drawing(
        450,
        f"Who computes which pairs of a row: {RANKS} ranks",
        alt,
        "number: the hop at which the keys are there; pale: a chunk with itself, half of it",
    )
    for left, (name, pairs) in zip((40, 540), both.items()):
        cell = SIDE / (1 + max(query for *_, query, _ in pairs))
        drawing.text(left, 66, f"parts={name}: queries down, keys across")
        for rank, hop, query, key in pairs:
            share = PALE if query == key else 1
            drawing.box(left + key * cell, 82 + query * cell, cell, cell, FILLS[rank], str(hop), share=share)
        for rank, count in enumerate(counts[name]):
            drawing.box(left + 190, 86 + 22 * rank, 16, 16, FILLS[rank])
            drawing.text(left + 212, 99 + 22 * rank, f"rank {rank}: {count:,} pairs", "small")
        drawing.text(left, 440, said[name].rsplit(", ", 1)[1], "small")
    return drawing.done(
        f"{COMPUTED}: plans.json (`--plan --json --world {RANKS}`, rows of {tokens:,} tokens)."
    )


PLACES = ((0, 0), (152, 0), (152, 140), (0, 140))  # of ranks, round the ring
WIDE, HIGH = 124, 100
MOMENTS = (
    ("forward, hop 0", 0, False),
    ("forward, hop 1", 1, False),
    (f"backward, hop {RANKS - 1}", RANKS - 1, True),
)


def draw_rank(drawing, x, y, rank, hop, sums):
    """Its queries, the keys that are there, and in backward their gradients' sum; pale: not needed now."""
    pairs = pairs_of()
    own = [sorted({query for of, _, query, _ in pairs if of == one}) for one in range(RANKS)]
    now = [(query, key) for of, at, query, key in pairs if (of, at) == (rank, hop)]
    drawing.box(x, y, WIDE, HIGH, "none", kind_of_box="bare")
    drawing.text(x + 8, y + 19, f"rank {rank}", "small")
    source = (rank - hop) % RANKS
    for row, (name, of) in enumerate((("q", rank), ("k, v", source))):
        drawing.text(x + 8, y + 40 + 22 * row, name, "small")
        for i, chunk in enumerate(own[of]):
            share = 1 if any(pair[row] == chunk for pair in now) else PALE
            drawing.box(
                x + 56 + 32 * i, y + 27 + 22 * row, 30, 18, FILLS[of], str(chunk), "in small", share=share
            )
    if sums:
        drawing.text(x + 8, y + 84, "dk, dv", "small")
        drawing.box(x + 56, y + 71, 62, 18, FILLS[source], f"{hop} of {RANKS}", "in small")


@figure
def context_ring():
    alt = (
        f"A ring of {RANKS} ranks at three moments. Each has its own queries. At hop 0 it has its own "
        f"keys and values, at hop 1 those of the rank before it. At backward's hop {RANKS - 1} it adds to a "
        f"sum of gradients, now {RANKS - 1} of {RANKS} summands, and sends it to the next rank, their home, "
        "which adds the last."
    )
    drawing = Drawing(
        350,
        f"Keys and values go round, and their gradients go home: {RANKS} ranks",
        alt,
        "number: chunk of the row",
    )
    for left, (name, hop, sums) in zip((16, 336, 656), MOMENTS):
        drawing.text(left, 66, name)
        for rank, (x, y) in enumerate(PLACES):
            draw_rank(drawing, left + x, 80 + y, rank, hop, sums)
        for x, y, right, down in (
            (WIDE, 50, 28, 0),
            (214, HIGH, 0, 40),
            (152, 190, -28, 0),
            (62, 140, 0, -40),
        ):
            drawing.line(left + x, 80 + y, left + x + right, 80 + y + down, "arrow", tip=True)
    drawing.text(
        16, 338, "Pale: not needed at this hop. dk, dv: so many summands are in the sum that leaves.", "small"
    )
    return drawing.done(f"{COMPUTED}: plans.json (`--plan --json --world {RANKS}`), `exchange=ring`.")


LENGTHS = (4096, 16384, 65536, 262144)
SHOWN = ("01_data_parallel", "04_zero3", "10_tensor_parallel", LESSON)
H200 = 141  # GB


def held(lesson, tokens):
    """GB on the GPU of the rank that holds most."""
    settings = ("batch.micro=1", "batch.global=8", f"batch.sequence={tokens}", f"model.context={tokens}")
    fullest = plan_of(lesson, "gpt2_355m", 8, *settings).fullest
    return sum(fullest["places"]["device"].values()) / 1e9


@figure
def context_memory():
    found = {lesson: [(tokens, held(lesson, tokens)) for tokens in LENGTHS] for lesson in SHOWN}
    ends = "; ".join(
        f"{COURSE[lesson]['name']} {', '.join(bytes_text(1e9 * gb) for _, gb in points)}"
        for lesson, points in found.items()
    )
    lengths = ", ".join(f"{tokens:,}" for tokens in LENGTHS)
    alt = f"Bytes that each of 8 GPUs holds of GPT-2 355M for rows of {lengths} tokens, planned: {ends}."

    def draw(figure):
        names = ("tokens of a row", "GB that a GPU holds")
        plotted = plots.axes(figure, 72, 250, right=170, names=names, log="xy", forms=("{:,.0f}", "{:g}"))
        plotted.axhline(H200, color=EDGE, linewidth=1, linestyle="--")
        plotted.annotate("an H200", (LENGTHS[0], H200), xytext=(8, 6), textcoords="offset points")
        drawn = plots.lines_of([(COURSE[lesson]["name"], points) for lesson, points in found.items()])
        plots.curves(plotted, drawn, xlim=(LENGTHS[0], LENGTHS[-1]), ylim=(1, 1000), xticks=LENGTHS)

    return plots.plot(
        380,
        "GPT-2 355M on 8 GPUs: bytes by the length of a row",
        alt,
        f"{COMPUTED}: plans.json (`--plan --world 8 --device cuda`, one row in a micro-batch, bf16).",
        draw,
        "planned, not run",
    )
