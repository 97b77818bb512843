#!/usr/bin/env python3
"""Makes bpe_golden.json, what tiktoken makes of real and of hostile text and bytes; bpe_golden_test.cpp
compares.

  python3 -m venv /tmp/oracle && /tmp/oracle/bin/pip install tiktoken==0.14.0
  /tmp/oracle/bin/python tests/data/golden/bpe_make_golden.py

tiktoken fetches GPT-2's merges from the net; here they come from common/data/bpe/vocab.bpe, whose sha256 is
that of GPT-2's release. The splitting pattern is tiktoken's own. Contents:
  classes   sha256 of one byte for each code point 0 .. 0x10FFFF: 0 other (and surrogates), 1 letter,
            2 number, 3 white space
  austen    count and sha256 of the ids (uint16, little-endian) of the whole corpus
  mixture   fragments, and the same of a text of 400,000 of them, chosen by a linear congruence that the test
            repeats
  cases     texts with their ids
  wrong     the same of bytes that are not UTF-8: `mixture` with more fragments, `cases`. Their `ids` are
            those of by_pieces(), tiktoken's pattern and merges with each wrong byte as a character;
            `tiktoken` has those of its _encode_bytes() where they are others
"""
import gzip
import hashlib
import json
import pathlib
import struct

import regex
import tiktoken
from tiktoken_ext.openai_public import r50k_pat_str

HERE = pathlib.Path(__file__).parent
DATA = HERE.parents[2] / "common" / "data"
MERGES_SHA256 = "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"

FRAGMENTS = (
    [
        "'s",
        "'t",
        "'re",
        "'ve",
        "'m",
        "'ll",
        "'d",
        "'S",
        "'LL",
        "'",
        "''",
        "'r",
        "'l",
        "'v",
        " '",
        " 's",
        "\u2019s",
        "\u2019",
    ]
    + [
        chr(code)
        for code in (
            0x09,
            0x0A,
            0x0B,
            0x0C,
            0x0D,
            0x1C,
            0x1F,
            0x20,
            0x85,
            0xA0,
            0x1680,
            0x180E,
            0x2003,
            0x200B,
        )
    ]
    + [
        chr(code)
        for code in (
            0x2028,
            0x2029,
            0x202F,
            0x205F,
            0x3000,
            0xFEFF,
            0x00,
            0x7F,
            0xFFFD,
            0xFFFF,
            0x10FFFF,
            0xE000,
        )
    ]
    + [
        " ",
        " ",
        "  ",
        "   ",
        "\n\n",
        "\r\n",
        " \n",
        "\t\t",
        "the",
        " the",
        "The",
        "THE",
        " I",
        "a",
        "aa",
        "aaaaaaaa",
        "ing",
        "un",
    ]
    + [
        "0",
        "1",
        "2024",
        " 7",
        "3.14",
        "\u00bd",
        "\u00b2",
        "\u2163",
        "\u0664",
        "\u0967",
        "\u3007",
        "\U0001d7d8",
        "\U00010d40",
    ]
    + [
        "\u00e9",
        "e\u0301",
        "\u00df",
        "\u0130",
        "\u0450",
        "\u0434\u0430",
        "\u05d0",
        "\u0639\u0631",
        "\u0e01\u0e33",
        "\u0915\u094d\u0937",
    ]
    + [
        "\u4e2d",
        "\u6587",
        "\u65e5\u672c\u8a9e",
        "\ud55c\uad6d",
        "\U00020000",
        "\u1c89",
        "\ua7cb",
        "\U000105c0",
        "\U00032000",
    ]
    + [
        "\U0001f600",
        "\U0001f468\u200d\U0001f469\u200d\U0001f467",
        "\u2764\ufe0f",
        "\u0301",
        "\u00ad",
        "\U000e0041",
        "\U000f0000",
    ]
    + [
        "!",
        "?!",
        "...",
        "----",
        "====",
        "<|endoftext|>",
        "<|",
        "|>",
        "_",
        "#",
        "//",
        "{}",
        "\\",
        '"',
        "`",
        "$",
        "+",
        "~",
        "@-@",
    ]
)
CASES = [
    "", " ", "  ", "\n", " \n ", "\n\n\n", "a", " a", "  a", "   a", "a ", "a  ", "a\n", "a\n\nb", "a \n b",
    "\ta\t\tb", "\r\n\r\nx",
    "I'm we're they've he'd she'll it's can't", "I'M WE'RE", "'s", " 's", "''s", "x's's", "'sam", "don''t",
    "'", "'x",
    "Hello, world! 123 1234567890", "x=1;y+=22//c", "a_b__c", "3.14159e-10", "\u00bd\u00b2 \u2163x",
    "a1b22c333",
    "\u00a0x", " \u00a0x", "\u00a0\u00a0x", "\u3000\u3000\u4e2d\u6587", "\u200bx \u200b", "\ufeffBOM",
    "\x00\x01\x02", "a\x00b", "\x1c\x1d\x1e\x1fx",
    "\u0085x\u2028y\u2029z", "e\u0301\u0301\u0301 cafe\u0301", "\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22",
    "\u0939\u093f\u0928\u094d\u0926\u0940",
    "\u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u0661\u0662\u0663",
    "\u65e5\u672c\u8a9e\u30c6\u30ad\u30b9\u30c8", "\ud55c\uad6d\uc5b4",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea",
    "\U00020000\U0002a6df \U00030000", "\U000e0001\U000f0000\U0010fffd", "\ufffe\uffff\U0001ffff\U0010ffff",
    "\u1c89\ua7cb\U00010d40\U00016100",
    "<|endoftext|>", "a<|endoftext|>b", "antidisestablishmentarianism", "Donaudampfschifffahrtsgesellschaft",
    "SolidGoldMagikarp",
    "a" * 1000, "ab" * 700, " " * 500 + "x", "=" * 333, "\n" * 100, "\u00e9" * 200, "\U0001f600" * 50,
    "abcabcabd" * 40,
    "".join(chr(code) for code in range(0x20, 0x250)), "".join(chr(code) for code in range(0, 0xD800, 37)),
    "".join(chr(code) for code in range(0xE000, 0x110000, 1501)),
]  # fmt: skip

