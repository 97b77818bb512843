#include "zero1.h"

#include <algorithm>

#include "common/model/unit_views.h"
#include "common/optim/grad_norm.h"
#include "common/strategy/gradient_dtype.h"

namespace sc {

FieldTable<Zero1Options> Zero1::fields() {
  FieldTable<Options> table;
  table.add(
      {"overlap", "",
       "gradients travel behind backward and updated slices under the next forward; off: each is waited for "
       "at once"},
      on_off(), [](auto& o) -> auto& { return o.overlap; });
  return table;
}

namespace {

// Units whose gathers are on their way before forward comes to them. All at once would be a GPU's first work of a
// step, and forward's first would stand behind most of it.
constexpr int kAhead = 2;

ParamLayout layout_of(const RunShape& shape) { return ParamLayout(shape.workload.model, shape.world); }

}  // namespace

MemoryPlan Zero1::memory_plan(const RunShape& shape, const Options& /*options*/) {
  refuse_other_reduce_dtype(shape);
  MemoryPlan plan;
  const PrecisionConfig& precision = shape.workload.precision;
  const Elements psi = layout_of(shape).arena_size();
  const auto whole = [&](Purpose purpose, const char* name, DType dtype) {
    plan.add(purpose, name, std::to_string(size_of(dtype)) + " P", bytes_of(psi, dtype));
  };
  whole(Purpose::parameters, "params_full", precision.dtype);
  whole(Purpose::gradients, "grads_full", precision.grad_dtype);
  OptimizerShard::plan(shape, psi / to_int(shape.world), plan);
  plan_activation_buffers(shape, plan);
  return plan;
}

CommPlan Zero1::comm_plan(const RunShape& shape, const Options& /*options*/) {
  CommPlan plan;
  const ParamLayout layout = layout_of(shape);
  for (int unit = 0; unit < layout.num_units(); ++unit) {
    const Elements size(layout.unit(unit).sharded_size);
    plan.add(CommKind::reduce_scatter, shape.workload.precision.grad_dtype, size);
    plan.add(CommKind::all_gather, shape.workload.precision.dtype, size);
  }
  plan.add(CommKind::all_reduce, DType::f64, Elements(4));  // loss, tokens, sum of squares, overflow flag
  return plan;
}

Zero1::Zero1(RunContext& context, const Options& options)
    : context_(context),
      options_(options),
      layout_(layout_of(context.shape)),
      reduced_(static_cast<std::size_t>(layout_.num_units())),
      published_(static_cast<std::size_t>(layout_.num_units())),
      passes_(context, layout_) {
  const Elements psi = layout_.arena_size();
  const PrecisionConfig& precision = context.shape.workload.precision;
  params_ =
      unit_views(layout_, zeros_in_window(context, Purpose::parameters, "params_full", psi, precision.dtype));
  grads_ = unit_views(
      layout_, context.ledger.zeros(Purpose::gradients, "grads_full", {psi.value()}, precision.grad_dtype));
  // [anchor: one-slice]
  // 12 bytes a parameter of optimizer state in 16-bit training (8 in fp32), divided by the ranks.
  const OptimizerShard state(context, psi / to_int(context.shape.world));
  for (int unit = 0; unit < layout_.num_units(); ++unit) {
    OwnedSlice s{unit, Segment::sharded, layout_.slice(unit, Segment::sharded, context.comm.rank())};
    s.params = s.of_unit(params_[unit].sharded);
    s.grads = s.of_unit(grads_[unit].sharded);
    // Each rank makes its own slice; the first step publishes them, as any step publishes the last one's.
    take_over(context, layout_, state, s);
    slices_.push_back(std::move(s));
  }
}

// One optimizer step. It begins with parameters of which each rank has updated its slice only.
StepResult Zero1::train_step(std::span<const Batch> micro_batches) {
  to_publish_ = 0;  // as forward goes
  passes_.sums().zero_();
  for (std::size_t j = 0; j < micro_batches.size(); ++j) {
    const Batch& batch = micro_batches[j];
    const Write write = j == 0 ? Write::overwrite : Write::accumulate;
    const bool last = j + 1 == micro_batches.size();  // only then are the sums complete
    forward(batch);
    passes_.head(batch, params_, grads_, write);  // loss; gradients of x, of the head's matrix, of ln_f
    if (last) reduce_grads(layout_.last_unit());
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
  for (int unit = 0; unit < layout_.num_units(); ++unit) step_shard(unit);
  return {passes_.sums(), context_.scalars.grad_norm};
}

// [anchor: wait-where-used]
// A unit's parameters may still be on their way; whoever uses them first waits, for that unit alone.
void Zero1::forward(const Batch& batch) {
  wait_published(0);
  passes_.embed(batch, params_[0]);
  for (int unit = 1; unit <= layout_.num_blocks(); ++unit) {
    wait_published(unit);
    passes_.forward_block(unit, params_[unit]);
  }
  wait_published(layout_.last_unit());
}

// [anchor: reduce-to-the-owner]
// Half of 01's all-reduce: the sum of a slice goes to its owner alone, in place. The rest of the unit's
// gradient stays what this rank computed, and nobody reads it any more.
void Zero1::reduce_grads(int unit) {
  reduced_[unit] = context_.comm.reduce_scatter(grads_[unit].sharded, slices_[unit].grads);
  if (!options_.overlap) reduced_[unit].wait();
}

void Zero1::wait_reduced() {
  for (Ticket& ticket : reduced_) ticket.wait();
}

// Every rank squares the slices that it owns: each element counts once. The sum over ranks is the mean
// already: the divisor of the loss was the *global* batch's tokens (Batch::scale).
void Zero1::global_norm() {
  add_sums_of_squares(grads_of(slices_), passes_.sums());
  clip_over_ranks(context_, passes_.sums());  // an all-reduce of four numbers, as in 01
}

// [anchor: step-the-slice]
void Zero1::step_shard(int unit) {
  OwnedSlice& s = slices_[unit];
  const Workload& w = context_.shape.workload;
  adamw_step(hyper_of(w.optim), context_.scalars, layout_.decay_ranges(unit, s.segment, s.range), s.grads,
             s.master, s.momentum, s.variance, w.precision.has_master() ? &s.params : nullptr);
}

// [anchor: publish]
// The other half of 01's all-reduce, of parameters instead of gradients: every owner's updated slice to all.
// Unit 0 first, since forward needs it first; the others as forward comes near them.
void Zero1::publish_through(int last) {
  while (to_publish_ <= std::min(last, layout_.last_unit())) {
    const int unit = to_publish_++;
    published_[unit] = context_.comm.all_gather(slices_[unit].params, params_[unit].sharded);
    if (!options_.overlap) published_[unit].wait();
  }
}

void Zero1::wait_published(int unit) {
  publish_through(unit + kAhead);
  published_[unit].wait();
}

// Whether the last step is published already is not remembered: a step that a graph replays could not say so.
void Zero1::settle() {
  to_publish_ = 0;
  for (int unit = 0; unit < layout_.num_units(); ++unit) wait_published(unit);
}

double Zero1::evaluate(std::span<const Batch> batches) {
  settle();
  passes_.sums().zero_();
  for (const Batch& batch : batches) {
    forward(batch);
    passes_.head_loss(batch, params_);
  }
  context_.comm.all_reduce(passes_.sums()).wait();
  return mean_loss(passes_.sums());
}

void Zero1::visit_state(StateVisitor& visitor) {
  passes_.visit_last_local(visitor);
  for (const OwnedSlice& slice : slices_) {
    const at::Tensor& params = params_[slice.unit].sharded;
    visitor.visit({Purpose::parameters, slice.unit, slice.segment, {0, params.numel()}, params});
    visit_slice(slice, visitor);
  }
}

}  // namespace sc
