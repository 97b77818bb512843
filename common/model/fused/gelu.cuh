// GELU in its tanh form, written with the logistic function s: 0.5 (1 + tanh u) = s(2u), u = sqrt(2/pi) (x +
// 0.044715 x^3).
#pragma once

#include <type_traits>

namespace sc::fused {

inline constexpr float kTwiceRootTwoOverPi = 1.5957691216057308F;  // 2 sqrt(2/pi)
inline constexpr float kCubic = 0.044715F;

// The logistic function for 16-bit types: two special-function instructions, relative error about 1e-6.
template <class T>
__device__ inline float logistic(float v) {
  if constexpr (std::is_same_v<T, float>) return 1.0F / (1.0F + expf(-v));
  return __fdividef(1.0F, 1.0F + __expf(-v));
}

template <class T>
__device__ inline float gelu_value(float x) {
  return x * logistic<T>(kTwiceRootTwoOverPi * x * (1.0F + kCubic * x * x));
}

/// GELU's derivative, s + x s (1 - s) 2u'. If s is 0 or 1the second term is 0, even if 2u' overflows.
template <class T>
__device__ inline float gelu_derivative(float x) {
  const float square = x * x;
  const float s = logistic<T>(kTwiceRootTwoOverPi * x * (1.0F + kCubic * square));
  const float slope = kTwiceRootTwoOverPi * (1.0F + 3.0F * kCubic * square);
  const float rest = s * (1.0F - s);
  return rest == 0.0F ? s : s + x * rest * slope;
}

}  // namespace sc::fused
