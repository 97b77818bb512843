#!/usr/bin/env python3
"""padding.py's count of targets that are text, with a token file made here; and its command line in a
record."""
import array
import tempfile
import unittest

import padding

END = 256


def documents(*lengths):
    return [token for length in lengths for token in [*[7] * length, END]]


class Share(unittest.TestCase):
    def share(self, tokens, rows, sequence):
        with tempfile.NamedTemporaryFile(suffix=".bin") as file:
            file.write(bytes(256 * 4) + array.array("H", tokens).tobytes())
            file.flush()
            return padding.share_of_text(
                {
                    "data.source": file.name,
                    "data.tokenizer": "byte",
                    "data.validation_fraction": "0.5",
                    "data.validation_rows": str(rows),
                    "batch.sequence": str(sequence),
                }
            )

    def test_counts_the_tail_cut_at_the_rows_length(self):
        # The tail is the second half of the text: documents of 2, 4 and 20 tokens, each with an end token.
        self.assertEqual(self.share(documents(28, 2, 4, 20), rows=3, sequence=8), (2 + 4 + 8) / 24)

    def test_takes_the_rows_that_the_sampler_takes(self):
        self.assertEqual(self.share(documents(28, 2, 4, 20), rows=1, sequence=8), 2 / 8)  # row 0 alone
        self.assertEqual(
            self.share(documents(28, 2, 4, 20), rows=2, sequence=8), (2 + 4) / 16
        )  # rows 0 and 3 // 2

    def test_an_end_without_tokens_is_no_document(self):
        self.assertEqual(self.share(documents(29, 2, 0, 0, 0, 23), rows=2, sequence=8), (2 + 8) / 16)


if __name__ == "__main__":
    unittest.main(verbosity=0)