# Invalid UTF-8: lone bytes, beginnings without an end, an overlong form, a surrogate, more than U+10FFFF, a
# blank and half a letter.
WRONG_FRAGMENTS = [bytes.fromhex(text) for text in (
    "80 bf c3 e3 ff fe".split() + ["c3c3", "e697", "e381", "f09f98", "f09f", "c0af", "e08080", "eda080",
    "f4908080", "8080", "20c3", "20e381", "27ff", "0aff"]
)]  # fmt: skip
WRONG_CASES = WRONG_FRAGMENTS + [text.encode("latin-1") for text in (
    "a\xff", "\xffa", "caf\xc3", "x\xc0\xafy", "a b\xc3 d", "\xff a b", "\xff the the", "it\xff's",
    "it\xff'sx", "it's\xff it's  I'll\n\n x", "\xff\n\n\nx", "\xff     x", "\xff''s 'll\n",
    "a \xc3 'sx  \n  b", "a  \n\t\xffb  c  ", "'\xffs", "!\xff!", "!?\xff?!",
    " \xff", "  \xff", "   \xff", "\n\n\xff", "\n\n\xff\n\n", "a\n \n\xff", "\t \xff \t", "1\xff2",
    "12\xc3 34", "\xffHello world, hello", "....\xff....",
    "Hello world\x80\x81 next words", "\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa", "\xe6\x97\xa5\xe6\x97",
    "\xc3\xa9\xc3\xa9\xc3", "\xe3\x81\xae\xe3\x81", "\xf0\x9f\x98\x80\xf0\x9f\x98",
    "\x00\xff\x00", "\xc2\xa0\xff", "\xc3\x83\xc3\x82\xc3", "----\xe2\x94",
    "\xe2\x94\x80\xe2\x94\x80\xe2\x94", "\xff" * 64, "\xc3" * 33, "\xe3\x81" * 20,
)]  # fmt: skip


def byte_order():
    """GPT-2's bytes in the order of their ids, and the characters that stand for them in vocab.bpe."""
    order = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    symbols = [chr(byte) for byte in order]
    rest = [byte for byte in range(256) if byte not in order]
    return order + rest, symbols + [chr(256 + index) for index in range(len(rest))]


