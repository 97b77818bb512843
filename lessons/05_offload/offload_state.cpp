// Lesson 05 between steps: what an evaluation and a checkpoint read, and how a run goes on from a checkpoint.
#include <ATen/ops/empty.h>

#include <algorithm>

#include "offload.h"

namespace sc {

at::Tensor Offload::params_on_host(std::size_t i) const {
  return host_[i].params.defined() ? host_[i].params : states_of(i).master;
}

// Parameters that are copied here count for no step: the coming one copies them again.
void Offload::quiet() {
  for (int unit = 0; unit < layout_.num_units(); ++unit) wait_reduced(unit);
  scalars_.wait_sent();
  release_params();
  for (std::size_t i = 0; i < host_.size(); ++i) {
    optimizer_->wait(i, due());
    copy_up(i).wait_on_host();
  }
}

std::vector<StepResult> Offload::drain() {
  optimizer_->release();
  clock_.delayed = false;
  return {};
}

std::vector<StateSlice> Offload::state() const {
  const std::int64_t last_update = clock_.last_posted(step_);
  optimizer_->wait_landed(last_update);
  std::vector<StateSlice> state = state_of(passes_.last_local(), resident_slices());
  for (std::size_t i = 0; i < host_.size(); ++i) {
    const Piece& piece = optimizer_->pieces()[i];
    const PieceStates states = states_of(i);
    const auto add = [&](Purpose purpose, const at::Tensor& values, Place place) {
      state.push_back({purpose, piece.unit, Segment::sharded, piece.range, in_tensor(values), place});
    };
    add(Purpose::parameters, params_on_host(i), Place::pinned);
    if (host_[i].params.defined()) add(Purpose::master, states.master, Place::host);
    add(Purpose::momentum, states.momentum, Place::host);
    add(Purpose::variance, states.variance, Place::host);
    add(Purpose::gradients, host_[i].grads[last_update % 2], Place::pinned);
    state.back().pending = clock_.pending(step_);
  }
  return state;
}

// Reports updates that began before the norm was known; one all-reduce adds up all ranks' numbers.
Counts Offload::counts(Communicator& comm) {
  if (norm_ == NormIs::needed) return {};
  const UpdateCounts mine = optimizer_->counts();
  const std::int64_t numbers[] = {mine.updated, mine.before_norm, mine.again};
  at::Tensor sums = at::empty({3}, at::kDouble);
  std::ranges::copy(numbers, sums.mutable_data_ptr<double>());
  comm.all_reduce(sums).wait();
  const auto of = [&](int i) { return static_cast<std::int64_t>(sums.const_data_ptr<double>()[i]); };
  return {{"pieces updated", of(0)}, {"begun before the norm", of(1)}, {"made again", of(2)}};
}

bool Offload::resume(const ResumeFrom& from) {
  // The clock learns of a delayed update before restore() asks state() for what to restore: so state() lists
  // that update's gradients as pending, and they are restored, too.
  if (clock_.puts_off(step_) && scalars_.restore(from.pending)) clock_.taken_over = 1;
  from.restore();
  if (clock_.taken_over == 0) return from.pending == "{}";
  for (std::size_t i = 0; i < host_.size(); ++i) optimizer_->lands(i, 0, host_[i].grads[0], {});
  optimizer_->post({.after_sends = clock_.after_sends(step_ - 1)});
  optimizer_->norm_known(0, {{}, scalars_.of(0)});
  return true;
}

}  // namespace sc
