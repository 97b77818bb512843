#include "common/run/replica_hash.h"

#include <cstring>

namespace sc {

std::int64_t replica_hash(const at::Tensor& t) {
  constexpr std::uint64_t kPrime = 0x100000001b3;
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto* bytes = static_cast<const unsigned char*>(t.const_data_ptr());
  const std::size_t size = t.nbytes();
  std::size_t at = 0;
  for (; at + sizeof(std::uint64_t) <= size; at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + at, sizeof word);
    hash = (hash ^ word) * kPrime;
    hash ^= hash >> 29;  // FNV's multiplication alone never carries high bits down
  }
  for (; at < size; ++at) hash = (hash ^ bytes[at]) * kPrime;
  return static_cast<std::int64_t>(hash);
}

int first_different(const at::Tensor& hashes) {
  const auto* values = hashes.const_data_ptr<std::int64_t>();
  for (std::int64_t r = 1; r < hashes.numel(); ++r) {
    if (values[r] != values[0]) return static_cast<int>(r);
  }
  return -1;
}

}  // namespace sc
