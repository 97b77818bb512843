// What lesson 06 holds between steps: for a checkpoint, and from one; and where a step's time went.
#include "common/comm/gather_text.h"
#include "infinity.h"

namespace sc {

std::vector<StateSlice> Infinity::state() const {
  const std::int64_t last = clock_.last_posted(step_),  // update
      done = delivery_ == Delivery::by_gathers ? optimizer_->settle() : 0;
  const bool on_host = options_.grads_at == GradsAt::host;
  if (on_host) optimizer_->wait_landed(last);
  std::vector<StateSlice> state = state_of(passes_.last_local(), units_.resident());
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const Piece& p = pieces_[i];
    const auto add = [&](Purpose purpose, std::shared_ptr<StateValues> values, Place place) {
      state.push_back({purpose, p.unit, Segment::sharded, p.range, std::move(values), place});
    };
    const std::shared_ptr<StateValues> params = params_->values(i, done);
    if (params->dtype() == DType::f32) {
      add(Purpose::parameters, states_->values(*optimizer_, i, 0, params), Place::disk);
    } else {
      add(Purpose::parameters, params, params_->place());
      add(Purpose::master, states_->values(*optimizer_, i, 0), Place::disk);
    }
    add(Purpose::momentum, states_->values(*optimizer_, i, 1), Place::disk);
    add(Purpose::variance, states_->values(*optimizer_, i, 2), Place::disk);
    add(Purpose::gradients, in_tensor(on_host ? grads_host_[last % 2][i] : units_.grads_of(p)),
        on_host ? Place::pinned : Place::device);
    state.back().pending = clock_.pending(step_);
  }
  return state;
}

std::string Infinity::pending() { return scalars_.pending(clock_, step_); }

bool Infinity::resume(const ResumeFrom& from) {
  // First: state() then shows the gradients as pending, so that they are restored, too.
  if (clock_.puts_off(step_) && scalars_.restore(from.pending)) clock_.taken_over = 1;
  from.restore();
  if (clock_.taken_over == 0) return from.pending == "{}";
  states_->give_first_buffer_back();
  for (std::size_t i = 0; i < pieces_.size(); ++i) optimizer_->lands(i, 0, grads_host_[0][i], {});
  optimizer_->post({.scalars = {{}, scalars_.of(0)}, .after_sends = clock_.after_sends(step_ - 1)});
  return true;
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
