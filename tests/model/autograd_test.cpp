// Tests gradients that are written out by hand against LibTorch's autograd.
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "tests/model/autograd_model.h"

namespace sc {
namespace {

// In fp32 both round a few hundred times on the way to the first block, each in its own order.
TEST(Autograd, AgreesWithEveryGradient) {
  const c10::InferenceMode inference;  // as a run has it
  for (const bool tied : {true, false}) {
    RunShape run;
    run.workload.model = {.layers = 3, .heads = 2, .width = 128, .context = 160, .vocab = 1000, .tied = tied};
    run.workload.batch = {.sequence = 128, .global = 2, .micro = 2};
    run.workload.head_chunk = 100;
    Model model(run);
    const at::Tensor tokens = some_tokens(2, 128, 1000, 1), targets = some_tokens(2, 128, 1000, 51);
    targets[0][3] = -1;
    const double scale = 1.0 / 256;
    model.forward_backward(tokens, targets, at::full({}, scale, at::kFloat), Write::overwrite);
    const test::AutogradResult torch = test::autograd_step(model, tokens, targets, scale);
    EXPECT_NEAR(model.loss(), torch.loss_sum, 1e-6 * torch.loss_sum);
    std::size_t compared = 0;
    model.for_each_tensor([&](int unit, const std::string& name) {
      EXPECT_LE(relative_error(model.grad(unit, name), torch.grads.at(name)), 5e-6) << name;
      ++compared;
    });
    EXPECT_EQ(compared, torch.grads.size());
  }
}

}  // namespace
}  // namespace sc
