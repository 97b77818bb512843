// What a run predicts of its bytes and operations, checked on one of its steps.
#pragma once

#include <optional>
#include <string>

#include "common/records/report.h"
#include "common/run/train_job.h"
#include "common/run/world.h"

namespace sc::detail {

class Claims {
 public:
  /// Checks against the ledger and the allocators in `ground`, which know what was handed out.
  Claims(const TrainJob& job, const Ground& ground)
      : shape_(job.shape), plan_(job.plans.own), threads_(job.plans.facts.threads), on_(ground) {}

  /// Resets peaks. Must be called right before the checked step.
  void begin();
  /// Checks the predictions. Must be called right after the checked step, which was `step`.
  ///   Errors  ClaimError (exit 70) with what was predicted and what was found: bytes by purpose and their
  ///           sum, operations, what LibTorch's allocator handed out.
  void check(const CommPlan& operations, std::int64_t step);
  /// The result of the check; null before the check.
  [[nodiscard]] const Measured* measured() const { return measured_ ? &*measured_ : nullptr; }
  /// What the check of a GPU's memory found; nullopt before it and on a CPU.
  [[nodiscard]] const std::optional<AllocatorCheck>& allocator() const { return allocator_; }
  /// The text for the end of a run: predicted and found numbers, or why there are none.
  [[nodiscard]] std::string report() const;

 private:
  const RunShape& shape_;
  const RankPlan& plan_;
  const std::int64_t threads_;
  const Ground on_;
  std::int64_t allocations_before_ = 0;  // allocations by the GPU's allocator before the checked step
  std::optional<Measured> measured_;
  std::optional<AllocatorCheck> allocator_;
};

}  // namespace sc::detail
