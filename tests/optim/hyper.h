#pragma once

#include "common/optim/adamw.h"

namespace sc::test {

inline constexpr AdamWHyper kHyper{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};

}  // namespace sc::test
