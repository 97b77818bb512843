#!/usr/bin/env python3
"""Makes unicode_runs.inc: which code points GPT-2's splitting pattern calls letter, number or white space.

  pip install unicodedata2==16.0.0        # the newest Unicode data, whatever Python's own version knows
  common/data/bpe/make_unicode_runs.py

Unicode 16.0 is what tiktoken 0.14.0 uses (its regular expressions come from Rust's regex crates):
tests/data/golden/bpe_make_golden.py asks tiktoken for the class of every code point and compares. Letters are
the categories L*, numbers N*; White_Space has been exactly Zs, Zl, Zp and six controls since Unicode 6.3.
"""
import pathlib

import unicodedata2

OTHER, LETTER, NUMBER, SPACE = range(4)
CONTROLS = {0x09, 0x0A, 0x0B, 0x0C, 0x0D, 0x85}


def class_of(code):
    category = unicodedata2.category(chr(code))
    if category in ("Zs", "Zl", "Zp") or code in CONTROLS:
        return SPACE
    return {"L": LETTER, "N": NUMBER}.get(category[0], OTHER)


def main():
    assert unicodedata2.unidata_version == "16.0.0", unicodedata2.unidata_version
    runs, last = [], None
    for code in range(0x110000):
        if class_of(code) != last:
            last = class_of(code)
            runs.append(code << 2 | last)
    lines = [", ".join(f"0x{run:x}" for run in runs[i : i + 12]) + "," for i in range(0, len(runs), 12)]
    head = (
        "// Made by make_unicode_runs.py from Unicode 16.0: first code point << 2 | class of each run of "
        "equal class.\n"
    )
    out = pathlib.Path(__file__).parent / "unicode_runs.inc"
    out.write_text(head + "\n".join(lines) + "\n")
    print(f"{out.name}: {len(runs)} runs")


if __name__ == "__main__":
    main()
