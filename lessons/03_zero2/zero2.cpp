#include "zero2.h"

#include <algorithm>

#include "common/model/unit_views.h"
#include "common/optim/grad_norm.h"
#include "common/run/gradient_dtype.h"

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

// Full gradients: unit 0, which the tied head opens and only the embedding completes; two blocks, the one
// that is computed and the one that travels; the last unit. Each is a buffer, and so is the bucket.
enum Buffer : std::size_t { kUnit0, kEvenBlocks, kOddBlocks, kLastUnit, kBucket, kBuffers };
std::size_t buffer_of_unit(const ParamLayout& layout, int unit) {
  if (unit == 0) return kUnit0;
  if (unit == layout.last_unit()) return kLastUnit;
  return unit % 2 == 0 ? kEvenBlocks : kOddBlocks;
}

// Elements of each buffer of full gradients.
std::vector<std::int64_t> buffer_sizes(const ParamLayout& layout, std::int64_t bucket) {
  std::vector<std::int64_t> sizes(kBuffers, 0);
  for (int unit = 0; unit < layout.num_units(); ++unit) {
    std::int64_t& size = sizes[buffer_of_unit(layout, unit)];
    size = std::max(size, layout.unit(unit).sharded_size);
  }
  if (bucket == 0) return sizes;
  for (const ShardBucket& b : make_shard_buckets(layout, bucket))
    sizes[kBucket] = std::max(sizes[kBucket], b.range.size() * to_int(layout.world()));
  return sizes;
}

// Later micro-batches' sums land beside the slice: as much as travels at once.
bool needs_scratch(const RunShape& shape, const Zero2Options& options) {
  return options.accumulate == Accumulate::shard && micro_batches_of(shape) > 1;
}

std::int64_t scratch_elements(const ParamLayout& layout, std::int64_t bucket, std::size_t buffer) {
  if ((buffer == kBucket) != (bucket > 0)) return 0;
  return buffer_sizes(layout, bucket)[buffer] / to_int(layout.world());
}

}  // namespace

