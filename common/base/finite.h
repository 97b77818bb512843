// Finds infinities and NaNs in bytes. No torch.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>

#include "common/base/types.h"

#if __FINITE_MATH_ONLY__
#error "isfinite is always true with -ffast-math, -Ofast, -ffinite-math-only: a NaN would train on"
#endif

namespace sc {
namespace detail {

// The index of the first number whose exponent bits are all set: an infinity or a NaN in every IEEE format.
template <class Bits>
std::optional<std::int64_t> first_with(std::span<const std::byte> bytes, Bits exponent) {
  constexpr std::size_t kBlock = 4096;  // elements tested without a branch between them
  const std::size_t count = bytes.size() / sizeof(Bits);
  const auto hit = [&](std::size_t i) {
    Bits bits = 0;
    std::memcpy(&bits, bytes.data() + i * sizeof(Bits), sizeof(Bits));
    return (bits & exponent) == exponent;
  };
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t end = std::min(begin + kBlock, count);
    unsigned any = 0;
    for (std::size_t i = begin; i < end; ++i) any |= static_cast<unsigned>(hit(i));
    for (std::size_t i = begin; any != 0 && i < end; ++i)
      if (hit(i)) return static_cast<std::int64_t>(i);
  }
  return {};
}

}  // namespace detail

/// A NaN without its sign, which carries no meaning but would be printed; other numbers stay as they are.
inline double without_sign_of_nan(double x) {
  return std::isnan(x) ? std::numeric_limits<double>::quiet_NaN() : x;
}

/// The index of the first element that is not finite, if any; integers are always finite.
inline std::optional<std::int64_t> first_nonfinite(std::span<const std::byte> bytes, DType dtype) {
  switch (dtype) {
    case DType::f64:
      return detail::first_with(bytes, std::uint64_t{0x7ff0000000000000});
    case DType::f32:
      return detail::first_with(bytes, std::uint32_t{0x7f800000});
    case DType::bf16:
      return detail::first_with(bytes, std::uint16_t{0x7f80});
    case DType::f16:
      return detail::first_with(bytes, std::uint16_t{0x7c00});
    default:
      return {};
  }
}

}  // namespace sc
