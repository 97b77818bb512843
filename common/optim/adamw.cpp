#include "common/optim/adamw.h"

#include <ATen/Parallel.h>

#include "common/base/check.h"
#include "common/memory/ledger.h"
#include "common/optim/host_adam.h"
#include "common/optim/optim_cuda.h"

namespace sc {
namespace {

// The least number of elements that is worth a thread.
constexpr std::int64_t kGrain = std::int64_t{1} << 15;

void require(bool holds, const char* what) {
  if (!holds) throw InputError(ExitCode::usage, "adamw_step", what, "");
}

bool is_16_bit(at::ScalarType type) { return type == at::kBFloat16 || type == at::kHalf; }

}  // namespace

AdamWHyper hyper_of(const OptimConfig& o) { return {o.beta1, o.beta2, o.eps, o.weight_decay}; }

void adamw_step(const AdamWHyper& hyper, const StepScalars& scalars, std::span<const Range> decay,
                const at::Tensor& grad, at::Tensor& param, at::Tensor& m, at::Tensor& v,
                at::Tensor* param16) {
  const bool cuda = param.is_cuda();
  const std::int64_t n = param.numel();
  const at::ScalarType type = grad.scalar_type();
  const auto is_flat = [&](const at::Tensor& t, at::ScalarType of) {
    return (cuda ? t.is_cuda() : t.is_cpu()) && t.is_contiguous() && t.scalar_type() == of && t.numel() == n;
  };
  require(type == at::kFloat || is_16_bit(type), "the gradient must be fp32, bf16 or fp16");
  require(
      is_flat(grad, type) && is_flat(param, at::kFloat) && is_flat(m, at::kFloat) && is_flat(v, at::kFloat),
      cuda ? "gradient, parameters, momentum and variance must be flat, equally long and on the GPU"
           : "gradient, parameters, momentum and variance must be flat, equally long and on the CPU");
  require(
      param16 == nullptr || (is_16_bit(param16->scalar_type()) && is_flat(*param16, param16->scalar_type())),
      cuda ? "the rounded parameters must be of 16 bits and as long as the others"
           : "the rounded parameters must be bf16 or fp16 and as long as the others");
  require(!cuda || (scalars.lr.is_cuda() && scalars.step.is_cuda() && scalars.clip.is_cuda()),
          "learning rate, step number and clip factor must be on the GPU");
  if (cuda) return adamw_step_cuda(hyper, scalars, decay, grad, param, m, v, param16);

  const AdamWFactors factors =
      adamw_factors(hyper, *scalars.lr.const_data_ptr<float>(), *scalars.step.const_data_ptr<std::int64_t>(),
                    *scalars.clip.const_data_ptr<float>());
  AdamWVectors vectors{grad.const_data_ptr(), from_aten(type), param.mutable_data_ptr<float>(),
                       m.mutable_data_ptr<float>(), v.mutable_data_ptr<float>()};
  if (param16 != nullptr) {
    vectors.param16 = param16->mutable_data_ptr();
    vectors.param16_dtype = from_aten(param16->scalar_type());
  }
  at::parallel_for(0, n, kGrain, [&](std::int64_t begin, std::int64_t end) {
    adamw_chunk(factors, vectors, decay, {begin, end});
  });
}

}  // namespace sc
