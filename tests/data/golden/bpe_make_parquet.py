#!/usr/bin/env python3
"""Makes bpe_texts.parquet for bpe_prepare_process_test.cpp: three texts, one missing and one empty.

  .deps/prepare/bin/python tests/data/golden/bpe_make_parquet.py
"""
import pathlib

import pyarrow
import pyarrow.parquet

table = pyarrow.table({"id": [1, 2, 3, 4, 5], "text": ["one", "two", None, "", "\u00e9"]})
pyarrow.parquet.write_table(table, pathlib.Path(__file__).parent / "bpe_texts.parquet", row_group_size=2)
