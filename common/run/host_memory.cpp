#include "common/run/host_memory.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "common/base/control_group.h"

namespace sc {
namespace {

std::optional<Bytes> number_at(std::string_view text, std::int64_t unit) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return {};  // "max", or no such file
  return Bytes(value * unit);
}

// The number after `name` where that begins a line, in bytes.
std::optional<Bytes> number_named(std::string_view text, std::string_view name, std::int64_t unit) {
  for (std::size_t at = text.find(name); at != std::string_view::npos; at = text.find(name, at + 1)) {
    if (at == 0 || text[at - 1] == '\n') return number_at(text.substr(at + name.size()), unit);
  }
  return {};
}

// The bytes of cached file pages. In version 1 only lines with "total_" include child groups.
Bytes pages_of_files(std::string_view stat) {
  Bytes pages;
  for (const std::string name : {"active_file ", "inactive_file "}) {
    const std::optional<Bytes> total = number_named(stat, "total_" + name, 1);
    pages += total ? *total : number_named(stat, name, 1).value_or(Bytes(0));
  }
  return pages;
}

std::optional<Bytes> least(std::optional<Bytes> a, std::optional<Bytes> b) {
  return a && b ? std::min(*a, *b) : a ? a : b;
}

}  // namespace

std::optional<Bytes> left_of_limit(std::string_view limit_text, std::string_view used_text,
                                   std::string_view stat) {
  const std::optional<Bytes> limit = number_at(limit_text, 1), used = number_at(used_text, 1);
  if (!limit || !used) return {};
  return std::max(*limit - *used + std::min(pages_of_files(stat), *used), Bytes(0));
}

std::optional<Bytes> host_memory_left_of_limit(const std::string& top) {
  std::optional<Bytes> left;
  for (const std::string& group : control_groups("memory", top)) {
    const std::string stat = content_of(group + "/memory.stat");
    left = least(
        left, left_of_limit(content_of(group + "/memory.max"), content_of(group + "/memory.current"), stat));
    left = least(left, left_of_limit(content_of(group + "/memory.limit_in_bytes"),
                                     content_of(group + "/memory.usage_in_bytes"), stat));
  }
  return left;
}

std::optional<Bytes> available_host_memory(const std::string& top) {
  return least(number_named(content_of(top + "/proc/meminfo"), "MemAvailable:", 1024),
               host_memory_left_of_limit(top));
}

}  // namespace sc
