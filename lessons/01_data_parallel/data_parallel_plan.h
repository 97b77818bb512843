// What lesson 01 holds and sends, known before a run, and its settings. No torch.
#pragma once

#include "buckets.h"
#include "common/model/param_layout.h"
#include "common/strategy/plans.h"

namespace sc {

struct DataParallelOptions {
  BucketSize bucket;
  bool overlap = true;  // issue a bucket as soon as backward has completed it; off: all after backward
  std::int64_t verify_replicas = 50;  // every k steps all ranks compare a hash of their parameters; 0 = never
};

class DataParallelPlans final : public PlansWith<DataParallelPlans, DataParallelOptions> {
 public:
  using PlansWith::PlansWith;
  [[nodiscard]] MemoryPlan memory_plan(const RunShape& shape) const override;
  [[nodiscard]] CommPlan comm_plan(const RunShape& shape) const override;

 private:
  [[nodiscard]] FieldTable<Options> table() const override;
};

}  // namespace sc
