#include "zero3.h"

#include <algorithm>

#include "common/model/unit_views.h"
#include "common/optim/grad_norm.h"
#include "common/strategy/gradient_dtype.h"

namespace sc {

FieldTable<Zero3Options> Zero3::fields() {
  FieldTable<Options> table;
  table.add(
      {"prefetch", "units", "how many units ahead of the one that computes are on their way"}, integer(0, 16),
      [](auto& o) -> auto& { return o.prefetch; });
  table.add(
      {"reshard_after_forward", "",
       "a block's parameters are released after forward and gathered again for backward; off: every block "
       "has a buffer"},
      on_off(), [](auto& o) -> auto& { return o.reshard_after_forward; });
  table.add(
      {"persist_below", "elements", "tensors with fewer elements stay whole on every rank; 0: none"},
      integer(0), [](auto& o) -> auto& { return o.persist_below; });
  return table;
}

namespace {

constexpr Segment kSegments[] = {Segment::sharded, Segment::whole};

ParamLayout layout_of(const RunShape& shape, const Zero3Options& options) {
  return ParamLayout(shape.workload.model, shape.world, options.persist_below);
}

// Buffers of gathered parameters: unit 0's, which tied embedding and head share, the last unit's, and the
// blocks' pool: the one that computes and those on their way.
int pool_of(const ParamLayout& layout, const Zero3Options& options) {
  if (!options.reshard_after_forward) return layout.num_blocks();
  return std::min<int>(layout.num_blocks(), static_cast<int>(options.prefetch) + 1);
}
std::size_t params_buffer(const ParamLayout& layout, int pool, int unit) {
  if (unit == 0) return 0;
  if (unit == layout.last_unit()) return 1;
  return static_cast<std::size_t>(2 + unit % pool);
}

// What a plan calls one.
std::string name_of_buffer(const char* what, std::size_t buffer) {
  return std::string(what) + (buffer == 0 ? ", unit 0" : buffer == 1 ? ", last unit" : ", a block");
}

// Buffers of full gradients, as in lesson 03: unit 0, the last unit, two for the blocks.
constexpr std::size_t kGradBuffers = 4;
std::size_t grads_buffer(const ParamLayout& layout, int unit) { return params_buffer(layout, 2, unit); }

// Elements of the largest unit that uses each buffer.
std::vector<UnitLayout> sizes_of(const ParamLayout& layout, std::size_t buffers, int pool) {
  std::vector<UnitLayout> sizes(buffers);
  for (int unit = 0; unit < layout.num_units(); ++unit) {
    UnitLayout& size = sizes[params_buffer(layout, pool, unit)];
    size.sharded_size = std::max(size.sharded_size, layout.unit(unit).sharded_size);
    size.whole_size = std::max(size.whole_size, layout.unit(unit).whole_size);
  }
  return sizes;
}

}  // namespace

MemoryPlan Zero3::memory_plan(const RunShape& shape, const Options& options) {
  refuse_other_reduce_dtype(shape);
  MemoryPlan plan;
  const PrecisionConfig& precision = shape.workload.precision;
  const ParamLayout layout = layout_of(shape, options);
  const std::int64_t world = to_int(shape.world);
  const Elements sharded(layout.arena_size(Segment::sharded).value() / world),
      whole = layout.arena_size(Segment::whole), slice(layout.arena_size().value() / world);
  const auto add = [&](Purpose purpose, const std::string& name, const std::string& of, Elements elements,
                       DType dtype) {
    if (elements.value() > 0)
      plan.add(purpose, name, std::to_string(size_of(dtype)) + of, bytes_of(elements, dtype));
  };
  add(Purpose::parameters, "params_shard", whole.value() == 0 ? " P/N" : " (P - W)/N", sharded,
      precision.dtype);
  add(Purpose::parameters, "params_whole", " W", whole, precision.dtype);
  const int pool = pool_of(layout, options);
  const std::vector<UnitLayout> params = sizes_of(layout, static_cast<std::size_t>(2 + pool), pool),
                                grads = sizes_of(layout, kGradBuffers, 2);
  for (std::size_t b = 0; b < params.size(); ++b)
    add(Purpose::parameters, name_of_buffer("params_full", b), " unit", Elements(params[b].sharded_size),
        precision.dtype);
  add(Purpose::gradients, "grads_shard", " P/N", slice, precision.grad_dtype);
  for (std::size_t b = 0; b < grads.size(); ++b) {
    const std::int64_t size = grads[b].sharded_size + grads[b].whole_size;
    add(Purpose::gradients, name_of_buffer("grads_full", b), " unit", Elements(size), precision.grad_dtype);
    if (micro_batches_of(shape) > 1)
      add(Purpose::gradients, "grads_scratch", " unit/N", Elements(size / world), precision.grad_dtype);
  }
  OptimizerShard::plan(shape, slice, plan);
  plan_activation_buffers(shape, plan);
  return plan;
}

// Units 0 and L+1 are gathered once a step, since their buffers are theirs alone. A pass over the blocks
// gathers those that the pass before has not left in the pool; the first pass of a step finds nothing there.
CommPlan Zero3::comm_plan(const RunShape& shape, const Options& options) {
  CommPlan plan;
  const ParamLayout layout = layout_of(shape, options);
  const PrecisionConfig& precision = shape.workload.precision;
  const std::int64_t micro = micro_batches_of(shape), blocks = layout.num_blocks(),
                     pool = pool_of(layout, options);
  for (int unit = 0; unit < layout.num_units(); ++unit) {
    const UnitLayout& u = layout.unit(unit);
    const bool own_buffer = unit == 0 || unit == layout.last_unit();
    if (own_buffer) plan.add(CommKind::all_gather, precision.dtype, Elements(u.sharded_size));
    plan.add(CommKind::all_gather, precision.dtype, Elements(u.whole_size));
    plan.add(CommKind::reduce_scatter, precision.grad_dtype, Elements(u.sharded_size), micro);
    plan.add(CommKind::reduce_scatter, precision.grad_dtype, Elements(u.whole_size), micro);
  }
  plan.add(CommKind::all_gather, precision.dtype, Elements(layout.unit(1).sharded_size),
           blocks + (2 * micro - 1) * (blocks - pool));
  plan.add(CommKind::all_reduce, DType::f64, Elements(4));  // loss, tokens, sum of squares, overflow flag
  return plan;
}

Zero3::Zero3(RunContext& context, const Options& options)
    : context_(context),
      options_(options),
      layout_(layout_of(context.shape, options)),
      gathered_(static_cast<std::size_t>(layout_.num_units())),
      published_(static_cast<std::size_t>(layout_.num_units())),
      in_flight_(kGradBuffers),
      scratch_(kGradBuffers),
      passes_(context, layout_) {
  const PrecisionConfig& precision = context.shape.workload.precision;
  const std::int64_t world = to_int(context.shape.world);
  const Elements slice = layout_.arena_size() / world, whole = layout_.arena_size(Segment::whole);
  const auto flat = [&](Purpose purpose, const char* name, std::int64_t n, DType dtype) {
    return n == 0 ? at::Tensor() : context.ledger.zeros(purpose, name, {n}, dtype);
  };
  const auto gathered = [&](const char* name, std::int64_t n) {
    return n == 0 ? at::Tensor()
                  : zeros_in_window(context, Purpose::parameters, name, Elements(n), precision.dtype);
  };
  // [anchor: everything-sharded]
  const at::Tensor params_shard = gathered("params_shard", (layout_.arena_size() - whole).value() / world);
  const at::Tensor params_whole = flat(Purpose::parameters, "params_whole", whole.value(), precision.dtype);
  const at::Tensor grads_shard = flat(Purpose::gradients, "grads_shard", slice.value(), precision.grad_dtype);
  const OptimizerShard state(context, slice);

  // What is gathered, and the gradients that backward computes, for a moment and in full.
  const int pool = pool_of(layout_, options);
  const auto part = [](const at::Tensor& of, std::int64_t begin, std::int64_t n) {
    return n == 0 ? at::Tensor() : of.narrow(0, begin, n);
  };
  std::vector<at::Tensor> params, grads;
  for (const UnitLayout& u : sizes_of(layout_, static_cast<std::size_t>(2 + pool), pool))
    params.push_back(gathered("params_full", u.sharded_size));
  resident_.assign(params.size(), -1);
  for (const UnitLayout& u : sizes_of(layout_, kGradBuffers, 2)) {
    const std::int64_t sharded = u.sharded_size / world, size = sharded + u.whole_size / world;
    grads.push_back(flat(Purpose::gradients, "grads_full", size * world, precision.grad_dtype));
    if (micro_batches_of(context.shape) == 1) continue;
    const at::Tensor beside = flat(Purpose::gradients, "grads_scratch", size, precision.grad_dtype);
    scratch_[grads.size() - 1] = {part(beside, 0, sharded), part(beside, sharded, size - sharded)};
  }
  for (int unit = 0; unit < layout_.num_units(); ++unit) {
    const UnitLayout& u = layout_.unit(unit);
    const at::Tensor& g = grads[grads_buffer(layout_, unit)];
    params_.push_back({part(params[params_buffer(layout_, pool, unit)], 0, u.sharded_size),
                       part(params_whole, u.whole_begin, u.whole_size)});
    grads_full_.push_back({part(g, 0, u.sharded_size), part(g, u.sharded_size, u.whole_size)});
    for (const Segment segment : kSegments) {
      OwnedSlice s{unit, segment, layout_.slice(unit, segment, context.comm.rank())};
      if (!s.empty()) {
        s.params = segment == Segment::sharded ? part_of_shard(layout_, s, params_shard)
                                               : s.of_unit(params_[unit].whole);
        s.grads = part_of_shard(layout_, s, grads_shard);
        take_over(context, layout_, state, s);
      }
      slices_.push_back(std::move(s));
    }
  }
}

std::span<OwnedSlice> Zero3::slices_of(int unit) {
  return std::span(slices_).subspan(2 * static_cast<std::size_t>(unit), 2);
}

// One optimizer step. Every micro-batch gathers what it computes with, and gives its gradients away.
StepResult Zero3::train_step(std::span<const Batch> micro_batches) {
  publish_params();
  release_all();
  passes_.sums().zero_();
  for (std::size_t j = 0; j < micro_batches.size(); ++j) {
    const Batch& batch = micro_batches[j];
    const Write slice = j == 0 ? Write::overwrite : Write::accumulate;
    forward(batch);
    wait_reduced(grads_buffer(layout_, 0));  // the micro-batch before may still be on its way out of them
    wait_reduced(grads_buffer(layout_, layout_.last_unit()));
    passes_.head(batch, params_, grads_full_, Write::overwrite);  // loss; gradients of x, the head's, ln_f's
    reduce_grads(layout_.last_unit(), slice);
    // [anchor: gather-again]
    // Last block first; it is still in its buffer. While block `unit` computes, the parameters of those below
    // it arrive and the gradients of the one above it leave.
    for (int unit = layout_.num_blocks(), next = unit; unit >= 1; --unit) {
      while (next > std::max<std::int64_t>(1, unit - options_.prefetch)) gather_params(--next);
      wait_gathered(unit);
      passes_.backward_input(unit, params_[unit]);
      if (unit == 1) {  // unit 0, in GPT-2 the largest, travels while block 1's products are still to come
        passes_.embed_backward(batch, grads_full_[0], Write::overwrite);  // the tied head opened it
        reduce_grads(0, slice);
      }
      wait_reduced(grads_buffer(layout_, unit));  // what block unit + 2 computed must have left
      passes_.backward_weights(unit, grads_full_[unit], Write::overwrite);
      reduce_grads(unit, slice);
    }
  }
  for (std::size_t buffer = 0; buffer < kGradBuffers; ++buffer) wait_reduced(buffer);
  global_norm();
  for (int unit = 0; unit < layout_.num_units(); ++unit) step_shard(unit);
  return {passes_.sums(), context_.scalars.grad_norm};
}

// [anchor: gather-use-release]
// While one unit computes, the next `prefetch` are on their way. A block's buffer is free when the block has
// computed: the gather that takes it over starts after the work issued so far.
void Zero3::forward(const Batch& batch) {
  const int last = layout_.last_unit();
  for (int unit = 0, next = 0; unit <= last; ++unit) {
    while (next <= std::min<std::int64_t>(last, unit + options_.prefetch)) gather_params(next++);
    wait_gathered(unit);
    if (unit == 0) {
      passes_.embed(batch, params_[0]);
    } else if (unit < last) {
      passes_.forward_block(unit, params_[unit]);
    }
  }
}

// [anchor: gather]
// Every rank's slice to all, into the unit's buffer, unless it is there still.
void Zero3::gather_params(int unit) {
  if (!params_[unit].sharded.defined()) return;
  int& resident = resident_[params_buffer(layout_, pool_of(layout_, options_), unit)];
  if (resident == unit) return;
  resident = unit;
  gathered_[unit] = context_.comm.all_gather(slices_of(unit)[0].params, params_[unit].sharded);
}

void Zero3::wait_gathered(int unit) {
  gathered_[unit].wait();
  published_[unit].wait();
}

// What is in the buffers is from before the update, or from an evaluation.
void Zero3::release_all() { std::fill(resident_.begin(), resident_.end(), -1); }

// [anchor: reduce-to-the-owner]
// The sum of a slice goes to its owner, out of the full gradient, whose memory is free when it has left.
void Zero3::reduce_grads(int unit, Write write) {
  const std::size_t buffer = grads_buffer(layout_, unit);
  for (const OwnedSlice& s : slices_of(unit)) {
    if (s.empty()) continue;
    InFlight& flight = in_flight_[buffer][static_cast<std::size_t>(s.segment)];
    const bool adds = write == Write::accumulate;
    flight.sum = adds ? scratch_[buffer].segment(s.segment).narrow(0, 0, s.range.size()) : s.grads;
    flight.into = adds ? s.grads : at::Tensor();
    flight.ticket = context_.comm.reduce_scatter(grads_full_[unit].segment(s.segment), flight.sum);
  }
}

void Zero3::wait_reduced(std::size_t buffer) {
  for (InFlight& flight : in_flight_[buffer]) {
    flight.ticket.wait();
    if (flight.into.defined()) flight.into.add_(flight.sum);
    flight.into = at::Tensor();
  }
}

// Every rank squares the slices that it owns: each element counts once. The sum over ranks is the mean
// already: the divisor of the loss was the *global* batch's tokens (Batch::scale).
void Zero3::global_norm() {
  add_sums_of_squares(grads_of(slices_), passes_.sums());
  clip_over_ranks(context_, passes_.sums());  // an all-reduce of four numbers, as in 01
}

void Zero3::step_shard(int unit) {
  const Workload& w = context_.shape.workload;
  for (OwnedSlice& s : slices_of(unit)) {
    if (s.empty()) continue;
    adamw_step(hyper_of(w.optim), context_.scalars, layout_.decay_ranges(unit, s.segment, s.range), s.grads,
               s.master, s.momentum, s.variance, w.precision.has_master() ? &s.params : nullptr);
  }
}

// [anchor: publish-what-stays-whole]
// Small tensors are sharded in gradient and optimizer state, but every rank keeps all of them: owners'
// updated slices to all, once a step.
void Zero3::publish_params() {
  for (int unit = 0; unit < layout_.num_units(); ++unit) {
    at::Tensor& whole = params_[unit].whole;
    if (whole.defined()) published_[unit] = context_.comm.all_gather(slices_of(unit)[1].params, whole);
  }
}

// Whether the last step is published already is not remembered: a step that a graph replays could not say so.
void Zero3::settle() {
  publish_params();
  for (Ticket& ticket : published_) ticket.wait();
}

double Zero3::evaluate(std::span<const Batch> batches) {
  settle();
  release_all();
  passes_.sums().zero_();
  for (const Batch& batch : batches) {
    forward(batch);
    passes_.head_loss(batch, params_);
  }
  context_.comm.all_reduce(passes_.sums()).wait();
  return mean_loss(passes_.sums());
}

void Zero3::visit_state(StateVisitor& visitor) {
  passes_.visit_last_local(visitor);
  for (const OwnedSlice& s : slices_) {
    if (s.empty()) continue;
    const at::Tensor& whole = params_[s.unit].whole;
    if (s.segment == Segment::sharded)
      visitor.visit({Purpose::parameters, s.unit, s.segment, s.range, s.params});
    if (s.segment == Segment::whole)
      visitor.visit({Purpose::parameters, s.unit, s.segment, {0, whole.numel()}, whole});
    visit_slice(s, visitor);
  }
}

}  // namespace sc
