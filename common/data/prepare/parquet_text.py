#!/usr/bin/env python3
"""Writes the texts of one column of a parquet file to standard output, for `prepare` (parquet.h describes the
frames).

usage: parquet_text.py FILE COLUMN
"""
import struct
import sys

BATCH_ROWS = 1024


def frame(kind, content=b""):
    sys.stdout.buffer.write(kind + struct.pack("<Q", len(content)) + content)


def fail(kind, what, fix):
    frame(kind, f"{what}\n{fix}".encode())
    sys.stdout.buffer.flush()
    sys.exit(0)


def texts(path, column):
    import pyarrow
    import pyarrow.parquet

    try:
        file = pyarrow.parquet.ParquetFile(path)
    except (pyarrow.ArrowInvalid, OSError) as error:
        fail(
            b"E",
            f"not a parquet file: {str(error).splitlines()[0]}",
            "give a parquet file, or name another --format",
        )
    names = file.schema_arrow.names
    if column not in names:
        fail(b"E", f'has no column "{column}"; it has {", ".join(names)}', "--column NAME")
    kind = file.schema_arrow.field(column).type
    if not (
        pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind) or pyarrow.types.is_binary(kind)
    ):
        fail(b"E", f'column "{column}" holds {kind}, not text', f"--column NAME, one of {', '.join(names)}")
    try:
        for batch in file.iter_batches(BATCH_ROWS, columns=[column]):
            for value in batch.column(0):
                if value.is_valid:
                    yield value.as_buffer()
    except (pyarrow.ArrowException, OSError) as error:
        fail(b"E", f"damaged: {str(error).splitlines()[0]}", "fetch the file again")


def main():
    path, column = sys.argv[1:]
    try:
        for text in texts(path, column):
            frame(b"D", bytes(text))
    except ImportError as error:
        fail(b"M", f"{sys.executable} has no pyarrow: {error}", "common/data/prepare/setup_parquet.sh")
    except BrokenPipeError:  # prepare ended, and has said why
        sys.stderr.close()
        return
    frame(b"Z")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
