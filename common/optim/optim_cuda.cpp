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

}  // namespace

void adamw_step_cuda(const AdamWHyper& hyper, const StepScalars& scalars, std::span<const Range> decay,
                     const at::Tensor& grad, at::Tensor& param, at::Tensor& m, at::Tensor& v,
                     at::Tensor* param16) {
  const std::int64_t n = param.numel();
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
    if (!slice.is_contiguous() || !slice.is_cuda() || slice.scalar_type() != slices[0].scalar_type())
      throw InputError(ExitCode::usage, "sum_of_squares",
                       "the slices must be contiguous, of one dtype, and on the device of the sums", "");
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

void norm_and_clip_cuda(const NormAndClip& rule) { fused::norm_and_clip(rule, stream()); }

}  // namespace sc
