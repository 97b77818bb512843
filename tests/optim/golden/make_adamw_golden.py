#!/usr/bin/env python3
"""Makes adamw.safetensors beside it: twenty steps of torch.optim.AdamW with global-norm clipping, in fp64.

  param [n], grad [steps, n], lr [steps]   what both start from, fp32
  norm [steps], clip [steps]               global norm of each gradient, factor min(1, 1 / norm)
  param_1, m_1, v_1, param_20, m_20, v_20  [n], after that many steps

All is computed in fp64 from the fp32 inputs and rounded to fp32 once, so that the comparison measures our
rounding alone. Elements [0, DECAYED) decay. Needs the oracle packages (setup.sh --oracle); tests only read
the file.
"""
import pathlib

import torch
from safetensors.torch import save_file

N, DECAYED, STEPS = 203, 77, 20


def main():
    torch.manual_seed(7)
    start = torch.randn(N)
    # Gradients from 1e-6 to 1, so that eps matters for some elements and not for others. Half of the steps
    # exceed the clip norm of 1.
    grads = torch.randn(STEPS, N) * torch.logspace(-6, 0, N) * torch.linspace(0.05, 0.5, STEPS)[:, None]
    lr = 1e-2 * torch.linspace(0.1, 1, STEPS)

    decayed, plain = (
        torch.nn.Parameter(part.clone()) for part in start.double().split([DECAYED, N - DECAYED])
    )
    optimizer = torch.optim.AdamW(
        [{"params": [decayed], "weight_decay": 0.1}, {"params": [plain], "weight_decay": 0.0}],
        lr=1e-2,
        betas=(0.9, 0.95),
        eps=1e-8,
        foreach=False,
        fused=False,
    )
    out = {"param": start, "grad": grads, "lr": lr}
    norms, clips = [], []
    for step in range(STEPS):
        grad = grads[step].double()
        norms.append(torch.linalg.vector_norm(grad))
        clips.append(torch.clamp(1 / norms[-1], max=1.0))
        decayed.grad, plain.grad = (grad * clips[-1]).split([DECAYED, N - DECAYED])
        for group in optimizer.param_groups:
            group["lr"] = lr[step].item()
        optimizer.step()
        if step + 1 in (1, STEPS):
            state = [optimizer.state[p] for p in (decayed, plain)]
            out[f"param_{step + 1}"] = torch.cat([decayed.detach(), plain.detach()]).float()
            out[f"m_{step + 1}"] = torch.cat([s["exp_avg"] for s in state]).float()
            out[f"v_{step + 1}"] = torch.cat([s["exp_avg_sq"] for s in state]).float()
    out["norm"], out["clip"] = torch.stack(norms).float(), torch.stack(clips).float()
    print("clipped steps:", int((out["clip"] < 1).sum()), "of", STEPS)
    save_file(out, pathlib.Path(__file__).parent / "adamw.safetensors")


if __name__ == "__main__":
    main()
