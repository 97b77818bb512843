// The types of configuration values, and how each is read and written. No torch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/types.h"

namespace sc {

/// A value before a field parses it. Text after `--set key=` has no JSON type, so its form is `flag`.
struct Value {
  enum class Form { integer, real, boolean, text, flag };
  Form form = Form::flag;
  std::string text;
};

/// Thrown for a value that a field does not accept; FieldSet::set adds the key, the place and the fix.
class FieldError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// Reads and writes fields of type V. `parse` throws FieldError; `format(parse(x))` spells x canonically.
template <class V>
struct Codec {
  std::string type;   // "integer", "real", "switch", "choice", "text", "size"
  std::string range;  // shown to the user: "1 .. 1024"; empty if anything goes or there are choices
  std::vector<std::string> choices;  // the allowed words of a choice
  std::function<V(const Value&)> parse;
  std::function<std::string(const V&)> format;
};

/// A whole number in any spelling, such as 2e8. `high` at the type's maximum means no upper bound.
Codec<std::int64_t> integer(std::int64_t low, std::int64_t high = std::numeric_limits<std::int64_t>::max());
/// A random seed: any 64-bit pattern.
Codec<std::uint64_t> seed();

/// The bounds of a real field; a bound that is `open` is itself excluded.
struct RealRange {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool open_low = false, open_high = false;
};
/// A finite real number, written back with the fewest digits that read as the same double.
Codec<double> real(RealRange range);
/// A switch, written on | off or true | false (in JSON also without quotes).
Codec<bool> on_off();
/// Text that is not empty, for a name or a path.
Codec<std::string> text();
/// One of several words, kept as text.
Codec<std::string> one_of(const std::vector<std::string>& words);
/// A number of bytes, in any spelling that parse_bytes() takes.
Codec<Bytes> size();

/// Reads a size: "6GB" (1e9 bytes each), "512MiB" (2^20 each), "1e9" or "4096" (bytes). Units: B, kB, MB, GB,
/// TB, KiB, MiB, GiB, TiB.
///   Errors  FieldError for a fraction of a byte, a negative or an empty size.
Bytes parse_bytes(std::string_view text);

/// The index of `value` in `words`.
///   Errors  FieldError that lists the words and suggests the nearest.
std::size_t index_of_word(const Value& value, const std::vector<std::string>& words);

/// A value of an enumeration, spelled as in `names`.
template <class E>
Codec<E> choice(std::vector<std::pair<std::string, E>> names) {
  std::vector<std::string> words;
  for (const auto& [name, value] : names) words.push_back(name);
  return {.type = "choice",
          .range = "",
          .choices = words,
          .parse = [=](const Value& v) { return names[index_of_word(v, words)].second; },
          .format =
              [=](const E& e) {
                const auto found = std::ranges::find(names, e, &std::pair<std::string, E>::second);
                if (found == names.end())
                  throw std::logic_error("a value without a name in its table of fields");
                return found->first;
              }};
}

/// A word or a whole number, as in `bucket: tensor | unit | model | <elements>`. `number` makes a V of a
/// count of at least `low`; `count` gives the count back for a V that is none of `names`. V needs operator==.
template <class V, class Number, class Count>
Codec<V> choice_or_integer(std::vector<std::pair<std::string, V>> names, std::int64_t low, Number number,
                           Count count) {
  const Codec<V> named = choice<V>(names);
  const Codec<std::int64_t> counted = integer(low);
  Codec<V> codec = named;
  codec.type = "choice or integer";
  codec.range = counted.range;
  codec.parse = [named, counted, number](const Value& v) -> V {
    const bool is_number = v.form == Value::Form::integer || v.form == Value::Form::real ||
                           (!v.text.empty() && (v.text[0] == '-' || (v.text[0] >= '0' && v.text[0] <= '9')));
    return is_number ? number(counted.parse(v)) : named.parse(v);
  };
  codec.format = [names, count](const V& v) -> std::string {
    const auto found = std::ranges::find(names, v, &std::pair<std::string, V>::second);
    return found != names.end() ? found->first : std::to_string(count(v));
  };
  return codec;
}

}  // namespace sc
