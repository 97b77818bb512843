#include "data_parallel.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/model/unit_views.h"
#include "common/optim/grad_norm.h"
#include "common/strategy/replica_hash.h"

namespace sc {

FieldTable<DataParallelOptions> DataParallel::fields() {
  using By = BucketSize::By;
  FieldTable<Options> table;
  table.add(
      {"bucket", "elements", "how much gradient one all-reduce carries"},
      choice_or_integer<BucketSize>(
          {{"tensor", {By::tensor}}, {"unit", {By::unit}}, {"model", {By::model}}}, 1,
          [](std::int64_t n) {
            return BucketSize{By::elements, n};
          },
          [](const BucketSize& b) { return b.elements; }),
      [](auto& o) -> auto& { return o.bucket; });
  table.add(
      {"overlap", "", "send a bucket as soon as backward has completed it; off: all of them after backward"},
      on_off(), [](auto& o) -> auto& { return o.overlap; });
  table.add(
      {"verify_replicas", "steps", "every k steps all ranks compare a hash of their parameters; 0 = never"},
      integer(0), [](auto& o) -> auto& { return o.verify_replicas; });
  return table;
}

namespace {

constexpr int kCompleteLast = 1;  // block 1: unit 0 does not wait for its products

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

// [anchor: buckets]
// Backward completes units from the last to the first, so the arena fills from its end: a bucket is a range
// of it, and it may leave when the unit that holds its first element is complete. Unit 0 is complete before
// block 1, though: a bucket with a part of both waits for the block.
std::vector<Bucket> make_buckets(const ParamLayout& layout, BucketSize size) {
  using By = BucketSize::By;
  std::vector<Bucket> buckets;
  std::int64_t end = layout.arena_size().value();  // everything from here on is in a bucket already
  if (size.by == By::model) return {{{0, end}, kCompleteLast}};
  for (int unit = layout.last_unit(); unit >= 0; --unit) {
    const UnitLayout& u = layout.unit(unit);
    if (size.by == By::unit) {
      buckets.push_back({{u.sharded_begin, u.sharded_begin + u.sharded_size}, unit});
    } else if (size.by == By::tensor) {
      for (auto tensor = u.tensors.rbegin(); tensor != u.tensors.rend(); ++tensor) {
        const std::int64_t begin = u.sharded_begin + tensor->offset;
        buckets.push_back({{begin, begin + tensor->numel()}, unit});
      }
    } else {
      const std::int64_t unit_end = u.sharded_begin + u.sharded_size;
      const auto ready = [&] { return unit == 0 && end > unit_end ? kCompleteLast : unit; };
      for (; end - size.elements >= u.sharded_begin; end -= size.elements)
        buckets.push_back({{end - size.elements, end}, ready()});
      if (unit == 0 && end > 0) buckets.push_back({{0, end}, ready()});
    }
  }
  return buckets;
}

MemoryPlan DataParallel::memory_plan(const RunShape& shape, const Options& options) {
  MemoryPlan plan;
  const PrecisionConfig& precision = shape.workload.precision;
  const Elements psi = layout_of(shape).arena_size();
  const auto whole = [&](Purpose purpose, const char* name, DType dtype) {
    plan.add(purpose, name, std::to_string(size_of(dtype)) + " P", bytes_of(psi, dtype));
  };
  whole(Purpose::parameters, "params_full", precision.dtype);
  whole(Purpose::gradients, "grads_full", precision.grad_dtype);
  if (precision.has_master()) whole(Purpose::master, "master_full", DType::f32);
  whole(Purpose::momentum, "momentum_full", DType::f32);
  whole(Purpose::variance, "variance_full", DType::f32);
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
    plan.add(CommKind::all_reduce, shape.workload.precision.reduce_dtype, Elements(bucket.range.size()));
  }
  plan.add(CommKind::all_reduce, DType::f64, Elements(4));  // loss, tokens, sum of squares, overflow flag
  return plan;
}

DataParallel::DataParallel(RunContext& context, const Options& options)
    : context_(context),
      options_(options),
      layout_(layout_of(context.shape)),
      buckets_(make_buckets(layout_, options.bucket)),
      passes_(context, layout_) {
  const std::int64_t psi = layout_.arena_size().value();
  const PrecisionConfig& precision = context.shape.workload.precision;
  Ledger& ledger = context.ledger;
  params_full_ = ledger.zeros(Purpose::parameters, "params_full", {psi}, precision.dtype);
  grads_full_ = ledger.zeros(Purpose::gradients, "grads_full", {psi}, precision.grad_dtype);
  // What AdamW steps: an fp32 master beside 16-bit parameters, else the parameters themselves.
  master_full_ =
      precision.has_master() ? ledger.zeros(Purpose::master, "master_full", {psi}, DType::f32) : params_full_;
  momentum_full_ = ledger.zeros(Purpose::momentum, "momentum_full", {psi}, DType::f32);
  variance_full_ = ledger.zeros(Purpose::variance, "variance_full", {psi}, DType::f32);
  params_ = unit_views(layout_, params_full_);
  grads_ = unit_views(layout_, grads_full_);
  master_ = unit_views(layout_, master_full_);
  if (const std::int64_t largest = elements_to_convert(context.shape, options.bucket); largest > 0) {
    grads_bucket_ = ledger.zeros(Purpose::communication, "grads_bucket", {largest}, precision.reduce_dtype);
  }
  hash_ = ledger.zeros(Purpose::workspace, "replica hashes", {1}, DType::i64);
  hashes_full_ =
      ledger.zeros(Purpose::workspace, "replica hashes", {to_int(context.shape.world)}, DType::i64);
  // Replicas start equal because initialisation is a function of the seed alone; no broadcast is needed.
  for (int unit = 0; unit < layout_.num_units(); ++unit) {
    init_unit(layout_, unit, context.shape.workload.seed, master_[unit]);
  }
  if (precision.has_master()) params_full_.copy_(master_full_);
}

// One optimizer step: gradients accumulate locally, and are summed over ranks once, behind the last
// micro-batch's backward.
StepResult DataParallel::train_step(std::span<const Batch> micro_batches) {
  passes_.sums().zero_();
  for (std::size_t j = 0; j < micro_batches.size(); ++j) {
    const Batch& batch = micro_batches[j];
    const Write write = j == 0 ? Write::overwrite : Write::accumulate;
    const bool last = j + 1 == micro_batches.size();  // only then are the sums complete
    forward(batch);
    passes_.head(batch, params_, grads_, write);  // loss; gradients of x, of the head's matrix, of ln_f
    if (last) reduce_grads(layout_.last_unit());

    // [anchor: reduce-behind-backward]
    // Last block first. While block `unit` computes, the gradients of the blocks above it travel.
    for (int unit = layout_.num_blocks(); unit >= 1; --unit) {
      passes_.backward_input(unit, params_[unit]);
      if (unit == 1) {  // unit 0, in GPT-2 the largest, travels while block 1's products are still to come
        passes_.embed_backward(batch, grads_[0], write);  // the tied head opened it, this completes it
        if (last) reduce_grads(0);
      }
      passes_.backward_weights(unit, grads_[unit], write);
      if (last) reduce_grads(unit);
    }
  }
  wait_reduced();
  global_norm();
  step_all();
  return {passes_.sums(), context_.scalars.grad_norm};
}

void DataParallel::forward(const Batch& batch) {
  passes_.embed(batch, params_[0]);
  for (int unit = 1; unit <= layout_.num_blocks(); ++unit) passes_.forward_block(unit, params_[unit]);
}

// [anchor: reduce-grads]
// Issues every bucket that `unit` completed. Nobody touches those gradients until wait_reduced().
void DataParallel::reduce_grads(int unit) {
  if (!options_.overlap && unit != kCompleteLast) return;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    const bool now = options_.overlap ? buckets_[i].ready_after == unit : true;
    if (now) send_bucket(i);
  }
}

