// Random numbers as functions of (key, counter): no state, so that everybody who asks gets the same. No
// torch.
#pragma once

#include <cstdint>

namespace sc {

/// SplitMix64's output function (Steele, Lea, Flood, OOPSLA 2014): a bijection of 64 bits that looks random.
constexpr std::uint64_t mix64(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

/// In [0, 1): 53 bits.
constexpr double uniform(std::uint64_t key, std::uint64_t counter) {
  return static_cast<double>(mix64(mix64(key) + counter) >> 11) * 0x1.0p-53;
}

}  // namespace sc
