"""From a GPT-2 of transformers and a text to a perplexity, to training, and back to transformers, as docs/real_models.md does it.

  .deps/oracle/bin/python tests/model/real_models_test.py build/cpu/bin FOLDER
"""
import json
import math
import os
import pathlib
import subprocess
import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel

ROOT = pathlib.Path(__file__).resolve().parents[2]
LENGTH = 64
SHAPE = {"n_layer": 2, "n_head": 2, "n_embd": 32, "n_positions": LENGTH, "vocab_size": 50257}
KEYS = {"model.layers": 2, "model.heads": 2, "model.width": 32, "model.context": LENGTH, "batch.sequence": LENGTH,
        "batch.global": 4, "batch.micro": 2, "precision.dtype": "fp32", "steps": 3}
ENV = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1"}


def ran(command):
    done = subprocess.run(command, cwd=ROOT, env=ENV, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def lesson(programs, name, ranks, out, *flags):
    launcher = ["mpirun", "-q", "--oversubscribe", "--bind-to", "none", "-n", str(ranks)] if ranks else []
    settings = [word for key, value in KEYS.items() for word in ("--set", f"{key}={value}") if key != "steps" or "--steps" not in flags]
    strategy = ["--strategy", f"lessons/{name}/config.json"]
    said = ran([*launcher, f"{programs}/{name}", "--workload", "configs/finetune_124m.json", *strategy, *settings, *flags, "--out", str(out)])
    return said, json.loads((out / "record.json").read_text())


def tokens_of(path):
    """llm.c's format: 256 words of header, then 16-bit ids."""
    raw = pathlib.Path(path).read_bytes()[1024:]
    return torch.frombuffer(bytearray(raw), dtype=torch.int16).to(torch.int64) & 0xFFFF


def perplexity(model, tokens):
    """Rows of LENGTH tokens, each from its first token on, as --test cuts them."""
    rows = (len(tokens) - 1) // LENGTH
    loss = 0.0
    with torch.no_grad():
        for r in range(rows):
            x = tokens[r * LENGTH : r * LENGTH + LENGTH + 1]
            logits = model(x[None, :-1]).logits.double()
            loss += torch.nn.functional.cross_entropy(logits[0], x[1:], reduction="sum").item()
    return rows, math.exp(loss / (rows * LENGTH))


def expect_equal(test, model, tokens):
    rows, wanted = perplexity(model, tokens)
    assert test["rows"] == rows, (test, rows)
    assert abs(test["perplexity"] / wanted - 1) < 1e-5, (test, wanted)
    print(f"perplexity {test['perplexity']:.4f}, transformers {wanted:.4f}")


def main():
    programs, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    torch.manual_seed(1)
    torch.set_num_threads(1)
    GPT2LMHeadModel(GPT2Config(**SHAPE, initializer_range=0.2)).save_pretrained(folder / "gpt2")
    text = folder / "wiki.test.raw"
    text.write_text(" = Title = \n\n" + " ".join(f"The {i % 17} foxes jump over {i * 31 % 97} dogs ." for i in range(300)) + "\n")
    ran([f"{programs}/prepare", str(text), "--out", str(folder / "test.bin")])
    tokens = tokens_of(folder / "test.bin")

    weights = str(folder / "gpt2/model.safetensors")
    data = ["--data", str(folder / "test.bin"), "--test", str(folder / "test.bin")]
    said, record = lesson(programs, "00_one_device", 0, folder / "given", "--init", weights, "--steps", "0", *data)
    assert "nothing was trained, and so no claim was checked" in said, said
    model = GPT2LMHeadModel.from_pretrained(folder / "gpt2").eval()
    expect_equal(record["test"], model, tokens)

    trained = folder / "trained"
    trained.mkdir()
    _, record = lesson(programs, "04_zero3", 2, folder / "run", "--init", weights, "--save", str(trained / "model.safetensors"), *data)
    assert record["as_predicted"], record
    (trained / "config.json").write_text((folder / "gpt2/config.json").read_text())
    again = GPT2LMHeadModel.from_pretrained(trained).eval()
    assert not torch.equal(again.transformer.wte.weight, model.transformer.wte.weight), "it has been trained"
    expect_equal(record["test"], again, tokens)


main()