// [anchor: reduce-dtype]
// Gradients of 16 bits may be summed in fp32: then a bucket is converted on its way out and on its way back.
// There is one buffer for that, so one bucket travels at a time, behind the next unit's backward; with a
// buffer a bucket the gradients might as well be fp32 (grad_dtype).
void DataParallel::send_bucket(std::size_t bucket) {
  const Range range = buckets_[bucket].range;
  at::Tensor grads = grads_full_.narrow(0, range.begin, range.size()), sums = grads;
  if (grads_bucket_.defined()) {
    wait_reduced();  // the bucket before this one leaves the buffer
    sums = grads_bucket_.narrow(0, 0, range.size());
    sums.copy_(grads);
  }
  in_flight_.push_back({grads, sums, context_.comm.all_reduce(sums)});
}

void DataParallel::wait_reduced() {
  for (InFlight& bucket : in_flight_) {
    bucket.ticket.wait();
    if (grads_bucket_.defined()) bucket.grads.copy_(bucket.sums);
  }
  in_flight_.clear();
}

// [anchor: global-norm]
// Every rank now holds the same summed gradient, yet squares only its own slice: one element is counted once,
// as it will be when the slices are all that a rank has (02). The divisor of the loss was the *global*
// batch's tokens (Batch::scale), so the sum over ranks is the mean already and nothing is divided here.
void DataParallel::global_norm() {
  std::vector<at::Tensor> slices;
  for (int unit = 0; unit < layout_.num_units(); ++unit) {
    const Range mine = layout_.slice(unit, Segment::sharded, context_.comm.rank());
    slices.push_back(grads_[unit].sharded.narrow(0, mine.begin, mine.size()));
  }
  add_sums_of_squares(slices, passes_.sums());
  finish_sums(passes_.sums());
  context_.comm.all_reduce(passes_.sums()).wait();
  global_norm_and_clip(passes_.sums(), context_.shape.workload.optim.clip, context_.scalars);
}

