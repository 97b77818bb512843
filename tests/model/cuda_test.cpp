// Compares aten's operations on a GPU with the same on the CPU.
#include <ATen/Context.h>
#include <gtest/gtest.h>

#include "tests/model/model_fixture.h"

namespace sc {
namespace {

RunShape run_on(DeviceKind device, DType dtype, Activations activations) {
  RunShape run;
  run.device = device;
  run.workload.model = {.layers = 3, .heads = 2, .width = 128, .context = 160, .vocab = 1000, .tied = true};
  run.workload.batch = {.sequence = 128, .global = 2, .micro = 2};
  run.workload.head_chunk = 100;
  run.workload.activations = activations;
  run.workload.precision = {.dtype = dtype, .grad_dtype = dtype, .reduce_dtype = dtype};
  return run;
}

void run_twice(Model& model) {
  const at::Device device = model.ledger.device();
  for (const Write write : {Write::overwrite, Write::accumulate}) {
    const std::uint64_t seed = write == Write::overwrite ? 1 : 2;
    const at::Tensor tokens = some_tokens(2, 128, 1000, seed), targets = some_tokens(2, 128, 1000, seed + 50);
    targets[0][3] = -1;
    model.forward_backward(tokens.to(device), targets.to(device),
                           at::full({}, 1.0 / 512, at::kFloat).to(device), write);
  }
}

// fp32 agrees within 1e-5 of the largest element, as with the outside truth; bf16 keeps 8 bits, and 30
// roundings in a row were measured at up to 1e-2 in the norms' weights.
TEST(ModelOnCuda, AtenAgreesWithTheCpu) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU, or LibTorch without CUDA";
  Model cpu(run_on(DeviceKind::cpu, DType::f32, Activations::keep));
  run_twice(cpu);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const double tolerance = dtype == DType::f32 ? 1e-5 : 4e-2;
    for (const Activations mode : {Activations::keep, Activations::recompute}) {
      Model gpu(run_on(DeviceKind::cuda, dtype, mode));
      run_twice(gpu);
      EXPECT_NEAR(gpu.loss(), cpu.loss(), tolerance * cpu.loss());
      cpu.for_each_tensor([&](int unit, const std::string& name) {
        EXPECT_LE(relative_error(gpu.grad(unit, name).cpu(), cpu.grad(unit, name)), tolerance) << name;
      });
      Model again(run_on(DeviceKind::cuda, dtype, mode));
      run_twice(again);
      gpu.for_each_tensor([&](int unit, const std::string& name) {
        EXPECT_TRUE(gpu.grad(unit, name).equal(again.grad(unit, name))) << name << " differs from run to run";
      });
    }
  }
}

}  // namespace
}  // namespace sc
