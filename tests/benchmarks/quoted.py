#!/usr/bin/env python3
"""The runs of the documents whose numbers are quoted everywhere, as they are configured there:
docs/results/quoted.json.

1000 samples of 512 tokens, two epochs, 4 samples a step (355M) or 2 (774M, 1558M), fp32 or fp16, on one GPU;
each with packed rows, and with rows of one paragraph each that are filled up to 512 and whose filling counts.

  python3 tests/benchmarks/quoted.py --predict   what lessons/choose.sh says of them, before they are run
                                                 (build/cpu)
  python3 tests/benchmarks/quoted.py             runs them (build/cuda, a GPU); goes on with the runs that
                                                 --out lacks

Rows of more GPUs than one come with --world 2, next to those that are there.
"""
import array
import json
import pathlib
import statistics
import tempfile

from gpu_watch import machine
from harness import CPU_BIN, RESULTS, arguments_of_runs, git, kept, now, out, record_of, said_by, sets, write

WORKLOAD = "configs/seed_355m.json"
SAMPLES, TOKENS, LAST = 1000, 512, 20
SIZES = {
    "355m": (4, []),
    "774m": (2, ["model.layers=36", "model.heads=20", "model.width=1280"]),
    "1558m": (2, ["model.layers=48", "model.heads=25", "model.width=1600"]),
}
# Runs: (name, lesson, size, number format, steps). Steps: None for two epochs; steps of lesson 06 take
# seconds.
RUNS = [
    ("data parallel, fp32", "01_data_parallel", "355m", "fp32", None),
    ("data parallel, fp16", "01_data_parallel", "355m", "fp16", None),
    ("ZeRO-1", "02_zero1", "355m", "fp16", None),
    ("ZeRO-2", "03_zero2", "355m", "fp16", None),
    ("ZeRO-3, 774M", "04_zero3", "774m", "fp16", None),
    ("ZeRO-3, 1558M", "04_zero3", "1558m", "fp16", None),
    ("infinity, 774M", "06_infinity", "774m", "fp16", 12),
    ("offload, 774M", "05_offload", "774m", "fp16", None),
]
PACKINGS = ("pack", "pad_unmasked")
# docs/results/choosing.json has no row of this size and batch.
DISK = 2.2e9  # bytes a second, as it was said before the runs
PREDICTED = (
    f"--gpus 1 --gpu H200 --host-memory 128GB --disk {DISK / 1e9}GB/s --workload configs/seed_355m.json"
)
END_OF_TEXT, NEW_LINE, TWO_NEW_LINES = 50256, 198, 628


def settings_of(run, packing, world):
    _, _, size, dtype, _ = run
    rows, model = SIZES[size]
    return [
        *model,
        f"batch.global={rows}",
        f"batch.micro={rows // world}",
        f"batch.sequence={TOKENS}",
        f"precision.dtype={dtype}",
        f"data.packing={packing}",
        "data.validation_fraction=0",
    ]


def write_tokens(path, tokens):
    """Writes a token file in llm.c's format."""
    header = array.array("I", [20240520, 1, len(tokens)] + [0] * 253)
    path.write_bytes(header.tobytes() + array.array("H", tokens).tobytes())


def token_files(bin_folder, folder):
    """{packing: a file of so many samples}: the novels' first tokens, and their first paragraphs."""
    source = folder / "austen.bin"
    said_by([bin_folder / "prepare", "austen", "--out", source])
    tokens = array.array("H", source.read_bytes()[1024:])
    write_tokens(folder / "pack.bin", tokens[: SAMPLES * TOKENS + 1])
    padded, count, paragraph = array.array("H"), 0, array.array("H")
    for i, token in enumerate(tokens):
        ends = token in (END_OF_TEXT, TWO_NEW_LINES) or (token == NEW_LINE and tokens[i + 1] == NEW_LINE)
        if not ends:
            paragraph.append(token)
        elif any(token != NEW_LINE for token in paragraph):
            padded.extend([*paragraph, END_OF_TEXT])
            count, paragraph = count + 1, array.array("H")
            if count == SAMPLES:
                break
    write_tokens(folder / "pad_unmasked.bin", padded)
    return {packing: folder / f"{packing}.bin" for packing in PACKINGS}


