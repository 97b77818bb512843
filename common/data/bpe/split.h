// The first step of GPT-2's tokenizer: cuts text into pieces, within which tokens are then merged. No torch.
//
// A piece is the first of these that fits, as GPT-2 defines it by a regular expression:
//   's 't 're 've 'm 'll 'd                        a contraction's end (lower case)
//   an optional blank, then letters                Unicode categories L*
//   an optional blank, then numbers                N*
//   an optional blank, then anything but white space, letters and numbers
//   white space, but not its last character if something follows
//   white space
// So a word carries the blank before it, and joined pieces are the text again.
// Source: github.com/openai/gpt-2, src/encoder.py. Unicode 16.0, as tiktoken 0.14.0
// (bpe/make_unicode_runs.py).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sc {

enum class CharClass : std::uint8_t { other, letter, number, space };

/// The class of a Unicode code point; `other` from 0x110000 on.
CharClass char_class(char32_t code);

/// The length in bytes of the first piece of `text`, which must not be empty. A byte that is not UTF-8 counts
/// as a character of class `other`, so that any text can be split without loss.
std::size_t first_piece(std::string_view text);

}  // namespace sc
