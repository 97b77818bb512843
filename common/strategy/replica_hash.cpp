#include "common/strategy/replica_hash.h"

#include <algorithm>
#include <cstring>

#include "common/strategy/hash_word.h"

namespace sc {

std::int64_t replica_hash(const at::Tensor& t) {
  if (t.is_cuda()) return replica_hash_cuda(t);
  const auto* bytes = static_cast<const unsigned char*>(t.const_data_ptr());
  const std::size_t size = t.nbytes();
  std::uint64_t hash = 0;
  for (std::size_t at = 0; at < size; at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + at, std::min(sizeof word, size - at));
    hash += hash_word(word, at / sizeof word);
  }
  return static_cast<std::int64_t>(hash);
}

int first_different(const at::Tensor& hashes) {
  const at::Tensor host = hashes.cpu();
  const auto* values = host.const_data_ptr<std::int64_t>();
  for (std::int64_t r = 1; r < host.numel(); ++r) {
    if (values[r] != values[0]) return static_cast<int>(r);
  }
  return -1;
}

}  // namespace sc
