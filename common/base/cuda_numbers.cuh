// The number formats that kernels compute with: fp32, bf16, fp16.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "common/base/check.h"
#include "common/base/types.h"

namespace sc {

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline float to_float(__half x) { return __half2float(x); }
template <class T>
__device__ inline T from_float(float x) {
  if constexpr (std::is_same_v<T, float>) return x;
  if constexpr (std::is_same_v<T, __nv_bfloat16>) return __float2bfloat16_rn(x);
  if constexpr (std::is_same_v<T, __half>) return __float2half_rn(x);
}

/// Calls `f` with a null pointer to `dtype`'s type (fp32, bf16 or fp16), from which `f` deduces the type.
template <class F>
void with_type(DType dtype, const F& f) {
  switch (dtype) {
    case DType::f32:
      return f(static_cast<float*>(nullptr));
    case DType::bf16:
      return f(static_cast<__nv_bfloat16*>(nullptr));
    case DType::f16:
      return f(static_cast<__half*>(nullptr));
    default:
      throw InputError(ExitCode::usage, "fused operations", "the dtype must be fp32, bf16 or fp16",
                       "--ops aten");
  }
}

}  // namespace sc
