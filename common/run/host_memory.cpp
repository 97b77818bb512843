#include "common/run/host_memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <string>

namespace sc {
namespace {

std::string content_of(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::optional<Bytes> number_at(std::string_view text, std::int64_t unit) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return {};  // "max", or no such file
  return Bytes(value * unit);
}

}  // namespace

std::optional<Bytes> available_of(std::string_view meminfo, std::string_view memory_max,
                                  std::string_view memory_current) {
  constexpr std::string_view kName = "MemAvailable:";
  const std::size_t at = meminfo.find(kName);
  const std::optional<Bytes> machine =
      at == std::string_view::npos ? std::nullopt : number_at(meminfo.substr(at + kName.size()), 1024);
  const std::optional<Bytes> limit = number_at(memory_max, 1), used = number_at(memory_current, 1);
  if (!limit || !used) return machine;
  const Bytes left = std::max(*limit - *used, Bytes(0));
  return machine ? std::min(*machine, left) : left;
}

std::optional<Bytes> available_host_memory() {
  return available_of(content_of("/proc/meminfo"), content_of("/sys/fs/cgroup/memory.max"),
                      content_of("/sys/fs/cgroup/memory.current"));
}

std::optional<Bytes> host_memory_left_of_limit() {
  return available_of("", content_of("/sys/fs/cgroup/memory.max"),
                      content_of("/sys/fs/cgroup/memory.current"));
}

}  // namespace sc
