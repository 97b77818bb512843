// The functions of adamw.h and grad_norm.h for tensors on a GPU, with the same contracts.
//   Errors  InputError (exit 69) in a build without GPU code.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "common/optim/norm_rule.h"

namespace sc {

void adamw_step_cuda(const AdamWHyper& hyper, const StepScalars& scalars, std::span<const Range> decay,
                     const at::Tensor& grad, at::Tensor& param, at::Tensor& m, at::Tensor& v,
                     at::Tensor* param16);
void add_sums_of_squares_cuda(std::span<const at::Tensor> slices, at::Tensor& sums);
void finish_sums_cuda(at::Tensor& sums);
void norm_and_clip_cuda(const NormAndClip& rule);

}  // namespace sc
