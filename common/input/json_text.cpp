#include "common/input/json_text.h"

#include <algorithm>

namespace sc {
namespace {

constexpr std::size_t kMostKey = 1000;  // in bytes; the longest key of this project has 80
// Bytes that nlohmann-json allocates, rounded up: for an element of a growing list; an empty list or object;
// a key's tree node; a string without its characters.
constexpr std::size_t kValue = 32, kContainer = 64, kKey = 96, kString = 48;

}  // namespace

JsonError::JsonError(std::string_view text, std::size_t byte, const std::string& what)
    : std::runtime_error(what), byte_(std::min(byte, text.size())) {
  const std::string_view before = text.substr(0, byte_);
  const std::size_t last = before.rfind('\n');
  line_ = 1 + static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n'));
  column_ = byte_ - (last == std::string_view::npos ? 0 : last + 1) + 1;
}

void require_bounded(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.bytes) throw JsonError(text, 0, too_large(limits.bytes));
  std::size_t at = 0, memory = 0;
  std::size_t begin = 0, end = 0;  // of the last string
  int depth = 0;
  bool in_string = false, escaped = false;
  const auto fail = [&](const std::string& what) { throw JsonError(text, at, what); };
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '\0') fail("a zero byte; JSON has none");
    if (in_string) {
      ++memory;
      in_string = escaped || c != '"';
      escaped = !escaped && c == '\\';
      end = at;
    } else if (c == '"') {
      in_string = true;
      begin = at + 1;
      memory += kString;
    } else if (c == '{' || c == '[') {
      if (++depth > kMostJsonDepth)
        fail("lists and objects are nested deeper than " + std::to_string(kMostJsonDepth));
      memory += kContainer + kValue;
    } else if (c == '}' || c == ']') {
      depth = std::max(0, depth - 1);
    } else if (c == ':') {
      if (end - begin > kMostKey)
        fail("a key of " + std::to_string(end - begin) + " bytes: no key is that long");
      memory += kKey;
    } else if (c == ',') {
      memory += kValue;
    }
    if (memory > limits.memory)
      fail("holds more values than any file of its kind: they would take more than " +
           std::to_string(limits.memory >> 20U) + " MiB");
  }
}

std::string too_large(std::size_t limit) {
  const bool mega = limit >= std::size_t{1} << 20U;
  return "is larger than " + std::to_string(limit >> (mega ? 20U : 10U)) + (mega ? " MiB" : " KiB") +
         ": nothing of its kind needs that much";
}

}  // namespace sc
