// What lesson 01 holds and sends, by formula, and its settings.
#include "data_parallel_plan.h"

#include <algorithm>

#include "common/model/activation_plan.h"
#include "common/strategy/state_plan.h"

namespace sc {

FieldTable<DataParallelOptions> DataParallelPlans::table() const {
  using By = BucketSize::By;
  FieldTable<Options> table;
  table.add({"bucket", "elements", "how much gradient one all-reduce carries"},
            choice_or_integer<BucketSize>(
                {{"tensor", {By::tensor}}, {"unit", {By::unit}}, {"model", {By::model}}}, 1,
                [](std::int64_t n) {
                  return BucketSize{By::elements, n};
                },
                [](const BucketSize& b) { return b.elements; }),
            &Options::bucket);
  table.add(
      {"overlap", "", "send a bucket as soon as backward has completed it; off: all of them after backward"},
      on_off(), &Options::overlap);
  table.add(
      {"verify_replicas", "steps", "every k steps all ranks compare a hash of their parameters; 0 = never"},
      integer(0), &Options::verify_replicas);
  return table;
}

MemoryPlan DataParallelPlans::memory_plan(const RunShape& shape) const {
  MemoryPlan plan;
  const PrecisionConfig& precision = shape.workload.precision;
  const ParamLayout layout = layout_of(shape);
  const Formula psi("P", layout.arena_size());
  plan.add({Purpose::parameters, "params_full", psi, precision.dtype});
  plan.add({Purpose::gradients, "grads_full", psi, precision.grad_dtype});
  plan_optimizer_state(shape, psi, plan, "full");
  if (precision.reduce_dtype != precision.grad_dtype) {
    // A bucket is converted in a buffer of its own while it travels.
    std::int64_t largest = 0;
    for (const Bucket& bucket : make_buckets(layout, options_.bucket))
      largest = std::max(largest, bucket.range.size());
    plan.add({Purpose::communication, "grads_bucket", Formula("bucket", largest), precision.reduce_dtype});
  }
  plan_activation_buffers(shape, plan);
  plan.add({Purpose::workspace, "replica hashes", 1 + Formula("N", shape.mesh.world()), DType::i64});
  return plan;
}

CommPlan DataParallelPlans::comm_plan(const RunShape& shape) const {
  CommPlan plan;
  const ParamLayout layout = layout_of(shape);
  for (const Bucket& bucket : make_buckets(layout, options_.bucket)) {
    plan.add({CommKind::all_reduce, shape.workload.precision.reduce_dtype, Elements(bucket.range.size()),
              shape.mesh.world()},
             {OpPurpose::gradients, unit_of(layout, bucket)});
  }
  plan.add({CommKind::all_reduce, DType::f64, Elements(4), shape.mesh.world()}, {OpPurpose::sums});
  return plan;
}

}  // namespace sc
