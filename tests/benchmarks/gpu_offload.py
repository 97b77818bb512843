#!/usr/bin/env python3
"""Lesson 05 on one GPU, in turns with lesson 00, and a step of it as a timeline:
docs/results/gpu_offload.json.

  python3 tests/benchmarks/gpu_offload.py --bin build/cuda/bin --commit COMMIT --out gpu_offload.json
          [--rounds 2]

Needs the programs 00_one_device and 05_offload of the cuda preset, and adamw_benchmark of either. Next to
DeepSpeed: gpu.sh --rows offload.
"""
import json
import os
import pathlib
import re
import statistics
import tempfile

from gpu_watch import machine
from harness import arguments_of_runs, benchmark_program, lesson_program, out, record_of, said_by, write

MODELS = {
    "355m": (
        "--workload configs/gpt2_355m.json --set batch.micro=16 --set batch.global=16 --steps 40",
        (
            "one_device",
            "exact",
            "exact, 1 resident",
            "early",
            "early, 1 resident",
            "early, clipped",
            "delayed",
        ),
    ),
    "774m": (
        "--workload configs/gpt2_774m.json --set batch.micro=2 --set batch.global=2 --set "
        "batch.sequence=512 --set activations=recompute --memory-cap 4GB --steps 30",
        ("exact", "early", "early, 1 resident", "early, 5 resident", "delayed"),  # more than five do not fit
    ),
}
CURVE = (
    "exact, 4 resident",
    "exact, 7 resident",
    "exact, 13 resident",
    "exact, 19 resident",
    "exact, 25 resident",
    "early, 4 resident",
    "early, 7 resident",
)  # of 355M's 26 units
# No gradient's norm reaches 100, so nothing is clipped; otherwise a run's first steps are mostly clipped.
NO_CLIP = "--set optim.clip=100"
OFFLOAD = "05_offload --strategy lessons/05_offload/config.json"
PROGRAMS = {
    "one_device": "00_one_device",
    "exact": OFFLOAD,
    "early": f"{OFFLOAD} --set update=early {NO_CLIP}",
    "early, clipped": f"{OFFLOAD} --set update=early",
    "delayed": f"{OFFLOAD} --set update=delayed",
    **{
        name: OFFLOAD
        + (f" --set update=early {NO_CLIP}" if "early" in name else "")
        + f" --set resident={name.split()[1]}"
        for name in ("exact, 1 resident", "early, 1 resident", "early, 5 resident", *CURVE)
    },
}


def run(bin_folder, program, flags, folder):
    name, *own = program.split()
    return record_of(
        [bin_folder / name, *own, "--device", "cuda", "--sample", "0", "--page", "off", *flags.split()],
        folder,
    )


def of_rounds(records):
    medians = [r["timing"]["median_seconds"] for r in records]
    return {
        "tokens_per_second": statistics.median(r["timing"]["tokens_per_second"] for r in records),
        "median_seconds": statistics.median(medians),
        "rounds_seconds": medians,
        "device_bytes": records[0]["ranks"][0]["measured_bytes"]["total"],
        "bytes": records[0]["ranks"][0]["measured_bytes"],
        "as_predicted": all(r["as_predicted"] for r in records),
        "last_loss": records[0]["steps"]["loss"][-1],
        **({"counts": records[0]["counts"]} if "counts" in records[0] else {}),
    }


def lanes(trace, step):
    """Spans of one step in milliseconds from its beginning: forward and backward, as the trace names them,
    copies both ways, AdamW on the host."""
    events = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    (whole,) = [e for e in events if e["name"] == f"step {step}"]
    begin, end = whole["ts"], whole["ts"] + whole["dur"]
    found = {kind: [] for kind in ("forward", "backward", "to_host", "to_device", "adam", "norm")}
    for e in events:
        name = e["name"]
        kind = (
            "adam"
            if e["cat"] == "marks" and name.startswith("update")
            else "backward"
            if e["cat"] == "compute" and ("backward" in name or name.startswith("head"))
            else name.split(" ")[0]
        )
        if kind in found and e["ts"] + e["dur"] > begin and e["ts"] < end:
            inside = max(begin, e["ts"]), min(end, e["ts"] + e["dur"])
            found[kind].append([round((at - begin) / 1e3, 3) for at in inside])
    return {
        "milliseconds": round(whole["dur"] / 1e3, 3),
        **{kind: merged(sorted(spans)) for kind, spans in found.items()},
    }


def merged(spans, gap=0.05):
    """Spans that touch, or nearly, are one."""
    found = []
    for begin, end in spans:
        if found and begin - found[-1][1] <= gap:
            found[-1][1] = max(found[-1][1], end)
        else:
            found.append([begin, end])
    return found


def streamed(said, where=""):
    """Parameters a second that adamw_benchmark says of a pool in bf16; where: ", elsewhere" into a second
    copy of the states."""
    return (
        max(float(rate) for rate in re.findall(rf"pool, bf16, streamed{where} +([\d.]+) Gparam/s", said))
        * 1e9
    )


def adam(program):
    said = said_by([program, "355000000", "15"])
    return {"threads": 15, "params_per_second": streamed(said), "said": said.splitlines()}


ABOUT = (
    "Lesson 05 on one GPU beside lesson 00, in turns; 355M with resident units, once; steps of it as "
    "timelines; AdamW's loop on the host alone."
)


def main():
    args = arguments_of_runs(__doc__, {**out(), "--rounds": {"type": int, "default": 2}}, required=True)
    adam_benchmark = benchmark_program(args.bin, "adamw_benchmark")
    for lesson in ("00_one_device", "05_offload"):
        lesson_program(args.bin, lesson)  # before minutes of the others
    records, result = {model: {} for model in MODELS}, {}
    in_turns = [(model, name) for model, (_, programs) in MODELS.items() for name in programs]

    def take(turns, **more):
        """Complete after each part: who is stopped has the parts before."""
        for model, name in turns:
            with tempfile.TemporaryDirectory() as folder:
                record = run(args.bin, PROGRAMS[name], MODELS[model][0], pathlib.Path(folder) / "out")
            records[model].setdefault(name, []).append(record)
            rate = round(record["timing"]["tokens_per_second"])
            print(model, name, rate, "tokens a second", record.get("counts", ""), flush=True)
        first = records["355m"]["one_device"][0]
        result.update(
            {
                "about": ABOUT,
                "commit": first["commit"],
                "gpu": machine()["gpu"],
                "cores": os.cpu_count(),
                "started": first["started"],
                "versions": first["versions"],
                "flags": {model: flags for model, (flags, _) in MODELS.items()},
                "runs": {
                    model: {name: of_rounds(several) for name, several in runs.items()}
                    for model, runs in records.items()
                },
                **more,
            }
        )
        write(args.out, result)

    def drawn(name):
        flags = MODELS["355m"][0].replace("--steps 40", "--steps 8") + " --trace"
        with tempfile.TemporaryDirectory() as folder:
            run(args.bin, PROGRAMS[name], flags, pathlib.Path(folder) / "out")
            return lanes(json.loads((pathlib.Path(folder) / "out/trace.json").read_text()), 6)

    take(in_turns * args.rounds)
    steps = {name: drawn(name) for name in ("exact", "early, 1 resident", "delayed")}
    take([], steps=steps, adam=adam(adam_benchmark))
    take([("355m", name) for name in CURVE])


if __name__ == "__main__":
    main()
