// Checksums of checkpoints: xxh3-64, as text 16 lower-case hexadecimal digits. No torch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sc::checkpoint {

/// The bytes of a block, the unit of verification. Each entry is cut into blocks from its own first byte, so
/// a block belongs to one tensor; an entry's last block may be shorter.
inline constexpr std::int64_t kBlock = std::int64_t{1} << 20;

std::uint64_t sum_of(std::span<const std::byte> bytes);

/// Checksums as text, one after another without a separator.
std::string hex_of(std::span<const std::uint64_t> sums);
std::string hex_of(std::uint64_t sum);
/// Parses hex_of()'s result; nullopt for any other text.
std::optional<std::vector<std::uint64_t>> sums_of_hex(std::string_view text);

}  // namespace sc::checkpoint
