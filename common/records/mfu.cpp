#include "common/records/mfu.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "common/model/param_layout.h"

namespace sc {
namespace {

struct Peak {
  std::string_view gpu;
  double flops;
};

// The FLOP/s of dense bf16 and fp16 products, from NVIDIA's data sheets of the H200, the H100 and the A100.
constexpr Peak kPeaks[] = {
    {"NVIDIA H200", 989e12},           {"NVIDIA H100 80GB HBM3", 989e12}, {"NVIDIA A100-SXM4-40GB", 312e12},
    {"NVIDIA A100-SXM4-80GB", 312e12}, {"NVIDIA A100-PCIE-40GB", 312e12}, {"NVIDIA A100 80GB PCIe", 312e12},
};

}  // namespace

std::optional<double> ModelFlops::mfu(double tokens_per_second) const {
  if (!peak) return std::nullopt;
  return tokens_per_second * a_token / (*peak * gpus);
}

ModelFlops flops_of(const Workload& workload, const std::string& gpu, int ranks, bool shared) {
  const GptConfig& m = workload.model;
  const ParamLayout layout(m, WorldSize{1});
  std::int64_t parameters = 0;  // as stored
  for (int unit = 0; unit < layout.num_units(); ++unit) parameters += layout.unit(unit).numel();
  ModelFlops f{.parameters = parameters,
               .a_token = 6 * static_cast<double>(parameters) +
                          6 * static_cast<double>(m.layers * m.width * workload.batch.sequence),
               .gpus = ranks};
  const auto* const known = std::ranges::find_if(kPeaks, [&](const Peak& of) { return of.gpu == gpu; });
  if (shared) {
    f.peak_of = "none: ranks share a GPU";
  } else if (workload.precision.dtype == DType::f32) {
    f.peak_of = "none: fp32, and the peaks known here are those of 16-bit products";
  } else if (known == std::end(kPeaks)) {
    f.peak_of = "none: the peak of \"" + gpu + "\" is not known here (common/records/mfu.cpp)";
  } else {
    f.peak = known->flops;
    f.peak_of = gpu + ", " + std::string(name_of(workload.precision.dtype));
  }
  return f;
}

}  // namespace sc
