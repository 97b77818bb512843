// The model as PyTorch has it: LibTorch's autograd over ATen's operations, in any dtype. A yardstick that
// shares nothing with common/model but the parameters.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <optional>
#include <string>

#include "tests/model/model_fixture.h"

namespace sc::test {

/// Gradients by tensor's name, and the sum of the loss.
struct AutogradResult {
  std::map<std::string, at::Tensor> grads;
  double loss_sum = 0;
};

/// Runs one micro-batch with copies of `model`'s parameters; the loss is scaled by `scale` before backward.
/// Leaves inference mode for the call. `dtype` is that of parameters and arithmetic; the parameters' own if
/// none.
AutogradResult autograd_step(const Model& model, const at::Tensor& tokens, const at::Tensor& targets,
                             double scale, std::optional<at::ScalarType> dtype = {});

}  // namespace sc::test
