#include "tensor_lane.h"

#include <algorithm>

namespace sc {

TensorLane::TensorLane(const GptParts& parts, Communicator& group, Activations activations, bool kept,
                       Workspace work)
    : parts_(&parts),
      group_(&group),
      activations_(activations),
      kept_(kept || !parts.sizes().split()),
      work_(std::move(work)) {}

// [anchor: gather-tokens]
// All-gather: every rank's tokens go to all. With tokens=whole each has all of them, and nothing travels.
Ticket TensorLane::gather(GatheredRows& rows, const What& what) {
  return parts_->sizes().split() ? group_->all_gather(rows.own, rows.all, what) : Ticket();
}

// [anchor: sum-to-my-tokens]
// Every rank has a summand of every token, and needs the sum of its own tokens, or with tokens=whole of all.
void TensorLane::sum_partial(const What& what) {
  sum_ = parts_->sizes().split() ? group_->reduce_scatter(work_.partial, work_.sum, what)
                                 : group_->all_reduce(work_.partial, what);
}

void TensorLane::gather_norm(int unit, Half half) {
  norms_ = gather(saved(unit).norm(half).rows, {OpPurpose::activations, unit});
}
void TensorLane::gather_gradient(int unit) {
  gradient_ = gather(work_.gradients[newest_], {OpPurpose::activation_gradients, unit});
}

BlockSaved& TensorLane::saved(int unit) {
  BlockSaved& s = activations_ == Activations::recompute ? work_.recomputed
                                                         : of_->saved[static_cast<std::size_t>(unit - base_)];
  s.x = x(unit - 1);
  return s;
}
at::Tensor& TensorLane::gelu(int unit) {
  return activations_ == Activations::recompute_gelu ? work_.recomputed.gelu : saved(unit).gelu;
}

// --- forward -----------------------------------------------------------------------------------------------

void TensorLane::embed(const at::Tensor& tokens) {
  parts_->embed(params_[0], tokens, work_.partial);
  sum_partial({OpPurpose::activations, 0});
}

void TensorLane::end_embedding() {
  sum_.wait();
  parts_->positions(params_[0], work_.sum, x(0));
  enter(first_);
}

void TensorLane::enter(int unit) {
  parts_->norm(unit, Half::attention, params_[unit], saved(unit));
  gather_norm(unit, Half::attention);
}

void TensorLane::first_product(int unit, Half half) {
  norms_.wait();
  parts_->first_product(unit, half, params_[unit], saved(unit).norm(half).rows.all, saved(unit), gelu(unit));
}
void TensorLane::second_product(int unit, Half half) {
  parts_->second_product(unit, half, params_[unit], saved(unit), gelu(unit), work_.partial);
  sum_partial({OpPurpose::activations, unit});
}

void TensorLane::end_attention(int unit) {
  sum_.wait();
  BlockSaved& s = saved(unit);
  parts_->add_norm(unit, Half::attention, params_, s.x, work_.sum, s.mid, &s.norm(Half::mlp));
  gather_norm(unit, Half::mlp);
}

void TensorLane::end_block(int unit) {
  const int next = unit + 1;
  BlockNorm& norm = next == parts_->layout().last_unit() ? work_.head : saved(next).norm(Half::attention);
  add_mlp(unit, &norm);
  norms_ = gather(norm.rows, {OpPurpose::activations, next});
}

void TensorLane::add_mlp(int unit, BlockNorm* norm_behind) {
  sum_.wait();
  parts_->add_norm(unit, Half::mlp, params_, saved(unit).mid, work_.sum, x(unit), norm_behind);
}

// --- head --------------------------------------------------------------------------------------------------

void TensorLane::enter_head() {
  parts_->head_norm(params_.back(), of_->x.back(), work_);
  norms_ = gather(work_.head.rows, {OpPurpose::activations, parts_->layout().last_unit()});
}

// [anchor: logits-are-never-gathered]
// A row's softmax needs its largest logit and the sum of all exponentials: each rank sends two numbers
// instead of all its logits.
at::Tensor TensorLane::statistics(Range rows) {
  const std::int64_t size = rows.size(), ranks = parts_->sizes().ranks;
  at::Tensor logits = work_.logits.narrow(0, 0, size), mine = work_.statistics.narrow(0, 0, size),
             all = work_.of_all.view({-1}).narrow(0, 0, 2 * ranks * size);
  const at::Tensor head = parts_->head_matrix(params_[parts_->head_unit()]);
  parts_->logits(head, work_.head.rows.all.narrow(0, rows.begin, size), logits, mine);
  group_->all_gather(mine, all, {OpPurpose::sums, parts_->layout().last_unit()}).wait();
  return all.view({ranks, size, 2});
}

// Logits exist for one chunk of tokens at a time, which takes less memory than those of all tokens.
void TensorLane::head(const at::Tensor& targets, const at::Tensor& scale, Write write, at::Tensor& sums) {
  const PartSizes& s = parts_->sizes();
  HeadResult result{sums.select(0, kLossSum), sums.select(0, kTokens)};
  norms_.wait();
  for (std::int64_t begin = 0; begin < s.N; begin += s.chunk) {
    const std::int64_t size = std::min(s.chunk, s.N - begin);
    const at::Tensor of_ranks = statistics({begin, begin + size});
    at::Tensor logits = work_.logits.narrow(0, 0, size), partial = work_.partial.narrow(0, begin, size);
    parts_->loss(logits, targets.view({-1}).narrow(0, begin, size), of_ranks, scale, result);
    if (!scale.defined()) continue;
    at::Tensor grad_head = parts_->head_matrix(grads_[parts_->head_unit()]);
    parts_->head_products(parts_->head_matrix(params_[parts_->head_unit()]), logits,
                          work_.head.rows.all.narrow(0, begin, size), grad_head,
                          begin == 0 ? write : Write::accumulate, partial);
  }
  if (scale.defined()) sum_partial({OpPurpose::activation_gradients, parts_->layout().last_unit()});
}

void TensorLane::head_backward(Write write) {
  sum_.wait();
  newest_ = 0;
  parts_->head_norm_backward(params_.back(), of_->x.back(), work_.sum, grads_.back(), write, work_,
                             work_.gradients[0].own);
  gather_gradient(parts_->layout().last_unit());
}

// --- backward ----------------------------------------------------------------------------------------------

void TensorLane::take_gradient(const at::Tensor& rows, int unit) {
  newest_ = 0;
  work_.gradients[0].own.copy_(rows);
  gather_gradient(unit);
}

void TensorLane::backward_to_norm(int unit, Half half) {
  // Norms of all tokens are gathered again, unless forward has kept or recompute() has just gathered them.
  if (!kept_ && !(activations_ == Activations::recompute && half == Half::mlp)) {
    parts_->norm(unit, half, params_[unit], saved(unit));
    gather_norm(unit, half);
  }
  gradient_.wait();  // it has been on its way since the half before
  parts_->backward_to_norm(unit, half, params_[unit], saved(unit), work_.gradients[newest_].all, work_.grads,
                           work_.partial);
  sum_partial({OpPurpose::activation_gradients, unit});
}

void TensorLane::second_weights(int unit, Half half, Write write) {
  parts_->second_weights(unit, half, saved(unit), gelu(unit), work_.gradients[newest_].all, grads_[unit],
                         write);
}

void TensorLane::backward_of_norm(int unit, Half half, at::Tensor* out) {
  sum_.wait();
  const at::Tensor& grad_y = work_.gradients[newest_].own;
  newest_ = 1 - newest_;
  at::Tensor& goes_to = out != nullptr ? *out : work_.gradients[newest_].own;
  parts_->norm_backward(unit, half, params_[unit], saved(unit), work_.sum, grad_y, work_.grads, goes_to);
  if (out == nullptr) gather_gradient(unit);
}

void TensorLane::first_weights(int unit, Half half, Write write) {
  norms_.wait();
  parts_->first_weights(unit, half, saved(unit).norm(half).rows.all, work_.grads, grads_[unit], write);
}

void TensorLane::recompute(int unit) {
  if (activations_ == Activations::recompute_gelu) parts_->gelu_again(saved(unit), gelu(unit));
  if (activations_ != Activations::recompute) return;
  enter(unit);
  first_product(unit, Half::attention);
  second_product(unit, Half::attention);
  end_attention(unit);
  first_product(unit, Half::mlp);  // the second product would make the block's output, which nobody needs
}

void TensorLane::embed_backward(const at::Tensor& tokens, Write wte, Write wpe) {
  gradient_.wait();
  parts_->embed_backward(tokens, work_.gradients[newest_].all, grads_[0], wte);
  parts_->positions_backward(work_.gradients[newest_].own, grads_[0], wpe);
}

}  // namespace sc
