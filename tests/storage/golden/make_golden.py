#!/usr/bin/env python3
"""Writes python.safetensors with Hugging Face's safetensors package, and checks stagecraft.safetensors, which
this program wrote.

Needs: pip install safetensors==0.8.0 numpy. The C++ test reads the first file and compares what it writes
with the second, byte by byte; so what Python said about the second holds as long as that test passes.
"""
import pathlib
import sys

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

here = pathlib.Path(__file__).parent

save_file(
    {
        "matrix.weight": (np.arange(12, dtype=np.float32).reshape(3, 4) - 5) / 4,
        "half": np.array([1.5, -2.0, 65504.0], dtype=np.float16),
        "double": np.array([[1e300], [-0.0]], dtype=np.float64),
        "long": np.array([-1, 2**62], dtype=np.int64),
        "int": np.array([-7], dtype=np.int32),
        "bytes": np.frombuffer(b"\x00\x7f\xff", dtype=np.uint8),
        "listed.only": np.array([True, False]),
        "scalar": np.array(3.25, dtype=np.float32),
        "empty": np.zeros((2, 0, 5), dtype=np.float32),
        'name "quoted" and \u00e9': np.array([1], dtype=np.int8),
    },
    here / "python.safetensors",
    metadata={"format": "pt", "note": "line\nbreak"},
)

ours = here / "stagecraft.safetensors"
tensors = load_file(ours)
expected = {
    "wte": np.arange(6, dtype=np.float32).reshape(2, 3) / 2,
    "steps": np.array([-3, 1 << 40], dtype=np.int64),
    "empty": np.zeros((0, 4), dtype=np.float32),
    "loss": np.array(2.5, dtype=np.float64),
    "ids": np.array([5, 6, 7], dtype=np.int32),
    'flag "x"': np.array([255], dtype=np.uint8),
}
assert sorted(tensors) == sorted(expected), sorted(tensors)
for name, value in expected.items():
    assert tensors[name].dtype == value.dtype and tensors[name].shape == value.shape, name
    assert np.array_equal(tensors[name], value), name
with safe_open(ours, framework="numpy") as file:
    assert file.metadata() == {"format": "pt", "step": "12"}, file.metadata()
print(f"{ours.name}: {len(expected)} tensors read by Python as they were written", file=sys.stderr)
