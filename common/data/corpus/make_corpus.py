#!/usr/bin/env python3
"""Makes austen.txt.gz from Debian's package r-cran-janeaustenr 1.0.0-1, with Python's standard library alone.

The package keeps each novel as an R character vector, one string a line, in a lazy-load database: Rdata.rdx
(gzip) lists name -> (offset, length) into Rdata.rdb; each entry there is 4 bytes big-endian length and a zlib
stream; both hold R's XDR serialization, version 3 (R Internals, section 1.8). The novels stand in order of
publication, each line ended by a newline.

usage: make_corpus.py [/usr/lib/R/site-library/janeaustenr/data]
"""
import gzip
import hashlib
import pathlib
import struct
import sys
import zlib

NOVELS = ["sensesensibility", "prideprejudice", "mansfieldpark", "emma", "northangerabbey", "persuasion"]
NIL, GLOBAL, PAIRLIST, INT, STRINGS, LIST, SYMBOL, CHAR, LOGICAL, REFERENCE = (
    254,
    253,
    2,
    13,
    16,
    19,
    1,
    9,
    10,
    255,
)


class Xdr:
    """A reader of the value types that occur in these files."""

    def __init__(self, data):
        self.data, self.at, self.symbols = data, 0, []
        assert self.take(2) == b"X\n", "not XDR"
        version = self.int()
        self.take(8)  # R versions that wrote and that can read it
        assert version in (2, 3), version
        if version == 3:
            self.take(self.int())  # native encoding

    def take(self, count):
        self.at += count
        return self.data[self.at - count : self.at]

    def int(self):
        return struct.unpack(">i", self.take(4))[0]

    def value(self):
        flags = self.int()
        kind, has_attributes = flags & 255, flags >> 9 & 1
        if kind == NIL:
            return None
        if kind == REFERENCE:
            return self.symbols[(flags >> 8) - 1]
        if kind == SYMBOL:
            self.symbols.append(self.value())
            return self.symbols[-1]
        if kind == CHAR:
            length = self.int()
            return None if length < 0 else self.take(length)
        if kind == PAIRLIST:
            assert flags >> 10 & 1 and not has_attributes, "a pairlist with tags alone"
            tag, head, rest = self.value(), self.value(), self.value()
            return {tag: head, **(rest or {})}
        if kind in (INT, LOGICAL):
            out = [self.int() for _ in range(self.int())]
        elif kind in (STRINGS, LIST):
            out = [self.value() for _ in range(self.int())]
        else:
            raise ValueError(f"type {kind} at byte {self.at}")
        if has_attributes:
            names = self.value().get(b"names")
            out = dict(zip(names, out)) if names else out
        return out


def main():
    source = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "/usr/lib/R/site-library/janeaustenr/data")
    index = Xdr(gzip.decompress((source / "Rdata.rdx").read_bytes())).value()[b"variables"]
    database = (source / "Rdata.rdb").read_bytes()
    text = b""
    for novel in NOVELS:
        begin, length = index[novel.encode()]
        chunk = database[begin : begin + length]
        data = zlib.decompress(chunk[4:])
        assert len(data) == struct.unpack(">I", chunk[:4])[0]
        lines = Xdr(data).value()
        text += b"\n".join(lines) + b"\n"
        print(f"{novel}: {len(lines)} lines", file=sys.stderr)
    packed = gzip.compress(text, compresslevel=9, mtime=0)
    out = pathlib.Path(__file__).parent / "austen.txt.gz"
    out.write_bytes(packed)
    for name, data in (("austen.txt", text), (out.name, packed)):
        print(f"{name}: {len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()}")


if __name__ == "__main__":
    main()
