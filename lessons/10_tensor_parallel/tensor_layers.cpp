#include "tensor_layers.h"

#include <algorithm>
#include <string>

#include "common/strategy/owned_slice.h"

namespace sc {
namespace {

constexpr Half kForward[] = {Half::attention, Half::mlp}, kBackward[] = {Half::mlp, Half::attention};

// "forward of block 7's attention", for whoever says where a rank hangs.
std::string in_words(int unit, Half half, const char* pass) {
  return std::string(pass) + " of block " + std::to_string(unit) + "'s " +
         (half == Half::attention ? "attention" : "MLP");
}

}  // namespace

TensorLayers::TensorLayers(const RunContext& context, Communicator& group, const ParamLayout& layout,
                           const PartSizes& sizes, const How& how)
    : timeline_(context.timeline),
      group_(group),
      parts_(shape_of(context.shape), layout, sizes),
      kept_(how.kept || !sizes.split()),
      activations_(context.shape.workload.activations) {
  // What the others read from or write to lies where they reach it.
  const auto shared = [&](Purpose purpose, const char* name, Elements elements) {
    return zeros_in_window(context, group, purpose, name, elements, context.shape.workload.precision.dtype,
                           WindowUse::sums);
  };
  for (std::int64_t i = 0; i < how.lanes; ++i)
    lanes_.push_back({PartBuffers(shape_of(context.shape), sizes, how.kept, context.ledger, shared)});
  sums_ = context.ledger.zeros(Purpose::workspace, "sums", {4}, DType::f64);
}

void TensorLayers::use(std::span<const UnitTensors> params, std::span<const UnitTensors> grads) {
  params_ = params, grads_ = grads;
}

// [anchor: gather-tokens]
// Every rank's tokens to all; where each has all of them (tokens=whole), nothing travels.
Ticket TensorLayers::gather(GatheredRows& rows, const What& what) {
  return parts_.sizes().split() ? group_.all_gather(rows.own, rows.all, what) : Ticket();
}

// [anchor: sum-to-my-tokens]
// Every rank has a summand of every token; of the sum each needs its own tokens, or all (tokens=whole).
void TensorLayers::sum_partial(Lane& lane, const What& what) {
  PartBuffers& b = lane.buffers;
  lane.sum = parts_.sizes().split() ? group_.reduce_scatter(b.partial, b.sum, what)
                                    : group_.all_reduce(b.partial, what);
}

void TensorLayers::gather_norm(Lane& lane, int unit, Half half) {
  lane.norms = gather(saved(lane, unit).norm(half).rows, {OpPurpose::activations, unit});
}
void TensorLayers::gather_gradient(Lane& lane, int unit) {
  lane.gradient = gather(lane.gradient_rows(), {OpPurpose::activation_gradients, unit});
}

PartSaved& TensorLayers::saved(Lane& lane, int unit) {
  const auto block = static_cast<std::size_t>(unit - 1);
  PartBuffers& b = lane.buffers;
  PartSaved& s = activations_ == Activations::recompute ? b.recomputed : b.saved[block];
  s.x = b.x[block];
  return s;
}
at::Tensor& TensorLayers::gelu(Lane& lane, int unit) {
  return activations_ == Activations::recompute_gelu ? lane.buffers.recomputed.gelu : saved(lane, unit).gelu;
}

// --- forward -----------------------------------------------------------------------------------------------------------

void TensorLayers::embed(std::span<const Batch> batches) {
  active_ = std::span(lanes_).first(batches.size());
  for (std::size_t i = 0; i < batches.size(); ++i) {
    active_[i].batch = &batches[i];
    timeline_.begin_micro_batch();
  }
  const auto mark = timeline_.mark(Pass::forward, 0);
  timeline_.comes_to("forward of the embedding");
  for (Lane& lane : active_) {
    parts_.embed(params_[0], lane.batch->tokens, lane.buffers.partial);
    sum_partial(lane, {OpPurpose::activations, 0});
  }
  advance(active_.front(), 1, Half::attention);
}

// [anchor: two-halves]
// Attention and MLP have one form. What is cut meets what is whole in two places only: before the first matrix and behind the
// second. A second micro-batch is half a step behind: one's messages travel behind the other's products.
void TensorLayers::forward_block(int unit) {
  const auto mark = timeline_.mark(Pass::forward, unit);
  Lane &one = active_.front(), &other = active_.back();
  const bool two = active_.size() > 1;
  for (const Half half : kForward) {
    timeline_.comes_to(in_words(unit, half, "forward"));
    first(one, unit, half);
    if (two) advance(other, unit, half);
    second(one, unit, half);
    if (two) first(other, unit, half);
    if (half == Half::attention) advance(one, unit, Half::mlp);
    if (half == Half::mlp) advance(one, unit + 1, Half::attention);
    if (two) second(other, unit, half);
  }
}

// What my heads read, or my columns of the MLP; then my summand.
void TensorLayers::first(Lane& lane, int unit, Half half) {
  lane.norms.wait();
  parts_.first_product(unit, half, params_[unit], saved(lane, unit).norm(half).rows.all, saved(lane, unit),
                       gelu(lane, unit));
}
void TensorLayers::second(Lane& lane, int unit, Half half) {
  parts_.second_product(unit, half, params_[unit], saved(lane, unit), gelu(lane, unit), lane.buffers.partial);
  sum_partial(lane, {OpPurpose::activations, unit});
}

// To the beginning of a half, or of the head: what came before it is complete, and its norm is on its way to all.
void TensorLayers::advance(Lane& lane, int unit, Half half) {
  PartBuffers& b = lane.buffers;
  lane.sum.wait();
  if (unit == parts_.layout().last_unit()) {
    complete_block(lane, unit - 1, b.head);
    lane.norms = gather(b.head.rows, {OpPurpose::activations, unit});
    return;
  }
  PartSaved& s = saved(lane, unit);
  if (half == Half::mlp) {
    parts_.add_norm(unit, Half::attention, params_, s.x, b.sum, s.mid, s.norm(half));
  } else if (unit > 1) {
    complete_block(lane, unit - 1, s.norm(half));
  } else {
    parts_.positions(params_[0], b.sum, b.x[0]);
    parts_.norm(unit, half, params_[unit], s);
  }
  gather_norm(lane, unit, half);
}

void TensorLayers::complete_block(Lane& lane, int unit, PartNorm& norm_behind) {
  PartBuffers& b = lane.buffers;
  parts_.add_norm(unit, Half::mlp, params_, saved(lane, unit).mid, b.sum, b.x[static_cast<std::size_t>(unit)],
                  norm_behind);
}

// --- head --------------------------------------------------------------------------------------------------------------

// [anchor: logits-are-never-gathered]
// A row's softmax needs its largest logit and the sum of all exponentials: two numbers of each rank, instead of all logits.
at::Tensor TensorLayers::statistics(Lane& lane, Range rows) {
  PartBuffers& b = lane.buffers;
  const std::int64_t size = rows.size(), ranks = parts_.sizes().ranks;
  at::Tensor logits = b.logits.narrow(0, 0, size), mine = b.statistics.narrow(0, 0, size),
             all = b.of_all.view({-1}).narrow(0, 0, 2 * ranks * size);
  const at::Tensor head = parts_.head_matrix(params_[parts_.head_unit()]);
  parts_.logits(head, b.head.rows.all.narrow(0, rows.begin, size), logits, mine);
  group_.all_gather(mine, all, {OpPurpose::sums, parts_.layout().last_unit()}).wait();
  return all.view({ranks, size, 2});
}

// scale undefined: the loss alone.
void TensorLayers::head_chunks(Lane& lane, const at::Tensor& scale, Write write, at::Tensor& sums) {
  const PartSizes& s = parts_.sizes();
  PartBuffers& b = lane.buffers;
  HeadResult result{sums.select(0, kLossSum), sums.select(0, kTokens)};
  lane.norms.wait();
  for (std::int64_t begin = 0; begin < s.N; begin += s.chunk) {
    const std::int64_t size = std::min(s.chunk, s.N - begin);
    const at::Tensor of_ranks = statistics(lane, {begin, begin + size});
    at::Tensor logits = b.logits.narrow(0, 0, size), partial = b.partial.narrow(0, begin, size);
    parts_.loss(logits, lane.batch->targets.view({-1}).narrow(0, begin, size), of_ranks, scale, result);
    if (!scale.defined()) continue;
    at::Tensor grad_head = parts_.head_matrix(grads_[parts_.head_unit()]);
    parts_.head_products(parts_.head_matrix(params_[parts_.head_unit()]), logits,
                         b.head.rows.all.narrow(0, begin, size), grad_head,
                         begin == 0 ? write : Write::accumulate, partial);
  }
}

void TensorLayers::head(Write write, at::Tensor& sums) {
  const int last = parts_.layout().last_unit();
  const auto mark = timeline_.mark(Pass::head, last);
  timeline_.comes_to("the head");
  if (active_.size() > 1) advance(active_.back(), last, Half::attention);
  for (Lane& lane : active_) {
    head_chunks(lane, lane.batch->scale, write_of(lane, write), sums);
    sum_partial(lane, {OpPurpose::activation_gradients, last});
  }
  for (Lane& lane : active_) {
    PartBuffers& b = lane.buffers;
    lane.sum.wait();
    lane.newest = 0;
    parts_.head_norm_backward(params_.back(), b.x.back(), b.sum, grads_.back(), write_of(lane, write), b,
                              b.gradients[0].own);
    gather_gradient(lane, last);
  }
}

void TensorLayers::head_loss(at::Tensor& sums) {
  const int last = parts_.layout().last_unit();
  const auto mark = timeline_.mark(Pass::head, last);
  if (active_.size() > 1) advance(active_.back(), last, Half::attention);
  for (Lane& lane : active_) head_chunks(lane, /*scale=*/{}, Write::overwrite, sums);
}

// --- backward ----------------------------------------------------------------------------------------------------------

// [anchor: behind-the-weights]
// Nobody waits for a gradient of weights, so messages travel behind their products: the sum behind the second matrix's, the
// next half's gradient behind the first one's. A second micro-batch's products hide more of them.
void TensorLayers::backward_block(int unit, Write write) {
  const auto mark = timeline_.mark(Pass::backward, unit);
  for (Lane& lane : active_) recompute(lane, unit);
  for (const Half half : kBackward) {
    timeline_.comes_to(in_words(unit, half, "backward"));
    for (Lane& lane : active_) backward_to_norm(lane, unit, half);
    for (Lane& lane : active_) {
      parts_.second_weights(unit, half, saved(lane, unit), gelu(lane, unit), lane.gradient_rows().all,
                            grads_[unit], write_of(lane, write));
      backward_of_norm(lane, unit, half);
    }
    for (Lane& lane : active_) {
      lane.norms.wait();
      parts_.first_weights(unit, half, saved(lane, unit).norm(half).rows.all, lane.buffers.grads,
                           grads_[unit], write_of(lane, write));
    }
  }
  for (Lane& lane : active_) parts_.vectors(unit, lane.buffers.grads, grads_[unit], write_of(lane, write));
}

// Of all tokens: forward has kept them, or its second time has just gathered them.
bool TensorLayers::has_norms(Half half) const {
  return kept_ || (activations_ == Activations::recompute && half == Half::mlp);
}

void TensorLayers::backward_to_norm(Lane& lane, int unit, Half half) {
  PartBuffers& b = lane.buffers;
  if (!has_norms(half)) {
    parts_.norm(unit, half, params_[unit], saved(lane, unit));  // again
    gather_norm(lane, unit, half);
  }
  lane.gradient.wait();  // issued one half ago
  parts_.backward_to_norm(unit, half, params_[unit], saved(lane, unit), lane.gradient_rows().all, b.grads,
                          b.partial);
  sum_partial(lane, {OpPurpose::activation_gradients, unit});
}

void TensorLayers::backward_of_norm(Lane& lane, int unit, Half half) {
  PartBuffers& b = lane.buffers;
  lane.sum.wait();
  const at::Tensor& grad_y = lane.gradient_rows().own;
  lane.newest = 1 - lane.newest;
  parts_.norm_backward(unit, half, params_[unit], saved(lane, unit), b.sum, grad_y, b.grads,
                       lane.gradient_rows().own);
  gather_gradient(lane, unit);
}

// What forward did not keep: its products again, with their messages.
void TensorLayers::recompute(Lane& lane, int unit) {
  if (activations_ == Activations::recompute_gelu) parts_.gelu_again(saved(lane, unit), gelu(lane, unit));
  if (activations_ != Activations::recompute) return;
  parts_.norm(unit, Half::attention, params_[unit], saved(lane, unit));
  gather_norm(lane, unit, Half::attention);
  first(lane, unit, Half::attention);
  second(lane, unit, Half::attention);
  advance(lane, unit, Half::mlp);
  first(lane, unit, Half::mlp);  // what follows is the block's output, which nobody needs
}

void TensorLayers::embed_backward(Write write) {
  const auto mark = timeline_.mark(Pass::embed_backward, 0);
  timeline_.comes_to("backward of the embedding");
  for (Lane& lane : active_) {
    lane.gradient.wait();
    const Write wte = parts_.layout().config().tied ? Write::accumulate : write_of(lane, write);
    parts_.embed_backward(lane.batch->tokens, lane.gradient_rows().all, grads_[0], wte);
    parts_.positions_backward(lane.gradient_rows().own, grads_[0], write_of(lane, write));
  }
}

Write TensorLayers::write_of(const Lane& lane, Write write) const {
  return &lane == &active_.front() ? write : Write::accumulate;
}

StateSlice TensorLayers::last_local() const {
  const Lane& lane = active_.empty() ? lanes_.front() : active_.back();
  const at::Tensor values = lane.buffers.gradients[lane.newest].own.view({-1});
  return {Purpose::workspace, 0, Segment::sharded, {0, values.numel()}, in_tensor(values)};
}

}  // namespace sc
