#include "common/records/mfu.h"

namespace sc {
namespace {

struct Peak {
  const char* gpu;
  double flops;
};

// Dense bf16 and fp16 products, as NVIDIA's data sheets of the H200, the H100 and the A100 say.
constexpr Peak kPeaks[] = {
    {"NVIDIA H200", 989e12},           {"NVIDIA H100 80GB HBM3", 989e12}, {"NVIDIA A100-SXM4-40GB", 312e12},
    {"NVIDIA A100-SXM4-80GB", 312e12}, {"NVIDIA A100-PCIE-40GB", 312e12}, {"NVIDIA A100 80GB PCIe", 312e12},
};

std::int64_t parameters_of(const GptConfig& m) {
  const std::int64_t block = 12 * m.width * m.width + 13 * m.width;
  const std::int64_t head = m.vocab_padded() * m.width;
  return head + m.context * m.width + m.layers * block + 2 * m.width + (m.tied ? 0 : head);
}

}  // namespace

std::optional<double> ModelFlops::mfu(double tokens_per_second) const {
  if (!peak) return std::nullopt;
  return tokens_per_second * a_token / (*peak * gpus);
}

ModelFlops flops_of(const Workload& workload, const std::string& gpu, int ranks, bool shared) {
  const GptConfig& m = workload.model;
  ModelFlops f;
  f.parameters = parameters_of(m);
  f.a_token = 6 * static_cast<double>(f.parameters) +
              6 * static_cast<double>(m.layers * m.width * workload.batch.sequence);
  f.gpus = ranks;
  if (shared) {
    f.peak_of = "none: ranks share a GPU";
    return f;
  }
  if (workload.precision.dtype == DType::f32) {
    f.peak_of = "none: fp32, and the peaks known here are those of 16-bit products";
    return f;
  }
  for (const Peak& known : kPeaks) {
    if (gpu != known.gpu) continue;
    f.peak = known.flops;
    f.peak_of = gpu + ", " + std::string(name_of(workload.precision.dtype));
    return f;
  }
  f.peak_of = "none: the peak of \"" + gpu + "\" is not known here (common/records/mfu.cpp)";
  return f;
}

}  // namespace sc
