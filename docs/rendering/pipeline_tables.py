"""Tables of lesson 07: equal bits of every schedule, and what its stages hold (docs/results/pipeline_order.json)."""
import statistics

from .lesson_tables import file_text, tail
from .machine_tables import gpu_table
from .registry import RenderError, has, record, renders, table, times_text


@renders
def pipeline_same_bits(page):
    """Lesson 00's weights in each order of sums, and the shapes that end in them. Stops where a schedule ends in others."""
    same = {}
    for shape, found in record("pipeline_order")["shapes"].items():
        reference = found["reference"]
        for name, run in found["schedules"].items():
            if any(run[key] != reference[key] for key in ("weights_sha256", "loss")):
                raise RenderError(
                    f"pipeline_order: {name} on {shape} does not end in lesson 00's losses and weights"
                )
        same.setdefault(f"`{reference['weights_sha256'][:12]}`", []).append(shape.replace("x", " x "))
    names = ", ".join(f"`{name}`" for name in found["schedules"])
    return table(
        ["lesson 00's weights", "stages x replicas that end in them"],
        [[weights, ", ".join(shapes)] for weights, shapes in same.items()],
        left=2,
    ) + tail(
        page,
        "pipeline_order",
        more=f"SHA-256 of the saved weights; all 20 losses are equal, too, of {names}; {file_text(reference)}",
    )


@renders
def pipeline_gpu(page):
    """Lesson 07 in turns with torch.distributed.pipelining on two GPUs. Of the bound: of S M / (M + S - 1) times one GPU on the same step."""
    if not has("gpu_pipeline"):
        return ""
    lines, energies, found = [], [], record("gpu_pipeline")["rows"]
    simulated = {
        (row["run"], *row["settings"]): row
        for row in record("choosing")["check"]["rows"]
        if row["record"] == "gpu_pipeline"
    }
    for key, row in found.items():

        def rate(name, row=row):
            return f"{statistics.median(turn['programs'][name]['tokens_per_second'] for turn in row['rounds']) / 1e3:.0f}"

        stages, cut = len(row["split"]), f"split={','.join(map(str, row['split']))}"
        for peer, label, ours, setting in (
            ("1f1b", "1F1B", "ours", "schedule=1f1b"),
            ("1f1b", "1F1B, `warmup=1`", "ours_warmup", "warmup=1"),
            ("gpipe", "GPipe", "ours_gpipe", "schedule=gpipe"),
        ):
            if peer not in row["programs"] or ours not in row["programs"]:
                continue
            ratio = row["ratios"][f"{ours}_over_{peer}"]
            peaks = [gpu_table().held_text(row["programs"][name]) for name in (ours, peer)]
            energies.append((ratio["median"], ratio.get("per_joule", {}).get("median")))
            step, over_one = simulated.get((key, setting, cut)), row["ratios"].get(f"{ours}_over_one_device")
            most = stages * row["micro_batches"] / (row["micro_batches"] + stages - 1)
            lines.append(
                [
                    row["micro_batches"],
                    label,
                    rate(ours),
                    f"{step['seconds'] / step['predicted']:.3f}" if step else "",
                    f"{over_one['median'] / most:.3f}" if over_one else "",
                    rate(peer),
                    f"{ratio['median']:.2f} ({ratio['lowest']:.2f} to {ratio['highest']:.2f})",
                    " / ".join(peaks),
                ]
            )
    one = next(iter(found.values()))
    heads = [
        "M",
        "schedule",
        "lesson 07, k tok/s",
        "measured / simulated ms",
        "of the bound",
        "torch.distributed.pipelining",
        "ratio within a round",
        "peak GiB, ours / theirs",
    ]
    if not any(line[4] for line in lines):  # lesson 00 has not run
        heads, lines = [*heads[:4], *heads[5:]], [[*line[:4], *line[5:]] for line in lines]
    per_joule = ""
    if all(energy for _, energy in energies):
        heads.append("ratio per joule")
        lines = [[*line, f"{energy:.2f}"] for line, (_, energy) in zip(lines, energies)]
        if all(energy < ratio for ratio, energy in energies):
            per_joule = (
                "\n\nPer joule, by the GPUs' own counters, the lead is smaller: "
                f"{min(energy for _, energy in energies):.2f} to {max(energy for _, energy in energies):.2f} times the tokens. A GPU that waits for its host draws less power."
            )
    return (
        gpu_table().explained(table(heads, lines, left=2))
        + tail(
            page,
            "gpu_pipeline",
            more=f"two {one['gpu']}, GPT-2 355M cut into 14 and 10 blocks, rows of 4, "
            f"{times_text(len(one['rounds']), 'round')}, commit {one['commit']}; the peer: stages compiled, fp32 parameters, bf16 autocast",
        )
        + per_joule
    )
