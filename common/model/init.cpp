// Initial weights as a function of (seed, tensor name, element): the same on every rank, in every world and
// layout.
#include <ATen/Parallel.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <span>
#include <vector>

#include "common/base/counter_random.h"
#include "common/model/gpt.h"

namespace sc {
namespace {

std::uint64_t hash(std::string_view name) {
  std::uint64_t h = 0xcbf29ce484222325ULL;
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return h;
}

// A uniform number in (0, 1) with 53 random bits; never 0, so that its logarithm exists.
double uniform_above_zero(std::uint64_t key, std::uint64_t counter) {
  const std::uint64_t bits = spread64(key + counter * kGolden64);
  return (static_cast<double>(bits >> 11) + 0.5) * 0x1.0p-53;
}

// Fills `out` with Normal(0, stddev) for elements [begin, begin + out.size()) of a tensor, by Box-Muller:
// elements 2i and 2i + 1 share two uniforms, wherever a range begins.
void fill_normal(std::uint64_t key, std::int64_t begin, double stddev, std::span<float> out) {
  constexpr std::int64_t kGrain = 1 << 12;
  const auto size = static_cast<std::int64_t>(out.size());
  const std::int64_t odd = begin % 2;  // 1 if the range begins with the second element of a pair
  at::parallel_for(0, ceil_div(odd + size, 2), kGrain, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = 2 * first - odd; i < 2 * last - odd; i += 2) {
      const auto pair = static_cast<std::uint64_t>(begin + i);
      const double radius = stddev * std::sqrt(-2.0 * std::log(uniform_above_zero(key, pair)));
      const double angle = 2.0 * std::numbers::pi * uniform_above_zero(key, pair + 1);
      if (i >= 0) out[static_cast<std::size_t>(i)] = static_cast<float>(radius * std::cos(angle));
      if (i + 1 < size) out[static_cast<std::size_t>(i + 1)] = static_cast<float>(radius * std::sin(angle));
    }
  });
}

// Writes the initial elements `range` of a whole tensor to `out`.
void init_matrix(const ParamTensor& t, const GptConfig& config, std::uint64_t seed, Range range,
                 const at::Tensor& out) {
  constexpr std::int64_t kPiece = 1 << 20;  // even; bounds the host memory for a large tensor
  const bool residual = t.name.ends_with("c_proj.weight");
  const double stddev = residual ? 0.02 / std::sqrt(2.0 * static_cast<double>(config.layers)) : 0.02;
  const bool padded = t.name == "wte.weight" || t.name == "lm_head.weight";
  const std::int64_t end = std::min(range.end, padded ? config.vocab * config.width : t.whole.numel());
  const std::uint64_t key = spread64(spread64(seed) ^ hash(t.name));
  std::vector<float> piece;
  for (std::int64_t begin = range.begin; begin < end; begin += kPiece) {
    piece.resize(static_cast<std::size_t>(std::min(kPiece, end - begin)));
    fill_normal(key, begin, stddev, piece);
    const auto size = static_cast<std::int64_t>(piece.size());
    out.narrow(0, begin - range.begin, size).copy_(at::from_blob(piece.data(), {size}, at::kFloat));
  }
}

}  // namespace

void init_slice(const ParamLayout& layout, int unit, Segment segment, Range range, std::uint64_t seed,
                const at::Tensor& out) {
  out.zero_();
  for (const ParamTensor& t : layout.unit(unit).tensors) {
    if (t.segment != segment) continue;
    const Range shared{std::max(range.begin, t.offset), std::min(range.end, t.offset + t.numel())};
    if (shared.size() <= 0) continue;
    const at::Tensor part = out.narrow(0, shared.begin - range.begin, shared.size());
    if (t.decay) {
      const std::int64_t first = shared.begin - t.offset;
      for_each_run(t, {first, shared.end - t.offset}, [&](Range here, std::int64_t whole) {
        init_matrix(t, layout.config(), seed, {whole, whole + here.size()},
                    part.narrow(0, here.begin - first, here.size()));
      });
    } else if (t.name.ends_with(".weight")) {
      part.fill_(1.0);  // a norm
    }
  }
}

void init_unit(const ParamLayout& layout, int unit, std::uint64_t seed, const UnitTensors& params) {
  for (const Segment segment : {Segment::sharded, Segment::whole}) {
    const at::Tensor& all = params.segment(segment);
    if (all.defined()) init_slice(layout, unit, segment, {0, layout.unit(unit).size(segment)}, seed, all);
  }
}

}  // namespace sc
