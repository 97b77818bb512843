// All lessons by their plans: what --memory-cap compares, and whoever asks which strategy fits.
#pragma once

#include <vector>

#include "common/strategy/plans.h"

namespace sc {

/// In the order of the lessons: each divides more than the one before.
std::vector<StrategyPlans> lesson_plans();

}  // namespace sc
