#include "common/input/utf8.h"

#include <utility>

namespace sc {
namespace {

constexpr unsigned kAsciiEnd = 0x80, kTailBits = 6, kTailMask = 0x3F;
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // the replacement character, U+FFFD

/// What a UTF-8 lead byte demands: the character's length in bytes (0: no character begins so), and the range
/// of its second byte.
struct Lead {
  std::uint8_t length, second_min, second_max;
};

constexpr Lead lead_of(unsigned byte) {
  if (byte >= 0xC2 && byte <= 0xDF) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte >= 0xF1 && byte <= 0xF3) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Char first_utf8(std::string_view text) {
  using State = Utf8Char::State;
  const auto byte = [&](std::size_t at) { return unsigned{static_cast<unsigned char>(text[at])}; };
  if (byte(0) < kAsciiEnd) return {State::complete, 1, byte(0)};
  const Lead lead = lead_of(byte(0));
  if (lead.length == 0) return {State::wrong, 1, 0};
  char32_t code = byte(0) & (0xFFU >> (lead.length + 1U));
  for (std::uint8_t at = 1; at < lead.length; ++at) {
    if (at == text.size()) return {State::incomplete, at, 0};
    const bool fits = at == 1 ? byte(at) >= lead.second_min && byte(at) <= lead.second_max
                              : (byte(at) & ~kTailMask) == kAsciiEnd;
    if (!fits) return {State::wrong, at, 0};
    code = code << kTailBits | (byte(at) & kTailMask);
  }
  return {State::complete, lead.length, code};
}

std::string Utf8Stream::push(std::string_view bytes) {
  pending_ += bytes;
  std::string_view rest = pending_;
  std::string text;
  while (!rest.empty()) {
    const Utf8Char c = first_utf8(rest);
    if (c.state == Utf8Char::State::incomplete) break;
    text += c.state == Utf8Char::State::complete ? rest.substr(0, c.length) : kReplacement;
    rest.remove_prefix(c.length);
  }
  pending_ = std::string(rest);
  return text;
}

std::string Utf8Stream::finish() {
  return std::exchange(pending_, {}).empty() ? std::string() : std::string(kReplacement);
}

}  // namespace sc
