// Works out the formulas of plans (common/memory/formula.h).
#pragma once

#include <cctype>
#include <charconv>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>

namespace sc::test {

/// What each symbol stands for.
using SymbolValues = std::map<std::string, std::int64_t, std::less<>>;

/// sum = product { ("+" | "-") product }; product = factor { ["x" | "/"] factor };
/// factor = number | symbol | "(" sum ")". A quotient leaves no remainder.
///   Errors  std::invalid_argument that says where: a symbol without a value, a remainder, no formula.
class Formula {
 public:
  Formula(std::string_view text, const SymbolValues& values) : text_(text), values_(values) {}

  std::int64_t value() {
    const std::int64_t result = sum();
    if (peek() != '\0') fail("no end");
    return result;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw std::invalid_argument("\"" + std::string(text_) + "\", character " + std::to_string(at_ + 1) +
                                ": " + what);
  }
  // The next character that is no space; 0 at the end.
  char peek() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  static bool in_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }
  std::string_view peek_word() {
    if (!in_word(peek())) return {};
    std::size_t end = at_;
    while (end < text_.size() && in_word(text_[end])) ++end;
    return text_.substr(at_, end - at_);
  }

  std::int64_t sum() {
    std::int64_t result = product();
    while (true)
      if (take('+')) {
        result += product();
      } else if (take('-')) {
        result -= product();
      } else {
        return result;
      }
  }

  std::int64_t product() {
    std::int64_t result = factor();
    while (true)
      if (take('/')) {
        const std::int64_t divisor = factor();
        if (divisor == 0 || result % divisor != 0) fail("a remainder");
        result /= divisor;
      } else if (peek_word() == "x") {
        ++at_;
        result *= factor();
      } else if (peek() == '(' || in_word(peek())) {
        result *= factor();
      } else {
        return result;
      }
  }

  std::int64_t factor() {
    if (take('(')) {
      const std::int64_t result = sum();
      if (!take(')')) fail("no )");
      return result;
    }
    const std::string_view word = peek_word();
    if (word.empty()) fail("neither a number nor a symbol");
    const std::int64_t result = value_of(word);
    at_ += word.size();
    return result;
  }

  [[nodiscard]] std::int64_t value_of(std::string_view word) const {
    std::int64_t number = 0;
    if (std::from_chars(word.data(), word.data() + word.size(), number).ptr == word.data() + word.size())
      return number;
    if (word == "KiB") return 1024;
    if (word == "MiB") return 1024 * 1024;
    const auto found = values_.find(word);
    if (found == values_.end()) fail("no symbol " + std::string(word));
    return found->second;
  }

  std::string_view text_;
  const SymbolValues& values_;
  std::size_t at_ = 0;
};

}  // namespace sc::test
