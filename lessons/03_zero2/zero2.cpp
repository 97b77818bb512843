#include "zero2.h"

#include <algorithm>

#include "common/model/unit_views.h"
#include "common/optim/grad_norm.h"
#include "common/strategy/gradient_dtype.h"

namespace sc {

FieldTable<Zero2Options> Zero2::fields() {
  FieldTable<Options> table;
  table.add(
      {"accumulate", "",
       "what several micro-batches add up in: the owned slice, reduced every time (shard), or full "
       "gradients, reduced once (full)"},
      choice<Accumulate>({{"shard", Accumulate::shard}, {"full", Accumulate::full}}),
      [](auto& o) -> auto& { return o.accumulate; });
  table.add(
      {"bucket", "elements", "how much gradient one reduce-scatter carries; unit: a unit, without a copy"},
      choice_or_integer<std::int64_t>(
          {{"unit", 0}}, 1, [](std::int64_t n) { return n; }, [](const std::int64_t& n) { return n; }),
      [](auto& o) -> auto& { return o.bucket; });
  table.add(
      {"overlap", "",
       "gradients travel behind backward and updated slices under the next forward; off: each is waited for "
       "at once"},
      on_off(), [](auto& o) -> auto& { return o.overlap; });
  return table;
}

namespace {

ParamLayout layout_of(const RunShape& shape) { return ParamLayout(shape.workload.model, shape.world); }

// Units whose gathers are on their way before forward comes to them: as in lesson 02.
constexpr int kAhead = 2;

// Later micro-batches' sums land beside the slice: as much as travels at once.
bool needs_scratch(const RunShape& shape, const Zero2Options& options) {
  return options.accumulate == Accumulate::shard && micro_batches_of(shape) > 1;
}

}  // namespace

MemoryPlan Zero2::memory_plan(const RunShape& shape, const Options& options) {
  refuse_other_reduce_dtype(shape);
  if (options.bucket > 0 && options.accumulate == Accumulate::full) {
    throw InputError(ExitCode::usage, "bucket",
                     "with accumulate=full gradients are summed in place, a unit at a time",
                     "bucket=unit, or accumulate=shard");
  }
  MemoryPlan plan;
  const PrecisionConfig& precision = shape.workload.precision;
  const ParamLayout layout = layout_of(shape);
  const Elements psi = layout.arena_size(), slice = psi / to_int(shape.world);
  const auto add = [&](Purpose purpose, const char* name, const std::string& of, Elements elements,
                       DType dtype) {
    plan.add(purpose, name, std::to_string(size_of(dtype)) + of, bytes_of(elements, dtype));
  };
  add(Purpose::parameters, "params_full", " P", psi, precision.dtype);
  const bool all = options.accumulate == Accumulate::full;
  add(Purpose::gradients, all ? "grads_full" : "grads_shard", all ? " P" : " P/N", all ? psi : slice,
      precision.grad_dtype);
  const BufferSizes sizes = buffer_sizes(layout, options.bucket);
  for (std::size_t buffer = 0; buffer < kBuffers; ++buffer) {
    const Purpose purpose = buffer == kBucket ? Purpose::communication : Purpose::gradients;
    const std::string of = buffer == kBucket ? " bucket" : " unit";
    if (sizes.full[buffer] > 0 && !all)
      add(purpose, kBufferNames[buffer], of, Elements(sizes.full[buffer]), precision.grad_dtype);
    if (sizes.scratch[buffer] > 0 && needs_scratch(shape, options))
      add(Purpose::gradients, "grads_scratch", of + "/N", Elements(sizes.scratch[buffer]),
          precision.grad_dtype);
  }
  OptimizerShard::plan(shape, slice, plan);
  plan_activation_buffers(shape, plan);
  return plan;
}

CommPlan Zero2::comm_plan(const RunShape& shape, const Options& options) {
  CommPlan plan;
  const ParamLayout layout = layout_of(shape);
  const PrecisionConfig& precision = shape.workload.precision;
  const std::int64_t times = options.accumulate == Accumulate::shard ? micro_batches_of(shape) : 1;
  for (int unit = 0; unit < layout.num_units(); ++unit) {
    const Elements size(layout.unit(unit).sharded_size);
    if (options.bucket == 0) plan.add(CommKind::reduce_scatter, precision.grad_dtype, size, times);
    plan.add(CommKind::all_gather, precision.dtype, size);
  }
  if (options.bucket > 0) {
    for (const ShardBucket& b : make_shard_buckets(layout, options.bucket))
      plan.add(CommKind::reduce_scatter, precision.grad_dtype, Elements(b.range.size() * to_int(shape.world)),
               times);
  }
  plan.add(CommKind::all_reduce, DType::f64, Elements(4));  // loss, tokens, sum of squares, overflow flag
  return plan;
}

Zero2::Zero2(RunContext& context, const Options& options)
    : context_(context),
      options_(options),
      layout_(layout_of(context.shape)),
      published_(static_cast<std::size_t>(layout_.num_units())),
      in_flight_(std::max<std::size_t>(kBuffers, layout_.num_units())),
      scratch_(kBuffers),
      passes_(context, layout_) {
  const Elements psi = layout_.arena_size(), slice = psi / to_int(context.shape.world);
  const PrecisionConfig& precision = context.shape.workload.precision;
  const auto flat = [&](Purpose purpose, const char* name, std::int64_t n, DType dtype) {
    return n == 0 ? at::Tensor() : context.ledger.zeros(purpose, name, {n}, dtype);
  };
  params_ =
      unit_views(layout_, zeros_in_window(context, Purpose::parameters, "params_full", psi, precision.dtype));
  // [anchor: four-full-gradients]
  const bool all = options.accumulate == Accumulate::full;
  const BufferSizes sizes = buffer_sizes(layout_, options.bucket);
  const auto gradient = [&](const char* name, std::int64_t n) {
    return flat(Purpose::gradients, name, n, precision.grad_dtype);
  };
  std::vector<at::Tensor> full(kBuffers);
  for (std::size_t buffer = 0; buffer < kBucket && !all; ++buffer)
    full[buffer] = gradient("grads_full", sizes.full[buffer]);
  for (std::size_t buffer = 0; buffer < kBuffers && needs_scratch(context.shape, options); ++buffer)
    scratch_[buffer] = gradient("grads_scratch", sizes.scratch[buffer]);
  if (all) grads_full_ = unit_views(layout_, gradient("grads_full", psi.value()));
  if (!all) grads_shard_ = gradient("grads_shard", slice.value());
  if (options.bucket > 0) buckets_ = make_shard_buckets(layout_, options.bucket);
  grads_bucket_ = flat(Purpose::communication, "grads_bucket", sizes.full[kBucket], precision.grad_dtype);
  const OptimizerShard state(context, slice);
  for (int unit = 0; unit < layout_.num_units(); ++unit) {
    OwnedSlice s{unit, Segment::sharded, layout_.slice(unit, Segment::sharded, context.comm.rank())};
    s.params = s.of_unit(params_[unit].sharded);
    if (!all)
      grads_full_.push_back({full[buffer_of(unit)].narrow(0, 0, layout_.unit(unit).sharded_size), {}});
    s.grads = all ? s.of_unit(grads_full_[unit].sharded) : part_of_shard(layout_, s, grads_shard_);
    // Each rank makes its own slice; the first step publishes them, as any step publishes the last one's.
    take_over(context, layout_, state, s);
    slices_.push_back(std::move(s));
  }
}

// Where full gradients are not shared by units (accumulate: full) each unit is a buffer of its own.
std::size_t Zero2::buffer_of(int unit) const {
  return options_.accumulate == Accumulate::full ? static_cast<std::size_t>(unit)
                                                 : buffer_of_unit(layout_, unit);
}

// One optimizer step. It begins with parameters of which each rank has updated its slice only.
StepResult Zero2::train_step(std::span<const Batch> micro_batches) {
  const bool shard = options_.accumulate == Accumulate::shard;
  to_publish_ = 0;  // as forward goes
  passes_.sums().zero_();
  for (std::size_t j = 0; j < micro_batches.size(); ++j) {
    const Batch& batch = micro_batches[j];
    const Write write = j == 0 ? Write::overwrite : Write::accumulate;
    const Write full = shard ? Write::overwrite : write;  // full gradients are fresh, or add up
    const bool reduce = shard || j + 1 == micro_batches.size();
    const Write slice = shard ? write : Write::overwrite;
    forward(batch);
    wait_reduced(buffer_of(0));  // the micro-batch before may still be on its way out of them
    wait_reduced(buffer_of(layout_.last_unit()));
    passes_.head(batch, params_, grads_full_, full);  // loss; gradients of x, of the head's matrix, of ln_f
    if (reduce) reduce_grads(layout_.last_unit(), slice);
    // [anchor: reduce-as-you-go]
    // Last block first. A block's gradient leaves as soon as it is complete, and the block below the next one
    // computes into its memory.
    for (int unit = layout_.num_blocks(); unit >= 1; --unit) {
      passes_.backward_input(unit, params_[unit]);
      if (unit == 1) {  // unit 0, in GPT-2 the largest, travels while block 1's products are still to come
        passes_.embed_backward(batch, grads_full_[0], full);  // the tied head opened it, this completes it
        if (reduce) reduce_grads(0, slice);
      }
      // [anchor: wait-before-reuse]
      wait_reduced(buffer_of(unit));  // what block unit + 2 computed must have left
      passes_.backward_weights(unit, grads_full_[unit], full);
      if (reduce) reduce_grads(unit, slice);
    }
  }
  wait_all_reduced();
  global_norm();
  for (int unit = 0; unit < layout_.num_units(); ++unit) step_shard(unit);
  return {passes_.sums(), context_.scalars.grad_norm};
}

void Zero2::forward(const Batch& batch) {
  wait_published(0);
  passes_.embed(batch, params_[0]);
  for (int unit = 1; unit <= layout_.num_blocks(); ++unit) {
    wait_published(unit);
    passes_.forward_block(unit, params_[unit]);
  }
  wait_published(layout_.last_unit());
}

// [anchor: reduce-to-the-owner]
// The sum of a slice goes to its owner, out of the full gradient, whose memory is free when it has left.
void Zero2::reduce_grads(int unit, Write write) {
  if (options_.bucket > 0) {  // which are filled in the arena's order: unit 0 behind block 1
    if (unit > 0) fill_buckets(unit, write);
    if (unit == 1) fill_buckets(0, write);
    return;
  }
  send(buffer_of(unit), grads_full_[unit].sharded, slices_[unit].grads, write);
}

// The unit's part of every bucket that holds one; a bucket leaves when the last unit's part is in it.
void Zero2::fill_buckets(int unit, Write write) {
  for (const ShardBucket& b : buckets_) {
    if (shared_range(layout_, unit, b).size() <= 0) continue;
    wait_reduced(kBucket);  // the one before
    const at::Tensor packed = grads_bucket_.narrow(0, 0, to_int(layout_.world()) * b.range.size());
    copy_rank_major(layout_, unit, b, grads_full_[unit].sharded, packed);
    if (b.ready_after == unit)
      send(kBucket, packed, grads_shard_.narrow(0, b.range.begin, b.range.size()), write);
  }
}

// Sums `full` over ranks into `slice`, or onto it once the sum is there.
void Zero2::send(std::size_t buffer, const at::Tensor& full, const at::Tensor& slice, Write write) {
  InFlight& flight = in_flight_[buffer];
  const bool adds = write == Write::accumulate;
  flight.sum = adds ? scratch_[buffer].narrow(0, 0, slice.numel()) : slice;
  flight.into = adds ? slice : at::Tensor();
  flight.ticket = context_.comm.reduce_scatter(full, flight.sum);
  if (!options_.overlap) wait_reduced(buffer);
}

void Zero2::wait_reduced(std::size_t buffer) {
  InFlight& flight = in_flight_[buffer];
  flight.ticket.wait();
  if (flight.into.defined()) flight.into.add_(flight.sum);
  flight.into = at::Tensor();
}

void Zero2::wait_all_reduced() {
  for (std::size_t buffer = 0; buffer < in_flight_.size(); ++buffer) wait_reduced(buffer);
}

// Every rank squares the slices that it owns: each element counts once. The sum over ranks is the mean
// already: the divisor of the loss was the *global* batch's tokens (Batch::scale).
void Zero2::global_norm() {
  add_sums_of_squares(grads_of(slices_), passes_.sums());
  clip_over_ranks(context_, passes_.sums());  // an all-reduce of four numbers, as in 01
}

void Zero2::step_shard(int unit) {
  OwnedSlice& s = slices_[unit];
  const Workload& w = context_.shape.workload;
  adamw_step(hyper_of(w.optim), context_.scalars, layout_.decay_ranges(unit, s.segment, s.range), s.grads,
             s.master, s.momentum, s.variance, w.precision.has_master() ? &s.params : nullptr);
}

// Every owner's updated slice to all, units as forward comes near them.
void Zero2::publish_through(int last) {
  while (to_publish_ <= std::min(last, layout_.last_unit())) {
    const int unit = to_publish_++;
    published_[unit] = context_.comm.all_gather(slices_[unit].params, params_[unit].sharded);
    if (!options_.overlap) published_[unit].wait();
  }
}

void Zero2::wait_published(int unit) {
  publish_through(unit + kAhead);
  published_[unit].wait();
}

// Whether the last step is published already is not remembered: a step that a graph replays could not say so.
void Zero2::settle() {
  to_publish_ = 0;
  for (int unit = 0; unit < layout_.num_units(); ++unit) wait_published(unit);
}

double Zero2::evaluate(std::span<const Batch> batches) {
  settle();
  passes_.sums().zero_();
  for (const Batch& batch : batches) {
    forward(batch);
    passes_.head_loss(batch, params_);
  }
  context_.comm.all_reduce(passes_.sums()).wait();
  return mean_loss(passes_.sums());
}

void Zero2::visit_state(StateVisitor& visitor) {
  passes_.visit_last_local(visitor);
  for (const OwnedSlice& slice : slices_) {
    const at::Tensor& params = params_[slice.unit].sharded;
    visitor.visit({Purpose::parameters, slice.unit, slice.segment, {0, params.numel()}, params});
    visit_slice(slice, visitor);
  }
}

}  // namespace sc
