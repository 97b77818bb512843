// AdamW on raw pointers, on the calling thread. adamw_step runs it on LibTorch's threads; host Adam, whose
// vectors exceed the caches, on a HostPool. Memory traffic is 28 bytes per parameter as for adamw_step, or
// with 16-bit gradients 2 (g) + 24 (p, m, v) + 2 (param16); ordinary stores to memory that was not read first
// add a read.
#pragma once

#include <cstdint>
#include <span>

#include "common/base/types.h"
#include "common/optim/adamw.h"

namespace sc {

/// All factors of one update, each rounded to fp32 once.
struct AdamWFactors {
  float beta1, one_minus_beta1, beta2, one_minus_beta2, eps, clip;
  float keep;       // 1 - lr decay
  float step_size;  // lr / (1 - beta1^t)
  float v_scale;    // 1 / sqrt(1 - beta2^t)
};
/// Works the factors out; lr, step and clip have the meaning of StepScalars.
AdamWFactors adamw_factors(const AdamWHyper& hyper, float lr, std::int64_t step, float clip);

/// How outputs that were not read before (rounded parameters, results in another place) are written.
/// streamed: past the caches, which avoids reading what is overwritten; for vectors that exceed the caches.
enum class Store : std::uint8_t { cached, streamed };

struct AdamWStates {
  const float *param = nullptr, *m = nullptr, *v = nullptr;
};

/// Flat vectors of one length on the host; no overlap.
struct AdamWVectors {
  const void* grad;
  DType grad_dtype;  // f32, bf16 or f16
  float *param, *m, *v;
  void* param16 = nullptr;            // receives the rounded parameters; may be null
  DType param16_dtype = DType::bf16;  // bf16 or f16
  Store store = Store::cached;
  // The vectors to read instead of param, m and v, which are then only written; null: update in place.
  AdamWStates from = {};
};

/// Applies adamw_step's rule to the elements `r` of the vectors; `decay` uses the same element numbers.
/// Nothing changes if the clip factor is kNoUpdate.
///   Bits     those of adamw_step; an update may be cut into any ranges, on any threads.
///   Memory   its results are visible to whoever learns that it has returned, a GPU's copy included.
///   Errors   InputError for another dtype.
///   Source   that of adamw_step.
void adamw_chunk(const AdamWFactors& factors, const AdamWVectors& vectors, std::span<const Range> decay,
                 Range r);

/// AdamW's loop, compiled for one kind of processor; all kinds give equal bits.
struct AdamWLoop {
  const char* name;  // "AVX-512", "AVX2" or "SSE2"; "NEON" on aarch64
  void (*run)(const AdamWFactors& factors, const AdamWVectors& vectors, Range r);
};
/// The loops that this processor can run, the widest first; adamw_chunk uses the first.
std::span<const AdamWLoop> adamw_loops();

}  // namespace sc
