#include "common/input/json_text.h"

#include <algorithm>

namespace sc {
namespace {

constexpr std::size_t kMostKey = 1000;  // bytes as written; the longest of this project has 80
// What nlohmann-json takes, rounded up: an entry of a growing list; an empty list or object; a key in its
// tree; a string beside its characters.
constexpr std::size_t kValue = 32, kContainer = 64, kKey = 96, kString = 48;

/// Follows the tokens, as far as bounds need it.
class Bounds {
 public:
  Bounds(std::string_view text, const JsonLimits& limits) : text_(text), limits_(limits) {}

  void check() {
    for (at_ = 0; at_ < text_.size(); ++at_) {
      if (text_[at_] == '\0') fail("a zero byte; JSON has none");
      if (in_string_) {
        step_in_string(text_[at_]);
      } else {
        step(text_[at_]);
      }
      if (memory_ > limits_.memory) {
        fail("holds more values than any file of its kind: they would take more than " +
             std::to_string(limits_.memory >> 20U) + " MiB");
      }
    }
  }

 private:
  void step(char c) {
    if (c == '"') {
      in_string_ = true;
      begin_ = at_ + 1;
      memory_ += kString;
    } else if (c == '{' || c == '[') {
      if (++depth_ > kMostJsonDepth) {
        fail("lists and objects are nested deeper than " + std::to_string(kMostJsonDepth));
      }
      memory_ += kContainer + kValue;
    } else if (c == '}' || c == ']') {
      depth_ = std::max(0, depth_ - 1);
    } else if (c == ':') {
      if (end_ - begin_ > kMostKey) {
        fail("a key of " + std::to_string(end_ - begin_) + " bytes: no key is that long");
      }
      memory_ += kKey;
    } else if (c == ',') {
      memory_ += kValue;
    }
  }

  void step_in_string(char c) {
    ++memory_;
    if (escaped_) {
      escaped_ = false;
    } else if (c == '\\') {
      escaped_ = true;
    } else if (c == '"') {
      in_string_ = false;
      end_ = at_;
    }
  }

  [[noreturn]] void fail(const std::string& what) const { throw JsonError(text_, at_, what); }

  std::string_view text_;
  const JsonLimits& limits_;
  std::size_t at_ = 0, memory_ = 0;
  std::size_t begin_ = 0, end_ = 0;  // of the string that was read last
  int depth_ = 0;
  bool in_string_ = false, escaped_ = false;
};

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
  Bounds(text, limits).check();
}

std::string too_large(std::size_t limit) {
  const bool mega = limit >= std::size_t{1} << 20U;
  return "is larger than " + std::to_string(limit >> (mega ? 20U : 10U)) + (mega ? " MiB" : " KiB") +
         ": nothing of its kind needs that much";
}

}  // namespace sc
