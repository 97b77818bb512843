// GPT-2's tokenizer: byte-level byte pair encoding. No torch.
//
// Ids 0 .. 255 are the bytes in GPT-2's order, the merges follow in the order in which they were learnt, the
// last id (50256) ends a text. Text is cut into pieces (bpe/split.h). Within a piece, the two neighbours
// whose merge was learnt first become one token, the leftmost if several are equal, until no two neighbours
// merge. The ids equal tiktoken's for every UTF-8 text (tests/data/bpe_golden_test.cpp). decode() gives every
// text back byte for byte. Text that is not UTF-8 is encoded too: cutting sees each wrong byte as a character
// that is neither letter, number nor white space, and merges see bytes, so that a wrong byte changes only its
// own piece and the pieces next to it. tiktoken's public functions refuse such text; its private
// _encode_bytes() merges everything from the piece before the first wrong byte on as one piece ("\xFF's" is
// 187 338 there, 187 6 82 here).
#pragma once

#include <unordered_map>

#include "common/data/tokenizer.h"
#include "common/storage/file_ops.h"

namespace sc {

class BpeTokenizer final : public Tokenizer {
 public:
  /// Reads the merges.
  ///   Input   the text of a vocab.bpe: a heading line, then "left right" on each line, in the order of rank.
  ///           Messages call it `where`.
  ///   Errors  InputError (exit 65) with the line: not two symbols, an unknown symbol, a duplicate token,
  ///           more ids than TokenId holds.
  BpeTokenizer(std::string_view name, std::string_view merges, const std::string& where);

  [[nodiscard]] std::string_view name() const override { return name_; }
  [[nodiscard]] std::int64_t vocab() const override { return static_cast<std::int64_t>(tokens_.size()) + 1; }
  [[nodiscard]] TokenId end_of_text() const override { return static_cast<TokenId>(tokens_.size()); }
  /// Encodes a text in time proportional to its length, times the logarithm of its longest piece's. Any
  /// number of threads may do so at once.
  [[nodiscard]] std::vector<TokenId> encode(std::string_view text) const override;
  [[nodiscard]] std::string decode(std::span<const TokenId> ids) const override;
  /// The ids of one piece by merging alone, without encode()'s shortcut for pieces that are one token.
  [[nodiscard]] std::vector<TokenId> merge(std::string_view piece) const;

 private:
  struct Scratch;
  [[nodiscard]] const TokenId* merged(TokenId left, TokenId right) const;
  void add_merge(std::string_view left, std::string_view right, const std::string& where, std::size_t line);
  void merge_into(std::string_view piece, Scratch& scratch, std::vector<TokenId>& ids) const;
  void push_merge(Scratch& scratch, std::size_t left) const;

  std::string name_;
  std::vector<std::string> tokens_;                         // bytes of each id except the last
  std::unordered_map<std::string, TokenId> id_of_;          // inverse of tokens_
  std::unordered_map<std::uint32_t, TokenId> merge_to_id_;  // left << 16 | right -> the merged id
  std::vector<TokenId> byte_id_;                            // [256]
};

/// The path of the merges of GPT-2's release in the source tree (bpe/SOURCE.md).
Path gpt2_merges();
inline constexpr std::string_view kGpt2MergesSha256 =
    "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5";

/// GPT-2's tokenizer with 50257 ids, made from a file of its merges.
///   Errors  InputError: exit 69 if the file is absent, 65 if its hash is not kGpt2MergesSha256.
std::unique_ptr<BpeTokenizer> gpt2_tokenizer(const Path& merges = gpt2_merges());

}  // namespace sc
