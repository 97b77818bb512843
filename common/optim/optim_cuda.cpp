#include "common/optim/optim_cuda.h"

#include <c10/cuda/CUDAStream.h>

#include <algorithm>

#include "common/base/check.h"
#include "common/base/op_profile.h"
#include "common/memory/ledger.h"
#include "common/memory/stream_scratch.h"
#include "common/optim/cuda_kernels.h"
#include "common/optim/grad_norm.h"

namespace sc {
namespace {

cudaStream_t stream() { return c10::cuda::getCurrentCUDAStream().stream(); }

void require(bool holds, const char* where, const char* what) {
  if (!holds) throw InputError(ExitCode::usage, where, what, "");
}

bool is_flat(const at::Tensor& t, std::int64_t n) {
  return t.is_cuda() && t.is_contiguous() && t.numel() == n;
}
bool is_16_bit(const at::Tensor& t) {
  return t.scalar_type() == at::kBFloat16 || t.scalar_type() == at::kHalf;
}

}  // namespace

void adamw_step_cuda(const AdamWHyper& hyper, const StepScalars& scalars, std::span<const Range> decay,
                     const at::Tensor& grad, at::Tensor& param, at::Tensor& m, at::Tensor& v,
                     at::Tensor* param16) {
  const std::int64_t n = param.numel();
  require(grad.scalar_type() == at::kFloat || is_16_bit(grad), "adamw_step",
          "the gradient must be fp32, bf16 or fp16");
  require(is_flat(grad, n) && is_flat(param, n) && is_flat(m, n) && is_flat(v, n), "adamw_step",
          "gradient, parameters, momentum and variance must be flat, equally long and on the GPU");
  require(param16 == nullptr || (is_flat(*param16, n) && is_16_bit(*param16)), "adamw_step",
          "the rounded parameters must be of 16 bits and as long as the others");
  require(scalars.lr.is_cuda() && scalars.step.is_cuda() && scalars.clip.is_cuda(), "adamw_step",
          "learning rate, step number and clip factor must be on the GPU");
  const ProfiledOp profiled(
      "AdamW", {0, static_cast<double>(
                       n * (24 + size_of(from_aten(grad.scalar_type())) + (param16 == nullptr ? 0 : 2)))});
  fused::adamw(hyper, decay,
               {.n = n,
                .grad_dtype = from_aten(grad.scalar_type()),
                .param16_dtype = param16 == nullptr ? DType::bf16 : from_aten(param16->scalar_type()),
                .grad = grad.const_data_ptr(),
                .param = param.mutable_data_ptr<float>(),
                .m = m.mutable_data_ptr<float>(),
                .v = v.mutable_data_ptr<float>(),
                .param16 = param16 == nullptr ? nullptr : param16->mutable_data_ptr(),
                .lr = scalars.lr.const_data_ptr<float>(),
                .clip = scalars.clip.const_data_ptr<float>(),
                .step = scalars.step.const_data_ptr<std::int64_t>()},
               stream());
}

void add_sums_of_squares_cuda(std::span<const at::Tensor> slices, at::Tensor& sums) {
  double bytes = 0;
  for (const at::Tensor& slice : slices) {
    require(slice.is_contiguous() && slice.is_cuda() && slice.scalar_type() == slices[0].scalar_type(),
            "sum_of_squares", "the slices must be contiguous, of one dtype, and on the device of the sums");
    bytes += static_cast<double>(slice.nbytes());
  }
  const ProfiledOp profiled("norm", {0, bytes});
  for (std::size_t first = 0; first < slices.size(); first += fused::SumsOfSquares::kMost) {
    fused::SumsOfSquares op{.dtype = from_aten(slices[first].scalar_type()),
                            .squares = sums.mutable_data_ptr<double>() + kSquares};
    for (const at::Tensor& slice :
         slices.subspan(first, std::min(fused::SumsOfSquares::kMost, slices.size() - first)))
      op.add(slice.const_data_ptr(), slice.numel());
    fused::add_sums_of_squares(op, stream_scratch(op.scratch_bytes()), stream_counters(), stream());
  }
}

void finish_sums_cuda(at::Tensor& sums) { fused::finish_sums(sums.mutable_data_ptr<double>(), stream()); }

void global_norm_and_clip_cuda(const at::Tensor& sums, double max_norm, const StepScalars& scalars) {
  const bool scales = scalars.loss_scale.defined();
  fused::norm_and_clip(
      {.sums = sums.const_data_ptr<double>(),
       .max_norm = static_cast<float>(max_norm),
       .norm = scalars.grad_norm.mutable_data_ptr<float>(),
       .clip = scalars.clip.mutable_data_ptr<float>(),
       .step = scalars.step.mutable_data_ptr<std::int64_t>(),
       .loss_scale = scales ? scalars.loss_scale.mutable_data_ptr<float>() : nullptr,
       .scaler_state = scales ? scalars.scaler_state.mutable_data_ptr<std::int64_t>() : nullptr},
      stream());
}

}  // namespace sc