// Slices of all units lie one after another in a rank's arena, and backward completes them from its end.
// Borders lie at multiples of the alignment, so that a bucket of one rank is as long as any other's.
std::vector<ShardBucket> make_shard_buckets(const ParamLayout& layout, std::int64_t bucket) {
  const std::int64_t world = to_int(layout.world());
  const std::int64_t size = round_up(ceil_div(bucket, world), kAlign);
  std::vector<ShardBucket> buckets;
  std::int64_t end = layout.arena_size().value() / world;
  for (int unit = layout.last_unit(); unit >= 0; --unit) {
    const std::int64_t first = layout.unit(unit).sharded_begin / world;
    for (; end - size >= first; end -= size) buckets.push_back({{end - size, end}, unit});
    if (unit == 0 && end > 0) buckets.push_back({{0, end}, 0});
  }
  return buckets;
}

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
  const Elements psi = layout.arena_size(), slice(psi.value() / to_int(shape.world));
  const auto add = [&](Purpose purpose, const char* name, const std::string& of, Elements elements,
                       DType dtype) {
    plan.add(purpose, name, std::to_string(size_of(dtype)) + of, bytes_of(elements, dtype));
  };
  add(Purpose::parameters, "params_full", " P", psi, precision.dtype);
  const bool all = options.accumulate == Accumulate::full;
  add(Purpose::gradients, all ? "grads_full" : "grads_shard", all ? " P" : " P/N", all ? psi : slice,
      precision.grad_dtype);
  const std::vector<std::int64_t> sizes = buffer_sizes(layout, options.bucket);
  constexpr const char* kNames[] = {"grads_full, unit 0", "grads_full, even blocks", "grads_full, odd blocks",
                                    "grads_full, last unit", "grads_bucket"};
  for (std::size_t buffer = 0; buffer < kBuffers; ++buffer) {
    const Purpose purpose = buffer == kBucket ? Purpose::communication : Purpose::gradients;
    if (sizes[buffer] > 0 && !all)
      add(purpose, kNames[buffer], buffer == kBucket ? " bucket" : " unit", Elements(sizes[buffer]),
          precision.grad_dtype);
    const std::int64_t scratch = scratch_elements(layout, options.bucket, buffer);
    if (scratch > 0 && needs_scratch(shape, options))
      add(Purpose::gradients, "grads_scratch", " of it / N", Elements(scratch), precision.grad_dtype);
  }
  if (precision.has_master()) add(Purpose::master, "master_shard", " P/N", slice, DType::f32);
  add(Purpose::momentum, "momentum_shard", " P/N", slice, DType::f32);
  add(Purpose::variance, "variance_shard", " P/N", slice, DType::f32);
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
      gpt_(shape_of(context.shape), layout_),
      in_flight_(std::max<std::size_t>(kBuffers, layout_.num_units())),
      scratch_(kBuffers),
      published_(static_cast<std::size_t>(layout_.num_units())),
      buffers_(gpt_, context.ledger) {
  const std::int64_t psi = layout_.arena_size().value(), slice = psi / to_int(context.shape.world);
  const PrecisionConfig& precision = context.shape.workload.precision;
  Ledger& ledger = context.ledger;
  params_full_ = ledger.zeros(Purpose::parameters, "params_full", {psi}, precision.dtype);
  params_ = unit_views(layout_, params_full_);
  if (precision.has_master())
    master_shard_ = ledger.zeros(Purpose::master, "master_shard", {slice}, DType::f32);
  momentum_shard_ = ledger.zeros(Purpose::momentum, "momentum_shard", {slice}, DType::f32);
  variance_shard_ = ledger.zeros(Purpose::variance, "variance_shard", {slice}, DType::f32);

  // [anchor: four-full-gradients]
  const bool all = options.accumulate == Accumulate::full;
  const std::vector<std::int64_t> sizes = buffer_sizes(layout_, options.bucket);
  const auto gradient = [&](const char* name, std::int64_t n) {
    return n == 0 ? at::Tensor() : ledger.zeros(Purpose::gradients, name, {n}, precision.grad_dtype);
  };
  std::vector<at::Tensor> full(kBuffers);
  for (std::size_t buffer = 0; buffer < kBucket && !all; ++buffer)
    full[buffer] = gradient("grads_full", sizes[buffer]);
  for (std::size_t buffer = 0; buffer < kBuffers && needs_scratch(context.shape, options); ++buffer)
    scratch_[buffer] = gradient("grads_scratch", scratch_elements(layout_, options.bucket, buffer));
  if (all) grads_full_ = unit_views(layout_, gradient("grads_full", psi));
  if (!all) grads_shard_ = gradient("grads_shard", slice);
  if (!all) grads_slice_ = slice_views(layout_, Segment::sharded, grads_shard_);
  for (int unit = 0; unit < layout_.num_units(); ++unit) {
    const std::int64_t size = layout_.unit(unit).sharded_size;
    if (!all) grads_full_.push_back({full[buffer_of(unit)].narrow(0, 0, size), {}});
    if (all) grads_slice_.push_back(grads_full_[unit].sharded.narrow(0, mine(unit).begin, mine(unit).size()));
  }
  if (options.bucket > 0) {
    buckets_ = make_shard_buckets(layout_, options.bucket);
    grads_bucket_ =
        ledger.zeros(Purpose::communication, "grads_bucket", {sizes[kBucket]}, precision.grad_dtype);
  }

  for (int unit = 0; unit < layout_.num_units(); ++unit)
    params_slice_.push_back(params_[unit].sharded.narrow(0, mine(unit).begin, mine(unit).size()));
  // What AdamW steps: an fp32 master beside 16-bit parameters, else the parameters themselves.
  master_slice_ =
      precision.has_master() ? slice_views(layout_, Segment::sharded, master_shard_) : params_slice_;
  momentum_slice_ = slice_views(layout_, Segment::sharded, momentum_shard_);
  variance_slice_ = slice_views(layout_, Segment::sharded, variance_shard_);
  // Each rank makes its own slice; the first step publishes them, as any step publishes the last one's.
  for (int unit = 0; unit < layout_.num_units(); ++unit) {
    init_slice(layout_, unit, Segment::sharded, mine(unit), context.shape.workload.seed, master_slice_[unit]);
    if (precision.has_master()) params_slice_[unit].copy_(master_slice_[unit]);
  }
}

