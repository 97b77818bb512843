#!/usr/bin/env python3
"""Copies 1 MiB into each of the first --gpus GPUs every 20 ms until it is ended: far too little to fill a
link, so that what it costs a program there is the power of links that never rest, and what --within costs it.
The copies come from other GPUs, which do the work: from those behind the first ones where there are any, and
else from each other, beside the program. --within: no link is used; the sources copy within themselves.

  tests/benchmarks/gpu_copies.py --gpus 2 [--within]
"""
import ctypes
import itertools
import sys
import time

from harness import arguments

BYTES, PERIOD = 1 << 20, 0.02
DEFAULT = 4  # cudaMemcpyDefault: where from and where to, by the addresses


def sources_of(gpus, there):
    """The GPU that copies into each of the first `gpus` of `there`."""
    idle = range(gpus, there)
    return [idle[gpu % len(idle)] if idle else (gpu + 1) % there for gpu in range(gpus)]


def main():
    asked = {"--gpus": {"type": int, "required": True}, "--within": {"action": "store_true"}}
    args = arguments(__doc__, asked)
    import torch  # takes seconds, and sources_of needs none

    there = torch.cuda.device_count()
    if not 0 < args.gpus <= there or there < 2:
        sys.exit(
            f"error: --gpus {args.gpus}: this machine has {there}\n  fix: at least two GPUs, and no more "
            "than there are"
        )
    pairs = []
    for gpu, source in enumerate(sources_of(args.gpus, there)):
        pairs.append(
            [
                torch.zeros(BYTES, dtype=torch.uint8, device=f"cuda:{index}")
                for index in (source, source if args.within else gpu)
            ]
        )
        pairs[-1][1].copy_(pairs[-1][0])  # once by PyTorch, which lets the source reach the other
    # Later copies call the CUDA runtime directly: PyTorch's copies also make work for the GPU that is copied
    # to.
    runtime = ctypes.CDLL(f"libcudart.so.{torch.version.cuda.split('.')[0]}")
    streams = [torch.cuda.Stream(source.device) for source, _ in pairs]
    for gpu in range(there):
        torch.cuda.synchronize(gpu)
    for turn in itertools.count():
        for (source, target), stream in zip(pairs, streams, strict=True):
            with torch.cuda.device(source.device):
                failed = runtime.cudaMemcpyAsync(
                    ctypes.c_void_p(target.data_ptr()),
                    ctypes.c_void_p(source.data_ptr()),
                    ctypes.c_size_t(BYTES),
                    DEFAULT,
                    ctypes.c_void_p(stream.cuda_stream),
                )
                stream.synchronize()
            if failed:
                sys.exit(
                    f"error: cudaMemcpyAsync: {failed}\n  fix: GPUs that reach each other (nvidia-smi topo "
                    "-p2p r)"
                )
        if turn == 0:
            print("copying", flush=True)
        time.sleep(PERIOD)


if __name__ == "__main__":
    main()
