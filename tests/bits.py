#!/usr/bin/env python3
"""Do the lessons still compute the same bits, hold the same bytes and send the same messages as another build
of them?

usage: tests/bits.py --store FILE [--bin DIR]    runs every case with the programs of DIR and writes what it
                                                 ended in
       tests/bits.py --against FILE [--bin DIR]  runs them again and compares; exit 1 where anything differs
       tests/bits.py --list                        the cases' names
  --bin DIR   where the lessons' programs are (default: build/cpu/bin)
  -k WORD     only cases whose name contains it; given more than once: one of the words
  --workload  default: tests/workloads/four_blocks.json

A case is 20 steps: the SHA-256 of the numbers that --save writes, of losses and norms, and each rank's bytes
and operations, predicted and measured. A case with "resumed" saves after 10 steps, and goes on from there.
Bits depend on the processor, so FILE belongs to one machine: store it from a build of the commit to compare
with (git worktree add), under build/.
"""
import argparse
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from operations import without_names

ROOT = pathlib.Path(__file__).resolve().parents[1]
SHARDING = ("01_data_parallel", "02_zero1", "03_zero2", "04_zero3")
SETTINGS = {"default": "", "recompute": "activations=recompute", "micro 3": "batch.micro=3"}
OF_ONE_LESSON = {
    ("03_zero2", "bucket"): "bucket=50000",
    ("04_zero3", "persist"): "persist_below=1000",
    ("04_zero3", "prefetch"): "prefetch=2",
    ("04_zero3", "no reshard"): "reshard_after_forward=false",
}
DELAYED = "update=delayed warm_steps=5"
OFFLOAD = [
    f"{update} {parameters} {rows}"
    for update in ("update=exact", DELAYED)
    for parameters in ("parameters=whole", "parameters=sharded")
    for rows in ("batch.micro=2", "batch.micro=6", "optim.clip=1e-3")
]
INFINITY = [
    f"{where} {gradients} buffers={buffers}"
    for where in (
        "parameters=whole",
        "parameters=sharded params_at=device",
        "parameters=sharded params_at=host",
        "parameters=sharded params_at=disk",
    )
    for gradients in ("grads_at=device", "grads_at=host")
    for buffers in (1, 3)
] + [f"{DELAYED} grads_at=host buffers=3"]
PIPELINE = [
    f"schedule={schedule} batch.micro=3 {tied}"
    for schedule in ("naive", "gpipe", "1f1b", "interleaved chunks=2", "zb_h1", "file")
    for tied in ("model.tied=on", "model.tied=off")
]
REPLICAS = [f"schedule=1f1b replicas=2 states={states}" for states in ("whole", "sharded")]
TENSOR = [
    f"tokens={tokens} gathered={gathered} {settings}"
    for tokens in ("split", "whole")
    for gathered in ("again", "kept")
    for settings in ("batch.micro=3", "batch.micro=6 activations=recompute", "batch.micro=3 lanes=2")
]
CONTEXT = [
    f"parts={parts} {exchange}"
    for parts in ("zigzag", "contiguous")
    for exchange in ("exchange=ring", "exchange=gather", "exchange=gather gathered=kept")
]
VERSIONS = [
    f"versions={rule} update_every={every}" for rule in ("none", "stash", "vertical_sync") for every in (1, 2)
] + ["versions=two_buffers"]
UNTIED = "model.tied=off batch.micro=3 optim.warmup_steps=10"
RESUMED = [
    ("00_one_device", 1, ""),
    *((lesson, 2, "") for lesson in SHARDING),
    ("05_offload", 2, ""),
    ("05_offload", 2, DELAYED),
    ("06_infinity", 2, "buffers=1"),
    ("06_infinity", 2, "parameters=sharded params_at=disk buffers=3"),
    ("07_pipeline", 2, "schedule=1f1b batch.micro=3"),
    *(
        ("08_weight_versions", 2, f"versions={rule} {UNTIED}")
        for rule in ("stash", "vertical_sync", "two_buffers")
    ),
]


def cases():
    """name -> (program, ranks, settings, more flags, whether it is resumed)"""
    worlds, one = (1, 2, 3, 4), "00_one_device"
    # On 3 ranks, 12 rows cannot be cut into micro-batches of 3, so that pair is left out.
    everywhere = [
        (world, *how) for world in worlds for how in SETTINGS.items() if (world, how[0]) != (3, "micro 3")
    ]
    on = {  # (name, program, ranks): settings
        **{
            (f"{lesson} x{world} {label}", lesson, world): settings
            for world, label, settings in everywhere
            for lesson in SHARDING
        },
        **{
            (f"{lesson} x{world} {label}", lesson, world): settings
            for world in worlds
            for (lesson, label), settings in OF_ONE_LESSON.items()
        },
        **{
            (f"{lesson} x{ranks} {settings}", lesson, ranks): f"{settings} {more}"
            for lesson, ranks, some, more in (
                ("05_offload", 2, OFFLOAD, ""),
                ("06_infinity", 2, INFINITY, ""),
                ("07_pipeline", 2, PIPELINE, ""),
                ("07_pipeline", 4, REPLICAS, ""),
                ("08_weight_versions", 2, VERSIONS, UNTIED),
                ("10_tensor_parallel", 2, TENSOR, ""),
                ("12_context_parallel", 4, CONTEXT, ""),
            )
            for settings in some
        },
    }
    of_one = {  # name: settings, flags
        **{
            f"{one} as {world} {every} {label}": (
                settings,
                f"--virtual-ranks={world}",
                f"--reduce-every={every}",
            )
            for world, label, settings in everywhere
            for every in ("step", "micro_batch")
        },
        f"{one} split": ("", "--tied-sum=split"),
        **{
            f"{one} in 2 parts {tokens}": ("batch.micro=3", "--tensor-ranks=2", f"--tokens={tokens}")
            for tokens in ("split", "whole")
        },
    }
    found = {
        **{name: (program, ranks, settings, (), False) for (name, program, ranks), settings in on.items()},
        **{name: (one, 1, settings, tuple(flags), False) for name, (settings, *flags) in of_one.items()},
        **{
            f"{lesson} x{ranks} {settings} resumed": (lesson, ranks, settings, (), True)
            for lesson, ranks, settings in RESUMED
        },
    }
    return {" ".join(name.split()): case for name, case in found.items()}


