// The global norm, and the four numbers that every step sums over ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "common/optim/adamw.h"

namespace sc {

/// Indices into sums [4] fp64, all-reduced once per step. kNonFinite counts the ranks whose loss or gradient
/// is not finite; a good step has 0.
enum StepSum : int { kLossSum, kTokens, kSquares, kNonFinite };

/// The sum of squares of a contiguous slice ([n] fp32, bf16 or fp16) in fp64. Waits for a GPU.
///   Bits     depend on the values alone: blocks of a fixed size are added in order, for any number of
///            threads and on any processor.
///   Finite   if and only if every element is: the square of an fp32 number cannot overflow in fp64.
///   Errors   InputError for another dtype.
double sum_of_squares(const at::Tensor& slice);

/// Adds sum_of_squares of every slice, in order, to sums[kSquares]. All slices have one dtype and device; on
/// a GPU one launch takes 64 of them.
void add_sums_of_squares(std::span<const at::Tensor> slices, at::Tensor& sums);

/// Must precede the all-reduce: sets sums[kNonFinite] to 1 if this rank's loss or squares are not finite,
/// otherwise to 0.
void finish_sums(at::Tensor& sums);

/// Must follow the all-reduce and precede the update: scalars.grad_norm = sqrt(squares), rounded once;
/// scalars.clip = min(1, max_norm / norm), or 1 if max_norm is 0 (off); scalars.step += 1. If
/// sums[kNonFinite] is set by any rank: clip = kNoUpdate, and the step is not counted. With a loss scale,
/// norm and factor are those of the unscaled gradient, and the scale is updated for the next step. The
/// gradient is already the mean over the global batch's tokens (Batch::scale), so nothing is divided here.
void global_norm_and_clip(const at::Tensor& sums, double max_norm, const StepScalars& scalars);

/// The mean loss in nats per token, sums[kLossSum] / sums[kTokens]. Waits for the device.
double mean_loss(const at::Tensor& sums);

}  // namespace sc
