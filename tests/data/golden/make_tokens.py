#!/usr/bin/env python3
"""Writes tokens.bin in llm.c's 2-byte format with Python's struct alone: an independent writer for the test
to compare with."""
import pathlib
import struct

TOKENS = [50256, 0, 1, 65535, 256, 318, 262]

header = [20240520, 1, len(TOKENS)] + [0] * 253
data = struct.pack("<256i", *header) + struct.pack(f"<{len(TOKENS)}H", *TOKENS)
(pathlib.Path(__file__).parent / "tokens.bin").write_bytes(data)
