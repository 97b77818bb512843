// What is tried: of the list of all lessons what so many GPUs can run, with what a step takes.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/strategy/plans.h"
#include "predict.h"

namespace sc::choose {

struct Candidate {
  StrategyPlans plans;
  bool late = false;  // weights that a gradient was not computed with: not the losses of the others
  bool host = false, disk = false;  // it keeps states there
  std::function<double(const RunShape&, const Rates&)> seconds;
  std::string kind = {};  // of several alike, of which the best is shown; empty: it is one of its own
  bool by_degrees =
      false;  // the others of its kind are steps on one scale: also among the quickest there is but one
  std::function<double(const RunShape&, const Rates&)> at_least =
      {};                       // what seconds() is not below, for less; or none
  bool least_is_known = false;  // a GPU holds least with one row and all computed again
};

/// Whether this is one of its settings: "warmup=1".
bool has(const StrategyPlans& strategy, std::string_view setting);

/// For so many GPUs, in the order of the lessons.
std::vector<Candidate> candidates(std::int64_t gpus);
/// Lesson 04 with every size of a group that shares parameters, and lesson 11 with every mesh of which two
/// axes at least are longer than one: tensor groups lie in a node and have no more ranks than heads, stages
/// have a block each; 1F1B, with one more forward first too, or interleaved with two or four chunks.
std::vector<Candidate> groupings(std::int64_t gpus, std::int64_t node, const GptConfig& model);
/// Lessons 05 and 06 with states of 1, 2, 4, ... units on the GPUs, lesson 05 also with updates that begin
/// before the norm is known.
std::vector<Candidate> residents(std::int64_t gpus, const GptConfig& model);
/// The shape of a run of it on so many GPUs.
RunShape shape_on(const StrategyPlans& plans, std::int64_t gpus, const Workload& workload);
/// A lesson with these settings.
Candidate candidate_of(const std::string& folder, const std::vector<std::string>& settings);

}  // namespace sc::choose
