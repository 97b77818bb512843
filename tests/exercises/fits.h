// Lesson 05's exercise: what one configuration holds on four GPUs and on their host, and which limits it
// misses.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "common/config/workload.h"
#include "common/memory/plan.h"
#include "common/strategy/plans.h"
#include "lessons/05_offload/offload_plan.h"

namespace sc::exercise {

/// The limits that the plan must keep.
struct FitsLimits {
  int ranks = 4;
  Bytes device{22'000'000'000};  // 24 GB less 2 GB for what no plan has: CUDA, NCCL, libraries' scratch
  Bytes host{112'000'000'000};   // of all ranks: 128 GB less 16 GB for the system and what else runs there
  std::int64_t micro = 24;       // rows at least: each micro-batch gathers the blocks twice
  std::int64_t prefetch = 1;     // units at least: without one no gather is hidden
};
inline constexpr FitsLimits kFitsLimits;

/// The file with the model and the batch, which the learner keeps.
inline constexpr const char* kFitsWorkload = "configs/gpt_7b.json";
/// The keys that the learner may change.
inline constexpr std::array<std::string_view, 6> kFitsKeys = {
    "parameters", "update", "prefetch", "batch.micro", "activations", "precision.grad_dtype"};

/// A configuration and the plan of one of its ranks; all ranks have equal ones.
struct FitsAnswer {
  RunShape shape;
  OffloadOptions options;
  MemoryPlan plan;
  std::string plan_command;  // prints the plan with every buffer

  [[nodiscard]] Bytes device() const { return plan.total(); }
  [[nodiscard]] Bytes host() const;  // of all ranks, pinned or not
};

/// Reads the answer in `json`, which messages call `name`, over kFitsWorkload and the lesson's defaults.
///   Errors  NotReached with the line and column: no JSON, another key, a value that a run would refuse.
FitsAnswer read_answer(const std::string& json, const std::string& name);

/// A text for each limit that is missed, with by how much and by which purposes. Empty: the answer is right.
std::vector<std::string> missed_limits(const FitsAnswer& answer);

/// The most bytes that one of four ranks of a lesson holds on its GPU, with that workload and the lesson's
/// defaults.
Bytes device_bytes(const StrategyPlans& lesson, const Workload& workload);

}  // namespace sc::exercise
