// AdamW with four elements per thread, one 16-byte access per vector, and as many blocks as needed. Compiled
// without contraction, so that results equal the CPU's, bit for bit.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "common/model/fused/vector.cuh"
#include "common/optim/cuda_kernels.h"

namespace sc::fused {
namespace {

constexpr int kThreads = 256;
constexpr int kMaxRanges = 32;  // per launch, passed by value

struct DecayRanges {
  int count = 0;
  Range range[kMaxRanges];
};

// The factors that do not change from step to step, each rounded once, as on the CPU.
struct Constants {
  float beta1, one_minus_beta1, beta2, one_minus_beta2, eps;
  double log2_beta1, log2_beta2, weight_decay;
};

struct Factors {
  float clip;
  float keep;       // 1 - lr decay
  float step_size;  // lr / (1 - beta1^t)
  float v_scale;    // 1 / sqrt(1 - beta2^t)
};

template <class G, class P>
struct Arguments {
  const G* grad;
  float *param, *m, *v;
  P* param16;
  std::int64_t n, offset;  // of this launch; offset: of its first element in the slice that `decay` refers to
  const float *lr, *clip;
  const std::int64_t* step;
};

__device__ Factors factors_of(const Constants& c, const float* lr, const float* clip,
                              const std::int64_t* step) {
  const double rate = *lr, t = static_cast<double>(*step);
  return {*clip, static_cast<float>(1.0 - rate * c.weight_decay),
          static_cast<float>(rate / (1.0 - exp2(t * c.log2_beta1))),
          static_cast<float>(1.0 / sqrt(1.0 - exp2(t * c.log2_beta2)))};
}

__device__ bool decays(const DecayRanges& decay, std::int64_t i) {
  for (int r = 0; r < decay.count; ++r) {
    if (i < decay.range[r].end) return i >= decay.range[r].begin;
  }
  return false;
}

template <class T, int N>
struct alignas(sizeof(T) * N) Several {
  T at[N];
};

// Updates N consecutive elements per thread: 4, or 1 if a pointer is not aligned for 4.
template <class G, class P, int N>
__global__ void __launch_bounds__(kThreads) adamw_kernel(Arguments<G, P> a, Constants c, DecayRanges decay) {
  __shared__ Factors shared;
  const std::int64_t begin = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * N;
  const bool active = begin < a.n;
  Several<G, N> g{};
  Several<float, N> p{}, m{}, v{};
  if (active) {  // loads are in flight while the first thread computes the factors
    g = *reinterpret_cast<const Several<G, N>*>(a.grad + begin);
    p = *reinterpret_cast<const Several<float, N>*>(a.param + begin);
    m = *reinterpret_cast<const Several<float, N>*>(a.m + begin);
    v = *reinterpret_cast<const Several<float, N>*>(a.v + begin);
  }
  if (threadIdx.x == 0) shared = factors_of(c, a.lr, a.clip, a.step);
  __syncthreads();
  if (!active || shared.clip == kNoUpdate) return;
  const Factors f = shared;
  const float keep = decays(decay, a.offset + begin) ? f.keep : 1.0F;  // the same for all N: aligned()
  Several<P, N> rounded;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const float grad = f.clip * to_float(g.at[i]);
    m.at[i] = c.beta1 * m.at[i] + c.one_minus_beta1 * grad;
    v.at[i] = c.beta2 * v.at[i] + c.one_minus_beta2 * (grad * grad);
    p.at[i] = p.at[i] * keep - f.step_size * (m.at[i] / (sqrtf(v.at[i]) * f.v_scale + c.eps));
    rounded.at[i] = from_float<P>(p.at[i]);
  }
  *reinterpret_cast<Several<float, N>*>(a.m + begin) = m;
  *reinterpret_cast<Several<float, N>*>(a.v + begin) = v;
  *reinterpret_cast<Several<float, N>*>(a.param + begin) = p;
  if (a.param16 != nullptr) *reinterpret_cast<Several<P, N>*>(a.param16 + begin) = rounded;
}

// Whether groups of N elements lie at aligned addresses and have the same decay throughout.
template <int N>
bool aligned(const AdamW& op, std::span<const Range> decay) {
  const auto fits = [](const void* p, std::int64_t bytes) {
    return reinterpret_cast<std::uintptr_t>(p) % bytes == 0;
  };
  const bool whole = std::all_of(decay.begin(), decay.end(),
                                 [](const Range& r) { return r.begin % N == 0 && r.end % N == 0; });
  return whole && op.n % N == 0 && fits(op.param, 4 * N) && fits(op.m, 4 * N) && fits(op.v, 4 * N) &&
         fits(op.grad, size_of(op.grad_dtype) * N) && fits(op.param16, 2 * N);
}

template <int N, class G, class P>
void launch(const Arguments<G, P>& a, const Constants& c, const DecayRanges& decay, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(ceil_div(a.n, std::int64_t{kThreads} * N));
  adamw_kernel<G, P, N><<<blocks, kThreads, 0, stream>>>(a, c, decay);
  SC_CHECK(cudaGetLastError());
}

template <class G, class P>
void run(const Constants& c, std::span<const Range> decay, const AdamW& op, cudaStream_t stream) {
  constexpr std::int64_t kVector = 4;
  const bool four = aligned<kVector>(op, decay);
  std::int64_t begin = 0;
  // Each launch takes kMaxRanges ranges and ends at an aligned address.
  for (std::size_t first = 0; begin < op.n;) {
    DecayRanges ranges;
    for (std::size_t r = first; r < decay.size() && ranges.count < kMaxRanges; ++r)
      ranges.range[ranges.count++] = decay[r];
    const std::size_t next = first + static_cast<std::size_t>(ranges.count);
    const std::int64_t end =
        next < decay.size() ? std::min(op.n, decay[next].begin / kVector * kVector) : op.n;
    Arguments<G, P> a{static_cast<const G*>(op.grad) + begin,
                      op.param + begin,
                      op.m + begin,
                      op.v + begin,
                      static_cast<P*>(op.param16),
                      end - begin,
                      begin,
                      op.lr,
                      op.clip,
                      op.step};
    if (a.param16 != nullptr) a.param16 += begin;
    four ? launch<kVector>(a, c, ranges, stream) : launch<1>(a, c, ranges, stream);
    begin = end;
    while (first < decay.size() && decay[first].end <= begin) ++first;
  }
}

}  // namespace

void adamw(const AdamWHyper& h, std::span<const Range> decay, const AdamW& op, cudaStream_t stream) {
  const Constants c{static_cast<float>(h.beta1), static_cast<float>(1.0 - h.beta1),
                    static_cast<float>(h.beta2), static_cast<float>(1.0 - h.beta2),
                    static_cast<float>(h.eps),   std::log2(h.beta1),
                    std::log2(h.beta2),          h.weight_decay};
  with_type(op.grad_dtype, [&]<class G>(G*) {
    op.param16_dtype == DType::f16 ? run<G, __half>(c, decay, op, stream)
                                   : run<G, __nv_bfloat16>(c, decay, op, stream);
  });
}

}  // namespace sc::fused