// Where full gradients are not shared by units (accumulate: full) each unit is a buffer of its own.
std::size_t Zero2::buffer_of(int unit) const {
  return options_.accumulate == Accumulate::full ? static_cast<std::size_t>(unit)
                                                 : buffer_of_unit(layout_, unit);
}

Range Zero2::mine(int unit) const { return layout_.slice(unit, Segment::sharded, context_.comm.rank()); }

// One optimizer step. It begins with parameters of which each rank has updated its slice only.
StepResult Zero2::train_step(std::span<const Batch> micro_batches) {
  const bool shard = options_.accumulate == Accumulate::shard;
  publish_params();
  buffers_.sums.zero_();
  for (std::size_t j = 0; j < micro_batches.size(); ++j) {
    const Batch& batch = micro_batches[j];
    const Write write = j == 0 ? Write::overwrite : Write::accumulate;
    const Write full = shard ? Write::overwrite : write;  // full gradients are fresh, or add up
    const bool reduce = shard || j + 1 == micro_batches.size();
    const Write slice = shard ? write : Write::overwrite;
    forward(batch);
    head(batch, full);  // loss; gradients of x, of the head's matrix, of ln_f
    if (reduce) reduce_grads(layout_.last_unit(), slice);
    // [anchor: reduce-as-you-go]
    // Last block first. A block's gradient leaves as soon as it is complete, and the block below the next one
    // computes into its memory.
    for (int unit = layout_.num_blocks(); unit >= 1; --unit) {
      backward_block(unit, full);
      if (reduce) reduce_grads(unit, slice);
    }
    embed_backward(batch, full);
    if (reduce) reduce_grads(0, slice);  // unit 0 last: the tied head opened it, the embedding completes it
  }
  wait_all_reduced();
  global_norm();
  for (int unit = 0; unit < layout_.num_units(); ++unit) step_shard(unit);
  return {buffers_.sums, context_.scalars.grad_norm};
}

void Zero2::forward(const Batch& batch) {
  wait_published(0);
  gpt_.embed(params_[0], batch.tokens, buffers_.x[0]);
  for (int unit = 1; unit <= layout_.num_blocks(); ++unit) {
    wait_published(unit);
    gpt_.forward_block(unit, params_[unit], buffers_.x[unit - 1], buffers_.saved[unit - 1], buffers_.ws,
                       buffers_.x[unit]);
  }
  wait_published(layout_.last_unit());
}

void Zero2::head(const Batch& batch, Write write) {
  const int last = layout_.last_unit();
  wait_reduced(buffer_of(0));  // the micro-batch before may still be on its way out of them
  wait_reduced(buffer_of(last));
  at::Tensor grad_head = gpt_.head_matrix(grads_full_[gpt_.head_unit()]);
  gpt_.head(gpt_.head_matrix(params_[gpt_.head_unit()]), params_[last], buffers_.x.back(), batch.targets,
            batch.scale, buffers_.grad_x[layout_.num_blocks() % 2], grad_head, grads_full_[last], write,
            buffers_.ws, buffers_.result);
}

void Zero2::backward_block(int unit, Write write) {
  at::Tensor& grad_y = buffers_.grad_x[unit % 2];
  at::Tensor& grad_x = buffers_.grad_x[(unit - 1) % 2];
  gpt_.backward_input(unit, params_[unit], buffers_.saved[unit - 1], grad_y, buffers_.ws, grad_x);
  // [anchor: wait-before-reuse]
  wait_reduced(buffer_of(unit));  // what block unit + 2 computed must have left
  gpt_.backward_weights(unit, buffers_.saved[unit - 1], buffers_.ws, grads_full_[unit], write);
}

void Zero2::embed_backward(const Batch& batch, Write write) {
  const Write wte = layout_.config().tied ? Write::accumulate : write;  // tied: onto the head's part
  gpt_.embed_backward(batch.tokens, buffers_.grad_x[0], grads_full_[0], wte, write);
}

// [anchor: reduce-to-the-owner]
// The sum of a slice goes to its owner, out of the full gradient, whose memory is free when it has left.
void Zero2::reduce_grads(int unit, Write write) {
  if (options_.bucket > 0) return fill_buckets(unit, write);
  send(buffer_of(unit), grads_full_[unit].sharded, grads_slice_[unit], write);
}

