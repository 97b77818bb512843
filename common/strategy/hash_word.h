// The contribution of one word to replica_hash, for the CPU and for nvcc.
#pragma once

#include <cstdint>

#include "common/base/counter_random.h"

namespace sc {

/// Number `place` of the SplitMix64 generator whose seed is the word.
SC_HOST_DEVICE inline std::uint64_t hash_word(std::uint64_t word, std::uint64_t place) {
  return spread64(word + (place + 1) * kGolden64);
}

}  // namespace sc
