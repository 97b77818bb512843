// What is tried: each lesson as it is, and the settings that change where things are or when they are updated.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/strategy/plans.h"
#include "predict.h"

namespace sc::choose {

struct Candidate {
  StrategyPlans plans;
  std::vector<std::string> settings = {};  // "update=delayed", beyond the lesson's defaults
  bool late = false;  // weights that a gradient was not computed with: not the losses of the others
  bool host = false, disk = false;  // it keeps states there
  std::function<double(const RunShape&, const Rates&)> seconds;
};

/// For so many GPUs, in the order of the lessons.
std::vector<Candidate> candidates(std::int64_t gpus);
/// The one of a lesson's folder and settings, in any order.
///   Errors  InputError 65: there is none.
Candidate candidate_named(const std::string& folder, std::vector<std::string> settings);

}  // namespace sc::choose
