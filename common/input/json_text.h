// The bounds that untrusted JSON must keep before a parser sees it. The standard library alone.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

namespace sc {

/// The deepest allowed nesting of objects and lists. The deepest file of this project has 7.
inline constexpr int kMostJsonDepth = 64;

/// The bounds for one kind of file, chosen by its largest useful instance.
struct JsonLimits {
  std::size_t bytes;                           // size of the text
  std::size_t memory = std::size_t{32} << 20;  // its values in memory, estimated from above
};

/// What is wrong with a text, in words, and where: offset, and line and column (1-based, in bytes).
class JsonError : public std::runtime_error {
 public:
  JsonError(std::string_view text, std::size_t byte, const std::string& what);
  [[nodiscard]] std::size_t byte() const { return byte_; }
  [[nodiscard]] std::size_t line() const { return line_; }
  [[nodiscard]] std::size_t column() const { return column_; }

 private:
  std::size_t byte_, line_, column_;
};

/// Checks size, zero bytes, depth, key lengths and the estimated memory of the values, in one pass without
/// allocation. A text that passes may still not be JSON.
///   Errors  JsonError
void require_bounded(std::string_view text, const JsonLimits& limits);

/// "is larger than 64.0 KiB": the message for a file too large to be read at all.
std::string too_large(std::size_t limit);

}  // namespace sc
