#!/usr/bin/env python3
"""What lessons/choose.sh knows of GPUs and what it says: lessons/choose/measured.json, made of docs/results/,
and docs/results/choosing.json.

  python3 tests/benchmarks/choosing.py [--check] [--program build/cpu/bin/choose]

--check writes nothing and exits 1 where a file is not what the records and the program make of it.
"""
import json
import shlex
import statistics
import subprocess
import sys

import gpu_infinity
import gpu_offload
import quoted
from gpu_table import ONE, SCALING, gpu_of
from harness import CPU_BIN, ROOT, arguments, result as record, said_by, sets

MEASURED, CHOSEN, BEFORE = (
    "lessons/choose/measured.json",
    "docs/results/choosing.json",
    "docs/results/choosing_ahead.json",
)
# Programs of gpu_peers.json that shared the GPU with other work, so their times are left out.
NOT_ALONE = "ours_1_awake", "ours_1_within"
GPT_7B = "--workload configs/gpt_7b.json"
USUAL = "H200"  # on which most records were made
PLANS = {
    "7b x1": f"--gpus 1 --gpu H100 --host-memory 512GB --disk 4GB/s {GPT_7B}",
    "7b x8": f"--gpus 8 --gpu H100 --host-memory 2TB --disk 4GB/s {GPT_7B}",
    "7b x8 24GB": f"--gpus 8 --gpu RTX4090 --link 25GB/s --host-memory 512GB --disk 4GB/s {GPT_7B}",
    "1558m 2x4": "--gpus 8 --gpu H100 --gpus-per-node 4 --node-link 1GB/s --workload configs/gpt2_1558m.json",
    "7b 2x4": f"--gpus 8 --gpu H100 --gpus-per-node 4 --node-link 1GB/s {GPT_7B}",
    "70b x1024": "--gpus 1024 --gpu H100 --gpus-per-node 8 --node-link 50GB/s --workload "
    "configs/gpt_70b.json",
    "355m x8 24GB": "--gpus 8 --memory 24GB --link 25GB/s --host-memory 512GB --disk 4GB/s",
}

# The machines of docs/figures/choosing_tree.svg, and the models that they are asked for. Hosts have
# 64 GB for each GPU of 24 GB, and 256 GB for each of 80 GB.
TREE = {
    "1 x 24 GB": "--gpus 1 --gpu RTX4090 --host-memory 64GB --disk 4GB/s",
    "1 x 80 GB": "--gpus 1 --gpu H100 --host-memory 256GB --disk 4GB/s",
    "8 x 24 GB": "--gpus 8 --gpu RTX4090 --link 25GB/s --host-memory 512GB --disk 4GB/s",
    "8 x 80 GB": "--gpus 8 --gpu H100 --host-memory 2TB --disk 4GB/s",
    "2 x 4 x 80 GB": "--gpus 8 --gpu H100 --gpus-per-node 4 --node-link 1GB/s --host-memory 2TB --disk 4GB/s",
    "8 x 8 x 80 GB": "--gpus 64 --gpu H100 --gpus-per-node 8 --node-link 50GB/s --host-memory 16TB "
    "--disk 32GB/s",
}
MODELS = "gpt2_355m", "gpt2_1558m", "gpt_7b", "gpt_70b"

# Runs for one, four and eight GPUs that are predicted before they are timed. A prediction is not changed any
# more once its run was timed.
TENSOR = ([], ["lanes=2"], ["lanes=2", "gathered=kept"])
AHEAD = [
    *(
        (1, "355m", 16, 16, "05_offload", settings)
        for settings in (
            ["resident=1"],
            ["resident=7"],
            ["resident=13"],
            ["update=early"],
            ["update=early", "resident=1"],
        )
    ),
    *(
        (4, size, 16, 16, lesson, settings)
        for size in ("355m", "774m")
        for lesson, settings in (
            ("01_data_parallel", []),
            *(("10_tensor_parallel", settings) for settings in TENSOR),
        )
    ),
    *(
        (8, "1558m", 16, 16, lesson, settings)
        for lesson, settings in (
            ("01_data_parallel", []),
            *(("10_tensor_parallel", settings) for settings in TENSOR),
        )
    ),
    *(
        (4, "774m", 64, 8, lesson, settings)
        for lesson, settings in (
            ("01_data_parallel", []),
            ("04_zero3", []),
            ("04_zero3", ["shard_ranks=2"]),
            ("07_pipeline", ["replicas=2", "states=sharded"]),
            *(("11_combined", [f"mesh={mesh}"]) for mesh in ("2x1x2", "1x2x2", "2x2x1")),
        )
    ),
    *(
        (8, "774m", 64, 8, lesson, settings)
        for lesson, settings in (
            ("01_data_parallel", []),
            ("04_zero3", []),
            ("04_zero3", ["shard_ranks=2"]),
            ("04_zero3", ["shard_ranks=4"]),
            *(("11_combined", [f"mesh={mesh}"]) for mesh in ("2x2x2", "1x4x2", "4x2x1", "2x1x4")),
        )
    ),
]


