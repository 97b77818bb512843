// Tests a whole model's gradients in 16 bits on the GPU against fp32 on the CPU, and compares the error with
// that of PyTorch's autograd for the same parameters.
#include <map>
#include <string>

#include "common/model/activation_plan.h"
#include "tests/model/autograd_model.h"
#include "tests/model/model_fixture.h"
#include "tests/support/gpu.h"

namespace sc {
namespace {

using FusedModelTest = test::GpuTest;

RunShape run_on(DeviceKind device, OpsBackend ops, DType dtype, DType grad_dtype) {
  RunShape run;
  run.device = device;
  run.ops = ops;
  run.workload.model = {.layers = 3, .heads = 2, .width = 128, .context = 160, .vocab = 1000, .tied = true};
  run.workload.batch = {.sequence = 128, .global = 2, .micro = 2};
  run.workload.head_chunk = 100;
  run.workload.precision = {.dtype = dtype, .grad_dtype = grad_dtype, .reduce_dtype = grad_dtype};
  return run;
}

struct MicroBatch {
  at::Tensor tokens, targets;
};
MicroBatch micro_batch(std::uint64_t seed, at::Device device) {
  const at::Tensor tokens = some_tokens(2, 128, 1000, seed), targets = some_tokens(2, 128, 1000, seed + 50);
  targets[0][3] = -1;
  return {tokens.to(device), targets.to(device)};
}
constexpr double kScale = 1.0 / 512;

// Runs two micro-batches, the second accumulated.
void run_twice(Model& model) {
  for (const std::uint64_t seed : {1, 2}) {
    const MicroBatch batch = micro_batch(seed, model.ledger.device());
    model.forward_backward(batch.tokens, batch.targets,
                           at::full({}, kScale, at::kFloat).to(model.ledger.device()),
                           seed == 1 ? Write::overwrite : Write::accumulate);
  }
}

void copy_params(const Model& from, const Model& to) {
  for (std::size_t unit = 0; unit < from.params.size(); ++unit)
    to.params[unit].sharded.copy_(from.params[unit].sharded);
}

// PyTorch's gradients for the same two micro-batches and parameters, summed in their dtype.
std::map<std::string, at::Tensor> autograd_twice(const Model& model) {
  std::map<std::string, at::Tensor> sums;
  for (const std::uint64_t seed : {1, 2}) {
    const MicroBatch batch = micro_batch(seed, model.ledger.device());
    const test::AutogradResult result = test::autograd_step(model, batch.tokens, batch.targets, kScale);
    for (const auto& [name, grad] : result.grads) {
      at::Tensor& sum = sums[name];
      sum = sum.defined() ? sum + grad : grad;
    }
  }
  return sums;
}

// The error of a tensor, as relative L2, is at most 1.2 times PyTorch's own, which rounds the same parameters
// and activations to the same dtype, and 1e-6 in fp32.
TEST_F(FusedModelTest, GradientsAsGoodAsPyTorchs) {
  struct Case {
    DType dtype, grad;
  };
  for (const Case& c : {Case{DType::f32, DType::f32}, Case{DType::bf16, DType::bf16},
                        Case{DType::bf16, DType::f32}, Case{DType::f16, DType::f16}}) {
    SCOPED_TRACE(std::string(name_of(c.dtype)) + ", gradients " + std::string(name_of(c.grad)));
    Model fused(run_on(DeviceKind::cuda, OpsBackend::fused, c.dtype, c.grad));
    Model cpu(run_on(DeviceKind::cpu, OpsBackend::aten, DType::f32, DType::f32));
    copy_params(fused, cpu);
    run_twice(fused), run_twice(cpu);
    const std::map<std::string, at::Tensor> torch = autograd_twice(fused);
    EXPECT_NEAR(fused.loss(), cpu.loss(), (c.dtype == DType::f32 ? 1e-6 : 1e-3) * cpu.loss());
    cpu.for_each_tensor([&](int unit, const std::string& name) {
      const at::Tensor want = cpu.grad(unit, name);
      const double ours = test::relative_l2(fused.grad(unit, name).cpu(), want);
      const double theirs = test::relative_l2(torch.at(name).cpu(), want);
      EXPECT_LE(ours, 1.2 * theirs + 1e-6) << name << ": PyTorch's error is " << theirs;
    });
  }
}

TEST_F(FusedModelTest, DeterministicIsBitEqualRunToRunUnderEveryActivationsMode) {
  for (const Activations mode : {Activations::keep, Activations::recompute_gelu, Activations::recompute}) {
    RunShape run = run_on(DeviceKind::cuda, OpsBackend::deterministic, DType::bf16, DType::bf16);
    run.workload.activations = mode;
    Model a(run), b(run);
    run_twice(a), run_twice(b);
    EXPECT_EQ(a.loss(), b.loss());
    a.for_each_tensor([&](int unit, const std::string& name) {
      EXPECT_TRUE(at::equal(a.grad(unit, name), b.grad(unit, name))) << name << " differs from run to run";
    });
  }
}

// A run claims this if op_scratch_is_exact: after the first step a whole model allocates nothing.
TEST_F(FusedModelTest, AStepAllocatesNothing) {
  for (const OpsBackend ops : {OpsBackend::fused, OpsBackend::deterministic}) {
    for (const DType grad : {DType::bf16, DType::f32}) {
      for (const Activations mode :
           {Activations::keep, Activations::recompute_gelu, Activations::recompute}) {
        RunShape run = run_on(DeviceKind::cuda, ops, DType::bf16, grad);
        run.workload.activations = mode;
        ASSERT_TRUE(op_scratch_is_exact(run));
        Model model(run);
        const MicroBatch batch = micro_batch(1, at::kCUDA);
        const at::Tensor scale = at::full({}, kScale, test::on_gpu(at::kFloat));
        const auto step = [&] {
          for (const Write write : {Write::overwrite, Write::accumulate})
            model.forward_backward(batch.tokens, batch.targets, scale, write);
        };
        step();
        const std::int64_t before = test::allocations();
        step();
        EXPECT_EQ(test::allocations(), before) << static_cast<int>(mode) << " " << name_of(grad);
      }
    }
  }
}

}  // namespace
}  // namespace sc
