#include "zero1.h"

#include "common/model/unit_views.h"
#include "common/optim/grad_norm.h"
#include "common/run/gradient_dtype.h"

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

ParamLayout layout_of(const RunShape& shape) { return ParamLayout(shape.workload.model, shape.world); }

}  // namespace

MemoryPlan Zero1::memory_plan(const RunShape& shape, const Options& /*options*/) {
  refuse_other_reduce_dtype(shape);
  MemoryPlan plan;
  const PrecisionConfig& precision = shape.workload.precision;
  const Elements psi = layout_of(shape).arena_size(), slice(psi.value() / to_int(shape.world));
  const auto add = [&](Purpose purpose, const char* name, const char* of, Elements elements, DType dtype) {
    plan.add(purpose, name, std::to_string(size_of(dtype)) + of, bytes_of(elements, dtype));
  };
  add(Purpose::parameters, "params_full", " P", psi, precision.dtype);
  add(Purpose::gradients, "grads_full", " P", psi, precision.grad_dtype);
  if (precision.has_master()) add(Purpose::master, "master_shard", " P/N", slice, DType::f32);
  add(Purpose::momentum, "momentum_shard", " P/N", slice, DType::f32);
  add(Purpose::variance, "variance_shard", " P/N", slice, DType::f32);
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
      gpt_(shape_of(context.shape), layout_),
      reduced_(static_cast<std::size_t>(layout_.num_units())),
      published_(static_cast<std::size_t>(layout_.num_units())),
      buffers_(gpt_, context.ledger) {
  const std::int64_t psi = layout_.arena_size().value(), slice = psi / to_int(context.shape.world);
  const PrecisionConfig& precision = context.shape.workload.precision;
  Ledger& ledger = context.ledger;
  params_full_ = ledger.zeros(Purpose::parameters, "params_full", {psi}, precision.dtype);
  grads_full_ = ledger.zeros(Purpose::gradients, "grads_full", {psi}, precision.grad_dtype);
  // [anchor: one-slice]
  // 12 bytes a parameter of optimizer state in 16-bit training (8 in fp32), divided by the ranks.
  if (precision.has_master())
    master_shard_ = ledger.zeros(Purpose::master, "master_shard", {slice}, DType::f32);
  momentum_shard_ = ledger.zeros(Purpose::momentum, "momentum_shard", {slice}, DType::f32);
  variance_shard_ = ledger.zeros(Purpose::variance, "variance_shard", {slice}, DType::f32);
  params_ = unit_views(layout_, params_full_);
  grads_ = unit_views(layout_, grads_full_);
  for (int unit = 0; unit < layout_.num_units(); ++unit) {
    params_slice_.push_back(params_[unit].sharded.narrow(0, mine(unit).begin, mine(unit).size()));
    grads_slice_.push_back(grads_[unit].sharded.narrow(0, mine(unit).begin, mine(unit).size()));
  }
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

Range Zero1::mine(int unit) const { return layout_.slice(unit, Segment::sharded, context_.comm.rank()); }

// One optimizer step. It begins with parameters of which each rank has updated its slice only.
StepResult Zero1::train_step(std::span<const Batch> micro_batches) {
  publish_params();
  buffers_.sums.zero_();
  for (std::size_t j = 0; j < micro_batches.size(); ++j) {
    const Batch& batch = micro_batches[j];
    const Write write = j == 0 ? Write::overwrite : Write::accumulate;
    const bool last = j + 1 == micro_batches.size();  // only then are the sums complete
    forward(batch);
    head(batch, write);  // loss; gradients of x, of the head's matrix, of ln_f
    if (last) reduce_grads(layout_.last_unit());
    // Last block first. While block `unit` computes, the gradients of the blocks above it travel.
    for (int unit = layout_.num_blocks(); unit >= 1; --unit) {
      backward_block(unit, write);
      if (last) reduce_grads(unit);
    }
    embed_backward(batch, write);
    if (last)
      reduce_grads(0);  // unit 0 last: the tied head opened wte's gradient, the embedding completes it
  }
  wait_reduced();
  global_norm();
  for (int unit = 0; unit < layout_.num_units(); ++unit) step_shard(unit);
  return {buffers_.sums, context_.scalars.grad_norm};
}

// [anchor: wait-where-used]
// A unit's parameters may still be on their way; whoever uses them first waits, for that unit alone.
void Zero1::forward(const Batch& batch) {
  wait_published(0);
  gpt_.embed(params_[0], batch.tokens, buffers_.x[0]);
  for (int unit = 1; unit <= layout_.num_blocks(); ++unit) {
    wait_published(unit);
    gpt_.forward_block(unit, params_[unit], buffers_.x[unit - 1], buffers_.saved[unit - 1], buffers_.ws,
                       buffers_.x[unit]);
  }
  wait_published(layout_.last_unit());
}

void Zero1::head(const Batch& batch, Write write) {
  const int last = layout_.last_unit();
  at::Tensor grad_head = gpt_.head_matrix(grads_[gpt_.head_unit()]);
  gpt_.head(gpt_.head_matrix(params_[gpt_.head_unit()]), params_[last], buffers_.x.back(), batch.targets,
            batch.scale, buffers_.grad_x[layout_.num_blocks() % 2], grad_head, grads_[last], write,
            buffers_.ws, buffers_.result);
}

void Zero1::backward_block(int unit, Write write) {
  at::Tensor& grad_y = buffers_.grad_x[unit % 2];
  at::Tensor& grad_x = buffers_.grad_x[(unit - 1) % 2];
  gpt_.backward_input(unit, params_[unit], buffers_.saved[unit - 1], grad_y, buffers_.ws, grad_x);
  gpt_.backward_weights(unit, buffers_.saved[unit - 1], buffers_.ws, grads_[unit], write);
}

void Zero1::embed_backward(const Batch& batch, Write write) {
  const Write wte = layout_.config().tied ? Write::accumulate : write;  // tied: onto the head's part
  gpt_.embed_backward(batch.tokens, buffers_.grad_x[0], grads_[0], wte, write);
}

// [anchor: reduce-to-the-owner]
// Half of 01's all-reduce: the sum of a slice goes to its owner alone, in place. The rest of the unit's
// gradient stays what this rank computed, and nobody reads it any more.
void Zero1::reduce_grads(int unit) {
  reduced_[unit] = context_.comm.reduce_scatter(grads_[unit].sharded, grads_slice_[unit]);
  if (!options_.overlap) reduced_[unit].wait();
}

void Zero1::wait_reduced() {
  for (Ticket& ticket : reduced_) ticket.wait();
}

// Every rank squares the slices that it owns: each element counts once. The sum over ranks is the mean
// already: the divisor of the loss was the *global* batch's tokens (Batch::scale).
void Zero1::global_norm() {
  add_sums_of_squares(grads_slice_, buffers_.sums);
  finish_sums(buffers_.sums);
  context_.comm.all_reduce(buffers_.sums).wait();
  global_norm_and_clip(buffers_.sums, context_.shape.workload.optim.clip, context_.scalars);
}

// [anchor: step-the-slice]
void Zero1::step_shard(int unit) {
  const Workload& w = context_.shape.workload;
  adamw_step(hyper_of(w.optim), context_.scalars, layout_.decay_ranges(unit, Segment::sharded, mine(unit)),
             grads_slice_[unit], master_slice_[unit], momentum_slice_[unit], variance_slice_[unit],
             w.precision.has_master() ? &params_slice_[unit] : nullptr);
}

// [anchor: publish]
// The other half of 01's all-reduce, of parameters instead of gradients: every owner's updated slice to all.
// Unit 0 first, since forward needs it first.
void Zero1::publish_params() {
  for (int unit = 0; unit < layout_.num_units(); ++unit) {
    published_[unit] = context_.comm.all_gather(params_slice_[unit], params_[unit].sharded);
    if (!options_.overlap) wait_published(unit);
  }
}

void Zero1::wait_published(int unit) { published_[unit].wait(); }

// Whether the last step is published already is not remembered: a step that a graph replays could not say so.
void Zero1::settle() {
  publish_params();
  for (int unit = 0; unit < layout_.num_units(); ++unit) wait_published(unit);
}

double Zero1::evaluate(std::span<const Batch> batches) {
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

void Zero1::visit_state(StateVisitor& visitor) {
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
