// Supplies C++20 functions that Debian's emscripten (libc++ 13) lacks; build.sh includes it first. No other
// compiler reads it.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <compare>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

static_assert(_LIBCPP_VERSION < 15000, "this standard library may have these itself: take out what it has");

namespace std {

template <class C, class T, class A>
strong_ordering operator<=>(const basic_string<C, T, A>& a, const basic_string<C, T, A>& b) {
  return a.compare(b) <=> 0;
}
template <class C, class T>
strong_ordering operator<=>(basic_string_view<C, T> a, basic_string_view<C, T> b) {
  return a.compare(b) <=> 0;
}

namespace ranges {

template <class R, class V, class P = identity>
auto find(R&& range, const V& value, P of = {}) {
  return std::find_if(range.begin(), range.end(),
                      [&](const auto& each) { return invoke(of, each) == value; });
}
template <class R, class F>
auto find_if(R&& range, F is) {
  return std::find_if(range.begin(), range.end(), [&](const auto& each) { return invoke(is, each); });
}
template <class R, class F>
bool any_of(R&& range, F is) {
  return ranges::find_if(range, is) != range.end();
}
template <class R, class F>
bool none_of(R&& range, F is) {
  return !ranges::any_of(range, is);
}
template <class R, class F>
auto count_if(R&& range, F is) {
  return std::count_if(range.begin(), range.end(), [&](const auto& each) { return invoke(is, each); });
}
template <class R, class V, class P = identity>
auto count(R&& range, const V& value, P of = {}) {
  return std::count_if(range.begin(), range.end(),
                       [&](const auto& each) { return invoke(of, each) == value; });
}
template <class R, class Out, class F>
void copy_if(R&& range, Out out, F is) {
  std::copy_if(range.begin(), range.end(), out, [&](const auto& each) { return invoke(is, each); });
}
template <class R, class V>
void fill(R&& range, const V& value) {
  std::fill(range.begin(), range.end(), value);
}
template <class R, class V>
void replace(R&& range, const V& from, const V& to) {
  std::replace(range.begin(), range.end(), from, to);
}
template <class R, class L = std::less<>, class P = identity>
auto max_element(R&& range, L less = {}, P of = {}) {
  return std::max_element(range.begin(), range.end(), [&](const auto& a, const auto& b) {
    return invoke(less, invoke(of, a), invoke(of, b));
  });
}
template <class R, class L = std::less<>, class P = identity>
void sort(R&& range, L less = {}, P of = {}) {
  std::sort(range.begin(), range.end(),
            [&](const auto& a, const auto& b) { return invoke(less, invoke(of, a), invoke(of, b)); });
}
template <class R, class L = std::less<>, class P = identity>
void stable_sort(R&& range, L less = {}, P of = {}) {
  std::stable_sort(range.begin(), range.end(),
                   [&](const auto& a, const auto& b) { return invoke(less, invoke(of, a), invoke(of, b)); });
}

}  // namespace ranges
}  // namespace std

namespace explore_numbers {

inline bool is_digit(char c) { return c >= '0' && c <= '9'; }

inline const char* past_digits(const char* at, const char* end) {
  while (at != end && is_digit(*at)) ++at;
  return at;
}

// Skips a mantissa such as "12", "12." or ".5"; returns `begin` if there is no digit.
inline const char* past_mantissa(const char* begin, const char* end) {
  const char* at = past_digits(begin, end);
  std::ptrdiff_t digits = at - begin;
  if (at != end && *at == '.') {
    const char* const behind = past_digits(at + 1, end);
    digits += behind - (at + 1), at = behind;
  }
  return digits > 0 ? at : nullptr;
}

// Skips an exponent such as "e5" or "E-5"; a bare "e" is not part of the number.
inline const char* past_exponent(const char* begin, const char* end) {
  if (begin == end || (*begin != 'e' && *begin != 'E')) return begin;
  const char* at = begin + 1;
  if (at != end && (*at == '+' || *at == '-')) ++at;
  const char* const behind = past_digits(at, end);
  return behind == at ? begin : behind;
}

inline bool begins_with(std::string_view text, std::string_view lower) {
  if (text.size() < lower.size()) return false;
  for (std::size_t i = 0; i < lower.size(); ++i)
    if ((text[i] | 0x20) != lower[i]) return false;
  return true;
}

// Skips "inf", "infinity", "nan" or "nan(x1)"; returns `begin` for other words.
inline const char* past_word(const char* begin, const char* end) {
  const std::string_view text(begin, static_cast<std::size_t>(end - begin));
  for (const std::string_view word : {"infinity", "inf"})
    if (begins_with(text, word)) return begin + word.size();
  if (!begins_with(text, "nan")) return nullptr;
  const char* at = begin + 3;
  if (at == end || *at != '(') return at;
  for (++at; at != end && (is_digit(*at) || *at == '_' || ((*at | 0x20) >= 'a' && (*at | 0x20) <= 'z'));
       ++at) {
  }
  return at != end && *at == ')' ? at + 1 : begin + 3;
}

}  // namespace explore_numbers

namespace std {

/// Gives the same end, error and bits as other libraries, because strtod rounds correctly.
inline from_chars_result from_chars(const char* begin, const char* end, double& number) {
  const char* const digits = begin != end && *begin == '-' ? begin + 1 : begin;
  const char* const mantissa = explore_numbers::past_mantissa(digits, end);
  const char* const behind = mantissa != nullptr ? explore_numbers::past_exponent(mantissa, end)
                                                 : explore_numbers::past_word(digits, end);
  if (behind == nullptr) return {begin, errc::invalid_argument};
  const double read = strtod(string(begin, behind).c_str(), nullptr);
  const bool vanished =
      read == 0 && mantissa != nullptr &&
      string_view(begin, static_cast<size_t>(mantissa - begin)).find_first_of("123456789") !=
          string_view::npos;
  if (vanished || (mantissa != nullptr && isinf(read))) return {behind, errc::result_out_of_range};
  number = read;
  return {behind, errc()};
}

}  // namespace std
