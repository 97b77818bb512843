#include "reference_order.h"

namespace sc {

StepResult ReferenceOrder::train_step(std::span<const Batch> micro_batches) {
  if (order_ == ReduceOrder{}) return OneDevice::train_step(micro_batches);
  if (!parts_.empty()) return step_in_parts(micro_batches);
  for (at::Tensor& sums : rank_sums_) sums.zero_();
  if (context_parts_) {
    sum_of_context(micro_batches);
  } else if (order_.reduce_every == ReduceEvery::step) {
    sum_of_step(micro_batches);
  } else {
    sum_of_micro_batches(micro_batches);
  }
  if (gradients_[0].head_arena.defined()) {
    passes_.gpt().view(0, grads_full_[0], "wte.weight").view({-1}).add_(gradients_[0].head_arena);
  }
  global_norm();
  for (int unit = 0; unit < layout_.num_units(); ++unit) step_unit(unit);
  return {sums_, context_.scalars.grad_norm};
}

StepResult ReferenceOrder::step_in_parts(std::span<const Batch> micro_batches) {
  quiet();
  ranks_.each(sums_.device(),
              [&](int rank) { parts_[static_cast<std::size_t>(rank)].forward_backward(micro_batches); });
  for (std::size_t rank = 1; rank < parts_.size(); ++rank) parts_[0].add(parts_[rank]);
  parts_[0].put_together(grads_full_, sums_);
  for (std::size_t rank = 1; rank < parts_.size(); ++rank) parts_[rank].add_losses(sums_);
  global_norm_and_clip(sums_, context_.shape.workload.optim.clip, context_.scalars);
  for (int unit = 0; unit < layout_.num_units(); ++unit) step_unit(unit);
  return {sums_, context_.scalars.grad_norm};
}

// An evaluation computes with the parameters that the last step, or a file, has left.
void ReferenceOrder::quiet() {
  for (TensorOrder& parts : parts_) parts.cut(params_full_);
}

void ReferenceOrder::forward_loss(const Batch& batch, at::Tensor& sums) {
  if (context_parts_) {
    for (at::Tensor& of_rank : rank_sums_) of_rank.zero_();
    context_parts_->forward_loss(batch, params_full_, rank_sums_);
    for (const at::Tensor& of_rank : rank_sums_) sums.add_(of_rank);
    return;
  }
  if (parts_.empty()) return OneDevice::forward_loss(batch, sums);
  ranks_.each(sums.device(), [&](int rank) { parts_[static_cast<std::size_t>(rank)].forward_loss(batch); });
  for (TensorOrder& parts : parts_) parts.add_losses(sums);
}

// OneDevice's loop over units, with the gradient that it writes to as an argument.
void ReferenceOrder::forward_backward(const Batch& batch, Gradient& into, Write write, at::Tensor& sums) {
  forward(batch);
  passes_.head(batch, params_full_, into.head, write, sums);
  for (int unit = layout_.num_blocks(); unit >= 1; --unit) {
    passes_.backward_input(unit, params_full_[unit]);
    passes_.backward_weights(unit, into.unit[unit], write);
  }
  if (into.head_arena.defined()) {
    passes_.embed_backward_alone(batch, into.unit[0], write);
  } else {
    passes_.embed_backward(batch, into.unit[0], write);
  }
}

void ReferenceOrder::Gradient::add(const Gradient& other, Write write) {
  const auto join = [write](const at::Tensor& mine, const at::Tensor& its) {
    write == Write::overwrite ? mine.copy_(its) : mine.add_(its);
  };
  join(arena, other.arena);
  if (head_arena.defined()) join(head_arena, other.head_arena);
}

// [anchor: reduce-every-step]
// Each virtual rank accumulates its own run of micro-batches in place; then the ranks are added in rank
// order.
void ReferenceOrder::sum_of_step(std::span<const Batch> micro_batches) {
  const std::size_t per_rank = micro_batches.size() / rank_sums_.size();
  for (std::size_t r = 0; r < rank_sums_.size(); ++r) {
    Gradient& into = r == 0 ? gradients_[0] : gradients_[1];
    for (std::size_t j = 0; j < per_rank; ++j) {
      forward_backward(micro_batches[r * per_rank + j], into, j == 0 ? Write::overwrite : Write::accumulate,
                       rank_sums_[r]);
    }
    if (r > 0) gradients_[0].add(into);
  }
}

// [anchor: reduce-every-micro-batch]
// The ranks' j-th micro-batches are fresh gradients, added in rank order; that sum is then added to the
// step's. If there are groups, each does so with its own ranks, and the groups' sums are added in order.
void ReferenceOrder::sum_of_micro_batches(std::span<const Batch> micro_batches) {
  const std::size_t per_rank = micro_batches.size() / rank_sums_.size(),
                    ranks = static_cast<std::size_t>(to_int(ranks_of(order_)));  // of a group
  for (std::size_t first = 0; first < rank_sums_.size(); first += ranks) {
    Gradient& of_group = first == 0 ? gradients_[0] : gradients_[2];
    for (std::size_t j = 0; j < per_rank; ++j) {
      Gradient& over_ranks = j == 0 ? of_group : gradients_[1];
      for (std::size_t r = first; r < first + ranks; ++r) {
        Gradient& into = r == first ? over_ranks : gradients_.back();
        forward_backward(micro_batches[r * per_rank + j], into, Write::overwrite, rank_sums_[r]);
        if (r > first) over_ranks.add(into);
      }
      if (j > 0) of_group.add(over_ranks);
    }
    if (first > 0) gradients_[0].add(of_group);
  }
}

// Each context rank of each virtual rank accumulates a gradient of its own; then all are added in rank order.
void ReferenceOrder::sum_of_context(std::span<const Batch> micro_batches) {
  const std::size_t per_rank = micro_batches.size() / static_cast<std::size_t>(order_.virtual_ranks),
                    ranks = gradients_.size() - 1;
  for (std::size_t first = 0; first < rank_sums_.size(); first += ranks) {
    std::vector<ContextOrder::Into> into;
    for (std::size_t i = 0; i < ranks; ++i)
      into.push_back({gradients_[1 + i].unit, gradients_[1 + i].head, rank_sums_[first + i]});
    for (std::size_t j = 0; j < per_rank; ++j)
      context_parts_->forward_backward(micro_batches[first / ranks * per_rank + j], params_full_, into,
                                       j == 0 ? Write::overwrite : Write::accumulate,
                                       gradients_[0].head_arena.defined());
    for (std::size_t i = 0; i < ranks; ++i)
      gradients_[0].add(gradients_[1 + i], first + i == 0 ? Write::overwrite : Write::accumulate);
  }
}

// Every virtual rank squares its own slices, as real ones do. Groups have the same slices, so only the first
// counts.
void ReferenceOrder::global_norm() {
  sums_.zero_();
  for (std::size_t r = 0; r < rank_sums_.size(); ++r) {
    std::vector<at::Tensor> mine;
    const bool squares = r < static_cast<std::size_t>(to_int(ranks_of(order_)));
    for (int unit = 0; squares && unit < layout_.num_units(); ++unit) {
      mine.push_back(
          slice_of_rank(layout_, unit, Rank{static_cast<int>(r)}).of_unit(grads_full_[unit].sharded));
    }
    add_sums_of_squares(mine, rank_sums_[r]);
    finish_sums(rank_sums_[r]);
    sums_.add_(rank_sums_[r]);
  }
  global_norm_and_clip(sums_, context_.shape.workload.optim.clip, context_.scalars);
}

}  // namespace sc
