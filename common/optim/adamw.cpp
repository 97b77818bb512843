#include "common/optim/adamw.h"

#include <ATen/Parallel.h>
#include <c10/util/BFloat16.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "common/base/check.h"
#include "common/optim/optim_cuda.h"

namespace sc {
namespace {

// Elements that are worth a thread.
constexpr std::int64_t kGrain = std::int64_t{1} << 15;

// Everything that one pass multiplies by, rounded to fp32 once.
struct Factors {
  float beta1, one_minus_beta1, beta2, one_minus_beta2, eps, clip;
  float keep;       // 1 - lr decay, or 1 where there is no decay
  float step_size;  // lr / (1 - beta1^t)
  float v_scale;    // 1 / sqrt(1 - beta2^t)
};

struct Pointers {
  const float* grad32;          // one of the two is null
  const c10::BFloat16* grad16;  // the other holds the gradient
  float *p, *m, *v;
  c10::BFloat16* p16;  // may be null
};

// The one loop. It is compiled into each of run()'s clones: a template cannot be cloned itself. The tensors
// do not overlap.
template <bool kRounds, class Grad>
[[gnu::always_inline]] inline void update(const Factors& f, const Pointers& at, const Grad* grad, Range r) {
  float *p = at.p, *m = at.m, *v = at.v;
  c10::BFloat16* p16 = at.p16;
#pragma GCC ivdep
  for (std::int64_t i = r.begin; i < r.end; ++i) {
    const float g = f.clip * static_cast<float>(grad[i]);
    const float mi = f.beta1 * m[i] + f.one_minus_beta1 * g;
    const float vi = f.beta2 * v[i] + f.one_minus_beta2 * (g * g);
    const float pi = p[i] * f.keep - f.step_size * (mi / (std::sqrt(vi) * f.v_scale + f.eps));
    m[i] = mi;
    v[i] = vi;
    p[i] = pi;
    if constexpr (kRounds) p16[i].x = c10::detail::round_to_nearest_even(pi);
  }
}

// Clones for wider vectors; without contraction (CMakeLists.txt) they agree bit for bit.
[[gnu::target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")]] void run(const Factors& f,
                                                                               const Pointers& at, Range r) {
  if (at.grad32 != nullptr) {
    if (at.p16 == nullptr) return update<false>(f, at, at.grad32, r);
    return update<true>(f, at, at.grad32, r);
  }
  if (at.p16 == nullptr) return update<false>(f, at, at.grad16, r);
  return update<true>(f, at, at.grad16, r);
}

// Calls f(stretch, decays) for the decayed and the plain stretches of `r`, in order.
template <class F>
void for_each_stretch(std::span<const Range> decay, Range r, F&& f) {
  std::int64_t at = r.begin;
  for (const Range& d : decay) {
    const Range inside{std::max(at, d.begin), std::min(r.end, d.end)};
    if (inside.begin >= inside.end) continue;
    if (at < inside.begin) f(Range{at, inside.begin}, false);
    f(inside, true);
    at = inside.end;
  }
  if (at < r.end) f(Range{at, r.end}, false);
}

void require(bool holds, const char* what) {
  if (!holds) throw InputError(ExitCode::usage, "adamw_step", what, "");
}

bool is_flat(const at::Tensor& t, at::ScalarType type, std::int64_t n) {
  return t.is_cpu() && t.is_contiguous() && t.scalar_type() == type && t.numel() == n;
}

Factors factors_of(const AdamWHyper& h, const StepScalars& scalars) {
  const double lr = *scalars.lr.const_data_ptr<float>();
  const auto t = static_cast<double>(*scalars.step.const_data_ptr<std::int64_t>());
  Factors f{};
  f.beta1 = static_cast<float>(h.beta1);
  f.one_minus_beta1 = static_cast<float>(1.0 - h.beta1);
  f.beta2 = static_cast<float>(h.beta2);
  f.one_minus_beta2 = static_cast<float>(1.0 - h.beta2);
  f.eps = static_cast<float>(h.eps);
  f.clip = *scalars.clip.const_data_ptr<float>();
  f.keep = static_cast<float>(1.0 - lr * h.weight_decay);
  f.step_size = static_cast<float>(lr / (1.0 - std::pow(h.beta1, t)));
  f.v_scale = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(h.beta2, t)));
  return f;
}

}  // namespace

AdamWHyper hyper_of(const OptimConfig& o) { return {o.beta1, o.beta2, o.eps, o.weight_decay}; }

void adamw_step(const AdamWHyper& hyper, const StepScalars& scalars, std::span<const Range> decay,
                const at::Tensor& grad, at::Tensor& param, at::Tensor& m, at::Tensor& v,
                at::Tensor* param16) {
  if (param.is_cuda()) return adamw_step_cuda(hyper, scalars, decay, grad, param, m, v, param16);
  const std::int64_t n = param.numel();
  const bool wide = grad.scalar_type() == at::kFloat;
  require(wide || grad.scalar_type() == at::kBFloat16, "the gradient must be fp32 or bf16");
  require(is_flat(grad, grad.scalar_type(), n) && is_flat(param, at::kFloat, n) &&
              is_flat(m, at::kFloat, n) && is_flat(v, at::kFloat, n),
          "gradient, parameters, momentum and variance must be flat, equally long and on the CPU");
  require(param16 == nullptr || is_flat(*param16, at::kBFloat16, n),
          "the rounded parameters must be bf16 and as long as the others");

  if (*scalars.clip.const_data_ptr<float>() == kNoUpdate) return;
  const Factors decayed = factors_of(hyper, scalars);
  Factors plain = decayed;
  plain.keep = 1.0F;
  const Pointers at{wide ? grad.const_data_ptr<float>() : nullptr,
                    wide ? nullptr : grad.const_data_ptr<c10::BFloat16>(),
                    param.mutable_data_ptr<float>(),
                    m.mutable_data_ptr<float>(),
                    v.mutable_data_ptr<float>(),
                    param16 == nullptr ? nullptr : param16->mutable_data_ptr<c10::BFloat16>()};
  at::parallel_for(0, n, kGrain, [&](std::int64_t begin, std::int64_t end) {
    for_each_stretch(decay, {begin, end},
                     [&](Range r, bool decays) { run(decays ? decayed : plain, at, r); });
  });
}

}  // namespace sc
