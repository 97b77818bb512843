"""Lessons 02 to 05 in turns with DeepSpeed (docs/results/gpu_deepspeed.json)."""
from .gpu_tables import closest, run_text
from .lesson_tables import tail
from .machine_tables import gpu_table
from .registry import has, record, renders, table, times_text


@renders
def gpu_deepspeed(page, heading="##"):
    """A line a program: its rate, that over DeepSpeed's quicker settings, and the memory of the GPU; a peer that failed says so."""
    if not has("gpu_deepspeed"):
        return ""
    names, found, lines = gpu_table(), record("gpu_deepspeed"), []
    rows = found["rows"].values()
    gpus = sorted({row["gpu"] for row in rows})
    for key, row in found["rows"].items():
        peers = [name for name, program in row["programs"].items() if "DeepSpeed" in program["label"]]
        for name, program in row["programs"].items():
            kin = [
                peer for peer in peers if peer in names.PEERS_OF.get(name, peers if name == "ours" else ())
            ]
            ratio = closest(row["ratios"], f"{name}_over_({'|'.join(kin)})") if kin else None
            lines.append(
                [
                    run_text(key, row, gpus),
                    program["label"]
                    .replace("Stagecraft, ", "")
                    .replace(", bf16 parameters and gradients, fp32 master", ""),
                    names.text_of(names.median_of(row, name, "tokens_per_second"), ".1f", 1e-3)
                    if "failure" not in program
                    else "failed",
                    names.spread_text(ratio, "{:.2f}".format) if ratio else "",
                    names.held_text(program),
                    names.text_of(names.median_of(row, name, "joules_per_token"), ".2f", 1e3),
                ]
            )
    version = next(
        (
            program["deepspeed"]
            for row in rows
            for program in row["programs"].values()
            if "deepspeed" in program
        ),
        "",
    )
    rounds = min(len(row["rounds"]) for row in rows)
    return f"{heading} Next to DeepSpeed\n\nAll train the same GPT-2 with bf16 parameters and gradients and an fp32 master. DeepSpeed in two settings: blocks compiled by torch.compile, sums of gradients overlapping with backward; and its defaults, nothing compiled. " "The ratio is to the quicker one, of lesson 01 to the quickest stage, within a round: median (lowest to highest). `offload_355m`: 16 rows of 1024 tokens on one GPU, states on the host; `offload_774m`: 2 rows of 512; `zero_355m`: 16 rows of 1024 on each GPU.\n\n" + names.explained(
        table(["run", "program", "k tok/s", "over DeepSpeed", "peak GiB", "J per k tok"], lines, left=2)
    ) + tail(
        page,
        "gpu_deepspeed",
        more=f"{' and '.join(gpus)}, DeepSpeed {version}, at least {times_text(rounds, 'round')}",
    )
