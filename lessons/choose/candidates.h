// What is tried: of the list of all lessons what so many GPUs can run, with what a step takes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/strategy/plans.h"
#include "predict.h"

namespace sc::choose {

struct Candidate {
  StrategyPlans plans;
  bool late = false;  // weights that a gradient was not computed with: not the losses of the others
  bool host = false, disk = false;  // it keeps states there
  std::function<double(const RunShape&, const Rates&)> seconds;
};

/// For so many GPUs, in the order of the lessons.
std::vector<Candidate> candidates(std::int64_t gpus);
/// The shape of a run of it on so many GPUs.
RunShape shape_on(const StrategyPlans& plans, std::int64_t gpus, const Workload& workload);
/// A lesson with these settings.
Candidate candidate_of(const std::string& folder, const std::vector<std::string>& settings);

}  // namespace sc::choose
