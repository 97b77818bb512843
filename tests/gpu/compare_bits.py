#!/usr/bin/env python3
"""What tests/gpu/other_architectures.sh found: compare_bits.py SCRATCH OUT COMMIT GPU writes OUT/gpu_other_architectures.json and prints it in short.

SCRATCH has steps.tsv, the outputs of kernel_bits in machine_code/, ptx/ and forced/, and records of lesson 00 in run_machine_code/ and run_ptx/.
Exit 1 where a comparison could not be made."""
import json
import pathlib
import sys

import numpy as np

TYPES = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "i64": np.int64}


def values(path):
    if path.suffix == ".bf16":  # the upper half of an fp32
        return (np.fromfile(path, np.uint16).astype(np.uint32) << 16).view(np.float32)
    return np.fromfile(path, TYPES[path.suffix[1:]])


def difference(one, other):
    """None where they are equal to the bit."""
    if one.read_bytes() == other.read_bytes():
        return None
    a, b = values(one).astype(np.float64), values(other).astype(np.float64)
    if a.shape != b.shape:
        return {"elements": len(a), "and": len(b)}
    largest = float(np.nanmax(np.abs(b)))
    return {"elements": len(a), "differ": int(np.count_nonzero(~((a == b) | (np.isnan(a) & np.isnan(b))))),
            "largest_difference": float(np.nanmax(np.abs(a - b))), "largest_value": largest}


def compared(scratch, name):
    """Outputs of one folder against those of the machine code."""
    ours = sorted((scratch / "machine_code").glob("*.*"))
    outputs = [path for path in ours if path.suffix[1:] in (*TYPES, "bf16")]
    missing = [path.name for path in outputs if not (scratch / name / path.name).exists()]
    if not outputs or missing:
        return {"error": f"{len(outputs)} outputs, {len(missing)} of them missing"}
    found = {path.name: difference(path, scratch / name / path.name) for path in outputs}
    different = {name: one for name, one in found.items() if one}
    return {"outputs": len(found), "equal": len(found) - len(different), "different": different}


def losses(scratch, name):
    path = scratch / f"run_{name}" / "record.json"
    return json.loads(path.read_text())["steps"]["loss"] if path.exists() else None


def main():
    scratch, out = map(pathlib.Path, sys.argv[1:3])
    steps = [line.split("\t") for line in (scratch / "steps.tsv").read_text().splitlines()]
    result = {"commit": sys.argv[3], "gpu": sys.argv[4], "steps": {name: {"exit": int(status), "seconds": int(seconds)} for name, status, seconds in steps}}
    for name in ("bits_machine_code", "bits_ptx", "bits_forced"):  # "9.0 80": PTX of 8.0 on a GPU of 9.0
        log = out / f"{name}.log"
        result[name] = log.read_text().strip()[-200:] if log.exists() else ""
    result["kernels"] = {name: compared(scratch, name) for name in ("ptx", "forced")}
    result["losses"] = {name: losses(scratch, name) for name in ("machine_code", "ptx")}
    result["losses_equal"] = bool(result["losses"]["ptx"]) and result["losses"]["ptx"] == result["losses"]["machine_code"]
    (out / "gpu_other_architectures.json").write_text(json.dumps(result, indent=1) + "\n")
    for name, found in result["kernels"].items():
        print(f"{name}: {json.dumps({key: value for key, value in found.items() if key != 'different'})}")
        for output, one in list(found.get("different", {}).items())[:20]:
            print(f"  differs: {output}: {json.dumps(one)}")
    print(f"PTX: {result['bits_machine_code']!r} {result['bits_ptx']!r} {result['bits_forced']!r}; losses equal: {result['losses_equal']}")
    return 1 if any("error" in found for found in result["kernels"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
