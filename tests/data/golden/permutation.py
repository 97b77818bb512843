#!/usr/bin/env python3
"""Prints Permutation(count, key) of common/data/sampler.h, written again from its description; the test holds
what it prints."""

MASK = 2**64 - 1


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & MASK
    return x ^ x >> 31


def order(count, key):
    half = 1
    while 4**half < count:
        half += 1
    once = {}
    for x in range(4**half):
        left, right = x >> half, x % 2**half
        for turn in range(8):
            left, right = right, left ^ mix(mix((key + turn) & MASK) ^ right) % 2**half
        once[x] = left << half | right
    out = []
    for x in range(count):
        x = once[x]
        while x >= count:
            x = once[x]
        out.append(x)
    return out


print(order(10, 1))
print(order(16, 2**64 - 1))