RUNS_AHEAD = {  # (GPUs, size, rows of a step): the record and the run that answer
    (1, "355m", 16): ("gpu_offload", "355m"),
    (4, "355m", 16): ("gpu_tensor", "tensor_355m x4"),
    (4, "774m", 16): ("gpu_tensor", "tensor_774m x4"),
    (8, "1558m", 16): ("gpu_tensor", "tensor_1558m x8"),
    (4, "774m", 64): ("gpu_combined", "mesh_4 x4"),
    (8, "774m", 64): ("gpu_combined", "mesh_8 x8"),
}


def ahead():
    """A row's micro-batch is no larger than what a data rank has of the step; of two lanes each has half."""
    for gpus, size, rows, micro, lesson, settings in AHEAD:
        ranks = {"10_tensor_parallel": 1, "07_pipeline": 2}.get(lesson, gpus)
        if lesson == "11_combined":
            ranks = int(settings[0].split("x")[1])
        micro = min(micro, rows // ranks) // (2 if "lanes=2" in settings else 1)
        yield {
            "record": "ahead",
            "run": f"{size} x{gpus}",
            "lesson": lesson,
            "workload": f"configs/gpt2_{size}.json",
            "set": {"batch.global": str(rows), "batch.micro": str(micro)},
            "settings": settings,
            "gpus": gpus,
        }


def step(name, run, lesson, command, gpus, seconds, disk=0.0, gpu=USUAL):
    """A timed step; the words of its command that `choose` knows: the workload's keys and the lesson's."""
    words, settings, keys = shlex.split(command), [], {}
    for flag, value in zip(words, words[1:], strict=False):
        key, _, text = value.partition("=")
        if flag != "--set" or key.startswith("data."):
            continue
        if "." in key or key == "activations":
            keys[key] = text
        else:
            settings.append(value)
    found = {
        "record": name,
        "run": run,
        "lesson": lesson,
        "workload": words[words.index("--workload") + 1],
        "set": keys,
        "settings": settings,
        "gpus": gpus,
        "seconds": round(seconds, 6),
    }
    return {**found, **({"disk": disk} if disk else {}), **({"gpu": gpu} if gpu != USUAL else {})}


def of_turns(name):
    """What of ours took turns by gpu.py: lessons 07, 10 (by copy engine) and 11, and those of gpu_peers.json
    that nothing disturbed."""
    for run, row in record(name)["rows"].items():
        for key, program in row["programs"].items():
            label = program.get("label", "")
            if "Stagecraft" not in label or key in NOT_ALONE or "=0" in label or "nccl" in program["command"]:
                continue
            turns = [turn["programs"] for turn in row["rounds"]]
            alone = key in (*SCALING, ONE)
            yield step(
                name,
                run + (" on one" if alone else ""),
                program["command"].split("build/cuda/bin/")[1].split()[0],
                program["command"],
                1 if alone else row["world"],
                statistics.median(turn[key]["median_seconds"] for turn in turns if key in turn),
                gpu=gpu_of(row["gpu"]),
            )


def of_whole_runs():
    """Lesson 08 and lesson 07 with one graph per step; the documents' runs; number formats; offload, but for
    steps that are made again; lesson 06."""
    versions, offload, infinity = record("gpu_versions"), record("gpu_offload"), record("gpu_infinity")
    for name, program in versions["commands"].items():
        if "--graph off" not in program:
            command, seconds = f"{versions['workload']} {program}", versions["runs"][name]["seconds"]
            gpu = gpu_of(versions["gpu"])
            yield step("gpu_versions", name, program.split()[0], command, 2, seconds, gpu=gpu)
    for name, program in record("gpu_dtype_only")["programs"].items():
        yield step("gpu_dtype_only", name, "00_one_device", program["command"], 1, program["median_seconds"])
    for size, runs in offload["runs"].items():
        for name, run in runs.items():
            program, *own = gpu_offload.PROGRAMS[name].split()
            command = shlex.join([*offload["flags"][size].split(), *own])
            # The rate of AdamW on the host is fitted to the delayed updates of 774M, so that run cannot test
            # it.
            if name != "early, clipped" and (size, name) != ("774m", "delayed"):
                yield step("gpu_offload", size, program, command, 1, run["median_seconds"])
    for run in infinity["offload"]:
        command = f"{gpu_infinity.WORKLOADS['355M']} --set batch.global={run['rows']} --set update=delayed"
        yield step("gpu_infinity", f"{run['rows']} rows", "05_offload", command, 1, run["seconds"])
    disk = statistics.median(turn["block_file"] for turn in infinity["raw"])
    more = {
        "exact": "",
        "delayed": gpu_infinity.DELAYED,
        "params_disk": gpu_infinity.DISK,
    }  # params_at=host is no candidate
    for run in infinity["runs"]:
        if run["name"] in more:
            command = f"{run['workload']} --set batch.global={run['rows']} {more[run['name']]}"
            name = f"{run['model']}, {run['rows']} rows"
            yield step("gpu_infinity", name, "06_infinity", command, 1, run["seconds"], disk)


def of_quoted():
    for run in record("quoted")["runs"]:
        if run["packing"] == "pack":
            one = (run["name"], run["lesson"], run["size"], run["dtype"], None)
            settings = sets(quoted.settings_of(one, "pack", run["world"]))
            command = shlex.join(["--workload", quoted.WORKLOAD, *settings])
            disk = quoted.DISK if run["lesson"] == "06_infinity" else 0.0
            gpu = gpu_of(run["versions"]["GPU"])
            yield step("quoted", *one[:2], command, run["world"], run["step_seconds"], disk, gpu)


def copies_of(sweep):
    """Seconds and rate of a whole call, which sends ranks - 1 messages: the fit's latency is that of one."""
    fits = {op["kind"]: op["fit"] for op in sweep["operations"]}
    return {
        name: {
            "call_seconds": (sweep["ranks"] - 1) * fits[kind]["latency_s"],
            "bytes_per_second": fits[kind]["bytes_per_s"],
        }
        for name, kind in (("sum", "reduce_scatter"), ("gather", "all_gather"))
    }


def measured(largest_error):
    offload = record("gpu_offload")
    parameters = {size: runs["exact"]["bytes"]["parameters"] / 2 for size, runs in offload["runs"].items()}
    to_host = 1e-3 * sum(end - begin for begin, end in offload["steps"]["exact"]["to_host"])
    adam = (
        parameters["774m"] / offload["runs"]["774m"]["delayed"]["median_seconds"]
    )  # whose step is AdamW alone, copies beside it
    alone = "\n".join(offload["adam"]["said"])
    reduce = next(op for op in record("collectives_nvlink_2")["operations"] if op["kind"] == "reduce_scatter")
    beside = [
        cell for cell in record("comm_beside_products_2")["cells"] if cell["variant"] == "NCCL's choice"
    ]
    by_copy = {ranks: copies_of(record(f"collectives_copies_{ranks}")) for ranks in (2, 4)}
    return {
        "about": "Made of docs/results/ by tests/benchmarks/choosing.py.",
        "gpu": USUAL,
        "memory_bytes_per_second": record("gpu_profile_one")["runs"][0]["profile"]["memory_rate"],
        "link_bytes_per_second": reduce["fit"]["bytes_per_s"],
        "call_seconds": reduce["fit"]["latency_s"],
        "taken_from_products": statistics.median(
            cell["taken_ms_an_operation"]["median"] / cell["alone_ms"]["median"] for cell in beside
        ),
        "by_copy": by_copy,
        "host_link_bytes_per_second": 2 * parameters["355m"] / to_host,
        "adam_parameters_per_second": adam,
        "adam_early_parameters_per_second": adam
        * gpu_offload.streamed(alone, ", elsewhere")
        / gpu_offload.streamed(alone),
        "largest_error": largest_error,
        "steps": [
            *of_turns("gpu_peers"),
            *of_turns("gpu_pipeline"),
            *of_whole_runs(),
            *of_turns("gpu_tensor"),
            *of_turns("gpu_combined"),
            *of_quoted(),
        ],
        "ahead": list(ahead()),
    }


def advice_of(program, words):
    """What choose advises, or None where it says that nothing fits."""
    done = subprocess.run(
        [program, *shlex.split(words), "--json"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode not in (0, 69):
        sys.exit(f"error: choose {words}: exit {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout)["advice"]


def chosen(program, check):
    def said(words):
        return json.loads(said_by([program, *shlex.split(words), "--json"]))

    plans = {name: {"command": f"lessons/choose.sh {words}", **said(words)} for name, words in PLANS.items()}
    tree = {
        machine: {
            "command": f"lessons/choose.sh {words}",
            "advice": {
                model: advice_of(program, f"{words} --workload configs/{model}.json") for model in MODELS
            },
        }
        for machine, words in TREE.items()
    }
    return {
        "about": "What lessons/choose.sh --check and lessons/choose.sh say; predicted, not measured.",
        "check": check,
        "plans": plans,
        "tree": tree,
    }


def predicted_before(predicted, timed, kept):
    """Each of AHEAD with what `choose` said of it before it was timed, and then with what was timed."""

    def names(row):
        return row["lesson"], *(word for word in row["settings"] if word != "tokens=split")

    seconds = {
        (row["record"], row["run"], names(row)): {"seconds": row["seconds"], "measured_on": row["gpu"]}
        for row in timed
    }
    before = {(row["run"], row["rows"], names(row)): row["predicted"] for row in kept}
    for (gpus, size, rows, *_), row in zip(AHEAD, predicted, strict=True):
        found = {key: row[key] for key in ("run", "gpus", "gpu", "lesson", "settings", "predicted")} | {
            "rows": rows
        }
        measured = seconds.get((*RUNS_AHEAD[gpus, size, rows], names(row)))
        if measured is not None:
            found |= {"predicted": before.get((row["run"], rows, names(row)), row["predicted"]), **measured}
        yield found


ASKED = {"--program": {"default": str(CPU_BIN / "choose")}, "--check": {"action": "store_true"}}


def updated(name, what, check):
    """Whether the file was another; it is then written, unless this only checks."""
    path, text = ROOT / name, json.dumps(what, indent=1) + "\n"
    if path.exists() and path.read_text() == text:
        return False
    if not check:
        path.write_text(text)
    print(f"stale: {name}; fix: python3 tests/benchmarks/choosing.py" if check else f"written: {name}")
    return True


def main():
    args = arguments(__doc__, ASKED)
    facts = measured(json.loads((ROOT / MEASURED).read_text()).get("largest_error", 0))
    stale = [updated(MEASURED, facts, args.check)]
    found = json.loads(said_by([args.program, "--check", "--json"]))  # of what is written now
    predicted, before = found.pop("ahead"), record("choosing_ahead")["rows"]
    ahead_of = {
        "about": "What lessons/choose.sh --check said of runs before they were timed.",
        "rows": list(predicted_before(predicted, found["rows"], before)),
    }
    timed = [row for row in ahead_of["rows"] if "seconds" in row]
    facts["largest_error"] = max(
        *(abs(row["error"]) for row in found["rows"]),
        *(abs(row["predicted"] / row["seconds"] - 1) for row in timed),
    )
    stale.append(updated(MEASURED, facts, args.check))
    stale += [updated(CHOSEN, chosen(args.program, found), args.check), updated(BEFORE, ahead_of, args.check)]
    sys.exit(1 if args.check and any(stale) else 0)


if __name__ == "__main__":
    main()
