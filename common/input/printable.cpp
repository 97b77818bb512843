#include "common/input/printable.h"

namespace sc {
namespace {

unsigned char at(std::string_view text, std::size_t i) {
  return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
}

/// Bytes of the character that begins at `i`, 0 if none does: not UTF-8, too long a form, or half a pair.
std::size_t character_bytes(std::string_view text, std::size_t i) {
  const unsigned char first = at(text, i), second = at(text, i + 1);
  if (first < 0x80) return 1;
  const std::size_t bytes = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4) return 0;
  for (std::size_t k = 1; k < bytes; ++k) {
    if ((at(text, i + k) & 0xC0) != 0x80) return 0;
  }
  const bool wrong = (first == 0xE0 && second < 0xA0) || (first == 0xED && second >= 0xA0) ||
                     (first == 0xF0 && second < 0x90) || (first == 0xF4 && second >= 0x90);
  return wrong ? 0 : bytes;
}

bool steers(std::string_view character) {
  const unsigned char first = at(character, 0), second = at(character, 1), third = at(character, 2);
  if (character.size() == 1) return first < 0x20 || first == 0x7F;
  if (character.size() == 2) return first == 0xC2 && second < 0xA0;  // C1: U+0080 to U+009F
  const bool general = character.size() == 3 && first == 0xE2;
  // U+200E, U+200F; line and paragraph separators and U+202A to U+202E; U+2066 to U+2069.
  return general &&
         ((second == 0x80 && (third == 0x8E || third == 0x8F || (third >= 0xA8 && third <= 0xAE))) ||
          (second == 0x81 && third >= 0xA6 && third <= 0xA9));
}

void append_escaped(std::string& out, std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  for (const char byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    out += "\\x";
    out += kDigits[value >> 4U];
    out += kDigits[value & 0xFU];
  }
}

std::string escaped(std::string_view text, std::string_view allowed) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t bytes = character_bytes(text, i);
    const std::string_view character = text.substr(i, bytes == 0 ? 1 : bytes);
    const bool plain =
        bytes != 0 && (!steers(character) || allowed.find(character) != std::string_view::npos);
    if (plain) {
      out += character;
    } else {
      append_escaped(out, character);
    }
    i += character.size();
  }
  return out;
}

/// The first `most` bytes or a little less: no character is cut in two.
std::string_view begin_of(std::string_view text, std::size_t most) {
  std::size_t end = most;
  while (end > 0 && end + 3 > most && (at(text, end) & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

}  // namespace

std::string printable(std::string_view text) { return escaped(text, "\n\t"); }

std::string shown(std::string_view text, std::size_t most) {
  if (text.size() <= most) return escaped(text, "");
  return escaped(begin_of(text, most), "") + "... (" + std::to_string(text.size()) + " bytes)";
}

std::string shown_message(std::string_view text) {
  constexpr std::size_t kMost = 12000, kEnd = 2000;  // a path has up to 4096, and there may be two
  if (text.size() <= kMost) return printable(text);
  const std::size_t left_out = text.size() - kMost;
  return printable(begin_of(text, kMost - kEnd)) + " ... (" + std::to_string(left_out) +
         " bytes are left out) ... " + printable(text.substr(text.size() - kEnd));
}

}  // namespace sc
