#include "common/data/rows.h"

#include <algorithm>

namespace sc {

Rows::Rows(std::span<const TokenId> tokens, const RowFormat& format) : tokens_(tokens), format_(format) {
  if (format_.packing == Packing::pack) {
    count_ = std::max<std::int64_t>(0, num_tokens() - 1) / format_.sequence;
    unread_ = num_tokens() - (count_ > 0 ? count_ * format_.sequence + 1 : 0);
  } else {
    find_documents();
    count_ = static_cast<RowIndex>(documents_.size());
  }
}

void Rows::find_documents() {
  for (auto begin = tokens_.begin(); begin != tokens_.end();) {
    const auto end = std::find(begin, tokens_.end(), format_.end_of_text);
    if (begin != end) documents_.push_back({begin - tokens_.begin(), end - begin});
    unread_ += std::max<std::int64_t>(0, end - begin - format_.sequence - 1);
    begin = end == tokens_.end() ? end : end + 1;
  }
}

std::int64_t Rows::targets(RowIndex row) const {
  if (format_.packing != Packing::pad_masked) return format_.sequence;
  // A document of n tokens has n targets: its tokens but for the first, and the end of text.
  return std::min(documents_[static_cast<std::size_t>(row)].length, format_.sequence);
}

void Rows::fill(RowIndex row, std::span<std::int64_t> tokens, std::span<std::int64_t> targets) const {
  const std::int64_t length = format_.sequence;
  if (format_.packing == Packing::pack) {
    const auto source =
        tokens_.subspan(static_cast<std::size_t>(row * length), static_cast<std::size_t>(length) + 1);
    std::copy(source.begin(), source.end() - 1, tokens.begin());
    std::copy(source.begin() + 1, source.end(), targets.begin());
    return;
  }
  const Document& document = documents_[static_cast<std::size_t>(row)];
  const auto at = [&](std::int64_t i) -> std::int64_t {
    return i < document.length ? tokens_[static_cast<std::size_t>(document.begin + i)] : format_.end_of_text;
  };
  const bool masked = format_.packing == Packing::pad_masked;
  for (std::int64_t i = 0; i < length; ++i) {
    const auto slot = static_cast<std::size_t>(i);
    tokens[slot] = at(i);
    targets[slot] = masked && i >= document.length ? kNoTarget : at(i + 1);
  }
}

}  // namespace sc