def measured(args, run, packing, data, folder):
    name, lesson, size, dtype, few = run
    rows = SIZES[size][0]
    steps = few or 2 * SAMPLES // rows
    command = [args.bin / lesson, "--workload", WORKLOAD, "--strategy", f"lessons/{lesson}/config.json"]
    command += [*sets(settings_of(run, packing, args.world)), "--data", data, "--steps", steps]
    command += ["--device", "cuda", "--watchdog", "120"]
    command += ["--disk", folder] if lesson == "06_infinity" else []
    record = record_of(command, folder / f"{lesson}_{size}_{dtype}_{packing}", args.world)
    losses, seconds = record["steps"]["loss"], record["steps"]["seconds"][3 if few else 5 :]
    step = statistics.median(seconds)
    bytes_held = record["ranks"][0]["measured_bytes"]
    return {
        "name": name,
        "lesson": lesson,
        "size": size,
        "dtype": dtype,
        "packing": packing,
        "world": args.world,
        "rows": rows,
        "steps": steps,
        "whole": few is None,
        "step_seconds": step,
        "epoch_seconds": step * SAMPLES / rows,
        "samples_per_second": rows / step,
        "run_seconds": sum(record["steps"]["seconds"]),
        "peak_bytes": bytes_held["total"],
        "bytes": bytes_held,
        "first_loss": losses[0],
        "last_loss": statistics.mean(losses[-LAST:]),
        "skipped_updates": record["skipped_updates"],
        "as_predicted": record["as_predicted"],
        "commit": record["commit"],
        "versions": record["versions"],
        "started": record["started"],
    }


def predict(args):
    """What `choose` says, before there is anything to compare it with."""
    rows, model = SIZES["774m"]
    settings = [*model, f"batch.global={rows}", f"batch.sequence={TOKENS}", "precision.dtype=fp16"]
    words = [*PREDICTED.split(), *sets(settings)]
    found = json.loads(said_by([args.choose, *words, "--json"]))
    one = {
        "size": "774m",
        "command": " ".join(["lessons/choose.sh", *words]),
        "rows": [row for row in found["rows"] if "micro" in row],
    }
    return {"commit": git("rev-parse", "--short=12", "HEAD"), "at": now(), "of": [one]}


ASKED = {
    "--predict": {"action": "store_true"},
    "--choose": {"default": CPU_BIN / "choose"},
    "--world": {"type": int, "default": 1},
    "--disk": {"help": "where lesson 06 and the token files lie (default: the system's temporary folder)"},
    **out(RESULTS / "quoted.json"),
}


def main():
    args = arguments_of_runs(__doc__, ASKED)
    before = kept(args.out, {})
    found = {
        "about": "Runs of the documents as they are configured there, by tests/benchmarks/quoted.py.",
        "samples": SAMPLES,
        "tokens": TOKENS,
        "last": LAST,
        "predicted": before.get("predicted"),
        "machine": before.get("machine"),
        "runs": before.get("runs", []),
    }
    if args.predict:
        found["predicted"] = predict(args)
        return write(args.out, found)
    if args.world == 1:
        found["machine"] = machine()["gpu"]  # each run has its own, too
    there = {(run["name"], run["packing"], run["world"]) for run in found["runs"]}
    with tempfile.TemporaryDirectory(prefix="stagecraft_quoted_", dir=args.disk) as name:
        folder = pathlib.Path(name)
        files = token_files(args.bin, folder)
        for run in RUNS:
            for packing in PACKINGS:
                # Lesson 05 takes minutes, and its losses are those of lesson 04; a dozen steps of lesson 06
                # make no curve. Both run only with packed rows.
                alike = packing != "pack" and run[1] in ("05_offload", "06_infinity")
                if alike or (run[0], packing, args.world) in there:
                    continue
                found["runs"].append(measured(args, run, packing, files[packing], folder))
                write(args.out, found)
    return None


if __name__ == "__main__":
    main()
