#!/usr/bin/env python3
"""Files written by our exporter, read by the Python packages: safetensors and transformers' GPT2LMHeadModel.

  python3 tests/model/golden/check_export.py build/cpu/tests/model/model_tests

Runs the C++ test that exports the golden models, loads each file strictly into GPT2LMHeadModel and compares
the logits with the golden ones (fp64: equal up to the rounding of the stored fp32 logits). Needs the oracle
packages.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from transformers import GPT2Config, GPT2LMHeadModel

HERE = pathlib.Path(__file__).resolve().parent
SHAPE = dict(
    vocab_size=97,
    n_positions=32,
    n_embd=32,
    n_layer=3,
    n_head=4,
    attn_implementation="eager",
    attn_pdrop=0.0,
    embd_pdrop=0.0,
    resid_pdrop=0.0,
)


def check(folder, name, tied):
    path = folder / f"{name}_export.safetensors"
    weights = load_file(path)
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
    assert sorted(metadata) == ["config.json", "format"] and metadata["format"] == "pt", metadata
    (folder / name).mkdir()
    path.rename(folder / name / "model.safetensors")
    (folder / name / "config.json").write_text(metadata["config.json"])
    config, wanted = (
        GPT2Config.from_pretrained(folder / name).to_dict(),
        GPT2Config(**SHAPE, tie_word_embeddings=tied).to_dict(),
    )
    assert all(
        config[key] == wanted[key] for key in json.loads(metadata["config.json"]) if key != "architectures"
    ), config
    model, info = GPT2LMHeadModel.from_pretrained(folder / name, output_loading_info=True)
    assert not info["unexpected_keys"] and not info["mismatched_keys"] and not info["missing_keys"], info
    io = load_file(HERE / f"{name}_io.safetensors")
    with torch.no_grad():
        logits = model.eval().double()(io["tokens"]).logits
    error = ((logits - io["logits"]).abs().max() / io["logits"].abs().max()).item()
    print(f"{name}: {len(weights)} tensors, every key found, logits differ by {error:.1e}")
    assert error < 1e-7, error


with tempfile.TemporaryDirectory() as temporary:
    subprocess.run(
        [sys.argv[1], "--gtest_filter=HfWeights.ExportGives*", "--gtest_brief=1"],
        check=True,
        env={**os.environ, "STAGECRAFT_KEEP_EXPORT": temporary},
        cwd=HERE.parents[2],
    )
    check(pathlib.Path(temporary), "tied", True)
    check(pathlib.Path(temporary), "untied", False)