// [anchor: bucket]
// A bucket that is not one unit is copied rank-major, every rank's part of it behind the other's, so that
// reduce-scatter hands each rank elements of its own slices: who owns what does not depend on the bucket.
void Zero2::fill_buckets(int unit, Write write) {
  const std::int64_t world = to_int(context_.shape.world), begin = layout_.unit(unit).sharded_begin / world;
  const Range slices{begin, begin + grads_slice_[unit].numel()};
  const at::Tensor from = grads_full_[unit].sharded.view({world, -1});
  for (const ShardBucket& b : buckets_) {
    const Range shared{std::max(b.range.begin, slices.begin), std::min(b.range.end, slices.end)};
    if (shared.size() <= 0) continue;
    wait_reduced(kBucket);  // the one before
    const at::Tensor bucket = grads_bucket_.narrow(0, 0, world * b.range.size());
    bucket.view({world, -1})
        .narrow(1, shared.begin - b.range.begin, shared.size())
        .copy_(from.narrow(1, shared.begin - begin, shared.size()));
    if (b.ready_after == unit)
      send(kBucket, bucket, grads_shard_.narrow(0, b.range.begin, b.range.size()), write);
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
  add_sums_of_squares(grads_slice_, buffers_.sums);
  finish_sums(buffers_.sums);
  context_.comm.all_reduce(buffers_.sums).wait();
  global_norm_and_clip(buffers_.sums, context_.shape.workload.optim.clip, context_.scalars);
}

void Zero2::step_shard(int unit) {
  const Workload& w = context_.shape.workload;
  adamw_step(hyper_of(w.optim), context_.scalars, layout_.decay_ranges(unit, Segment::sharded, mine(unit)),
             grads_slice_[unit], master_slice_[unit], momentum_slice_[unit], variance_slice_[unit],
             w.precision.has_master() ? &params_slice_[unit] : nullptr);
}

// Every owner's updated slice to all. Unit 0 first, since forward needs it first.
void Zero2::publish_params() {
  for (int unit = 0; unit < layout_.num_units(); ++unit) {
    published_[unit] = context_.comm.all_gather(params_slice_[unit], params_[unit].sharded);
    if (!options_.overlap) wait_published(unit);
  }
}

void Zero2::wait_published(int unit) { published_[unit].wait(); }

// Whether the last step is published already is not remembered: a step that a graph replays could not say so.
void Zero2::settle() {
  publish_params();
  for (int unit = 0; unit < layout_.num_units(); ++unit) wait_published(unit);
}

double Zero2::evaluate(std::span<const Batch> batches) {
  settle();
  buffers_.sums.zero_();
  for (const Batch& batch : batches) {
    forward(batch);
    gpt_.head_loss(gpt_.head_matrix(params_[gpt_.head_unit()]), params_[layout_.last_unit()],
                   buffers_.x.back(), batch.targets, buffers_.ws, buffers_.result);
  }
  context_.comm.all_reduce(buffers_.sums).wait();
  return mean_loss(buffers_.sums);
}

void Zero2::visit_state(StateVisitor& visitor) {
  const at::Tensor last_local = buffers_.grad_x[0].view({-1});
  visitor.visit({Purpose::workspace, 0, Segment::sharded, {0, last_local.numel()}, last_local});
  for (int unit = 0; unit < layout_.num_units(); ++unit) {
    const auto slice = [&](Purpose purpose, const at::Tensor& values) {
      visitor.visit({purpose, unit, Segment::sharded, mine(unit), values});
    };
    visitor.visit({Purpose::parameters,
                   unit,
                   Segment::sharded,
                   {0, layout_.unit(unit).sharded_size},
                   params_[unit].sharded});
    if (context_.shape.workload.precision.has_master()) slice(Purpose::master, master_slice_[unit]);
    slice(Purpose::momentum, momentum_slice_[unit]);
    slice(Purpose::variance, variance_slice_[unit]);
    slice(Purpose::gradients, grads_slice_[unit]);
  }
}

}  // namespace sc
