// AdamW from raw pointers, on the thread that calls. adamw_step runs it on LibTorch's threads; host Adam,
// whose vectors are longer than the caches, on a HostPool. 28 bytes a parameter as adamw_step, or with 16-bit
// gradients 2 (g) + 24 (p, m, v) + 2 (param16); plain stores of what is not read before read it first.
#pragma once

#include <cstdint>
#include <span>

#include "common/base/types.h"
#include "common/optim/adamw.h"

namespace sc {

/// Everything that one update multiplies by, rounded to fp32 once.
struct AdamWFactors {
  float beta1, one_minus_beta1, beta2, one_minus_beta2, eps, clip;
  float keep;       // 1 - lr decay
  float step_size;  // lr / (1 - beta1^t)
  float v_scale;    // 1 / sqrt(1 - beta2^t)
};
/// lr, step and clip as in StepScalars.
AdamWFactors adamw_factors(const AdamWHyper& hyper, float lr, std::int64_t step, float clip);

/// How what is not read before is written: the rounded parameters, and what does not stay in its place.
/// streamed: past the caches, which spares reading what is overwritten; for vectors that are longer than the
/// caches.
enum class Store : std::uint8_t { cached, streamed };

/// fp32.
struct AdamWStates {
  const float *param = nullptr, *m = nullptr, *v = nullptr;
};

/// Flat vectors of one length on the host; no overlap.
struct AdamWVectors {
  const void* grad;
  DType grad_dtype;  // f32, bf16 or f16
  float *param, *m, *v;
  void* param16 = nullptr;            // receives the rounded parameters; may be null
  DType param16_dtype = DType::bf16;  // or f16
  Store store = Store::cached;
  AdamWStates from =
      {};  // read instead of param, m and v, which are written; null: these are updated in place
};

/// adamw_step's rule on the elements `r` of the vectors; `decay` counts in the same elements. Nothing changes
/// if the clip factor is kNoUpdate.
///   Bits     as adamw_step's; an update may be cut into any ranges, on any threads.
///   Memory   what it wrote is there for whoever learns that it has returned, a GPU's copy too.
///   Errors   InputError for another dtype.
///   Source   as adamw_step's.
void adamw_chunk(const AdamWFactors& factors, const AdamWVectors& vectors, std::span<const Range> decay,
                 Range r);

/// The loop, compiled for one kind of processor: equal bits from all of them.
struct AdamWLoop {
  const char* name;  // "AVX-512", "AVX2" or "SSE2"
  void (*run)(const AdamWFactors& factors, const AdamWVectors& vectors, Range r);
};
/// Those that this processor can run, the widest first: that one is adamw_chunk's.
std::span<const AdamWLoop> adamw_loops();

}  // namespace sc
