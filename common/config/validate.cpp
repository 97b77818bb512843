#include "common/config/validate.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "common/base/check.h"

namespace sc {
namespace {

[[noreturn]] void refuse_values(const ResolvedConfig& config, const std::vector<std::string>& keys,
                                const std::string& what, const std::string& fix) {
  throw InputError(ExitCode::usage, origin_of_any(config.origins, keys), what, fix);
}

std::int64_t largest_divisor(std::int64_t of, std::int64_t at_most) {
  std::int64_t divisor = std::min(at_most, of);
  while (of % divisor != 0) --divisor;
  return divisor;
}

void check_model(const ResolvedConfig& config) {
  const Workload& w = config.workload;
  const GptConfig& m = w.model;
  if (m.width % m.heads != 0) {
    const std::int64_t width = std::max<std::int64_t>(m.width / m.heads, 1) * m.heads;
    refuse_values(
        config, {"model.heads", "model.width"},
        fmt::format("model.width {} is not a multiple of model.heads {}: a head would have {:.4g} elements",
                    m.width, m.heads, static_cast<double>(m.width) / static_cast<double>(m.heads)),
        fmt::format("--set model.width={} or --set model.heads={}", width,
                    largest_divisor(m.width, m.heads)));
  }
  if (w.batch.sequence > m.context)
    refuse_values(
        config, {"batch.sequence", "model.context"},
        fmt::format("batch.sequence {} is longer than model.context {}: there are no positions for the rest",
                    w.batch.sequence, m.context),
        fmt::format("--set batch.sequence={} or --set model.context={}", m.context, w.batch.sequence));
  const std::int64_t tokens = tokenizer_vocab(w.data.tokenizer);
  const bool ids = w.data.source.ends_with(".bin");  // token files are checked when they are opened
  if (!ids && m.vocab < tokens)
    refuse_values(
        config, {"model.vocab", "data.tokenizer"},
        fmt::format("model.vocab {} is too small: data.tokenizer {} produces {} tokens", m.vocab,
                    w.data.tokenizer, tokens),
        fmt::format("--set model.vocab={}{}", tokens, m.vocab >= 257 ? " or --set data.tokenizer=byte" : ""));
}

// Refuses sizes of activations or of the parameters' state whose byte counts would overflow 64 bits. Computes
// in floating point, which does not overflow.
void check_size(const ResolvedConfig& config) {
  const auto f = [](std::int64_t x) { return static_cast<double>(x); };
  const Workload& w = config.workload;
  const GptConfig& m = w.model;
  const double activations =
      128 * f(w.batch.global) * f(w.batch.sequence) * (f(m.layers) * f(m.width) + f(m.vocab));
  const double attention = 32 * f(w.batch.micro) * f(m.heads) * f(w.batch.sequence) * f(w.batch.sequence);
  const double state = 64 * (f(m.vocab) + f(m.context) + 16 * f(m.layers) * f(m.width)) * f(m.width);
  if (activations + attention + state < 4e18) return;
  refuse_values(config, {"model.width", "batch.micro", "batch.sequence"},
                "a run of this size would hold more bytes than 64 bits can count",
                "a smaller model.width, model.layers, batch.micro or batch.sequence");
}

void check_place(const ResolvedConfig& config, const RunFacts& facts) {
  const Workload& w = config.workload;
  const std::int64_t stages = facts.mesh.size(Axis::stages);
  if (w.precision.dtype != DType::f32 && facts.device == DeviceChoice::cpu && !facts.plan_only)
    refuse_values(config, {"precision.dtype"},
                  fmt::format("precision.dtype {} needs a GPU: this run is on the CPU, which trains in fp32",
                              w.precision.dtype == DType::bf16 ? "bf16" : "fp16"),
                  "--set precision.dtype=fp32, or --device cuda");
  if (stages > w.model.layers)
    refuse_values(config, {"model.layers"},
                  fmt::format("{} stages cannot share model.layers {}: a stage has at least one block",
                              stages, w.model.layers),
                  fmt::format("--set model.layers={}", stages));
}

}  // namespace

BatchPlan validate(const ResolvedConfig& config, const RunFacts& facts) {
  check_model(config);
  check_size(config);
  check_place(config, facts);
  return plan_batch(config.workload.batch, {facts.mesh, facts.plan_only, facts.ranks_flag}, config.origins);
}

DeviceChoice plan_device(const Workload& workload, DeviceChoice asked) {
  if (asked != DeviceChoice::automatic) return asked;
  return workload.precision.dtype == DType::f32 ? DeviceChoice::cpu : DeviceChoice::cuda;
}

std::int64_t tokenizer_vocab(const std::string& tokenizer) { return tokenizer == "gpt2" ? 50257 : 257; }

}  // namespace sc
