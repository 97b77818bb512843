// What lesson 05 holds between steps: for a checkpoint, and from one.
#include <algorithm>

#include "offload.h"

namespace sc {

std::vector<StateSlice> Offload::state() const {
  const std::int64_t last = std::max<std::int64_t>(0, clock_.posted(step_) - 1);  // update
  optimizer_->wait_landed(last);
  std::vector<StateSlice> state = state_of(passes_.last_local(), units_.resident());
  for (std::size_t i = 0; i < host_.size(); ++i) {
    const Piece& piece = optimizer_->pieces()[i];
    const OnHost& host = host_[i];
    const auto add = [&](Purpose purpose, const at::Tensor& values, Place place) {
      state.push_back({purpose, piece.unit, Segment::sharded, piece.range, in_tensor(values), place});
    };
    add(Purpose::parameters, host.params, Place::pinned);
    if (!host.params.is_same(host.states.master)) add(Purpose::master, host.states.master, Place::host);
    add(Purpose::momentum, host.states.momentum, Place::host);
    add(Purpose::variance, host.states.variance, Place::host);
    add(Purpose::gradients, host.grads[last % 2], Place::pinned);
    state.back().pending = clock_.pending(step_);
  }
  return state;
}

std::string Offload::pending() { return scalars_.pending(clock_, step_); }

bool Offload::resume(const ResumeFrom& from) {
  // First: state() then shows the gradients as pending, so that they are restored, too.
  if (clock_.puts_off(step_) && scalars_.restore(from.pending)) clock_.taken_over = 1;
  from.restore();
  if (clock_.taken_over == 0) return from.pending == "{}";
  for (std::size_t i = 0; i < host_.size(); ++i) optimizer_->lands(i, 0, host_[i].grads[0], {});
  optimizer_->post(
      {.scalars_landed = {}, .scalars = scalars_.of(0), .after_sends = clock_.after_sends(step_ - 1)});
  return true;
}

}  // namespace sc
