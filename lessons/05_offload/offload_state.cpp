// What lesson 05 holds between steps: for a checkpoint, and from one.
#include <ATen/ops/empty.h>

#include <algorithm>

#include "offload.h"

namespace sc {

at::Tensor Offload::params_of(std::size_t piece) const {
  return host_[piece].params.defined() ? host_[piece].params : states_of(piece).master;
}

std::vector<StateSlice> Offload::state() const {
  const std::int64_t last = clock_.last_posted(step_);  // update
  optimizer_->wait_landed(last);
  std::vector<StateSlice> state = state_of(passes_.last_local(), units_.resident());
  for (std::size_t i = 0; i < host_.size(); ++i) {
    const Piece& piece = optimizer_->pieces()[i];
    const PieceStates states = states_of(i);
    const auto add = [&](Purpose purpose, const at::Tensor& values, Place place) {
      state.push_back({purpose, piece.unit, Segment::sharded, piece.range, in_tensor(values), place});
    };
    add(Purpose::parameters, params_of(i), Place::pinned);
    if (host_[i].params.defined()) add(Purpose::master, states.master, Place::host);
    add(Purpose::momentum, states.momentum, Place::host);
    add(Purpose::variance, states.variance, Place::host);
    add(Purpose::gradients, host_[i].grads[last % 2], Place::pinned);
    state.back().pending = clock_.pending(step_);
  }
  return state;
}

// Of updates that begin before the norm is known.
Counts Offload::counts(Communicator& comm) {
  if (norm_ == NormIs::known) return {};
  const UpdateCounts mine = optimizer_->counts();
  const std::int64_t numbers[] = {mine.updated, mine.before_norm, mine.again};
  at::Tensor sums = at::empty({3}, at::kDouble);
  std::ranges::copy(numbers, sums.mutable_data_ptr<double>());
  comm.all_reduce(sums).wait();
  const auto of = [&](int i) { return static_cast<std::int64_t>(sums.const_data_ptr<double>()[i]); };
  return {{"pieces updated", of(0)}, {"begun before the norm", of(1)}, {"made again", of(2)}};
}

std::string Offload::pending() { return scalars_.pending(clock_, step_); }

bool Offload::resume(const ResumeFrom& from) {
  // First: state() then shows the gradients as pending, so that they are restored, too.
  if (clock_.puts_off(step_) && scalars_.restore(from.pending)) clock_.taken_over = 1;
  from.restore();
  if (clock_.taken_over == 0) return from.pending == "{}";
  for (std::size_t i = 0; i < host_.size(); ++i) optimizer_->lands(i, 0, host_[i].grads[0], {});
  optimizer_->post({.scalars = {{}, scalars_.of(0)}, .after_sends = clock_.after_sends(step_ - 1)});
  return true;
}

}  // namespace sc
