#include "stage.h"

#include <algorithm>

namespace sc {

void Stage::forward(int position, const Batch& batch, const Slot& slot) {
  const Part& part = share_.part(position);
  ActivationSet& set = buffers_.sets[static_cast<std::size_t>(slot.set)];
  const int skipped = share_.most_blocks - part.blocks;
  at::Tensor* x = &input(slot);
  if (share_.embeds(position)) gpt_.embed(params(slot)[0], batch.tokens, *x);
  for (int unit = part.first; unit <= part.last(); ++unit) {
    const auto i = static_cast<std::size_t>(skipped + unit - part.first);
    gpt_.forward_block(unit, params(slot)[unit], *x, set.saved[i], buffers_.ws, set.x[i]);
    x = &set.x[i];
  }
}

// [anchor: last-stage-begins-backward]
// The head is the beginning of backward, not the end of forward: logits exist for one chunk of tokens only.
at::Tensor& Stage::grad_of_output(int position, const Batch& batch, const Slot& slot, Write write,
                                  at::Tensor& sums) {
  if (!share_.has_head(position)) return grad(slot.grad_in);
  at::Tensor& made = slab(slot.pending < 0 ? 0 : share_.pending_slab(slot.pending, 0));
  const auto head = static_cast<std::size_t>(gpt_.head_unit());
  at::Tensor grad_head = gpt_.head_matrix(grads_[head]);
  HeadResult result{sums.select(0, kLossSum), sums.select(0, kTokens)};
  gpt_.head(gpt_.head_matrix(params(slot)[head]), params(slot).back(), output(slot.set), batch.targets,
            batch.scale, made, grad_head, grads_.back(), write, buffers_.ws, result);
  return made;
}

void Stage::backward(int position, const Batch& batch, const Slot& slot, Write write, at::Tensor& sums,
                     const std::function<void(int unit)>& done, const std::function<void()>& before_output) {
  const Part& part = share_.part(position);
  ActivationSet& set = buffers_.sets[static_cast<std::size_t>(slot.set)];
  const int skipped = share_.most_blocks - part.blocks;
  at::Tensor* grad_y = &grad_of_output(position, batch, slot, write, sums);
  if (share_.has_head(position)) done(share_.layout.last_unit());
  for (int unit = part.last(); unit >= part.first; --unit) {
    const int nth = part.last() - unit;  // backward's order
    BlockSaved& saved = set.saved[static_cast<std::size_t>(skipped + unit - part.first)];
    at::Tensor& grad_x = unit == part.first && slot.grad_out >= 0 ? grad(slot.grad_out)
                         : unit > part.first && slot.pending >= 0
                             ? slab(share_.pending_slab(slot.pending, nth + 1))
                         : grad_y == &slab(0) ? slab(1)
                                              : slab(0);
    BlockGrads& left =
        slot.pending < 0
            ? buffers_.ws.grads
            : buffers_.pending[static_cast<std::size_t>(slot.pending * share_.most_blocks + nth)];
    if (unit == part.first) before_output();
    gpt_.backward_input(unit, params(slot)[unit], saved, *grad_y, buffers_.ws, left, grad_x);
    if (slot.pending < 0) {
      gpt_.backward_weights(unit, saved, buffers_.ws, left, grads_[unit], write);
      done(unit);
    }
    grad_y = &grad_x;
  }
  last_grad_ = *grad_y;
  if (!share_.embeds(position)) return;
  // The head's part of wte's gradient is on the last stage; with one stage it is here already.
  const bool joint = share_.first && share_.last && share_.layout.config().tied;
  gpt_.embed_backward(batch.tokens, *grad_y, grads_[0], joint ? Write::accumulate : write, write);
  done(0);
}

void Stage::backward_weights(int position, const Slot& slot, Write write,
                             const std::function<void(int unit)>& done) {
  const Part& part = share_.part(position);
  ActivationSet& set = buffers_.sets[static_cast<std::size_t>(slot.set)];
  for (int unit = part.last(); unit >= part.first; --unit) {
    const int nth = part.last() - unit;
    BlockSaved& saved =
        set.saved[static_cast<std::size_t>(share_.most_blocks - part.blocks + unit - part.first)];
    gpt_.recompute(unit, params(slot)[unit], saved, buffers_.ws);
    gpt_.backward_weights(unit, saved, buffers_.ws,
                          buffers_.pending[static_cast<std::size_t>(slot.pending * share_.most_blocks + nth)],
                          grads_[unit], write);
    done(unit);
  }
}

void Stage::head_loss(const Batch& batch, const Slot& slot, at::Tensor& sums) {
  HeadResult result{sums.select(0, kLossSum), sums.select(0, kTokens)};
  gpt_.head_loss(gpt_.head_matrix(params(slot)[static_cast<std::size_t>(gpt_.head_unit())]),
                 params(slot).back(), output(slot.set), batch.targets, buffers_.ws, result);
}

at::Tensor& Stage::input(const Slot& slot) {
  if (slot.from_set < 0) return buffers_.inputs[static_cast<std::size_t>(slot.input)];
  return buffers_.sets[static_cast<std::size_t>(slot.from_set)].x.back();
}

// A chunk that has fewer blocks than the largest leaves the first of a set's buffers unused, so that the last
// one is always its output.
at::Tensor& Stage::output(int set) { return buffers_.sets[static_cast<std::size_t>(set)].x.back(); }

void Stage::move_newest(int to) {
  if (to == newest_) return;
  if (!has_master_)
    versions_[static_cast<std::size_t>(to)].copy_(versions_[static_cast<std::size_t>(newest_)]);
  newest_ = to;
  for (Held& held : held_) {
    hold_params(held, to);
    if (!has_master_) held.own.master = held.own.params;
  }
}

std::vector<OwnedSlice> Stage::slices() const {
  std::vector<OwnedSlice> slices;
  for (const Held& held : held_) slices.push_back(held.own);
  return slices;
}

std::vector<std::pair<int, at::Tensor>> Stage::params_in(int buffer) const {
  std::vector<std::pair<int, at::Tensor>> units;
  for (const Held& held : held_) {
    const auto unit = static_cast<std::size_t>(held.unit);
    units.emplace_back(held.unit, params_[static_cast<std::size_t>(buffer)][unit].sharded);
  }
  return units;
}

at::Tensor Stage::tied_grad() const {
  for (const Held& held : held_) {
    if (held.unit != 0) continue;
    const std::int64_t end = std::min(held.own.range.end, share_.tied);
    if (end > held.own.range.begin) return held.own.grads.narrow(0, 0, end - held.own.range.begin);
  }
  return {};
}

StateSlice Stage::last_local() const {
  const int unit = share_.part(share_.stage).first - 1;  // a step's last backward is of the first chunk
  const at::Tensor values = last_grad_.view({-1});
  return {Purpose::workspace, unit, Segment::sharded, {0, values.numel()}, in_tensor(values)};
}

}  // namespace sc
