// What lesson 01 holds and sends, and its settings.
#include <algorithm>

#include "common/model/unit_views.h"
#include "data_parallel.h"

namespace sc {

FieldTable<DataParallelOptions> DataParallel::fields() {
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

namespace {

ParamLayout layout_of(const RunShape& shape) { return ParamLayout(shape.workload.model, shape.world); }

// Of grads_bucket_: the largest bucket; none where gradients travel as they are.
std::int64_t elements_to_convert(const RunShape& shape, BucketSize size) {
  const PrecisionConfig& precision = shape.workload.precision;
  if (precision.reduce_dtype == precision.grad_dtype) return 0;
  std::int64_t largest = 0;
  for (const Bucket& bucket : make_buckets(layout_of(shape), size))
    largest = std::max(largest, bucket.range.size());
  return largest;
}

}  // namespace

MemoryPlan DataParallel::memory_plan(const RunShape& shape, const Options& options) {
  MemoryPlan plan;
  const PrecisionConfig& precision = shape.workload.precision;
  const Elements psi = layout_of(shape).arena_size();
  const auto whole = [&](Purpose purpose, const char* name, DType dtype) {
    plan.add(purpose, name, std::to_string(size_of(dtype)) + " P", bytes_of(psi, dtype));
  };
  whole(Purpose::parameters, "params_full", precision.dtype);
  whole(Purpose::gradients, "grads_full", precision.grad_dtype);
  OptimizerState::plan(shape, psi, plan, "full");
  if (const std::int64_t largest = elements_to_convert(shape, options.bucket); largest > 0) {
    plan.add(Purpose::communication, "grads_bucket",
             std::to_string(size_of(precision.reduce_dtype)) + " x the largest bucket",
             bytes_of(Elements(largest), precision.reduce_dtype));
  }
  plan_activation_buffers(shape, plan);
  plan.add(Purpose::workspace, "replica hashes", "1 + N numbers",
           Bytes((1 + to_int(shape.world)) * size_of(DType::i64)));
  return plan;
}

CommPlan DataParallel::comm_plan(const RunShape& shape, const Options& options) {
  CommPlan plan;
  for (const Bucket& bucket : make_buckets(layout_of(shape), options.bucket)) {
    plan.add(CommKind::all_reduce, shape.workload.precision.reduce_dtype, Elements(bucket.range.size()),
             shape.world);
  }
  plan.add(CommKind::all_reduce, DType::f64, Elements(4),
           shape.world);  // loss, tokens, sum of squares, overflow flag
  return plan;
}

DataParallel::DataParallel(RunContext& context, const Options& options)
    : context_(context),
      options_(options),
      layout_(layout_of(context.shape)),
      passes_(context, layout_),
      sums_(passes_.sums()) {
  const Elements psi = layout_.arena_size();
  const PrecisionConfig& precision = context.shape.workload.precision;
  Ledger& ledger = context.ledger;
  params_arena_ = ledger.zeros(Purpose::parameters, "params_full", {psi.value()}, precision.dtype);
  const at::Tensor grads_arena =
      ledger.zeros(Purpose::gradients, "grads_full", {psi.value()}, precision.grad_dtype);
  // What AdamW steps: an fp32 master beside 16-bit parameters, else the parameters themselves; and two
  // moments.
  const OptimizerState state(context, psi, "full");
  params_full_ = unit_views(layout_, params_arena_);
  grads_full_ = unit_views(layout_, grads_arena);
  for (int unit = 0; unit < layout_.num_units(); ++unit) {
    OwnedSlice s = whole_unit(layout_, unit);
    s.params = params_full_[unit].sharded;
    s.grads = grads_full_[unit].sharded;
    // Replicas start equal because initialisation is a function of the seed alone; no broadcast is needed.
    take_over(context, layout_, state, s);
    slices_.push_back(std::move(s));
  }
  for (const Bucket& b : make_buckets(layout_, options.bucket)) {
    const int ready_after = options.overlap ? b.ready_after : 0;  // after unit 0 backward is done
    buckets_.push_back({ready_after, grads_arena.narrow(0, b.range.begin, b.range.size()), {}, {}});
  }
  if (const std::int64_t largest = elements_to_convert(context.shape, options.bucket); largest > 0) {
    grads_bucket_ = ledger.zeros(Purpose::communication, "grads_bucket", {largest}, precision.reduce_dtype);
  }
  hash_ = ledger.zeros(Purpose::workspace, "replica hashes", {1}, DType::i64);
  hashes_full_ =
      ledger.zeros(Purpose::workspace, "replica hashes", {to_int(context.shape.world)}, DType::i64);
}

}  // namespace sc
