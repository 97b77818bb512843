// A whole model's gradients in 16 bits on the GPU against fp32 on the CPU, beside the error that ATen makes
// with the same parameters.
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

// Two micro-batches, the second accumulated.
void run_twice(Model& model) {
  const at::Device device = model.ledger.device();
  for (const std::uint64_t seed : {1, 2}) {
    const at::Tensor tokens = some_tokens(2, 128, 1000, seed), targets = some_tokens(2, 128, 1000, seed + 50);
    targets[0][3] = -1;
    model.forward_backward(tokens.to(device), targets.to(device),
                           at::full({}, 1.0 / 512, at::kFloat).to(device),
                           seed == 1 ? Write::overwrite : Write::accumulate);
  }
}

void copy_params(const Model& from, const Model& to) {
  for (std::size_t unit = 0; unit < from.params.size(); ++unit)
    to.params[unit].sharded.copy_(from.params[unit].sharded);
}

// At most 1.2 times ATen's own error in a tensor's relative L2 (ATen rounds the same parameters and
// activations to the same dtype), and 1e-6 in fp32.
TEST_F(FusedModelTest, GradientsAsGoodAsAtens) {
  struct Case {
    DType dtype, grad;
  };
  for (const Case& c : {Case{DType::f32, DType::f32}, Case{DType::bf16, DType::bf16},
                        Case{DType::bf16, DType::f32}, Case{DType::f16, DType::f16}}) {
    SCOPED_TRACE(std::string(name_of(c.dtype)) + ", gradients " + std::string(name_of(c.grad)));
    Model fused(run_on(DeviceKind::cuda, OpsBackend::fused, c.dtype, c.grad));
    Model aten(run_on(DeviceKind::cuda, OpsBackend::aten, c.dtype, c.grad));
    Model cpu(run_on(DeviceKind::cpu, OpsBackend::aten, DType::f32, DType::f32));
    copy_params(fused, aten), copy_params(fused, cpu);
    for (Model* model : {&fused, &aten, &cpu}) run_twice(*model);
    EXPECT_NEAR(fused.loss(), cpu.loss(), (c.dtype == DType::f32 ? 1e-6 : 1e-3) * cpu.loss());
    cpu.for_each_tensor([&](int unit, const std::string& name) {
      const at::Tensor want = cpu.grad(unit, name);
      const double ours = test::relative_l2(fused.grad(unit, name).cpu(), want);
      const double atens = test::relative_l2(aten.grad(unit, name).cpu(), want);
      EXPECT_LE(ours, 1.2 * atens + 1e-6) << name << ": ATen's error is " << atens;
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

}  // namespace
}  // namespace sc
