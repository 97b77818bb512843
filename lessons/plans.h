// All lessons by their plans: what --memory-cap and choose look through.
#pragma once

#include <vector>

#include "common/strategy/plans.h"

namespace sc {

/// Each lesson as it is, and with the settings that change where things are or when they are updated; in the
/// order of the lessons, of which each divides more than the one before. Some want several ranks, or four.
std::vector<StrategyPlans> lesson_plans();
/// The one of that folder with these settings.
///   Errors  InputError (exit 64) for a value that a key does not take.
StrategyPlans lesson_plans_of(const std::string& folder, const std::vector<std::string>& settings);

}  // namespace sc
