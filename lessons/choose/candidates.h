// The candidates of `choose`: what so many GPUs can run of all lessons, and how long a step of it takes.
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
  bool late = false;  // gradients change other weights than they were computed with, so losses differ
  bool host = false, disk = false;  // whether it keeps states there; on a disk through the host's memory
  std::function<double(const RunShape&, const Rates&)> seconds;
  std::string kind = {};  // candidates of one kind are alike, and the best is shown; empty: like no other
  // Whether candidates of this kind differ by degrees, so that only one is among the quickest that are shown.
  bool by_degrees = false;
  // A lower bound of seconds() that is cheaper to compute; empty: there is none.
  std::function<double(const RunShape&, const Rates&)> at_least = {};
  bool least_is_known = false;  // a GPU holds least with one row and all computed again
};

/// Whether a strategy has the setting, such as "warmup=1".
bool has(const StrategyPlans& strategy, std::string_view setting);

/// What so many GPUs can run, in the order of the lessons, without groupings() and residents().
std::vector<Candidate> candidates(std::int64_t gpus);
/// Lesson 04 with every size of a group that shares parameters, and lesson 11 with every mesh of which two
/// axes at least are longer than one: tensor groups lie in a node and have no more ranks than heads, stages
/// have a block each; 1F1B, also with one more forward first, or interleaved with two or four chunks.
std::vector<Candidate> groupings(std::int64_t gpus, std::int64_t node, const GptConfig& model);
/// Lessons 05 and 06 with states of 1, 2, 4, ... units on the GPUs, lesson 05 also with updates that begin
/// before the norm is known.
std::vector<Candidate> residents(std::int64_t gpus, const GptConfig& model);
/// The shape of a run of a strategy on so many GPUs.
RunShape shape_on(const StrategyPlans& plans, std::int64_t gpus, const Workload& workload);
/// The candidate that is a lesson with these settings.
Candidate candidate_of(const std::string& folder, const std::vector<std::string>& settings);

}  // namespace sc::choose
