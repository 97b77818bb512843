#include "zero3.h"

#include <algorithm>

#include "common/model/unit_views.h"
#include "common/optim/grad_norm.h"
#include "common/run/gradient_dtype.h"

namespace sc {

FieldTable<Zero3Options> Zero3::fields() {
  FieldTable<Options> table;
  table.add(
      {"prefetch", "units", "how many units ahead of the one that computes are on their way"}, integer(0, 16),
      [](auto& o) -> auto& { return o.prefetch; });
  table.add(
      {"reshard_after_forward", "",
       "a block's parameters are released after forward and gathered again for backward; off: every block "
       "has a "
       "buffer"},
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
  const auto add = [&](Purpose purpose, const char* name, const std::string& of, Elements elements,
                       DType dtype) {
    if (elements.value() > 0)
      plan.add(purpose, name, std::to_string(size_of(dtype)) + of, bytes_of(elements, dtype));
  };
  add(Purpose::parameters, "params_shard", " P/N", sharded, precision.dtype);
  add(Purpose::parameters, "params_whole", " W", whole, precision.dtype);
  const int pool = pool_of(layout, options);
  for (const UnitLayout& u : sizes_of(layout, static_cast<std::size_t>(2 + pool), pool))
    add(Purpose::parameters, "params_full", " unit", Elements(u.sharded_size), precision.dtype);
  add(Purpose::gradients, "grads_shard", " P/N", slice, precision.grad_dtype);
  for (const UnitLayout& u : sizes_of(layout, kGradBuffers, 2)) {
    const std::int64_t size = u.sharded_size + u.whole_size;
    add(Purpose::gradients, "grads_full", " unit", Elements(size), precision.grad_dtype);
    if (micro_batches_of(shape) > 1)
      add(Purpose::gradients, "grads_scratch", " unit/N", Elements(size / world), precision.grad_dtype);
  }
  if (precision.has_master()) add(Purpose::master, "master_shard", " P/N", slice, DType::f32);
  add(Purpose::momentum, "momentum_shard", " P/N", slice, DType::f32);
  add(Purpose::variance, "variance_shard", " P/N", slice, DType::f32);
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
      gpt_(shape_of(context.shape), layout_),
      gathered_(static_cast<std::size_t>(layout_.num_units())),
      published_(static_cast<std::size_t>(layout_.num_units())),
      in_flight_(kGradBuffers),
      scratch_(kGradBuffers),
      buffers_(gpt_, context.ledger) {
  const PrecisionConfig& precision = context.shape.workload.precision;
  const std::int64_t world = to_int(context.shape.world), slice = layout_.arena_size().value() / world;
  const std::int64_t sharded = layout_.arena_size(Segment::sharded).value() / world;
  const auto flat = [&](Purpose purpose, const char* name, std::int64_t n, DType dtype) {
    return n == 0 ? at::Tensor() : context.ledger.zeros(purpose, name, {n}, dtype);
  };
  // [anchor: everything-sharded]
  params_shard_ = flat(Purpose::parameters, "params_shard", sharded, precision.dtype);
  params_whole_ =
      flat(Purpose::parameters, "params_whole", layout_.arena_size(Segment::whole).value(), precision.dtype);
  grads_shard_ = flat(Purpose::gradients, "grads_shard", slice, precision.grad_dtype);
  if (precision.has_master()) master_shard_ = flat(Purpose::master, "master_shard", slice, DType::f32);
  momentum_shard_ = flat(Purpose::momentum, "momentum_shard", slice, DType::f32);
  variance_shard_ = flat(Purpose::variance, "variance_shard", slice, DType::f32);

  // What is gathered, and the gradients that backward computes, for a moment and in full.
  const int pool = pool_of(layout_, options);
  std::vector<at::Tensor> params, grads;
  for (const UnitLayout& u : sizes_of(layout_, static_cast<std::size_t>(2 + pool), pool))
    params.push_back(flat(Purpose::parameters, "params_full", u.sharded_size, precision.dtype));
  resident_.assign(params.size(), -1);
  for (const UnitLayout& u : sizes_of(layout_, kGradBuffers, 2)) {
    grads.push_back(
        flat(Purpose::gradients, "grads_full", u.sharded_size + u.whole_size, precision.grad_dtype));
    if (micro_batches_of(context.shape) == 1) continue;
    const at::Tensor beside = flat(Purpose::gradients, "grads_scratch",
                                   (u.sharded_size + u.whole_size) / world, precision.grad_dtype);
    if (!beside.defined()) continue;
    scratch_[grads.size() - 1] = {beside.narrow(0, 0, u.sharded_size / world),
                                  beside.narrow(0, u.sharded_size / world, u.whole_size / world)};
  }
  for (int unit = 0; unit < layout_.num_units(); ++unit) {
    const UnitLayout& u = layout_.unit(unit);
    const at::Tensor& p = params[params_buffer(layout_, pool, unit)];
    const at::Tensor& g = grads[grads_buffer(layout_, unit)];
    const bool whole = u.whole_size > 0, some = u.sharded_size > 0;
    params_.push_back({some ? p.narrow(0, 0, u.sharded_size) : at::Tensor(),
                       whole ? params_whole_.narrow(0, u.whole_begin, u.whole_size) : at::Tensor()});
    grads_full_.push_back({some ? g.narrow(0, 0, u.sharded_size) : at::Tensor(),
                           whole ? g.narrow(0, u.sharded_size, u.whole_size) : at::Tensor()});
  }

  for (int unit = 0; unit < layout_.num_units(); ++unit) {
    const UnitLayout& u = layout_.unit(unit);
    for (const Segment segment : kSegments) {
      Slice s{unit, segment, layout_.slice(unit, segment, context.comm.rank()), {}, {}, {}, {}, {}};
      const std::int64_t at = (segment == Segment::sharded ? 0 : sharded) + u.begin(segment) / world;
      const auto part = [&](const at::Tensor& shard) { return shard.narrow(0, at, s.range.size()); };
      if (s.range.size() > 0) {
        s.params = segment == Segment::sharded ? part(params_shard_)
                                               : params_[unit].whole.narrow(0, s.range.begin, s.range.size());
        s.grads = part(grads_shard_);
        // What AdamW steps: an fp32 master beside 16-bit parameters, else the parameters themselves.
        s.master = precision.has_master() ? part(master_shard_) : s.params;
        s.momentum = part(momentum_shard_);
        s.variance = part(variance_shard_);
        init_slice(layout_, unit, segment, s.range, context.shape.workload.seed, s.master);
        if (precision.has_master()) s.params.copy_(s.master);
      }
      slices_.push_back(std::move(s));
    }
  }
}

std::array<Zero3::Slice*, 2> Zero3::slices_of(int unit) {
  const std::size_t first = 2 * static_cast<std::size_t>(unit);
  return {&slices_[first], &slices_[first + 1]};
}

// One optimizer step. Every micro-batch gathers what it computes with, and gives its gradients away.
StepResult Zero3::train_step(std::span<const Batch> micro_batches) {
  publish_params();
  release_all();
  buffers_.sums.zero_();
  for (std::size_t j = 0; j < micro_batches.size(); ++j) {
    const Batch& batch = micro_batches[j];
    const Write slice = j == 0 ? Write::overwrite : Write::accumulate;
    forward(batch);
    head(batch);  // loss; gradients of x, of the head's matrix, of ln_f
    reduce_grads(layout_.last_unit(), slice);
    // [anchor: gather-again]
    // Last block first; it is still in its buffer. While block `unit` computes, the parameters of those below
    // it arrive and the gradients of the one above it leave.
    for (int unit = layout_.num_blocks(), next = unit; unit >= 1; --unit) {
      while (next > std::max<std::int64_t>(1, unit - options_.prefetch)) gather_params(--next);
      wait_gathered(unit);
      backward_block(unit);
      reduce_grads(unit, slice);
    }
    embed_backward(batch);
    reduce_grads(0, slice);  // unit 0 last: the tied head opened it, the embedding completes it
  }
  for (std::size_t buffer = 0; buffer < kGradBuffers; ++buffer) wait_reduced(buffer);
  global_norm();
  for (int unit = 0; unit < layout_.num_units(); ++unit) step_shard(unit);
  return {buffers_.sums, context_.scalars.grad_norm};
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
      gpt_.embed(params_[0], batch.tokens, buffers_.x[0]);
    } else if (unit < last) {
      gpt_.forward_block(unit, params_[unit], buffers_.x[unit - 1], buffers_.saved[unit - 1], buffers_.ws,
                         buffers_.x[unit]);
    }
  }
}

void Zero3::head(const Batch& batch) {
  const int last = layout_.last_unit();
  // The micro-batch before may still be on its way out of them.
  wait_reduced(grads_buffer(layout_, 0));
  wait_reduced(grads_buffer(layout_, last));
  at::Tensor grad_head = gpt_.head_matrix(grads_full_[gpt_.head_unit()]);
  gpt_.head(gpt_.head_matrix(params_[gpt_.head_unit()]), params_[last], buffers_.x.back(), batch.targets,
            batch.scale, buffers_.grad_x[layout_.num_blocks() % 2], grad_head, grads_full_[last],
            Write::overwrite, buffers_.ws, buffers_.result);
}

void Zero3::backward_block(int unit) {
  at::Tensor& grad_y = buffers_.grad_x[unit % 2];
  at::Tensor& grad_x = buffers_.grad_x[(unit - 1) % 2];
  gpt_.backward_input(unit, params_[unit], buffers_.saved[unit - 1], grad_y, buffers_.ws, grad_x);
  wait_reduced(grads_buffer(layout_, unit));  // what block unit + 2 computed must have left
  gpt_.backward_weights(unit, buffers_.saved[unit - 1], buffers_.ws, grads_full_[unit], Write::overwrite);
}

void Zero3::embed_backward(const Batch& batch) {
  const Write wte =
      layout_.config().tied ? Write::accumulate : Write::overwrite;  // tied: onto the head's part
  gpt_.embed_backward(batch.tokens, buffers_.grad_x[0], grads_full_[0], wte, Write::overwrite);
}

// [anchor: gather]
// Every rank's slice to all, into the unit's buffer, unless it is there still.
void Zero3::gather_params(int unit) {
  if (!params_[unit].sharded.defined()) return;
  int& resident = resident_[params_buffer(layout_, pool_of(layout_, options_), unit)];
  if (resident == unit) return;
  resident = unit;
  gathered_[unit] = context_.comm.all_gather(slices_of(unit)[0]->params, params_[unit].sharded);
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
  for (Slice* slice : slices_of(unit)) {
    if (slice->range.size() == 0) continue;
    InFlight& flight = in_flight_[buffer][static_cast<std::size_t>(slice->segment)];
    const bool adds = write == Write::accumulate;
    flight.sum =
        adds ? scratch_[buffer].segment(slice->segment).narrow(0, 0, slice->range.size()) : slice->grads;
    flight.into = adds ? slice->grads : at::Tensor();
    flight.ticket = context_.comm.reduce_scatter(grads_full_[unit].segment(slice->segment), flight.sum);
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
  std::vector<at::Tensor> mine;
  for (const Slice& slice : slices_)
    if (slice.grads.defined()) mine.push_back(slice.grads);
  add_sums_of_squares(mine, buffers_.sums);
  finish_sums(buffers_.sums);
  context_.comm.all_reduce(buffers_.sums).wait();
  global_norm_and_clip(buffers_.sums, context_.shape.workload.optim.clip, context_.scalars);
}

void Zero3::step_shard(int unit) {
  const Workload& w = context_.shape.workload;
  for (Slice* s : slices_of(unit)) {
    if (s->range.size() == 0) continue;
    adamw_step(hyper_of(w.optim), context_.scalars, layout_.decay_ranges(unit, s->segment, s->range),
               s->grads, s->master, s->momentum, s->variance,
               w.precision.has_master() ? &s->params : nullptr);
  }
}

// [anchor: publish-what-stays-whole]
// Small tensors are sharded in gradient and optimizer state, but every rank keeps all of them: owners'
// updated slices to all, once a step.
void Zero3::publish_params() {
  for (int unit = 0; unit < layout_.num_units(); ++unit) {
    at::Tensor& whole = params_[unit].whole;
    if (whole.defined()) published_[unit] = context_.comm.all_gather(slices_of(unit)[1]->params, whole);
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
  buffers_.sums.zero_();
  for (const Batch& batch : batches) {
    forward(batch);
    gpt_.head_loss(gpt_.head_matrix(params_[gpt_.head_unit()]), params_[layout_.last_unit()],
                   buffers_.x.back(), batch.targets, buffers_.ws, buffers_.result);
  }
  context_.comm.all_reduce(buffers_.sums).wait();
  return mean_loss(buffers_.sums);
}

void Zero3::visit_state(StateVisitor& visitor) {
  const at::Tensor last_local = buffers_.grad_x[0].view({-1});
  visitor.visit({Purpose::workspace, 0, Segment::sharded, {0, last_local.numel()}, last_local});
  for (const Slice& s : slices_) {
    if (s.range.size() == 0) continue;
    const auto slice = [&](Purpose purpose, const at::Tensor& values) {
      visitor.visit({purpose, s.unit, s.segment, s.range, values});
    };
    if (s.segment == Segment::sharded) {
      slice(Purpose::parameters, s.params);
    } else {
      const at::Tensor& whole = params_[s.unit].whole;
      visitor.visit({Purpose::parameters, s.unit, s.segment, {0, whole.numel()}, whole});
    }
    if (context_.shape.workload.precision.has_master()) slice(Purpose::master, s.master);
    slice(Purpose::momentum, s.momentum);
    slice(Purpose::variance, s.variance);
    slice(Purpose::gradients, s.grads);
  }
}

}  // namespace sc
