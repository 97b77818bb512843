// Model FLOPs utilisation (MFU): the share of a GPU's peak that the model's own products use. No torch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/config/workload.h"

namespace sc {

/// The work per token, and the peak rate of the GPUs.
///   Formula  6 N + 6 L d T FLOPs per token: forward 2 and backward 4 per parameter; attention's two products
///            over the T/2 earlier tokens that the causal mask leaves. N counts all parameters, the
///            embeddings and the padded vocabulary too. Recomputed operations (activations: recompute) count
///            once.
///   Source   Chowdhery et al., PaLM, arXiv:2204.02311, appendix B (which counts attention without the mask);
///            karpathy/llm.c counts as here.
struct ModelFlops {
  static constexpr const char* kFormula = "6 N + 6 L d T";
  std::int64_t parameters = 0;  // N
  double a_token = 0;
  int gpus = 1;
  std::optional<double> peak = {};  // FLOP/s of one GPU: dense products in the run's dtype, by its data sheet
  std::string peak_of = {};         // "NVIDIA H200, bf16"; without a peak the reason
  bool operator==(const ModelFlops&) const = default;
  /// The MFU at a rate over all GPUs; nullopt without a known peak.
  [[nodiscard]] std::optional<double> mfu(double tokens_per_second) const;
};

/// The ModelFlops of a run. `gpu` is the device's name, the same on all ranks; `shared`: ranks share GPUs.
ModelFlops flops_of(const Workload& workload, const std::string& gpu, int ranks, bool shared);

}  // namespace sc