def gpt2():
    text = (DATA / "bpe" / "vocab.bpe").read_bytes()
    assert hashlib.sha256(text).hexdigest() == MERGES_SHA256
    order, symbols = byte_order()
    byte_of = dict(zip(symbols, order))
    ranks = {bytes([byte]): rank for rank, byte in enumerate(order)}
    for line in text.decode().split("\n")[1:-1]:
        ranks[bytes(byte_of[char] for char in line.replace(" ", ""))] = len(ranks)
    special = {"<|endoftext|>": 50256}
    return tiktoken.Encoding(
        "gpt2", pat_str=r50k_pat_str, mergeable_ranks=ranks, special_tokens=special, explicit_n_vocab=50257
    )


def classes():
    """Asks tiktoken's regular expressions: text that the pattern does not match yields no token."""
    ranks = {bytes([byte]): byte for byte in range(256)}
    table = bytearray(0x110000)
    for value, pattern in ((1, r"\p{L}"), (2, r"\p{N}"), (3, r"\s")):
        encoding = tiktoken.Encoding(pattern, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
        for code in range(0x110000):
            if not 0xD800 <= code < 0xE000 and encoding.encode_ordinary(chr(code)):
                table[code] = value
    return hashlib.sha256(table).hexdigest()


def mixture(fragments):
    state, parts = 1, []
    for _ in range(400_000):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        parts.append(fragments[(state >> 33) % len(fragments)])
    return b"".join(parts)


def by_pieces(encoding, text):
    """Python reads a wrong byte as a lone surrogate: a character that is neither letter, number nor white
    space."""
    pieces = regex.findall(r50k_pat_str, text.decode("utf-8", "surrogateescape"))
    return [
        token
        for piece in pieces
        for token in encoding._encode_single_piece(piece.encode("utf-8", "surrogateescape"))
    ]


def wrong_case(encoding, text):
    ids, tiktokens = by_pieces(encoding, text), encoding._encode_bytes(text)
    return {"bytes": text.hex(), "ids": ids} | ({} if tiktokens == ids else {"tiktoken": tiktokens})


def digest(text, ids):
    return {
        "bytes": len(text),
        "tokens": len(ids),
        "sha256": hashlib.sha256(struct.pack(f"<{len(ids)}H", *ids)).hexdigest(),
    }


def wrong(encoding):
    text = mixture([fragment.encode() for fragment in FRAGMENTS] + WRONG_FRAGMENTS)
    fragments = [fragment.hex() for fragment in WRONG_FRAGMENTS]
    return {
        "mixture": {"fragments": fragments, **digest(text, by_pieces(encoding, text))},
        "cases": [wrong_case(encoding, text) for text in WRONG_CASES],
    }


def main():
    encoding = gpt2()
    austen = gzip.decompress((DATA / "corpus" / "austen.txt.gz").read_bytes())
    hostile = mixture([fragment.encode() for fragment in FRAGMENTS])
    # by_pieces() splits with Python's expressions, so on text its ids must equal tiktoken's; otherwise its
    # ids of bytes would prove nothing.
    for text in (austen, hostile, *(text.encode() for text in CASES)):
        assert by_pieces(encoding, text) == encoding.encode_ordinary(text.decode())
    golden = {
        "made_by": f"bpe_make_golden.py, tiktoken {tiktoken.__version__}",
        "classes_sha256": classes(),
        "austen": digest(austen, encoding.encode_ordinary(austen.decode())),
        "mixture": {"fragments": FRAGMENTS, **digest(hostile, encoding.encode_ordinary(hostile.decode()))},
        "cases": [{"text": text, "ids": encoding.encode_ordinary(text)} for text in CASES],
        "wrong": wrong(encoding),
    }
    text = json.dumps(golden, separators=(",", ":"))
    for line in ('{"text"', '"wrong":{', '{"bytes":"'):
        text = text.replace(line, "\n" + line)
    text = text.replace('],"', '],\n"').replace('],\n"tiktoken"', '],"tiktoken"')
    (HERE / "bpe_golden.json").write_text(text + "\n")
    print({key: golden[key] for key in ("made_by", "classes_sha256", "austen")})


if __name__ == "__main__":
    main()
