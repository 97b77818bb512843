// AdamW over flat slices in one pass, bound by memory: 28 bytes per parameter with fp32 gradients (reads g,
// p, m, v; writes p, m, v).
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "common/config/workload.h"
#include "common/model/param_layout.h"

namespace sc {

struct AdamWHyper {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.01;
};
AdamWHyper hyper_of(const OptimConfig& optim);

/// Values that change from step to step, kept on the compute device, so that nothing waits for the host.
struct StepScalars {
  at::Tensor lr;              // [] fp32: written before the step
  at::Tensor step;            // [] int64: updates so far, this one included (counted by global_norm_and_clip)
  at::Tensor clip;            // [] fp32: factor of the gradient; with kNoUpdate adamw_step changes nothing
  at::Tensor grad_norm = {};  // [] fp32: the global norm before clipping
  // Defined for fp16 only (loss_scale.h). Batch::scale contains the scale too, and clip divides by it.
  at::Tensor loss_scale = {};    // [] fp32
  at::Tensor scaler_state = {};  // [2] int64: good steps, overflows
};
/// The value of StepScalars::clip after a gradient that is not finite.
inline constexpr float kNoUpdate = -1.0F;

/// One step of Adam with decoupled weight decay on a slice of n elements.
///   Shapes   grad [n] fp32, bf16 or fp16; param, m, v [n] fp32; param16 [n] bf16 or fp16, or null: receives
///            the rounded parameters. No overlap.
///   decay    ranges of the slice that weight decay applies to: ascending, disjoint, relative to it.
///   Rule     nothing if clip is kNoUpdate; otherwise g = clip grad;  m = b1 m + (1 - b1) g;  v = b2 v + (1 -
///            b2) g g; p = p (1 - lr decay) - lr / (1 - b1^t) * (m / (sqrt(v) / sqrt(1 - b2^t) + eps)) in
///            fp32, the scalar factors in fp64 and rounded once.
///   Bits     an element's result depends neither on the slice's borders, nor on the number of threads, nor
///            on the processor (GPUs included, except for the scalar factors' powers: their last fp64 bit).
///   Threads  LibTorch's intra-op threads. On a GPU everything is on it, and nothing waits for the host.
///   Errors   InputError for other dtypes, devices or lengths.
///   Source   Loshchilov and Hutter, arXiv:1711.05101; torch.optim.AdamW's form of the bias corrections.
void adamw_step(const AdamWHyper& hyper, const StepScalars& scalars, std::span<const Range> decay,
                const at::Tensor& grad, at::Tensor& param, at::Tensor& m, at::Tensor& v, at::Tensor* param16);

}  // namespace sc
