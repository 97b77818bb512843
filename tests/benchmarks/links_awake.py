#!/usr/bin/env python3
"""Keeps the links between this machine's GPUs awake while something else trains on them: 16 MiB from each GPU to the next, once a
second, until it is ended. It prints "awake" when the first copies have arrived.

Links that carry nothing fall asleep (nvidia-smi nvlink -gLowPwrInfo says after how long: 5 s on an H200). Awake they take power, and a chip
that computes at its power limit has so much less for its clock. Ranks that exchange gradients keep them awake; a run on one GPU does not."""
import sys
import time

import torch

BYTES = 2**24  # over all links of a pair: a small copy would wake one of them

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
    time.sleep(1)
