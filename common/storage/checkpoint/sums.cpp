#include "common/storage/checkpoint/sums.h"

#include <spdlog/fmt/fmt.h>

#include <charconv>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace sc::checkpoint {

namespace {
constexpr std::size_t kDigits = 16;
}

std::uint64_t sum_of(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::string hex_of(std::uint64_t sum) { return fmt::format("{:016x}", sum); }

std::string hex_of(std::span<const std::uint64_t> sums) {
  std::string text;
  for (const std::uint64_t sum : sums) text += hex_of(sum);
  return text;
}

std::optional<std::vector<std::uint64_t>> sums_of_hex(std::string_view text) {
  constexpr int kBase = 16;
  if (text.size() % kDigits != 0 || text.find_first_not_of("0123456789abcdef") != std::string_view::npos) {
    return std::nullopt;
  }
  std::vector<std::uint64_t> sums(text.size() / kDigits);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const char* begin = text.data() + i * kDigits;
    std::from_chars(begin, begin + kDigits, sums[i], kBase);
  }
  return sums;
}

}  // namespace sc::checkpoint
