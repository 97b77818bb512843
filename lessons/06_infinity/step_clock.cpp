#include "step_clock.h"

namespace sc {

void StepClock::issued(CommKind kind, Clock::time_point at, DiskTransfer transfer) {
  const std::lock_guard lock(mutex_);
  transfers_.push_back({kind, at, std::move(transfer)});
}

void StepClock::updated(Clock::time_point began, Clock::time_point ended) {
  const std::lock_guard lock(mutex_);
  now_.update.add(began, ended);
}

void StepClock::waited(Clock::time_point began, Clock::time_point ended) {
  const std::lock_guard lock(mutex_);
  now_.wait.add(began, ended);
}

void StepClock::end_step() {
  const std::lock_guard lock(mutex_);
  take_what_has_ended();
  ended_ = Clock::now();
  if (++ends_ == 1) {
    began_ = ended_;
    for (Busy* busy : {&now_.read, &now_.write, &now_.either, &now_.update, &now_.wait}) busy->sum = {};
  }
  counted_ = now_;
}

// A transfer that still runs is counted with a later step, and what began after it, too.
void StepClock::take_what_has_ended() {
  for (; !transfers_.empty() && transfers_.front().transfer.done(); transfers_.pop_front()) {
    const Transfer& t = transfers_.front();
    const std::optional<Clock::time_point> ended = t.transfer.ended_at();
    if (!ended) continue;
    (t.kind == CommKind::disk_read ? now_.read : now_.write).add(t.issued, *ended);
    now_.either.add(t.issued, *ended);
  }
}

std::vector<Timetable::Share> StepClock::of_a_step() {
  const std::lock_guard lock(mutex_);
  if (ends_ < 2) return {};
  const auto share = [&](const char* name, Clock::duration sum) {
    return Timetable::Share{name, {std::chrono::duration<double>(sum).count() / (ends_ - 1)}};
  };
  return {share("step", ended_ - began_),
          share("disk reads", counted_.read.sum),
          share("disk writes", counted_.write.sum),
          share("disk does either", counted_.either.sum),
          share("host updates", counted_.update.sum),
          share("forward waits", counted_.wait.sum)};
}

}  // namespace sc
