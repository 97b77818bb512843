#include "common/data/tokenizer.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <stdexcept>

#include "common/base/check.h"
#include "common/data/bpe_tokenizer.h"

namespace sc {

std::vector<TokenId> ByteTokenizer::encode(std::string_view text) const {
  std::vector<TokenId> ids(text.size());
  std::transform(text.begin(), text.end(), ids.begin(), [](char c) { return static_cast<unsigned char>(c); });
  return ids;
}

std::string ByteTokenizer::decode(std::span<const TokenId> ids) const {
  std::string text;
  text.reserve(ids.size());
  for (const TokenId id : ids) {
    if (id > kEndOfText) throw std::out_of_range(fmt::format("byte tokenizer: id {}", id));
    if (id != kEndOfText) text.push_back(static_cast<char>(id));
  }
  return text;
}

std::unique_ptr<Tokenizer> make_tokenizer(std::string_view name) {
  if (name == "byte") return std::make_unique<ByteTokenizer>();
  if (name == "gpt2") return gpt2_tokenizer();
  throw InputError(
      ExitCode::usage, "data.tokenizer",
      fmt::format("\"{}\" cannot turn text into tokens here; this program has: byte, gpt2", name),
      "--set data.tokenizer=byte, or --data with a token file made by that tokenizer");
}

TokenId end_of_text_of(std::string_view tokenizer) {
  constexpr TokenId kGpt2EndOfText = 50256;
  return tokenizer == "gpt2" ? kGpt2EndOfText : ByteTokenizer::kEndOfText;
}

}  // namespace sc
