// What lesson 01 holds and sends, and its settings.
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

std::int64_t elements_to_convert(const RunShape& shape, BucketSize size) {
  const PrecisionConfig& precision = shape.workload.precision;
  if (precision.reduce_dtype == precision.grad_dtype) return 0;
  std::int64_t largest = 0;
  for (const Bucket& bucket : make_buckets(layout_of(shape), size))
    largest = std::max(largest, bucket.range.size());
  return largest;
}

MemoryPlan DataParallelPlans::memory_plan(const RunShape& shape) const {
  MemoryPlan plan;
  const PrecisionConfig& precision = shape.workload.precision;
  const Elements psi = layout_of(shape).arena_size();
  const auto whole = [&](Purpose purpose, const char* name, DType dtype) {
    plan.add(purpose, name, std::to_string(size_of(dtype)) + " P", bytes_of(psi, dtype));
  };
  whole(Purpose::parameters, "params_full", precision.dtype);
  whole(Purpose::gradients, "grads_full", precision.grad_dtype);
  plan_optimizer_state(shape, psi, plan, "P", "full");
  if (const std::int64_t largest = elements_to_convert(shape, options_.bucket); largest > 0) {
    plan.add(Purpose::communication, "grads_bucket",
             std::to_string(size_of(precision.reduce_dtype)) + " bucket",
             bytes_of(Elements(largest), precision.reduce_dtype));
  }
  plan_activation_buffers(shape, plan);
  plan.add(Purpose::workspace, "replica hashes", "8 (1 + N)",
           Bytes((1 + to_int(shape.mesh.world())) * size_of(DType::i64)));
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
