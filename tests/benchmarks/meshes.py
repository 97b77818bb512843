#!/usr/bin/env python3
"""What lesson 11 plans for the meshes of published runs: docs/results/meshes.json.

usage: tests/benchmarks/meshes.py [--check] [--programs build/cpu/bin]

A run's facts stand in the record, typed from the sources that it names; the plans are made from them. --check
writes nothing and exits 1 where facts contradict each other or the programs say something else than the
record (ctest runs that). Nothing is measured.
"""
import math
import sys

from harness import CHECKED, arguments, result, write_or_compare
from plans import fullest, printed, summed

LESSON, WORKLOAD = "11_combined", "configs/gpt2_1558m.json"
FORMS = {  # what differs from the run as it was
    "as_run": {},
    "shared": {"states": "sharded", "tokens": "split"},
    "kept": {"states": "sharded", "tokens": "split", "activations": "keep"},
}


def settings_of(run, form):
    stages, data, tensor = run["mesh"]
    settings = {
        **{f"model.{key}": value for key, value in run["model"].items()},
        "mesh": f"{stages}x{data}x{tensor}",
        "model.context": run["sequence"],
        "batch.sequence": run["sequence"],
        "batch.micro": run["micro"],
        "batch.global": run["rows"],
        **run["settings"],
        **FORMS[form],
    }
    return [f"{key}={value}" for key, value in settings.items()]


def plan_of(programs, run, form):
    """The plan of the rank that holds most."""
    settings = settings_of(run, form)
    plan = printed(programs, LESSON, WORKLOAD, run["gpus"], settings)
    rank = fullest(plan)
    buffers = [one for one in rank["buffers"] if one["place"] == "device"]
    gb = summed((one["purpose"], one["bytes"] / 1e9) for one in buffers)
    gb = {"total": rank["bytes"]["device"] / 1e9, **gb}
    return {
        "settings": settings,
        "parameters": sum(unit["parameters"] for unit in plan["units"]),
        "micro_batches": plan["micro_batches"],
        "rank": rank["rank"],
        "gb": {what: round(count, 3) for what, count in gb.items()},
    }


def contradictions(run):
    """What of the facts cannot be true together, or with a plan; what is no plan at all the program
    refuses."""
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


def main():
    args, runs = arguments(__doc__, CHECKED), result("meshes")["runs"]
    for run in runs:
        run["plans"] = {form: plan_of(args.programs, run, form) for form in FORMS}
    wrong = [text for run in runs for text in contradictions(run)]
    print("\n".join(wrong), end="\n" if wrong else "")
    return int(write_or_compare(__doc__, "meshes", "runs", runs, args.check) or bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
