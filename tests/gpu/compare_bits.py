#!/usr/bin/env python3
"""What tests/gpu/other_architectures.sh found: compare_bits.py SCRATCH OUT COMMIT GPU writes
OUT/gpu_other_architectures.json and prints it in short.

SCRATCH has steps.tsv, a log of each step, the outputs of kernel_bits in machine_code/, ptx/ and forced/, and
records of lesson 00 in run_machine_code/ and run_ptx/. Exit 1 where a comparison could not be made."""
import json
import math
import pathlib
import struct
import sys

FORMATS = {"f32": "f", "f64": "d", "f16": "e", "i64": "q"}


def values(path):
    raw = path.read_bytes()
    if path.suffix == ".bf16":  # the upper half of an fp32
        raw = b"".join(b"\0\0" + raw[i : i + 2] for i in range(0, len(raw), 2))
    form = FORMATS.get(path.suffix[1:], "f")
    return struct.unpack(f"<{len(raw) // struct.calcsize(form)}{form}", raw)


def difference(one, other):
    """The difference of two tensors; None where they are equal to the bit."""
    if one.read_bytes() == other.read_bytes():
        return None
    a, b = values(one), values(other)
    pairs = [(x, y) for x, y in zip(a, b) if struct.pack("<d", x) != struct.pack("<d", y)]
    finite = [(x, y) for x, y in pairs if math.isfinite(x) and math.isfinite(y)]
    return {
        "elements": len(a),
        "differ": len(pairs) + abs(len(a) - len(b)),
        "not_finite": len(pairs) - len(finite),
        "largest_difference": max((abs(x - y) for x, y in finite), default=0.0),
        "largest_value": max((abs(x) for x in a if math.isfinite(x)), default=0.0),
    }


def compared(scratch, name):
    """Outputs of one folder against those of the machine code."""
    ours = sorted((scratch / "machine_code").glob("*.*"))
    outputs = [path for path in ours if path.suffix[1:] in (*FORMATS, "bf16")]
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
    result = {
        "commit": sys.argv[3],
        "gpu": sys.argv[4],
        "steps": {name: {"exit": int(status), "seconds": int(seconds)} for name, status, seconds in steps},
    }
    for name in ("bits_machine_code", "bits_ptx", "bits_forced"):  # "9.0 80": PTX of 8.0 on a GPU of 9.0
        log = scratch / f"{name}.log"
        result[name] = log.read_text().strip()[-200:] if log.exists() else ""
    result["kernels"] = {name: compared(scratch, name) for name in ("ptx", "forced")}
    result["losses"] = {name: losses(scratch, name) for name in ("machine_code", "ptx")}
    result["losses_equal"] = (
        bool(result["losses"]["ptx"]) and result["losses"]["ptx"] == result["losses"]["machine_code"]
    )
    (out / "gpu_other_architectures.json").write_text(json.dumps(result, indent=1) + "\n")
    for name, found in result["kernels"].items():
        print(f"{name}: {json.dumps({key: value for key, value in found.items() if key != 'different'})}")
        for output, one in list(found.get("different", {}).items())[:20]:
            print(f"  differs: {output}: {json.dumps(one)}")
    print(
        f"PTX: {result['bits_machine_code']!r} {result['bits_ptx']!r} {result['bits_forced']!r}; losses "
        f"equal: {result['losses_equal']}"
    )
    return 1 if any("error" in found for found in result["kernels"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
