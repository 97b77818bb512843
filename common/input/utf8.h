// UTF-8, whatever bytes come. The standard library alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sc {

/// The character that `text` (not empty) begins with.
///   complete    `code` and the `length` of its bytes.
///   incomplete  all of `text` (`length` bytes, at most 3) begins a character whose other bytes would follow.
///   wrong       no character begins so; `length` bytes (at least 1) are the longest beginning of one.
/// Overlong forms, surrogates and what lies past U+10FFFF are wrong.  Source: Unicode 16.0, table 3-7.
struct Utf8Char {
  enum class State : std::uint8_t { complete, incomplete, wrong };
  State state;
  std::uint8_t length;
  char32_t code;
};
Utf8Char first_utf8(std::string_view text);

/// Bytes that arrive in parts, as text for a terminal: a token may end in the middle of a character, so the
/// tail waits until its character is complete. Each longest beginning of a character that nothing completes
/// becomes one U+FFFD (Unicode 16.0, section 3.9).
class Utf8Stream {
 public:
  /// Returns what is complete by now: always UTF-8.
  [[nodiscard]] std::string push(std::string_view bytes);
  /// The end: an incomplete character becomes U+FFFD.
  [[nodiscard]] std::string finish();

 private:
  std::string pending_;
};

}  // namespace sc
