// Random numbers as pure functions of (key, counter): every rank gets the same ones. No torch.
#pragma once

#include <cstdint>

#include "common/base/host_device.h"

namespace sc {

/// SplitMix64's increment: its n-th number is spread64(seed + n * kGolden64). (Steele et al., OOPSLA 2014)
inline constexpr std::uint64_t kGolden64 = 0x9e3779b97f4a7c15U;

/// SplitMix64's finaliser:a bijection in which every input bit affects all output bits; 0 becomes 0.
SC_HOST_DEVICE constexpr std::uint64_t spread64(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

/// SplitMix64's output function: a bijection of 64 bits whose values look random.
SC_HOST_DEVICE constexpr std::uint64_t mix64(std::uint64_t x) { return spread64(x + kGolden64); }

/// A uniform number in [0, 1) with 53 random bits.
constexpr double uniform(std::uint64_t key, std::uint64_t counter) {
  return static_cast<double>(mix64(mix64(key) + counter) >> 11) * 0x1.0p-53;
}

}  // namespace sc
