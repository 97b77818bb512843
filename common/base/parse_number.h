/// A text that is a number from its first character to its last.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace sc {

/// The number that all of `text` spells, without spaces or '+'; none where it is no number, is followed by
/// something, or is outside of what N holds.
template <class N>
std::optional<N> parse_number(std::string_view text) {
  N number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace sc
