#include "one_device.h"

#include "common/base/check.h"
#include "common/model/unit_views.h"
#include "common/optim/grad_norm.h"

namespace sc {

FieldTable<ReduceOrder> OneDevice::fields() {
  FieldTable<ReduceOrder> table;
  table.add(
      {"virtual_ranks", "ranks", "add gradients in the order in which a world of this many ranks would"},
      integer(1, 1024), [](auto& o) -> auto& { return o.virtual_ranks; });
  table.add(
      {"reduce_every", "", "sum over ranks once a step (01, 02) or after every micro-batch (ZeRO-2, ZeRO-3)"},
      choice<ReduceEvery>({{"step", ReduceEvery::step}, {"micro_batch", ReduceEvery::micro_batch}}),
      [](auto& o) -> auto& { return o.reduce_every; });
  table.add(
      {"tied_sum", "",
       "split: the head's and the embedding's part of wte's gradient meet at the end of the step "
       "(pipelines)"},
      choice<TiedSum>({{"joint", TiedSum::joint}, {"split", TiedSum::split}}),
      [](auto& o) -> auto& { return o.tied_sum; });
  return table;
}

namespace {

ParamLayout layout_of(const RunShape& shape, const ReduceOrder& order) {
  return ParamLayout(shape.workload.model, WorldSize{static_cast<int>(order.virtual_ranks)});
}

bool split_head(const RunShape& shape, const ReduceOrder& order) {
  return order.tied_sum == TiedSum::split && shape.workload.model.tied;
}

std::int64_t gradient_elements(const RunShape& shape, const ReduceOrder& order) {
  const GptConfig& model = shape.workload.model;
  return layout_of(shape, order).arena_size().value() +
         (split_head(shape, order) ? model.vocab_padded() * model.width : 0);
}

// The sum itself; the virtual rank that computes now (W > 1); the sum over ranks of one micro-batch
// (micro_batch).
int gradients_held(const ReduceOrder& order) {
  return 1 + (order.virtual_ranks > 1 ? 1 : 0) + (order.reduce_every == ReduceEvery::micro_batch ? 1 : 0);
}

// Virtual ranks are added where their gradients are; nothing travels that could be converted.
void check_sums(const PrecisionConfig& precision, const ReduceOrder& order) {
  if (order.virtual_ranks == 1 || precision.reduce_dtype == precision.grad_dtype) return;
  throw InputError(ExitCode::usage, "precision.reduce_dtype",
                   "virtual ranks are added in the gradients' dtype",
                   "--set precision.reduce_dtype=same, --set precision.grad_dtype=fp32, or one virtual rank");
}

}  // namespace

MemoryPlan OneDevice::memory_plan(const RunShape& shape, const Options& order) {
  MemoryPlan plan;
  const PrecisionConfig& precision = shape.workload.precision;
  check_sums(precision, order);
  const Elements psi = layout_of(shape, order).arena_size();
  const auto whole = [&](Purpose purpose, const char* name, DType dtype) {
    plan.add(purpose, name, std::to_string(size_of(dtype)) + " P", bytes_of(psi, dtype));
  };
  whole(Purpose::parameters, "params", precision.dtype);
  const int held = gradients_held(order);
  plan.add(Purpose::gradients, "grads",
           std::to_string(held * size_of(precision.grad_dtype)) + " P" +
               (split_head(shape, order) ? " + heads" : ""),
           bytes_of(Elements(gradient_elements(shape, order)), precision.grad_dtype) * held);
  if (precision.has_master()) whole(Purpose::master, "master", DType::f32);
  whole(Purpose::momentum, "momentum", DType::f32);
  whole(Purpose::variance, "variance", DType::f32);
  plan_activation_buffers(shape, plan);
  plan.add(Purpose::workspace, "rank_sums", "4 numbers a virtual rank",
           Bytes(4 * size_of(DType::f64) * order.virtual_ranks));
  return plan;
}

CommPlan OneDevice::comm_plan(const RunShape& /*shape*/, const Options& /*order*/) { return {}; }

// [anchor: four-vectors]
// Everything that a model is made of: one arena a purpose, from the ledger, seen unit by unit. Later lessons
// move these vectors elsewhere, and change nothing of what is computed from them.
OneDevice::OneDevice(RunContext& context, const Options& order)
    : context_(context),
      order_(order),
      layout_(layout_of(context.shape, order)),
      gpt_(shape_of(context.shape), layout_),
      buffers_(gpt_, context.ledger) {
  const std::int64_t psi = layout_.arena_size().value();
  Ledger& ledger = context.ledger;
  const PrecisionConfig& precision = context.shape.workload.precision;
  params_ = ledger.zeros(Purpose::parameters, "params", {psi}, precision.dtype);
  // What AdamW steps: an fp32 master beside 16-bit parameters, else the parameters themselves.
  master_ = precision.has_master() ? ledger.zeros(Purpose::master, "master", {psi}, DType::f32) : params_;
  momentum_ = ledger.zeros(Purpose::momentum, "momentum", {psi}, DType::f32);
  variance_ = ledger.zeros(Purpose::variance, "variance", {psi}, DType::f32);
  params_unit_ = unit_views(layout_, params_);
  master_unit_ = unit_views(layout_, master_);
  for (int i = 0; i < gradients_held(order); ++i) gradients_.push_back(make_gradient("grads"));
  for (std::int64_t r = 0; r < order.virtual_ranks; ++r) {
    rank_sums_.push_back(ledger.zeros(Purpose::workspace, "rank_sums", {4}, DType::f64));
  }
  for (int unit = 0; unit < layout_.num_units(); ++unit) {
    init_unit(layout_, unit, context.shape.workload.seed, master_unit_[unit]);
  }
  if (precision.has_master()) params_.copy_(master_);
}

OneDevice::Gradient OneDevice::make_gradient(const char* name) {
  const std::int64_t psi = layout_.arena_size().value();
  const std::int64_t size = gradient_elements(context_.shape, order_);
  Gradient g;
  g.arena =
      context_.ledger.zeros(Purpose::gradients, name, {size}, context_.shape.workload.precision.grad_dtype);
  g.unit = unit_views(layout_, g.arena.narrow(0, 0, psi));
  g.head = size > psi ? g.arena.narrow(0, psi, size - psi).view({-1, layout_.config().width})
                      : gpt_.head_matrix(g.unit[gpt_.head_unit()]);
  return g;
}

void OneDevice::forward(const Batch& batch) {
  gpt_.embed(params_unit_[0], batch.tokens, buffers_.x[0]);
  for (int unit = 1; unit <= layout_.num_blocks(); ++unit) {
    gpt_.forward_block(unit, params_unit_[unit], buffers_.x[unit - 1], buffers_.saved[unit - 1], buffers_.ws,
                       buffers_.x[unit]);
  }
}

// [anchor: one-micro-batch]
// The whole of training's arithmetic. The other lessons write their communication between these lines.
void OneDevice::forward_backward(const Batch& batch, Gradient& into, Write write, at::Tensor& sums) {
  const int last = layout_.last_unit();
  HeadResult result{sums.select(0, 0), sums.select(0, 1)};
  forward(batch);
  gpt_.head(gpt_.head_matrix(params_unit_[gpt_.head_unit()]), params_unit_[last], buffers_.x.back(),
            batch.targets, batch.scale, buffers_.grad_x[layout_.num_blocks() % 2], into.head, into.unit[last],
            write, buffers_.ws, result);
  for (int unit = layout_.num_blocks(); unit >= 1; --unit) {
    at::Tensor& grad_y = buffers_.grad_x[unit % 2];
    at::Tensor& grad_x = buffers_.grad_x[(unit - 1) % 2];
    gpt_.backward_input(unit, params_unit_[unit], buffers_.saved[unit - 1], grad_y, buffers_.ws, grad_x);
    gpt_.backward_weights(unit, buffers_.saved[unit - 1], buffers_.ws, into.unit[unit], write);
  }
  const bool onto_head =
      layout_.config().tied && order_.tied_sum == TiedSum::joint;  // the head opened wte's gradient
  gpt_.embed_backward(batch.tokens, buffers_.grad_x[0], into.unit[0], onto_head ? Write::accumulate : write,
                      write);
}

StepResult OneDevice::train_step(std::span<const Batch> micro_batches) {
  for (at::Tensor& sums : rank_sums_) sums.zero_();
  order_.reduce_every == ReduceEvery::step ? sum_of_step(micro_batches) : sum_of_micro_batches(micro_batches);
  if (split_head(context_.shape, order_)) join_tied(gradients_[0]);
  return update();
}

// [anchor: reduce-every-step]
// Each virtual rank accumulates its own run of micro-batches in place; then the ranks are added in rank
// order.
void OneDevice::sum_of_step(std::span<const Batch> micro_batches) {
  const std::size_t per_rank = micro_batches.size() / rank_sums_.size();
  for (std::size_t r = 0; r < rank_sums_.size(); ++r) {
    Gradient& into = r == 0 ? gradients_[0] : gradients_[1];
    for (std::size_t j = 0; j < per_rank; ++j) {
      forward_backward(micro_batches[r * per_rank + j], into, j == 0 ? Write::overwrite : Write::accumulate,
                       rank_sums_[r]);
    }
    if (r > 0) gradients_[0].arena.add_(gradients_[1].arena);
  }
}

// [anchor: reduce-every-micro-batch]
// The ranks' j-th micro-batches are fresh gradients, added in rank order; that sum is then added to the
// step's.
void OneDevice::sum_of_micro_batches(std::span<const Batch> micro_batches) {
  const std::size_t per_rank = micro_batches.size() / rank_sums_.size();
  for (std::size_t j = 0; j < per_rank; ++j) {
    Gradient& over_ranks = j == 0 ? gradients_[0] : gradients_[1];
    for (std::size_t r = 0; r < rank_sums_.size(); ++r) {
      Gradient& into = r == 0 ? over_ranks : gradients_.back();
      forward_backward(micro_batches[r * per_rank + j], into, Write::overwrite, rank_sums_[r]);
      if (r > 0) over_ranks.arena.add_(into.arena);
    }
    if (j > 0) gradients_[0].arena.add_(over_ranks.arena);
  }
}

void OneDevice::join_tied(Gradient& gradient) {
  gpt_.view(0, gradient.unit[0], "wte.weight").add_(gradient.head);
}

// [anchor: update]
// The norm of the whole gradient first: every element is scaled by the same factor, so nothing can be stepped
// before the last square is known.
StepResult OneDevice::update() {
  for (std::size_t r = 0; r < rank_sums_.size(); ++r) {
    std::vector<at::Tensor> slices;
    for (int unit = 0; unit < layout_.num_units(); ++unit) {
      const Range mine = layout_.slice(unit, Segment::sharded, Rank{static_cast<int>(r)});
      slices.push_back(gradients_[0].unit[unit].sharded.narrow(0, mine.begin, mine.size()));
    }
    add_sums_of_squares(slices, rank_sums_[r]);
    finish_sums(rank_sums_[r]);
    if (r > 0) rank_sums_[0].add_(rank_sums_[r]);
  }
  global_norm_and_clip(rank_sums_[0], context_.shape.workload.optim.clip, context_.scalars);
  const bool has_master = context_.shape.workload.precision.has_master();
  for (int unit = 0; unit < layout_.num_units(); ++unit) {
    const UnitLayout& u = layout_.unit(unit);
    at::Tensor momentum = momentum_.narrow(0, u.sharded_begin, u.sharded_size);
    at::Tensor variance = variance_.narrow(0, u.sharded_begin, u.sharded_size);
    adamw_step(hyper_of(context_.shape.workload.optim), context_.scalars,
               layout_.decay_ranges(unit, Segment::sharded, {0, u.sharded_size}),
               gradients_[0].unit[unit].sharded, master_unit_[unit].sharded, momentum, variance,
               has_master ? &params_unit_[unit].sharded : nullptr);
  }
  return {rank_sums_[0], context_.scalars.grad_norm};
}

double OneDevice::evaluate(std::span<const Batch> batches) {
  buffers_.sums.zero_();
  for (const Batch& batch : batches) {
    forward(batch);
    gpt_.head_loss(gpt_.head_matrix(params_unit_[gpt_.head_unit()]), params_unit_[layout_.last_unit()],
                   buffers_.x.back(), batch.targets, buffers_.ws, buffers_.result);
  }
  return mean_loss(buffers_.sums);
}

void OneDevice::visit_state(StateVisitor& visitor) {
  const at::Tensor last_local = buffers_.grad_x[0].view({-1});
  visitor.visit({Purpose::workspace, 0, Segment::sharded, {0, last_local.numel()}, last_local});
  for (int unit = 0; unit < layout_.num_units(); ++unit) {
    const UnitLayout& u = layout_.unit(unit);
    const auto whole = [&](Purpose purpose, const at::Tensor& arena) {
      visitor.visit({purpose,
                     unit,
                     Segment::sharded,
                     {0, u.sharded_size},
                     arena.narrow(0, u.sharded_begin, u.sharded_size)});
    };
    whole(Purpose::parameters, params_);
    if (context_.shape.workload.precision.has_master()) whole(Purpose::master, master_);
    whole(Purpose::momentum, momentum_);
    whole(Purpose::variance, variance_);
    visitor.visit(
        {Purpose::gradients, unit, Segment::sharded, {0, u.sharded_size}, gradients_[0].unit[unit].sharded});
  }
}

}  // namespace sc
