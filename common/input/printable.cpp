#include "common/input/printable.h"

#include "common/input/utf8.h"

namespace sc {
namespace {

/// Whether a character controls a terminal, breaks a line or turns the direction of writing.
constexpr bool steers(char32_t code) {
  return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x200E || code == 0x200F ||
         (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
}

std::string escaped(std::string_view text, std::string_view allowed) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Char c = first_utf8(text);
    const bool whole = c.state == Utf8Char::State::complete;
    const std::string_view character = text.substr(0, whole ? c.length : 1);
    text.remove_prefix(character.size());
    if (whole && (!steers(c.code) || allowed.find(character) != std::string_view::npos)) {
      out += character;
      continue;
    }
    for (const char byte : character) {
      const auto value = static_cast<unsigned char>(byte);
      out += {'\\', 'x', kDigits[value >> 4U], kDigits[value & 0xFU]};
    }
  }
  return out;
}

/// The first `most` bytes of a text, or up to 3 fewer so that no UTF-8 character is cut.
std::string_view begin_of(std::string_view text, std::size_t most) {
  std::size_t end = most;
  while (end > 0 && end + 3 > most && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

}  // namespace

std::string printable(std::string_view text) { return escaped(text, "\n\t"); }

std::string shown(std::string_view text, std::size_t most) {
  if (text.size() <= most) return escaped(text, "");
  return escaped(begin_of(text, most), "") + "... (" + std::to_string(text.size()) + " bytes)";
}

std::string shown_message(std::string_view text) {
  constexpr std::size_t kMost = 12000, kEnd = 2000;  // a path has up to 4096 bytes, and a message may quote
                                                     // two
  if (text.size() <= kMost) return printable(text);
  const std::size_t left_out = text.size() - kMost;
  return printable(begin_of(text, kMost - kEnd)) + " ... (" + std::to_string(left_out) +
         " bytes are left out) ... " + printable(text.substr(text.size() - kEnd));
}

}  // namespace sc
