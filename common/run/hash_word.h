// One word's part of replica_hash, for the CPU and for nvcc.
#pragma once

#include <cstdint>

#include "common/base/host_device.h"

namespace sc {

/// SplitMix64's finaliser (Steele, Lea, Flood 2014) over the word and its place.
SC_HOST_DEVICE inline std::uint64_t hash_word(std::uint64_t word, std::uint64_t place) {
  std::uint64_t z = word + (place + 1) * 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

}  // namespace sc
