// Conversions of a checkpoint's numbers, one at a time. No torch.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "common/base/types.h"

namespace sc::checkpoint {

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

inline float float_of_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
}

inline float float_of_f16(std::uint16_t bits) {
  const std::uint32_t exponent = (bits >> 10U) & 0x1fU, mantissa = bits & 0x3ffU;
  const auto magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                         : exponent == 0x1f
                             ? std::bit_cast<float>(0x7f800000U | mantissa << 13U)
                             : std::bit_cast<float>((exponent + 112U) << 23U | mantissa << 13U);
  return (bits & 0x8000U) != 0 ? -magnitude : magnitude;
}

/// Rounds a number to bf16, ties to even; a NaN stays a NaN.
inline std::uint16_t bf16_of(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>(bits >> 16U | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16U & 1U)) >> 16U);
}

/// Rounds a number to fp16, ties to even; infinity from 65520 on; a NaN stays a NaN.
inline std::uint16_t f16_of(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16U & 0x8000U, magnitude = bits & 0x7fffffffU;
  constexpr std::uint32_t kInfinity = 0x7f800000U, kOverflow = 0x477ff000U, kNormal = 0x38800000U;
  std::uint32_t half = 0;
  if (magnitude > kInfinity) {
    half = 0x7e00U;
  } else if (magnitude >= kOverflow) {
    half = 0x7c00U;
  } else if (magnitude < kNormal) {  // multiples of 2^-24
    half = static_cast<std::uint32_t>(std::nearbyint(std::ldexp(std::bit_cast<float>(magnitude), 24)));
  } else {
    half = (magnitude + 0xfffU + (magnitude >> 13U & 1U) - 0x38000000U) >> 13U;
  }
  return static_cast<std::uint16_t>(sign | half);
}

/// The number stored at `at`; exact unless it is a large i64.
inline double number_at(const std::byte* at, DType dtype) {
  switch (dtype) {
    case DType::f64:
      return load<double>(at);
    case DType::f32:
      return load<float>(at);
    case DType::bf16:
      return float_of_bf16(load<std::uint16_t>(at));
    case DType::f16:
      return float_of_f16(load<std::uint16_t>(at));
    case DType::i64:
      return static_cast<double>(load<std::int64_t>(at));
    case DType::i32:
      return load<std::int32_t>(at);
    case DType::u8:
      return load<std::uint8_t>(at);
  }
  return 0;
}

inline void put_number(std::byte* at, DType dtype, float value) {
  if (dtype == DType::f32) {
    std::memcpy(at, &value, sizeof(value));
    return;
  }
  const std::uint16_t bits = dtype == DType::bf16 ? bf16_of(value) : f16_of(value);
  std::memcpy(at, &bits, sizeof(bits));
}

}  // namespace sc::checkpoint
