"""Reads a checkpoint of 4 ranks (step-000400) and its export with Python's safetensors alone, and compares
every element with the formula of checkpoint_support.h. Called by checkpoint_python_test.sh."""

import json
import pathlib
import re
import sys

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file

folder = pathlib.Path(sys.argv[1])
step = folder / "step-000400"


def expected(tensor, purpose, begin, end):
    seed = 0
    for c in f"{tensor}@{purpose}":
        seed = seed * 31 % 65521 + ord(c)
    i = np.arange(begin, end, dtype=np.int64)
    return ((i * 7919 + seed * 104729) % 65521).astype(np.float32) / np.float32(64) - np.float32(500)


manifest = json.loads((step / "manifest.json").read_text())
assert manifest["format"] == 1 and manifest["step"] == 400 and manifest["world"] == 4, manifest
shapes = {tensor["name"]: tensor["shape"] for tensor in manifest["tensors"]}
covered = {}
for file in manifest["files"]:
    path = step / file["name"]
    assert path.stat().st_size == file["bytes"], file["name"]
    with safe_open(path, framework="numpy") as opened:
        metadata = opened.metadata()
    assert metadata == {
        "format": "stagecraft 1",
        "step": "400",
        "rank": str(int(file["name"][5:9])),
    }, metadata
    for name, values in load_file(path).items():
        tensor, purpose, begin, end = re.fullmatch(r"(.*)@([a-z_]+)\[(\d+):(\d+)\]", name).groups()
        assert values.dtype == np.float32 and np.array_equal(
            values, expected(tensor, purpose, int(begin), int(end))
        ), name
        covered.setdefault((tensor, purpose), []).append((int(begin), int(end)))
for (tensor, purpose), ranges in covered.items():
    at = 0
    for begin, end in sorted(ranges):
        assert begin == at, (tensor, purpose, ranges)
        at = end
    assert at == np.prod(shapes[tensor]), (tensor, purpose)
assert len(covered) == 3 * len(shapes)

exported = load_file(folder / "out.safetensors")
assert sorted(exported) == sorted("transformer." + name for name in shapes)
for name, shape in shapes.items():
    ours = expected(name, "master", 0, int(np.prod(shape))).reshape(shape)
    if name.startswith("h.") and len(shape) == 2:
        ours = ours.T
    if name == "wte.weight":
        ours = ours[: int(manifest["workload"]["model.vocab"])]
    assert np.array_equal(exported["transformer." + name], ours), name
print(
    f"{len(manifest['files'])} files, {sum(map(len, covered.values()))} entries, {len(exported)} exported "
    "tensors: as they were written"
)
