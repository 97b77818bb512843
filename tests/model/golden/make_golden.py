#!/usr/bin/env python3
"""Makes the golden files beside it: a small random GPT-2 by Hugging Face transformers, tied and untied.

  <name>.safetensors        weights in fp32, named as save_pretrained names them (tied) or without prefix
                            (untied)
  <name>_grads.safetensors  gradients of the loss, same names and shapes
  <name>_io.safetensors     tokens, targets (-1 = no loss), logits of real columns, mean loss over targets

Everything but the weights is computed in fp64 and rounded once, so that the comparison measures our rounding
alone. Needs the oracle packages (setup.sh --oracle); tests only read the files.
"""
import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel

HERE = pathlib.Path(__file__).parent
SHAPE = dict(vocab_size=97, n_positions=32, n_embd=32, n_layer=3, n_head=4)
ROWS, LENGTH = 2, 24


def make(name, tied, prefix):
    torch.manual_seed(20 + tied)
    config = GPT2Config(
        **SHAPE,
        tie_word_embeddings=tied,
        attn_pdrop=0.0,
        embd_pdrop=0.0,
        resid_pdrop=0.0,
        attn_implementation="eager",
    )
    model = GPT2LMHeadModel(config).eval().double()
    with torch.no_grad():
        for key, p in model.named_parameters():  # far from initial values, so that no term is negligible
            spread = 0.1 if p.dim() == 1 else 0.2
            p.copy_(
                (torch.randn_like(p) * spread + (1.0 if ".ln_" in key and "weight" in key else 0.0)).float()
            )
    tokens = torch.randint(0, SHAPE["vocab_size"], (ROWS, LENGTH))
    targets = torch.randint(0, SHAPE["vocab_size"], (ROWS, LENGTH))
    targets[0, 5] = targets[1, 20:] = -1
    logits = model(tokens).logits
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)
    loss.backward()

    def named(pick):
        out = {}
        for key, p in model.named_parameters():  # a tied lm_head.weight is listed once, as wte
            out[key if prefix else key.removeprefix("transformer.")] = pick(p).float().contiguous()
        return out

    save_file(named(lambda p: p.detach()), HERE / f"{name}.safetensors", metadata={"format": "pt"})
    save_file(named(lambda p: p.grad), HERE / f"{name}_grads.safetensors", metadata={"format": "pt"})
    save_file(
        {
            "tokens": tokens,
            "targets": targets,
            "logits": logits.detach().float().contiguous(),
            "loss": loss.detach().reshape(1),
        },
        HERE / f"{name}_io.safetensors",
    )
    print(name, "loss", loss.item(), "tensors", len(named(lambda p: p)))


make("tied", tied=True, prefix=True)
make("untied", tied=False, prefix=False)
