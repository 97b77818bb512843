#include "common/config/field.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include "common/base/parse_number.h"
#include "common/base/text.h"

namespace sc {
namespace {

// A value as the user wrote it, for messages about a wrong type: text in quotes, everything else without.
std::string spelled(const Value& value) {
  const bool quoted = value.form == Value::Form::text || value.form == Value::Form::flag;
  return quoted ? "\"" + value.text + "\"" : value.text;
}

bool may_be_number(const Value& value) {
  return value.form == Value::Form::integer || value.form == Value::Form::real ||
         value.form == Value::Form::flag;
}

// Reads a 64-bit whole number in any spelling, such as 2e8; refuses 2.5 and 1e300.
std::optional<std::int64_t> whole_number(const std::string& text) {
  if (const auto exact = parse_number<std::int64_t>(text)) return exact;
  const auto number = parse_number<double>(text);
  if (!number || *number != std::floor(*number) || std::abs(*number) > 9e15) return std::nullopt;
  return static_cast<std::int64_t>(*number);
}

std::string bounds_text(std::int64_t low, std::int64_t high) {
  if (high == std::numeric_limits<std::int64_t>::max()) return fmt::format("at least {}", low);
  return fmt::format("{} .. {}", low, high);
}

std::string bounds_text(const RealRange& range) {
  const bool low = std::isfinite(range.low);
  const bool high = std::isfinite(range.high);
  if (low && high) {
    return fmt::format("{} {} x {} {}", range.low,
                       range.open_low ? "<" : "<=", range.open_high ? "<" : "<=", range.high);
  }
  if (low) return range.open_low ? fmt::format("above {}", range.low) : fmt::format("at least {}", range.low);
  return high ? fmt::format("at most {}", range.high) : "";
}

bool within(double x, const RealRange& range) {
  const bool above = range.open_low ? x > range.low : x >= range.low;
  const bool below = range.open_high ? x < range.high : x <= range.high;
  return above && below;
}

}  // namespace

Codec<std::int64_t> integer(std::int64_t low, std::int64_t high) {
  const std::string range = bounds_text(low, high);
  return {.type = "integer",
          .range = range,
          .choices = {},
          .parse =
              [=](const Value& value) {
                const auto number = may_be_number(value) ? whole_number(value.text) : std::nullopt;
                if (!number) throw FieldError(spelled(value) + " is not an integer");
                if (*number < low || *number > high)
                  throw FieldError(fmt::format("{} is outside its range, {}", *number, range));
                return *number;
              },
          .format = [](const std::int64_t& number) { return std::to_string(number); }};
}

Codec<std::uint64_t> seed() {
  return {.type = "integer",
          .range = "0 .. 2^64 - 1",
          .choices = {},
          .parse =
              [](const Value& value) {
                const auto number =
                    may_be_number(value) ? parse_number<std::uint64_t>(value.text) : std::nullopt;
                if (!number) throw FieldError(spelled(value) + " is not an integer in 0 .. 2^64 - 1");
                return *number;
              },
          .format = [](const std::uint64_t& number) { return std::to_string(number); }};
}

Codec<double> real(RealRange range) {
  const std::string bounds = bounds_text(range);
  return {.type = "real",
          .range = bounds,
          .choices = {},
          .parse =
              [=](const Value& value) {
                const auto number = may_be_number(value) ? parse_number<double>(value.text) : std::nullopt;
                if (!number || !std::isfinite(*number))
                  throw FieldError(spelled(value) + " is not a finite number");
                if (!within(*number, range))
                  throw FieldError(fmt::format("{} is outside its range, {}", *number, bounds));
                return *number + 0.0;  // turns -0 into 0, so that one value has one spelling and one hash
              },
          .format = [](const double& number) { return fmt::format("{}", number); }};
}

Codec<bool> on_off() {
  const std::vector<std::string> words = {"on", "off", "true", "false"};
  return {.type = "switch",
          .range = "",
          .choices = words,
          .parse =
              [=](const Value& value) {
                const bool boolean = value.form == Value::Form::boolean;
                return index_of_word({boolean ? Value::Form::text : value.form, value.text}, words) % 2 == 0;
              },
          .format = [](const bool& on) { return std::string(on ? "on" : "off"); }};
}

Codec<std::string> text() {
  return {.type = "text",
          .range = "",
          .choices = {},
          .parse =
              [](const Value& value) {
                if (value.form != Value::Form::text && value.form != Value::Form::flag)
                  throw FieldError(value.text + " is not text: it needs quotes");
                // A line break would look like a second line of the canonical text, so that two different
                // configurations could have one hash.
                if (std::ranges::any_of(value.text, [](unsigned char c) { return c < ' '; }))
                  throw FieldError("control characters are not allowed");
                if (value.text.empty()) throw FieldError("it is empty");
                return value.text;
              },
          .format = [](const std::string& word) { return word; }};
}

Codec<std::string> one_of(const std::vector<std::string>& words) {
  std::vector<std::pair<std::string, std::string>> names;
  for (const std::string& word : words) names.emplace_back(word, word);
  return choice<std::string>(std::move(names));
}

Codec<Bytes> size() {
  return {.type = "size",
          .range = "bytes, or e.g. 6GB, 512MiB",
          .choices = {},
          .parse =
              [](const Value& value) {
                if (value.form == Value::Form::boolean) throw FieldError(value.text + " is not a size");
                return parse_bytes(value.text);
              },
          .format = [](const Bytes& bytes) { return std::to_string(bytes.value()); }};
}

Bytes parse_bytes(std::string_view text) {
  struct Unit {
    std::string_view name;
    double bytes;
  };
  constexpr std::array<Unit, 11> kUnits = {{{"", 1},
                                            {"B", 1},
                                            {"kB", 1e3},
                                            {"KB", 1e3},
                                            {"MB", 1e6},
                                            {"GB", 1e9},
                                            {"TB", 1e12},
                                            {"KiB", 1024.0},
                                            {"MiB", 1048576.0},
                                            {"GiB", 1073741824.0},
                                            {"TiB", 1099511627776.0}}};
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  const std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  const auto* const found = std::ranges::find(kUnits, unit, &Unit::name);
  if (error != std::errc() || found == kUnits.end())
    throw FieldError(fmt::format("\"{}\" is not a size; write e.g. 6GB, 512MiB or 1e9", text));
  const double product = number * found->bytes;
  const double bytes = std::round(product);  // rounded, because 4.35 (of 4.35MB) is not exact in binary
  if (!(bytes >= 1) || bytes > 9e18 || std::abs(product - bytes) > 1e-3) {
    throw FieldError(fmt::format("\"{}\" is not a whole number of bytes, at least 1", text));
  }
  return Bytes(static_cast<std::int64_t>(bytes));
}

std::size_t index_of_word(const Value& value, const std::vector<std::string>& words) {
  const bool is_word = value.form == Value::Form::text || value.form == Value::Form::flag;
  const auto found = is_word ? std::find(words.begin(), words.end(), value.text) : words.end();
  if (found != words.end()) return static_cast<std::size_t>(found - words.begin());
  const std::string near = is_word ? nearest(value.text, words) : "";
  throw FieldError(fmt::format("{} is none of {}{}", spelled(value), fmt::join(words, ", "),
                               near.empty() ? "" : "; did you mean \"" + near + "\"?"));
}

}  // namespace sc
