#include "common/optim/grad_norm.h"

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "common/base/check.h"
#include "common/base/clones.h"
#include "common/base/finite.h"
#include "common/base/types.h"
#include "common/optim/norm_rule.h"
#include "common/optim/optim_cuda.h"

namespace sc {
namespace {

// The elements that one thread sums. A block's sum, and so the total, depends only on where blocks begin.
constexpr std::int64_t kBlock = std::int64_t{1} << 16;
// The partial sums of a block lie next to each other in vector registers.
constexpr std::int64_t kLanes = 16;

template <class T>
[[gnu::always_inline]] inline double block_sum(const T* x, std::int64_t n) {
  std::array<double, kLanes> lane{};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::int64_t k = 0; k < kLanes; ++k) {
      const auto value = static_cast<double>(static_cast<float>(x[i + k]));
      lane[static_cast<std::size_t>(k)] += value * value;
    }
  }
  for (; i < n; ++i) {
    const auto value = static_cast<double>(static_cast<float>(x[i]));
    lane[static_cast<std::size_t>(i % kLanes)] += value * value;
  }
  for (std::size_t width = kLanes / 2; width > 0; width /= 2) {
    for (std::size_t k = 0; k < width; ++k) lane[k] += lane[k + width];
  }
  return lane[0];
}

// Compiled without contraction (CMakeLists.txt), so that all clones agree bit for bit.
SC_CLONES("arch=x86-64-v4", "arch=x86-64-v3", "default")
double block_sum_f32(const float* x, std::int64_t n) {
  return block_sum(x, n);
}
SC_CLONES("arch=x86-64-v4", "arch=x86-64-v3", "default")
double block_sum_bf16(const c10::BFloat16* x, std::int64_t n) {
  return block_sum(x, n);
}
double block_sum_f16(const c10::Half* x, std::int64_t n) { return block_sum(x, n); }

template <class T>
double sum_blocks(const T* x, std::int64_t n, double (*block)(const T*, std::int64_t)) {
  std::vector<double> sums(static_cast<std::size_t>(ceil_div(n, kBlock)));
  at::parallel_for(0, ceil_div(n, kBlock), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      sums[static_cast<std::size_t>(b)] = block(x + b * kBlock, std::min(kBlock, n - b * kBlock));
    }
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

}  // namespace

double sum_of_squares(const at::Tensor& slice) {
  if (slice.is_cuda()) {
    at::Tensor sums = at::zeros({4}, slice.options().dtype(at::kDouble));
    add_sums_of_squares_cuda({&slice, 1}, sums);
    return sums.cpu().const_data_ptr<double>()[kSquares];
  }
  if (!slice.is_cpu() || !slice.is_contiguous()) {
    throw InputError(ExitCode::usage, "sum_of_squares", "the slice must be contiguous and on the CPU", "");
  }
  const std::int64_t n = slice.numel();
  switch (slice.scalar_type()) {
    case at::kFloat:
      return sum_blocks(slice.const_data_ptr<float>(), n, block_sum_f32);
    case at::kBFloat16:
      return sum_blocks(slice.const_data_ptr<c10::BFloat16>(), n, block_sum_bf16);
    case at::kHalf:
      return sum_blocks(slice.const_data_ptr<c10::Half>(), n, block_sum_f16);
    default:
      throw InputError(ExitCode::usage, "sum_of_squares", "the slice must be fp32, bf16 or fp16", "");
  }
}

void add_sums_of_squares(std::span<const at::Tensor> slices, at::Tensor& sums) {
  if (sums.is_cuda()) return add_sums_of_squares_cuda(slices, sums);
  for (const at::Tensor& slice : slices) sums.mutable_data_ptr<double>()[kSquares] += sum_of_squares(slice);
}

void finish_sums(at::Tensor& sums) {
  if (sums.is_cuda()) return finish_sums_cuda(sums);
  double* s = sums.mutable_data_ptr<double>();
  s[kNonFinite] = std::isfinite(s[kLossSum]) && std::isfinite(s[kSquares]) ? 0.0 : 1.0;
}

void global_norm_and_clip(const at::Tensor& sums, double max_norm, const StepScalars& scalars) {
  const bool scales = scalars.loss_scale.defined();
  const NormAndClip rule{
      .sums = sums.const_data_ptr<double>(),
      .max_norm = static_cast<float>(max_norm),
      .norm = scalars.grad_norm.mutable_data_ptr<float>(),
      .clip = scalars.clip.mutable_data_ptr<float>(),
      .step = scalars.step.mutable_data_ptr<std::int64_t>(),
      .loss_scale = scales ? scalars.loss_scale.mutable_data_ptr<float>() : nullptr,
      .scaler_state = scales ? scalars.scaler_state.mutable_data_ptr<std::int64_t>() : nullptr};
  sums.is_cuda() ? norm_and_clip_cuda(rule) : rule.run();
}

double mean_loss(const at::Tensor& sums) {
  const at::Tensor host = sums.cpu();
  return without_sign_of_nan(host.const_data_ptr<double>()[kLossSum] /
                             host.const_data_ptr<double>()[kTokens]);
}

}  // namespace sc
