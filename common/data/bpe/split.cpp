#include "common/data/bpe/split.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "common/input/utf8.h"

namespace sc {
namespace {

constexpr std::uint32_t kRuns[] = {
#include "common/data/bpe/unicode_runs.inc"
};
constexpr std::uint32_t kClassBits = 2, kClassMask = 3, kUnicodeEnd = 0x110000;

constexpr CharClass class_by_search(std::uint32_t code) {
  const auto after = std::upper_bound(std::begin(kRuns), std::end(kRuns), code << kClassBits | kClassMask);
  return static_cast<CharClass>(*std::prev(after) & kClassMask);
}

constexpr std::uint32_t kAsciiCodes = 0x80;
constexpr std::array<CharClass, kAsciiCodes> kAscii = [] {
  std::array<CharClass, kAsciiCodes> classes{};
  for (std::uint32_t code = 0; code < kAsciiCodes; ++code) classes[code] = class_by_search(code);
  return classes;
}();

struct Char {
  CharClass kind;
  std::size_t length;
};

/// The first character of `text`. A byte that is not UTF-8 counts as a character.
Char first_char(std::string_view text) {
  const Utf8Char c = first_utf8(text);
  if (c.state != Utf8Char::State::complete) return {CharClass::other, 1};
  return {char_class(c.code), c.length};
}

/// The length in bytes of a contraction's end ('s, 're, ...) at the start of `text`; 0 if there is none.
std::size_t contraction(std::string_view text) {
  if (text[0] != '\'' || text.size() < 2) return 0;
  if (std::string_view("stmd").find(text[1]) != std::string_view::npos) return 2;
  const std::string_view two = text.substr(1, 2);
  return two == "re" || two == "ve" || two == "ll" ? 3 : 0;
}

}  // namespace

CharClass char_class(char32_t code) {
  if (code < kAsciiCodes) return kAscii[code];
  return code < kUnicodeEnd ? class_by_search(code) : CharClass::other;
}

std::size_t first_piece(std::string_view text) {
  if (const std::size_t length = contraction(text); length > 0) return length;
  std::size_t at = 0;
  Char first = first_char(text);
  if (text[0] == ' ' && text.size() > 1) {
    const Char second = first_char(text.substr(1));
    if (second.kind != CharClass::space) {
      first = second;
      at = 1;
    }
  }
  std::size_t last = at;  // where the run's last character begins
  for (Char next = first; next.kind == first.kind;) {
    last = at;
    at += next.length;
    if (at == text.size()) return at;
    next = first_char(text.substr(at));
  }
  return first.kind == CharClass::space && last > 0 ? last : at;
}

}  // namespace sc
