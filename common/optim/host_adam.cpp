#include "common/optim/host_adam.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#ifdef __x86_64__
#include <emmintrin.h>
#endif

#include "common/base/check.h"

namespace sc {
namespace {

struct Written {
  float *param, *m, *v;
};

[[gnu::always_inline]] inline AdamWStates read_by(const AdamWVectors& at) {
  return at.from.param == nullptr ? AdamWStates{at.param, at.m, at.v} : at.from;
}

// The one loop: everything from here to adamw_loop is compiled into each run_*(). `rounded` is [r.size()] or
// null. The factors are passed by value, so that no store can change them.
template <class Grad, class Out>
[[gnu::always_inline]] inline void update(const AdamWFactors f, const AdamWStates& from, const Written& to,
                                          const Grad* grad, Out* rounded, Range r) {
  float *p = to.param, *m = to.m, *v = to.v;
  const float *old_p = from.param, *old_m = from.m, *old_v = from.v;
#pragma GCC ivdep
  for (std::int64_t i = r.begin; i < r.end; ++i) {
    const float g = f.clip * static_cast<float>(grad[i]);
    const float mi = f.beta1 * old_m[i] + f.one_minus_beta1 * g;
    const float vi = f.beta2 * old_v[i] + f.one_minus_beta2 * (g * g);
    const float pi = old_p[i] * f.keep - f.step_size * (mi / (std::sqrt(vi) * f.v_scale + f.eps));
    m[i] = mi;
    v[i] = vi;
    p[i] = pi;
    if constexpr (!std::is_void_v<Out>) rounded[i - r.begin] = static_cast<Out>(pi);
  }
}

#ifdef __x86_64__
// Copies memory like memcpy, but past the caches.
[[gnu::always_inline]] inline void stream(void* to, const void* from, std::size_t bytes) {
  constexpr std::size_t kStep = sizeof(__m128i);
  auto* out = static_cast<char*>(to);
  const auto* in = static_cast<const char*>(from);
  std::size_t i = std::min(bytes, -reinterpret_cast<std::uintptr_t>(to) % kStep);  // up to an aligned address
  std::memcpy(out, in, i);
  for (; i + kStep <= bytes; i += kStep)
    _mm_stream_si128(reinterpret_cast<__m128i*>(out + i),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i)));
  std::memcpy(out + i, in + i, bytes - i);
}
// Without this fence, streamed stores may become visible after the store that signals their end.
void fence() { _mm_sfence(); }
#else
[[gnu::always_inline]] inline void stream(void* to, const void* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}
void fence() {}
#endif

// Outputs that were not read before go to a buffer in the first cache and stream from there. Blocks end with
// a cache line of `out`, because a line written in two halves costs twice.
template <class Grad, class Out>
[[gnu::always_inline]] inline void update_streamed(const AdamWFactors& f, const AdamWVectors& at,
                                                   const Grad* grad, Out* out, Range r) {
  constexpr std::int64_t kLine = 64 / sizeof(Out), kBlock = 16 * kLine;
  alignas(64) Out rounded[kBlock];
  alignas(64) float p[kBlock], m[kBlock], v[kBlock];
  const AdamWStates from = read_by(at);
  const bool in_place = at.from.param == nullptr;
  for (std::int64_t i = r.begin, n = 0; i < r.end; i += n) {
    const auto past =
        static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(out + i) / sizeof(Out)) % kLine;
    n = std::min(r.end - i, kBlock - past);
    const Range block{i, i + n};
    const auto bytes = static_cast<std::size_t>(n) * sizeof(float);
    if (in_place) {
      update(f, from, {at.param, at.m, at.v}, grad, rounded, block);
    } else {
      update(f, {from.param + i, from.m + i, from.v + i}, {p, m, v}, grad + i, rounded, {0, n});
      stream(at.param + i, p, bytes);
      stream(at.m + i, m, bytes);
      stream(at.v + i, v, bytes);
    }
    stream(out + i, rounded, static_cast<std::size_t>(n) * sizeof(Out));
  }
}

