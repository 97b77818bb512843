// Lesson 06 between steps: what an evaluation and a checkpoint read, how a run goes on from a checkpoint, and
// where a step's time went.
#include "common/comm/gather_text.h"
#include "infinity.h"

namespace sc {

void Infinity::quiet() {
  for (int unit = 0; unit < layout_.num_units(); ++unit) wait_reduced(unit);
  scalars_.wait_sent();
  release_params();
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    land_gradients(i);
    (void)wait_updated(i);
    send_now(i);
  }
}

std::vector<StepResult> Infinity::drain() {
  states_->give_first_buffer_back();
  optimizer_->release();
  clock_.delayed = false;
  return {};
}

std::vector<StateSlice> Infinity::state() const {
  const std::int64_t last_update = clock_.last_posted(step_), version = kept_version();
  const bool on_host = options_.grads_at == GradsAt::host;
  if (on_host) optimizer_->wait_landed(last_update);
  std::vector<StateSlice> state = state_of(passes_.last_local(), resident_slices());
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const Piece& p = pieces_[i];
    const auto add = [&](Purpose purpose, std::shared_ptr<StateValues> values, Place place) {
      state.push_back({purpose, p.unit, Segment::sharded, p.range, std::move(values), place});
    };
    const std::shared_ptr<StateValues> params = params_->values(i, version);
    if (params->dtype() == DType::f32) {
      add(Purpose::parameters, states_->values(*optimizer_, i, 0, params), Place::disk);
    } else {
      add(Purpose::parameters, params, params_->place());
      add(Purpose::master, states_->values(*optimizer_, i, 0), Place::disk);
    }
    add(Purpose::momentum, states_->values(*optimizer_, i, 1), Place::disk);
    add(Purpose::variance, states_->values(*optimizer_, i, 2), Place::disk);
    add(Purpose::gradients, in_tensor(on_host ? grads_host_[last_update % 2][i] : grads_on_device(p)),
        on_host ? Place::pinned : Place::device);
    state.back().pending = clock_.pending(step_);
  }
  return state;
}

bool Infinity::resume(const ResumeFrom& from) {
  // The clock learns of a delayed update before restore() asks state() for what to restore: so state() lists
  // that update's gradients as pending, and they are restored, too.
  if (clock_.puts_off(step_) && scalars_.restore(from.pending)) clock_.taken_over = 1;
  from.restore();
  if (clock_.taken_over == 0) return from.pending == "{}";
  states_->give_first_buffer_back();
  for (std::size_t i = 0; i < pieces_.size(); ++i) optimizer_->lands(i, 0, grads_host_[0][i], {});
  optimizer_->post({.after_sends = clock_.after_sends(step_ - 1)});
  optimizer_->norm_known(0, {{}, scalars_.of(0)});
  return true;
}

std::shared_ptr<const HostPiece> Infinity::wait_updated(std::size_t i) {
  const auto began = StepClock::Clock::now();
  const std::shared_ptr<const HostPiece> work = optimizer_->wait(i, due());
  file_->clock().waited(began, StepClock::Clock::now());
  return work;
}

std::optional<Timetable> Infinity::timetable(Communicator& comm) {
  std::vector<Timetable::Share> shares = file_->clock().of_a_step();
  std::vector<double> mine;
  for (const Timetable::Share& share : shares) mine.push_back(share.seconds.front());
  const std::vector<std::vector<double>> all = gather_values(comm, mine);
  if (comm.rank() != Rank{0} || shares.empty()) return {};
  for (std::size_t i = 0; i < shares.size(); ++i) {
    shares[i].seconds.clear();
    for (const std::vector<double>& of_rank : all) shares[i].seconds.push_back(of_rank.at(i));
  }
  return Timetable{.shares = std::move(shares)};
}

}  // namespace sc
