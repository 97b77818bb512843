#include "tests/model/autograd_model.h"

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

namespace sc::test {
namespace {

class Network {
 public:
  Network(const Model& model, std::optional<at::ScalarType> dtype) : config_(model.layout.config()) {
    model.for_each_tensor([&](int unit, const std::string& name) {
      const at::Tensor param = model.param(unit, name);
      of_[name] = param.to(dtype.value_or(param.scalar_type())).clone().detach().requires_grad_(true);
    });
  }

  [[nodiscard]] const std::map<std::string, at::Tensor>& params() const { return of_; }

  /// The logits, [B T, vocab].
  [[nodiscard]] at::Tensor logits(const at::Tensor& tokens) const {
    at::Tensor x =
        at::embedding(of_.at("wte.weight"), tokens) + of_.at("wpe.weight").narrow(0, 0, tokens.size(1));
    for (std::int64_t block = 0; block < config_.layers; ++block) {
      const std::string name = "h." + std::to_string(block) + ".";
      x = x + attention(name + "attn.", norm(name + "ln_1", x));
      const at::Tensor fc = linear(name + "mlp.c_fc", norm(name + "ln_2", x));
      x = x + linear(name + "mlp.c_proj", at::gelu(fc, "tanh"));
    }
    const at::Tensor& head = of_.at(config_.tied ? "wte.weight" : "lm_head.weight");
    return at::linear(norm("ln_f", x), head.narrow(0, 0, config_.vocab)).flatten(0, 1);
  }

 private:
  [[nodiscard]] at::Tensor linear(const std::string& name, const at::Tensor& x) const {
    return at::linear(x, of_.at(name + ".weight"), of_.at(name + ".bias"));
  }
  [[nodiscard]] at::Tensor norm(const std::string& name, const at::Tensor& x) const {
    return at::layer_norm(x, {config_.width}, of_.at(name + ".weight"), of_.at(name + ".bias"), 1e-5);
  }
  [[nodiscard]] at::Tensor attention(const std::string& name, const at::Tensor& x) const {
    const std::int64_t b = x.size(0), t = x.size(1);
    const at::Tensor qkv =
        linear(name + "c_attn", x).view({b, t, 3, config_.heads, -1}).permute({2, 0, 3, 1, 4});
    const at::Tensor out = at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], /*attn_mask=*/{},
                                                            /*dropout_p=*/0.0, /*is_causal=*/true);
    return linear(name + "c_proj", out.transpose(1, 2).flatten(2));
  }

  const GptConfig config_;
  std::map<std::string, at::Tensor> of_;
};

}  // namespace

AutogradResult autograd_step(const Model& model, const at::Tensor& tokens, const at::Tensor& targets,
                             double scale, std::optional<at::ScalarType> dtype) {
  const c10::InferenceMode normal(false);
  const Network network(model, dtype);
  // The tokens are copied because autograd saves no tensor of inference mode.
  const at::Tensor loss =
      at::cross_entropy_loss(network.logits(tokens.clone()).to(dtype.value_or(at::kFloat)),
                             targets.clone().flatten(), /*weight=*/{}, at::Reduction::Sum,
                             /*ignore_index=*/-1);
  std::vector<at::Tensor> inputs;
  for (const auto& [name, param] : network.params()) inputs.push_back(param);
  const std::vector<at::Tensor> grads = torch::autograd::grad({loss * scale}, inputs);
  AutogradResult result;
  result.loss_sum = loss.item<double>();
  std::size_t i = 0;
  for (const auto& [name, param] : network.params()) result.grads[name] = grads[i++];
  return result;
}

}  // namespace sc::test
