#!/usr/bin/env python3
"""Keeps the links between this machine's GPUs awake while something else trains on them: 1 MiB from each GPU to the next, a hundred
times a second, until it is ended. It prints "awake" when the first copies have arrived.

Links that carry nothing fall asleep (nvidia-smi nvlink -gLowPwrInfo says after how long: 50 ms on an H200). Whether awake ones take power that
a chip at its limit then lacks is what gpu.py asks with it: ranks that exchange gradients keep them awake, a run on one GPU does not."""
import sys
import time

import torch

BYTES = 2**20  # over all links of a pair: a copy of some bytes would wake one of them

gpus = torch.cuda.device_count()
if gpus < 2:
    sys.exit(f"error: links_awake.py: {gpus} GPU here, links are between two")
buffers = [torch.zeros(2, BYTES, dtype=torch.uint8, device=f"cuda:{gpu}") for gpu in range(gpus)]
said = False
while True:
    for gpu in range(gpus):
        buffers[(gpu + 1) % gpus][1].copy_(buffers[gpu][0])
    for gpu in range(gpus):
        torch.cuda.synchronize(gpu)
    if not said:
        print("awake", flush=True)
        said = True
    time.sleep(0.01)
