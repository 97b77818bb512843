// Outside truth: Hugging Face transformers' GPT-2 in fp64 (tests/model/golden/make_golden.py), tied and
// untied. Tolerance: fp32 keeps 24 bits (6e-8); sums of at most 128 terms and about 30 operations in a row
// stay below 1e-5 of the largest element of each tensor.
#include "tests/model/golden.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/matmul.h>
#include <gtest/gtest.h>

#include <string>

#include "common/model/hf_weights.h"
#include "common/storage/atomic_dir.h"
#include "tests/model/model_fixture.h"

namespace sc {
namespace {

constexpr double kTolerance = 1e-5;

using test::golden_config, test::kGolden, test::read;

RunShape golden_run(bool tied) {
  RunShape run;
  run.workload.model = golden_config(tied);
  run.workload.batch = {.sequence = 24, .global = 2, .micro = 2};
  return run;
}

/// The logits of the last micro-batch, [B, T, V].
at::Tensor logits_of(const Model& model) {
  const at::Tensor head = model.gpt.head_matrix(model.params[model.gpt.head_unit()]);
  const PartSizes& s = model.gpt.sizes();
  return at::matmul(model.buffers.ws.head.rows.all, head.t()).narrow(1, 0, 97).reshape({s.B, s.T, 97});
}

class Golden : public ::testing::TestWithParam<bool> {
 protected:
  [[nodiscard]] static std::string name() { return GetParam() ? "tied" : "untied"; }
};

TEST_P(Golden, LogitsLossAndEveryGradient) {
  RunShape run = golden_run(GetParam());
  for (const std::int64_t chunk : {4096, 7}) {
    run.workload.head_chunk = chunk;
    Model model(run);
    const HfWeights weights(kGolden / (name() + ".safetensors"), run.workload.model);
    for (int u = 0; u < model.layout.num_units(); ++u) weights.load_unit(model.layout, u, model.params[u]);
    const SafetensorsReader io(kGolden / (name() + "_io.safetensors"));
    const at::Tensor tokens = read(io, "tokens"), targets = read(io, "targets");
    const double counted = targets.ge(0).sum().item<double>();
    model.forward_backward(tokens, targets, at::full({}, 1.0 / counted, at::kFloat), Write::overwrite);

    EXPECT_EQ(model.buffers.result.tokens.item<double>(), counted);
    const double loss = read(io, "loss").item<double>();
    EXPECT_NEAR(model.loss() / counted, loss, kTolerance * loss);
    EXPECT_LE(relative_error(logits_of(model), read(io, "logits")), kTolerance);

    Model expected(run);
    const HfWeights grads(kGolden / (name() + "_grads.safetensors"), run.workload.model);
    for (int u = 0; u < model.layout.num_units(); ++u) grads.load_unit(model.layout, u, expected.grads[u]);
    int tensors = 0;
    model.for_each_tensor([&](int unit, const std::string& tensor) {
      EXPECT_LE(relative_error(model.grad(unit, tensor), expected.grad(unit, tensor)), kTolerance) << tensor;
      ++tensors;
    });
    EXPECT_EQ(tensors, GetParam() ? 40 : 41);
  }
}

// A copy of a file in which matrices are stored as Linear layers have them.
Path as_linear(const Path& path) {
  const SafetensorsReader in(path);
  std::vector<SafeTensorSpec> specs;
  std::vector<at::Tensor> values;
  for (const SafeTensor& t : in.tensors()) {
    at::Tensor value = read(in, t.name);
    if (value.dim() == 2 && t.name.find("h.") != std::string::npos) value = value.t();
    specs.push_back({t.name, *t.dtype, value.sizes().vec()});
    values.push_back(value.contiguous());
  }
  Path copy = Path(::testing::TempDir()) / "linear.safetensors";
  const auto ops = posix_file_ops(Syncing::skip);
  atomic_write_file(*ops, copy, [&](File& file) {
    SafetensorsWriter out(file, specs);
    for (std::size_t i = 0; i < specs.size(); ++i)
      out.write(specs[i].name,
                {static_cast<const std::byte*>(values[i].const_data_ptr()), values[i].nbytes()});
    out.finish();
  });
  return copy;
}

TEST_P(Golden, LogitsOfEitherOrientation) {
  const RunShape run = golden_run(GetParam());
  Model model(run);
  const HfWeights weights(as_linear(kGolden / (name() + ".safetensors")), run.workload.model);
  EXPECT_EQ(weights.notes().size(), 1U);
  for (int u = 0; u < model.layout.num_units(); ++u) weights.load_unit(model.layout, u, model.params[u]);
  const SafetensorsReader io(kGolden / (name() + "_io.safetensors"));
  model.forward_backward(read(io, "tokens"), read(io, "targets"), at::full({}, 1.0, at::kFloat),
                         Write::overwrite);
  EXPECT_LE(relative_error(logits_of(model), read(io, "logits")), kTolerance);
}

TEST_P(Golden, HeadLossEqualsHead) {
  const RunShape run = golden_run(GetParam());
  Model model(run);
  const SafetensorsReader io(kGolden / (name() + "_io.safetensors"));
  const at::Tensor tokens = read(io, "tokens"), targets = read(io, "targets");
  model.forward_backward(tokens, targets, at::full({}, 1.0, at::kFloat), Write::overwrite);
  const double loss = model.loss();
  model.buffers.sums.zero_();
  model.forward(tokens);
  const int last = model.layout.last_unit();
  model.gpt.head_loss(model.gpt.head_matrix(model.params[model.gpt.head_unit()]), model.params[last],
                      model.buffers.x(last - 1), targets, model.buffers.ws, model.buffers.result);
  EXPECT_EQ(model.loss(), loss);
  EXPECT_EQ(model.buffers.result.tokens.item<double>(), targets.ge(0).sum().item<double>());
}

INSTANTIATE_TEST_SUITE_P(Heads, Golden, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "tied" : "untied"; });

}  // namespace
}  // namespace sc
