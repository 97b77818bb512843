#!/usr/bin/env python3
"""Loss curves of several runs of one workload, which may differ in precision.* alone, beside each other.

Losses are averaged over windows of ten steps. The first record is the reference; the result says how far the others go
from it, and fails where that is more than --limit.

  python3 tests/benchmarks/loss_curves.py runs/a/record.json runs/b/record.json [--limit 0.02] [--out docs/results/x.json]
"""
import argparse
import json
import pathlib
import sys

WINDOW = 10


def windows(losses):
    return [sum(losses[i:i + WINDOW]) / WINDOW for i in range(0, len(losses) - WINDOW + 1, WINDOW)]


def precision_of(record):
    kept = {key.split(".")[1]: value for key, value in record["workload"].items() if key.startswith("precision.")}
    return f"{kept['dtype']}, gradients {kept['grad_dtype']}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", nargs="+")
    parser.add_argument("--limit", type=float, default=0.02, help="largest relative difference of a window")
    parser.add_argument("--out")
    args = parser.parse_args()
    records = [json.loads(pathlib.Path(path).read_text()) for path in args.records]
    work = [{key: value for key, value in r["workload"].items() if not key.startswith("precision.")} for r in records]
    if any(other != work[0] for other in work):
        sys.exit("error: the records are of different workloads\n  fix: compare runs that differ in precision.* alone")
    if any(r["exit_code"] != 0 or not r["as_predicted"] for r in records):
        sys.exit("error: a run failed, or did not hold what was predicted\n  fix: see its record.json")
    reference = windows(records[0]["steps"]["loss"])
    runs = []
    for record in records:
        curve = windows(record["steps"]["loss"])
        largest = max(abs(a - b) / b for a, b in zip(curve, reference, strict=True))
        runs.append({"precision": precision_of(record), "largest_difference": round(largest, 5),
                     "validation_loss": round(record["validation_loss"], 4), "skipped_updates": record["skipped_updates"],
                     "tokens_per_second": round(record["timing"]["tokens_per_second"]), "loss": [round(x, 4) for x in curve]})
        print(f"{runs[-1]['precision']}: {100 * largest:.2f} % from the first, validation {runs[-1]['validation_loss']}, "
              f"{runs[-1]['tokens_per_second']} tok/s")
    if args.out:
        result = {"workload": work[0], "window": WINDOW, "device": records[0]["device"], "world": records[0]["world"],
                  "versions": records[0]["versions"], "started": records[0]["started"], "runs": runs}
        pathlib.Path(args.out).write_text(json.dumps(result, indent=1) + "\n")
    if max(run["largest_difference"] for run in runs) > args.limit:
        sys.exit(f"error: a curve is more than {100 * args.limit} % away")


if __name__ == "__main__":
    main()
