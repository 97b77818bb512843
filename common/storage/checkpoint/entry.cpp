#include "common/storage/checkpoint/entry.h"

#include <spdlog/fmt/fmt.h>

#include "common/base/parse_number.h"

namespace sc::checkpoint {
namespace {

/// Removes "<before>number<after>" from the end of `text`. False if it does not end so.
bool take_number(std::string_view& text, std::string_view before, std::string_view after,
                 std::int64_t& number) {
  if (!text.ends_with(after)) return false;
  const std::string_view rest = text.substr(0, text.size() - after.size());
  const std::size_t at = rest.rfind(before);
  if (at == std::string_view::npos) return false;
  const auto found = parse_number<std::int64_t>(rest.substr(at + before.size()));
  if (!found) return false;
  number = *found;
  text = rest.substr(0, at);
  return true;
}

}  // namespace

std::string text_of(const Key& key) {
  return key.version == 0 ? fmt::format("{}@{}", key.tensor, key.purpose)
                          : fmt::format("{}@{}.v{}", key.tensor, key.purpose, key.version);
}

std::string name_of(const Entry& entry) {
  const Columns& c = entry.columns;
  const std::string columns = c == Columns{} ? "" : fmt::format("({}:{} of {})", c.begin, c.end, c.of);
  return fmt::format("{}{}[{}:{}]", text_of(entry.key), columns, entry.range.begin, entry.range.end);
}

std::optional<Entry> entry_of_name(std::string_view name, DType dtype) {
  Entry entry{.key = {}, .range = {}, .dtype = dtype};
  std::string_view rest = name;
  if (!take_number(rest, ":", "]", entry.range.end) || !take_number(rest, "[", "", entry.range.begin)) {
    return std::nullopt;
  }
  Columns& c = entry.columns;
  if (take_number(rest, " of ", ")", c.of) &&
      !(take_number(rest, ":", "", c.end) && take_number(rest, "(", "", c.begin)))
    return std::nullopt;
  const std::size_t at = rest.rfind('@');
  if (at == std::string_view::npos || at == 0) return std::nullopt;
  entry.key.tensor = rest.substr(0, at);
  rest.remove_prefix(at + 1);
  take_number(rest, ".v", "", entry.key.version);
  entry.key.purpose = rest;
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz_";
  const bool valid = !rest.empty() && rest.find_first_not_of(kLetters) == std::string_view::npos &&
                     entry.key.version >= 0 && entry.range.begin >= 0 &&
                     entry.range.begin < entry.range.end && c.begin >= 0 && c.begin < c.end &&
                     c.end <= c.of && name_of(entry) == name;
  return valid ? std::optional(entry) : std::nullopt;
}

}  // namespace sc::checkpoint
