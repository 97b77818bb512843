// Converts text to token ids and back. No torch.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sc {

/// The id of a token as token files hold it: vocabularies have at most 65,536 entries.
using TokenId = std::uint16_t;

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  /// The tokenizer's name, part of the cache's file names: equal names mean equal ids for every text.
  [[nodiscard]] virtual std::string_view name() const = 0;
  /// The number of different ids, which are 0 .. vocab() - 1.
  [[nodiscard]] virtual std::int64_t vocab() const = 0;
  [[nodiscard]] virtual TokenId end_of_text() const = 0;
  /// The ids of a text, without end_of_text(): the caller knows where documents end.
  [[nodiscard]] virtual std::vector<TokenId> encode(std::string_view text) const = 0;
  /// The text of `ids`, in which end_of_text() yields nothing.
  ///   Errors  std::out_of_range if an id is not below vocab().
  [[nodiscard]] virtual std::string decode(std::span<const TokenId> ids) const = 0;
};

/// Ids 0 .. 255 are the bytes of the text, 256 is the end of a text. Any file can be encoded.
class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr TokenId kEndOfText = 256;
  [[nodiscard]] std::string_view name() const override { return "byte"; }
  [[nodiscard]] std::int64_t vocab() const override { return kEndOfText + 1; }
  [[nodiscard]] TokenId end_of_text() const override { return kEndOfText; }
  [[nodiscard]] std::vector<TokenId> encode(std::string_view text) const override;
  [[nodiscard]] std::string decode(std::span<const TokenId> ids) const override;
};

/// Makes the tokenizer that `data.tokenizer` names.
///   Errors  InputError (exit 64)if this program lacks the tokenizer; token files made with it are readable.
std::unique_ptr<Tokenizer> make_tokenizer(std::string_view name);

/// The end-of-text id of a tokenizer by its name: 256 (byte), 50256 (gpt2).
TokenId end_of_text_of(std::string_view tokenizer);

}  // namespace sc
