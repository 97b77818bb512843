// The global norm, and the four numbers that every step sums over ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "common/optim/adamw.h"

namespace sc {

/// sums: [4] fp64, all-reduced once a step. kNonFinite counts the ranks whose loss or gradient is not finite:
/// 0 is a good step.
enum StepSum : int { kLossSum, kTokens, kSquares, kNonFinite };

/// Sum of squares of a contiguous slice ([n] fp32, bf16 or fp16) in fp64.
///   Bits     depends on the values alone: blocks of a fixed size, added in order, whatever the threads and
///            the processor.
///   Finite   exactly if every element is: the square of an fp32 number cannot overflow in fp64.
///   Waits    for a GPU.
///   Errors   InputError for another dtype.
double sum_of_squares(const at::Tensor& slice);

/// sums[kSquares] += sum_of_squares of every slice, added in order; all of one dtype and device. On a GPU 64
/// slices a launch.
void add_sums_of_squares(std::span<const at::Tensor> slices, at::Tensor& sums);

/// Before the all-reduce: sets sums[kNonFinite] to 1 if this rank's loss or squares are not finite, else 0.
void finish_sums(at::Tensor& sums);

/// After it, for the update that follows: scalars.grad_norm = sqrt(squares), rounded once; scalars.clip =
/// min(1, max_norm / norm), or 1 if max_norm is 0 (off); scalars.step += 1. If sums[kNonFinite] is set on any
/// rank: clip = kNoUpdate, and the step is not counted. With a loss scale the norm and the factor are those
/// of the unscaled gradient, and the scale is updated for the next step. The gradient is the mean over the
/// global batch's tokens already (Batch::scale), so nothing is divided here.
void global_norm_and_clip(const at::Tensor& sums, double max_norm, const StepScalars& scalars);

/// sums[kLossSum] / sums[kTokens]: nats a token. Waits for the device.
double mean_loss(const at::Tensor& sums);

}  // namespace sc
