"""Lessons 02 to 05 in turns with DeepSpeed (docs/results/gpu_deepspeed.json)."""
from .gpu_tables import closest, run_text
from .lesson_tables import tail
from .machine_tables import gpu_table
from .registry import record, renders, table_of, times_text


@renders
def gpu_deepspeed(page, heading="##"):
    """A line a program: its rate, that over DeepSpeed's quicker settings, and the memory of the GPU; a peer
    that failed says so."""
    found = record("gpu_deepspeed")["rows"]
    gpus = sorted({row["gpu"] for row in found.values()})
    programs = [(key, row, name) for key, row in found.items() for name in row["programs"]]

    def rate(_, row, name):
        failed = "failure" in row["programs"][name]
        return (
            "failed"
            if failed
            else gpu_table.text_of(gpu_table.median_of(row, name, "tokens_per_second"), ".1f", 1e-3)
        )

    def over(_, row, name):
        peers = [peer for peer, program in row["programs"].items() if "DeepSpeed" in program["label"]]
        kin = [
            peer for peer in peers if peer in gpu_table.PEERS_OF.get(name, peers if name == "ours" else ())
        ]
        ratio = closest(row["ratios"], f"{name}_over_({'|'.join(kin)})") if kin else None
        return gpu_table.spread_text(ratio, "{:.2f}".format) if ratio else ""

    version = next(
        row["programs"][name]["deepspeed"]
        for _, row, name in programs
        if "deepspeed" in row["programs"][name]
    )
    rounds = min(len(row["rounds"]) for row in found.values())
    text = (
        f"{heading} Next to DeepSpeed\n\nAll train the same GPT-2 with bf16 parameters and gradients and an "
        "fp32 master. DeepSpeed in two settings: blocks compiled by torch.compile, sums of gradients "
        "overlapping with backward; and its defaults, nothing compiled. The ratio is to the quicker one, of "
        "lesson 01 to the quickest stage, within a round: median (lowest to highest). `offload_355m`: 16 "
        "rows of 1024 tokens on one GPU, states on the host; `offload_774m`: 2 rows of 512; `zero_355m`: 16 "
        "rows of 1024 on each GPU.\n\n"
    )
    return (
        text
        + gpu_table.explained(
            table_of(
                programs,
                {
                    "run": lambda key, row, _: run_text(key, row, gpus),
                    "program": lambda _, row, name: row["programs"][name]["label"]
                    .replace("Stagecraft, ", "")
                    .replace(", bf16 parameters and gradients, fp32 master", ""),
                    "k tok/s": rate,
                    "over DeepSpeed": over,
                    "peak GiB": lambda _, row, name: gpu_table.held_text(row["programs"][name]),
                    "J per k tok": lambda _, row, name: gpu_table.text_of(
                        gpu_table.median_of(row, name, "joules_per_token"), ".2f", 1e3
                    ),
                },
                left=2,
            )
        )
        + tail(
            page,
            "gpu_deepspeed",
            more=f"{' and '.join(gpus)}, DeepSpeed {version}, at least {times_text(rounds, 'round')}",
        )
    )