// [anchor: same-step-everywhere]
// The same numbers in, the same arithmetic: replicas stay equal to the bit without ever exchanging a
// parameter.
void DataParallel::step_all() {
  const bool has_master = context_.shape.workload.precision.has_master();
  for (int unit = 0; unit < layout_.num_units(); ++unit) {
    const UnitLayout& u = layout_.unit(unit);
    at::Tensor momentum = momentum_full_.narrow(0, u.sharded_begin, u.sharded_size);
    at::Tensor variance = variance_full_.narrow(0, u.sharded_begin, u.sharded_size);
    adamw_step(hyper_of(context_.shape.workload.optim), context_.scalars,
               layout_.decay_ranges(unit, Segment::sharded, {0, u.sharded_size}), grads_[unit].sharded,
               master_[unit].sharded, momentum, variance, has_master ? &params_[unit].sharded : nullptr);
  }
}

double DataParallel::evaluate(std::span<const Batch> batches) {
  passes_.sums().zero_();
  for (const Batch& batch : batches) {
    forward(batch);
    passes_.head_loss(batch, params_);
  }
  context_.comm.all_reduce(passes_.sums()).wait();
  return mean_loss(passes_.sums());
}

void DataParallel::visit_state(StateVisitor& visitor) {
  passes_.visit_last_local(visitor);
  for (int unit = 0; unit < layout_.num_units(); ++unit) {
    const UnitLayout& u = layout_.unit(unit);
    const auto whole = [&](Purpose purpose, const at::Tensor& arena) {
      visitor.visit({purpose,
                     unit,
                     Segment::sharded,
                     {0, u.sharded_size},
                     arena.narrow(0, u.sharded_begin, u.sharded_size)});
    };
    whole(Purpose::parameters, params_full_);
    if (context_.shape.workload.precision.has_master()) whole(Purpose::master, master_full_);
    whole(Purpose::momentum, momentum_full_);
    whole(Purpose::variance, variance_full_);
    whole(Purpose::gradients, grads_full_);
  }
}

// [anchor: verify-replicas]
void DataParallel::after_step(std::int64_t step) {
  if (options_.verify_replicas == 0 || (step + 1) % options_.verify_replicas != 0) return;
  hash_.fill_(replica_hash(params_full_));
  context_.comm.all_gather(hash_, hashes_full_).wait();
  const int odd = first_different(hashes_full_);
  if (odd >= 0) {
    throw ClaimError("step " + std::to_string(step) + ": rank " + std::to_string(odd) +
                     "'s parameters differ from rank 0's: replicas must stay equal to the bit");
  }
}

}  // namespace sc
