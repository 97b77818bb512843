// Lesson 11: combined parallelism. Ranks are a mesh of stages, data groups and tensor groups: lesson 07's
// lists, lesson 10's halves and lesson 02's slices, each along its own axis.
//   Source: Narayanan et al., arXiv:2104.04473.
#pragma once

#include <memory>

#include "combined_plan.h"
#include "lessons/07_pipeline/pipeline.h"

namespace sc {

/// The ranks that share a stage's matrices; null where that is one rank. As a base of Combined the group is
/// there before the stage, and outlives it.
struct TensorGroup {
  std::unique_ptr<Communicator> tensor_;
};

/// The step is lesson 07's Pipeline::train_step, with a TensorStage as layers. Replicas, the ranks of a data
/// group, have the same part of each matrix; the two ends have the same part of the tied one.
class Combined final : TensorGroup, public Pipeline {
 public:
  using Plans = CombinedPlans;
  using Options = Plans::Options;

  Combined(RunContext& context, const Options& options);

 private:
  void wait_reduced() override;
  [[nodiscard]] bool squares(const Stage::Held& held) const override;
  bool compare_copies(std::int64_t step) override;

  const TokenShare tokens_;
};

}  // namespace sc
