#include "common/config/validate.h"

#include <spdlog/fmt/fmt.h>

#include "common/base/check.h"

namespace sc {
namespace {

class Checks {
 public:
  explicit Checks(const ResolvedConfig& config) : w_(config.workload), origins_(config.origins) {}

  void model() const {
    const GptConfig& m = w_.model;
    if (m.width % m.heads != 0) {
      const std::int64_t below = m.width / m.heads * m.heads;
      const std::int64_t width = below > 0 ? below : m.heads;
      refuse(
          {"model.heads", "model.width"},
          fmt::format("model.width {} is not a multiple of model.heads {}: a head would have {:.4g} elements",
                      m.width, m.heads, static_cast<double>(m.width) / static_cast<double>(m.heads)),
          fmt::format("--set model.width={} or --set model.heads={}", width,
                      largest_divisor(m.width, m.heads)));
    }
    if (w_.batch.sequence > m.context) {
      refuse({"batch.sequence", "model.context"},
             fmt::format(
                 "batch.sequence {} is longer than model.context {}: there are no positions for the rest",
                 w_.batch.sequence, m.context),
             fmt::format("--set batch.sequence={} or --set model.context={}", m.context, w_.batch.sequence));
    }
    const std::int64_t tokens = tokenizer_vocab(w_.data.tokenizer);
    const bool ids = w_.data.source.ends_with(".bin");  // which are looked at themselves
    if (!ids && m.vocab < tokens) {
      refuse({"model.vocab", "data.tokenizer"},
             fmt::format("model.vocab {} is too small: data.tokenizer {} produces {} tokens", m.vocab,
                         w_.data.tokenizer, tokens),
             fmt::format("--set model.vocab={}{}", tokens,
                         m.vocab >= 257 ? " or --set data.tokenizer=byte" : ""));
    }
  }

  // The largest products of a plan: activations, and state of the parameters. In floating point, which does
  // not overflow.
  void size() const {
    const auto f = [](std::int64_t x) { return static_cast<double>(x); };
    const GptConfig& m = w_.model;
    const double activations =
        128 * f(w_.batch.global) * f(w_.batch.sequence) * (f(m.layers) * f(m.width) + f(m.vocab));
    const double attention =
        32 * f(w_.batch.micro) * f(m.heads) * f(w_.batch.sequence) * f(w_.batch.sequence);
    const double state = 64 * (f(m.vocab) + f(m.context) + 16 * f(m.layers) * f(m.width)) * f(m.width);
    if (activations + attention + state < 4e18) return;
    refuse({"model.width", "batch.micro", "batch.sequence"},
           "a run of this size would hold more bytes than 64 bits can count",
           "a smaller model.width, model.layers, batch.micro or batch.sequence");
  }

  void device(const RunFacts& facts) const {
    if (w_.precision.dtype == DType::f32 || facts.device != DeviceChoice::cpu || facts.plan_only) return;
    refuse({"precision.dtype"},
           fmt::format("precision.dtype {} needs a GPU: this run is on the CPU, which trains in fp32",
                       w_.precision.dtype == DType::bf16 ? "bf16" : "fp16"),
           "--set precision.dtype=fp32, or --device cuda");
  }

  void stages(const RunFacts& facts) const {
    if (facts.mesh.size(Axis::stages) <= w_.model.layers) return;
    refuse({"model.layers"},
           fmt::format("{} stages cannot share model.layers {}: a stage has at least one block",
                       facts.mesh.size(Axis::stages), w_.model.layers),
           fmt::format("--set model.layers={}", facts.mesh.size(Axis::stages)));
  }

 private:
  static std::int64_t largest_divisor(std::int64_t of, std::int64_t at_most) {
    std::int64_t divisor = at_most < of ? at_most : of;
    while (of % divisor != 0) --divisor;
    return divisor;
  }
  [[noreturn]] void refuse(const std::vector<std::string>& keys, const std::string& what,
                           const std::string& fix) const {
    throw InputError(ExitCode::usage, origin_of_any(origins_, keys), what, fix);
  }

  const Workload& w_;
  const Origins& origins_;
};

}  // namespace

BatchPlan validate(const ResolvedConfig& config, const RunFacts& facts) {
  const Checks checks(config);
  checks.model();
  checks.size();
  checks.device(facts);
  checks.stages(facts);
  return plan_batch(config.workload.batch, {facts.mesh, facts.plan_only, facts.ranks_flag}, config.origins);
}

DeviceChoice plan_device(const Workload& workload, DeviceChoice asked) {
  if (asked != DeviceChoice::automatic) return asked;
  return workload.precision.dtype == DType::f32 ? DeviceChoice::cpu : DeviceChoice::cuda;
}

std::int64_t tokenizer_vocab(const std::string& tokenizer) { return tokenizer == "gpt2" ? 50257 : 257; }

}  // namespace sc
