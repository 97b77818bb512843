#!/usr/bin/env python3
"""What lesson 11 plans for the meshes of published runs: docs/results/meshes.json.

usage: tests/benchmarks/meshes.py [--check] [--programs build/cpu/bin]

A run's facts stand in the record, typed from the sources that it names; the plans are made from them. --check writes nothing and exits 1
where facts contradict each other or the programs say something else than the record (ctest runs that). Nothing is measured.
"""
import argparse
import json
import math
import pathlib
import sys

from plans import ROOT, fullest, printed

RECORD = ROOT / "docs/results/meshes.json"
LESSON, WORKLOAD = "11_combined", "configs/gpt2_1558m.json"
FORMS = {  # what differs from the run as it was
    "as_run": {},
    "shared": {"states": "sharded", "tokens": "split"},
    "kept": {"states": "sharded", "tokens": "split", "activations": "keep"},
}


def settings_of(run, form):
    stages, data, tensor = run["mesh"]
    settings = {f"model.{key}": value for key, value in run["model"].items()}
    settings |= {
        "mesh": f"{stages}x{data}x{tensor}",
        "model.context": run["sequence"],
        "batch.sequence": run["sequence"],
    }
    settings |= {"batch.micro": run["micro"], "batch.global": run["rows"]}
    return [f"{key}={value}" for key, value in {**settings, **run["settings"], **FORMS[form]}.items()]


def plan_of(programs, run, form):
    """Of the rank that holds most."""
    settings = settings_of(run, form)
    plan = printed(programs, LESSON, WORKLOAD, run["gpus"], settings)
    rank = fullest(plan)
    gb = {"total": rank["bytes"]["device"] / 1e9}
    for one in rank["buffers"]:
        if one["place"] == "device":
            gb[one["purpose"]] = gb.get(one["purpose"], 0) + one["bytes"] / 1e9
    return {
        "settings": settings,
        "parameters": sum(unit["parameters"] for unit in plan["units"]),
        "micro_batches": plan["micro_batches"],
        "rank": rank["rank"],
        "gb": {what: round(count, 3) for what, count in gb.items()},
    }


def contradictions(run):
    """What of the facts cannot be true together, or with a plan; what is no plan at all the program refuses."""
    (stages, data, tensor), settings, planned = run["mesh"], run["settings"], run["plans"]["as_run"]
    positions = stages * settings.get("chunks", 1)
    holds = {
        "tensor ranks fill a node or a part of it": run["gpus_a_node"] % tensor == 0,
        "positions have equally many blocks": settings["split"] != "uniform"
        or run["model"]["layers"] % positions == 0,
        "rows divide among data ranks and micro-batches": run["rows"]
        == data * run["micro"] * planned["micro_batches"],
        "the model has as many parameters as they say": abs(planned["parameters"] / 1e9 / run["billions"] - 1)
        < 0.01,
        "it fits as they ran it": planned["gb"]["total"] < run["gpu_gb"],
        "a plan has less than nvidia-smi shows": planned["gb"]["total"] < run.get("seen_gb", math.inf),
        "every fact has a source": run["sources"]
        and all(source.startswith("https://") for source in run["sources"].values()),
    }
    return [f"{run['name']}: {what}: no" for what, true in holds.items() if not true]


def lines_of(record):
    """A run to a line, so that a difference is short."""
    runs = [json.dumps(run) for run in record["runs"]]
    about = json.dumps(__doc__.split("\n", maxsplit=1)[0])
    return [f'{{"about": {about}, "runs": [', *(f"{run}," for run in runs[:-1]), runs[-1], "]}"]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT / "build/cpu/bin")
    args = parser.parse_args()
    before = RECORD.read_text().splitlines()
    record = json.loads("\n".join(before))
    for run in record["runs"]:
        run["plans"] = {form: plan_of(args.programs.resolve(), run, form) for form in FORMS}
    wrong = [text for run in record["runs"] for text in contradictions(run)]
    print("\n".join(wrong), end="\n" if wrong else "")
    lines = lines_of(record)
    if not args.check:
        RECORD.write_text("\n".join(lines) + "\n")
        return int(bool(wrong))
    for stored, said in zip(before, lines):
        if stored != said:
            print(f"docs/results/meshes.json has\n  {stored}\nthe programs say\n  {said}")
    if before != lines:
        print("fix: python3 tests/benchmarks/meshes.py, then python3 docs/render.py")
    return int(before != lines or bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
