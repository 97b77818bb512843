// What lesson 08 holds and sends, known before a run, and its settings. No torch.
#pragma once

#include <cstdint>
#include <string>

#include "common/strategy/plans.h"
#include "pipedream/schedule.h"

namespace sc {

struct VersionOptions {
  pipedream::VersionRule versions = pipedream::VersionRule::stash;
  std::int64_t update_every = 0;  // micro-batches between updates; 0: 1, with two_buffers all of a step
  // The others are lesson 07's.
  std::string split = "balanced";
  std::string profile_in = "none";
  std::string costs = "none";
  std::string pace = "none";
  double link_ms = 0;
};

class WeightVersionsPlans final : public PlansWith<WeightVersionsPlans, VersionOptions> {
 public:
  using PlansWith::PlansWith;
  [[nodiscard]] MemoryPlan memory_plan(const RunShape& shape) const override;
  [[nodiscard]] CommPlan comm_plan(const RunShape& shape) const override;
  [[nodiscard]] Contents contents(const RunShape& shape) const override;
  [[nodiscard]] Mesh mesh(WorldSize world) const override {
    return Mesh(world, {{Axis::stages, to_int(world)}});
  }
  [[nodiscard]] Facts facts(const RunShape& shape) const override;
  [[nodiscard]] std::string predict(const RunShape& shape) const override;

 private:
  [[nodiscard]] FieldTable<Options> table() const override;
};

}  // namespace sc
