// Decodes UTF-8 from arbitrary bytes. The standard library alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sc {

/// The first character of a text that is not empty.
///   complete    `code`, and the `length` of its bytes.
///   incomplete  all of the text (`length` bytes, at most 3) is the beginning of a character.
///   wrong       no character; `length` bytes (at least 1) are the longest beginning of one. Overlong forms,
///               surrogates and code points past U+10FFFF are wrong.
///   Source      Unicode 16.0, table 3-7.
struct Utf8Char {
  enum class State : std::uint8_t { complete, incomplete, wrong };
  State state;
  std::uint8_t length;
  char32_t code;
};
Utf8Char first_utf8(std::string_view text);

/// Joins bytes that arrive in parts, such as tokens, into UTF-8 for a terminal. An incomplete character waits
/// for its other bytes; if they never come, its longest beginning becomes one U+FFFD (Unicode 16.0, section
/// 3.9).
class Utf8Stream {
 public:
  [[nodiscard]] std::string push(std::string_view bytes);
  [[nodiscard]] std::string finish();

 private:
  std::string pending_;
};

}  // namespace sc
