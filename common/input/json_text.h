// What every JSON text from elsewhere must keep to before a parser sees it. The standard library alone.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

namespace sc {

/// Objects and lists within each other. The deepest file of this project has 7.
inline constexpr int kMostJsonDepth = 64;

/// What a file of one kind may be: follows from what the largest useful one needs.
struct JsonLimits {
  std::size_t bytes;                           // of the text
  std::size_t memory = std::size_t{32} << 20;  // of its values in memory, rounded up
};

/// What is wrong with a text, in words for a message; and where, as offset, line and column (1-based, of
/// bytes).
class JsonError : public std::runtime_error {
 public:
  JsonError(std::string_view text, std::size_t byte, const std::string& what);
  [[nodiscard]] std::size_t byte() const { return byte_; }
  [[nodiscard]] std::size_t line() const { return line_; }
  [[nodiscard]] std::size_t column() const { return column_; }

 private:
  std::size_t byte_, line_, column_;
};

/// One pass without memory: size, zero bytes, depth, keys' lengths, and what the values would take. A text
/// that passes may still be no JSON.
///   Errors  JsonError
void require_bounded(std::string_view text, const JsonLimits& limits);

/// "is larger than 64.0 KiB": for a file that is too large to be read at all.
std::string too_large(std::size_t limit);

}  // namespace sc