template <class Out, class Grad>
[[gnu::always_inline]] inline void write(const AdamWFactors& f, const AdamWVectors& at, const Grad* grad,
                                         Range r) {
  auto* out = static_cast<Out*>(at.param16);
  if (at.store == Store::streamed) return update_streamed(f, at, grad, out, r);
  update(f, read_by(at), {at.param, at.m, at.v}, grad, out + r.begin, r);
}

template <class Grad>
[[gnu::always_inline]] inline void read(const AdamWFactors& f, const AdamWVectors& at, Range r) {
  const auto* grad = static_cast<const Grad*>(at.grad);
  if (at.param16 == nullptr)
    return update<Grad, void>(f, read_by(at), {at.param, at.m, at.v}, grad, nullptr, r);
  if (at.param16_dtype == DType::bf16) return write<c10::BFloat16>(f, at, grad, r);
  write<c10::Half>(f, at, grad, r);
}

[[gnu::always_inline]] inline void adamw_loop(const AdamWFactors& f, const AdamWVectors& at, Range r) {
  if (at.grad_dtype == DType::f32) return read<float>(f, at, r);
  if (at.grad_dtype == DType::bf16) return read<c10::BFloat16>(f, at, r);
  read<c10::Half>(f, at, r);
}

// Compiled without contraction (CMakeLists.txt), so that all kinds of loop agree bit for bit.
void run_any(const AdamWFactors& f, const AdamWVectors& at, Range r) { adamw_loop(f, at, r); }
#ifdef __x86_64__
[[gnu::target("arch=x86-64-v4")]] void run_avx512(const AdamWFactors& f, const AdamWVectors& at, Range r) {
  adamw_loop(f, at, r);
}
[[gnu::target("arch=x86-64-v3")]] void run_avx2(const AdamWFactors& f, const AdamWVectors& at, Range r) {
  adamw_loop(f, at, r);
}
constexpr AdamWLoop kLoops[] = {{"AVX-512", run_avx512}, {"AVX2", run_avx2}, {"SSE2", run_any}};
std::size_t first_loop() {
  return __builtin_cpu_supports("x86-64-v4") ? 0 : __builtin_cpu_supports("x86-64-v3") ? 1 : 2;
}
#else
constexpr AdamWLoop kLoops[] = {{"NEON", run_any}};
std::size_t first_loop() { return 0; }
#endif

// Calls f(stretch, decays) for each stretch of `r` with or without weight decay, in order.
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

bool is_16_bit(DType dtype) { return dtype == DType::bf16 || dtype == DType::f16; }

}  // namespace

AdamWFactors adamw_factors(const AdamWHyper& h, float lr, std::int64_t step, float clip) {
  const double rate = lr;
  const auto t = static_cast<double>(step);
  return {.beta1 = static_cast<float>(h.beta1),
          .one_minus_beta1 = static_cast<float>(1.0 - h.beta1),
          .beta2 = static_cast<float>(h.beta2),
          .one_minus_beta2 = static_cast<float>(1.0 - h.beta2),
          .eps = static_cast<float>(h.eps),
          .clip = clip,
          .keep = static_cast<float>(1.0 - rate * h.weight_decay),
          .step_size = static_cast<float>(rate / (1.0 - std::pow(h.beta1, t))),
          .v_scale = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(h.beta2, t)))};
}

std::span<const AdamWLoop> adamw_loops() {
  static const std::size_t first = first_loop();
  return std::span(kLoops).subspan(first);
}

void adamw_chunk(const AdamWFactors& factors, const AdamWVectors& vectors, std::span<const Range> decay,
                 Range r) {
  if ((vectors.grad_dtype != DType::f32 && !is_16_bit(vectors.grad_dtype)) ||
      !is_16_bit(vectors.param16_dtype))
    throw InputError(ExitCode::usage, "adamw_chunk",
                     "the gradient must be fp32, bf16 or fp16, the rounded parameters bf16 or fp16", "");
  if (factors.clip == kNoUpdate) return;
  AdamWFactors plain = factors;
  plain.keep = 1.0F;
  const auto run = adamw_loops().front().run;
  for_each_stretch(decay, r,
                   [&](Range stretch, bool decays) { run(decays ? factors : plain, vectors, stretch); });
  fence();
}

}  // namespace sc