def sets(settings):
    return [word for setting in settings.split() for word in ("--set", setting)]


def schedule_file(programs, folder):
    """A list of pipedream's for 2 stages and 4 micro-batches."""
    path = pathlib.Path(folder, "schedule.json")
    subprocess.run(
        [
            programs / "pipedream",
            "check",
            "--schedule",
            "1f1b",
            "--stages",
            "2",
            "--microbatches",
            "4",
            "--write",
            path,
        ],
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return path


def ended(command):
    environment = {
        **os.environ,
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "STAGECRAFT_TERMINAL": "0",
    }
    done = subprocess.run(
        [str(word) for word in command],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return f"exit {done.returncode}: {done.stderr[-500:]}" if done.returncode else ""


def run(programs, case, workload):
    program, ranks, settings, flags, resumed = case
    launcher = ["mpirun", "-q", "--oversubscribe", "--bind-to", "none", "-n", str(ranks)] if ranks > 1 else []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if "schedule=file" in settings:
            settings = settings.replace("schedule=file", f"schedule=file:{schedule_file(programs, folder)}")
        command = [
            *launcher,
            programs / program,
            "--workload",
            workload,
            "--steps",
            "20",
            "--threads",
            "1",
            "--set",
            "data.validation_rows=3",
            *sets(settings),
            *flags,
        ]
        if program == "06_infinity":
            command += ["--disk", folder]
        failed = ""
        if resumed:
            command += ["--checkpoints", folder / "checkpoints"]
            failed = ended([*command, "--save-every", "10", "--keep", "2", "--out", folder / "first"])
            command += ["--resume", folder / "checkpoints/step-000010"]
        weights = folder / "weights.safetensors"
        failed = failed or ended([*command, "--save", weights, "--out", folder / "run"])
        if failed:
            return {"failed": failed}
        return result(
            weights,
            json.loads((folder / "run/record.json").read_text()),
            (folder / "run/steps.jsonl").read_text().splitlines(),
        )


def numbers_in(weights):
    """A safetensors file without its header, which may say more than it did."""
    whole = weights.read_bytes()
    return whole[8 + int.from_bytes(whole[:8], "little") :]


def result(weights, record, lines):
    steps = [json.loads(line) for line in lines]
    numbers = json.dumps([(step["loss"], step["grad_norm"]) for step in steps] + [record["validation_loss"]])
    found = {
        "weights": hashlib.sha256(numbers_in(weights)).hexdigest(),
        "losses": hashlib.sha256(numbers.encode()).hexdigest(),
    }
    for what in ("predicted", "measured"):
        found[what] = [
            {"bytes": rank[f"{what}_bytes"], "operations": without_names(rank[f"{what}_operations"])}
            for rank in record["ranks"]
        ]
        if not found[what] or not all(rank["bytes"] for rank in found[what]):
            return {"failed": f"the record has no {what} bytes"}
    return found


def parts_that_differ(new, old):
    return [part for part in {**new, **old} if new.get(part) != old.get(part)]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--store", type=pathlib.Path)
    what.add_argument("--against", type=pathlib.Path)
    what.add_argument("--list", action="store_true")
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/cpu/bin")
    parser.add_argument("--workload", type=pathlib.Path, default=ROOT / "tests/workloads/four_blocks.json")
    parser.add_argument("-k", action="append", default=[])
    options = parser.parse_args()
    all_cases, wanted = cases(), lambda name: not options.k or any(word in name for word in options.k)
    chosen = {name: case for name, case in all_cases.items() if wanted(name)}
    if options.list:
        print(*chosen, sep="\n")
        return 0
    old = json.loads(options.against.read_text()) if options.against else {}
    gone = [name for name in old if name not in all_cases and wanted(name)]
    new, different = {}, len(gone)
    for name, case in chosen.items():
        found = new[name] = run(options.bin.resolve(), case, options.workload.resolve())
        if options.against and ("failed" in found or found != old.get(name)):
            different += 1
            parts = ", ".join(parts_that_differ(found, old.get(name, {})))
            differs = f"differs: {name}: {parts} {found.get('failed', '')}"
            print(differs if name in old else f"not in {options.against}: {name}", flush=True)
    for name in gone:
        print(f"no longer a case: {name}")
    if options.store:
        options.store.write_text(json.dumps(new, indent=1) + "\n")
    failed = {name: one["failed"] for name, one in new.items() if "failed" in one}
    for name, why in failed.items():
        print(f"failed: {name}: {why}")
    print(
        f"{len(new)} cases, {len(failed)} failed"
        + (f", {different} differ" if options.against else ", stored")
    )
    return 1 if failed or different or not new else 0


if __name__ == "__main__":
    sys.exit(main())
