// What a rank has issued, by phase and step: what plans are checked against. No torch.
#pragma once

#include <array>
#include <cstdint>
#include <map>

#include "common/watch/comm_op.h"

namespace sc {

/// Not thread-safe: a CommRecord locks it.
class CommCounts {
 public:
  /// At least that many of the last steps of each phase are kept.
  explicit CommCounts(std::int64_t keep_steps);

  void add(Phase phase, std::int64_t step, const Operation& op);
  /// The operation was refused.
  void take_back(Phase phase, std::int64_t step, const Operation& op);
  /// Empty if there were none.  Errors: std::out_of_range for a step that is not kept any more.
  [[nodiscard]] CommPlan of(Phase phase, std::int64_t step) const;

 private:
  struct Steps {
    std::map<std::int64_t, CommPlan> plans;
    std::int64_t forgotten_before;  // steps below are not kept any more
  };
  [[nodiscard]] Steps& in(Phase phase) { return phases_[static_cast<std::size_t>(phase)]; }

  const std::int64_t keep_steps_;
  std::array<Steps, 4> phases_;
};

}  // namespace sc
