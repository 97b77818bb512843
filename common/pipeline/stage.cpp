#include "common/pipeline/stage.h"

#include <algorithm>

namespace sc {
namespace {

HeadResult result_in(const at::Tensor& sums) { return {sums.select(0, kLossSum), sums.select(0, kTokens)}; }

}  // namespace

void Stage::forward(int position, const at::Tensor& tokens, const Slot& slot) {
  const Part& part = share_.part(position);
  at::Tensor* x = &input(slot);
  if (share_.embeds(position)) gpt_.embed(params()[0], tokens, *x);
  for (int unit = part.first; unit <= part.last(); ++unit) {
    at::Tensor& y = set(slot).x[static_cast<std::size_t>(share_.most_blocks - 1 - (part.last() - unit))];
    gpt_.forward_block(unit, params()[unit], *x, saved(unit, slot), buffers_.ws, y);
    x = &y;
  }
}

// [anchor: last-stage-begins-backward]
// The head is the beginning of backward, not the end of forward: logits exist for one chunk of tokens only.
void Stage::head(const at::Tensor& targets, const at::Tensor& scale, const Slot& slot, Write write,
                 at::Tensor& sums) {
  const auto unit = static_cast<std::size_t>(gpt_.head_unit());
  at::Tensor grad_head = gpt_.head_matrix(grads_[unit]);
  HeadResult result = result_in(sums);
  gpt_.head(gpt_.head_matrix(params()[unit]), params().back(), output(slot), targets, scale,
            grad_of_output(share_.layout.num_blocks(), slot), grad_head, grads_.back(), write, buffers_.ws,
            result);
}

void Stage::backward(int unit, const Slot& slot, Write write, Halves halves) {
  BlockSaved& kept = saved(unit, slot);
  const int nth = share_.part_of(unit).last() - unit;
  BlockGrads& left =
      slot.pending < 0 ? buffers_.ws.grads
                       : buffers_.pending[static_cast<std::size_t>(slot.pending * share_.most_blocks + nth)];
  if (halves.inputs) {
    last_grad_ = grad_of_input(unit, slot);
    gpt_.backward_input(unit, params()[unit], kept, grad_of_output(unit, slot), buffers_.ws, left,
                        last_grad_);
  } else {
    gpt_.recompute(unit, params()[unit], kept, buffers_.ws);
  }
  if (halves.weights) gpt_.backward_weights(unit, kept, buffers_.ws, left, grads_[unit], write);
}

void Stage::embed_backward(const at::Tensor& tokens, const Slot& slot, Write write) {
  // The head's part of wte's gradient is on the last stage; with one stage it is here already.
  const bool joint = share_.first && share_.last && share_.layout.config().tied;
  gpt_.embed_backward(tokens, grad_of_input(1, slot), grads_[0], joint ? Write::accumulate : write, write);
}

void Stage::head_loss(const at::Tensor& targets, const Slot& slot, at::Tensor& sums) {
  HeadResult result = result_in(sums);
  gpt_.head_loss(gpt_.head_matrix(params()[static_cast<std::size_t>(gpt_.head_unit())]), params().back(),
                 output(slot), targets, buffers_.ws, result);
}

at::Tensor& Stage::input(const Slot& slot) {
  if (slot.from_set < 0) return buffers_.inputs[static_cast<std::size_t>(slot.input)];
  return buffers_.sets[static_cast<std::size_t>(slot.from_set)].x.back();
}

// A chunk that has fewer blocks than the largest leaves the first of a set's buffers unused, so that the last
// one is always its output.
BlockSaved& Stage::saved(int unit, const Slot& slot) {
  return set(slot)
      .saved[static_cast<std::size_t>(share_.most_blocks - 1 - (share_.part_of(unit).last() - unit))];
}

// What the next stage has sent, or the head or the block above has left: in two buffers in turn, or where it
// stays for the weights' half.
at::Tensor& Stage::grad_of_output(int unit, const Slot& slot) {
  const int nth = share_.part_of(unit).last() - unit;
  if (nth == 0 && slot.grad_in >= 0) return grad(slot.grad_in);
  return slab(slot.pending < 0 ? nth % 2 : share_.pending_slab(slot.pending, nth));
}

at::Tensor& Stage::grad_of_input(int unit, const Slot& slot) {
  const Part& part = share_.part_of(unit);
  if (unit > part.first) return grad_of_output(unit - 1, slot);
  return slot.grad_out >= 0 ? grad(slot.grad_out) : slab(part.blocks % 2);
}

void Stage::move_newest(int to) {
  if (to == newest_buffer_) return;
  if (!has_master_)
    versions_[static_cast<std::size_t>(to)].copy_(versions_[static_cast<std::size_t>(newest_buffer_)]);
  newest_buffer_ = to;
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
