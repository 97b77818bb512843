#include "common/watch/comm_record.h"

#include <stdexcept>
#include <string>
#include <utility>

namespace sc {

CommRecord::CommRecord(Rank world_rank, const RecordOptions& options)
    : rank_(world_rank),
      board_(options.board),
      keep_steps_(options.keep_steps),
      trace_steps_(options.trace_steps) {
  if (board_ != nullptr && options.last_unit != kNoUnit) board_->set_last_unit(options.last_unit);
}

void CommRecord::set_phase(Phase phase) {
  const std::lock_guard lock(mutex_);
  phase_ = phase;
  if (board_ != nullptr) board_->set_position(rank_, phase_, step_);
}

void CommRecord::set_step(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  step_ = step;
  if (board_ != nullptr) board_->set_position(rank_, phase_, step_);
}

void CommRecord::set_doing(std::string_view doing) {
  if (board_ != nullptr) board_->set_doing(rank_, doing);
}

CommPlan CommRecord::recorded(Phase phase, std::int64_t step) const {
  const std::lock_guard lock(mutex_);
  const Steps& of_phase = phases_[static_cast<std::size_t>(phase)];
  if (step < of_phase.forgotten_before)
    throw std::out_of_range("the operations of step " + std::to_string(step) + " are not kept any more");
  const auto found = of_phase.plans.find(step);
  return found == of_phase.plans.end() ? CommPlan{} : found->second;
}

std::vector<OutstandingOp> CommRecord::outstanding() {
  const std::lock_guard lock(mutex_);
  sweep(true);
  std::vector<OutstandingOp> result;
  for (const auto& [number, pending] : pending_) {
    if (!pending.ended()) result.push_back(pending.op);
  }
  return result;
}

std::int64_t CommRecord::operations() const {
  const std::lock_guard lock(mutex_);
  return operations_;
}

std::int64_t CommRecord::issuing(const Operation& op, Bytes sent, const Meeting& with, Clock::time_point at,
                                 std::optional<std::int64_t> of_step) {
  const std::lock_guard lock(mutex_);
  sweep(false);
  const std::int64_t number = ++operations_, step = of_step.value_or(step_);
  const Phase phase = of_step ? Phase::train : phase_;
  Steps& kept = steps(phase);
  kept.plans[step].add(op);
  while (static_cast<std::int64_t>(kept.plans.size()) > keep_steps_) {
    kept.forgotten_before = kept.plans.begin()->first + 1;
    kept.plans.erase(kept.plans.begin());
  }
  const OpSpan span{number, phase, step, op, sent, with.peer, at, {}, {}, {}, {}};
  last_ = OutstandingOp{number, op, with, false, phase, step};
  set_waiting(pending_.emplace(number, Pending{*last_, span, keep(span)}).first->second, true);
  if (board_ != nullptr) board_->set_issued(rank_, number, op);
  return number;
}

void CommRecord::issued(std::int64_t number, std::function<bool()> ended) {
  const std::lock_guard lock(mutex_);
  Pending& pending = pending_.at(number);
  set_waiting(pending, false);
  pending.ended = std::move(ended);
}

void CommRecord::withdrawn(std::int64_t number) {
  const std::lock_guard lock(mutex_);
  const auto found = pending_.find(number);
  Pending& pending = found->second;
  auto& plans = steps(pending.op.phase).plans;
  if (const auto plan = plans.find(pending.op.step); plan != plans.end()) {
    auto& count = plan->second.count;
    const auto same = count.find(pending.op.op);
    if (same != count.end() && --same->second == 0) count.erase(same);
  }
  if (pending.place && *pending.place + 1 == spans_.size()) spans_.pop_back();
  set_waiting(pending, false);
  pending_.erase(found);
  if (number == operations_) --operations_;
}

void CommRecord::set_waiting(Pending& pending, bool waiting) {
  if (pending.op.waiting == waiting) return;
  pending.op.waiting = waiting;
  if (board_ == nullptr) return;
  board_->add_waiting(rank_, waiting ? 1 : -1);
  // If a rank waits several times at once, the wait for the oldest operation counts: a GPU may be behind with
  // many.
  for (const auto& [number, waited_for] : pending_) {
    if (!waited_for.op.waiting) continue;
    board_->set_meeting(rank_, waited_for.op.with);
    return;
  }
}

void CommRecord::wait_began(std::int64_t number) {
  const std::lock_guard lock(mutex_);
  Pending& pending = pending_.at(number);
  set_waiting(pending, true);
  pending.wait_began = Clock::now();
}

void CommRecord::wait_ended(std::int64_t number, std::optional<Clock::time_point> op_ended,
                            std::function<bool()> ended, const GpuTimes& times) {
  const std::lock_guard lock(mutex_);
  Pending& pending = pending_.at(number);
  const Clock::time_point now = Clock::now();
  if (times.wait_ended) {
    measure(pending, times);
  } else {
    waited_ += now - pending.wait_began;
  }
  if (pending.place) {
    OpSpan& span = spans_[*pending.place];
    span.ended = op_ended;
    span.wait_began = pending.wait_began;
    span.wait_ended = now;
  }
  run_on(number, pending, std::move(ended));
}

void CommRecord::forget(std::int64_t number) {
  const std::lock_guard lock(mutex_);
  pending_.erase(number);
}

void CommRecord::replayed(std::function<bool()> ended) {
  const std::lock_guard lock(mutex_);
  if (!last_) return;
  forget_launches();  // the GPU passes their moments again
  for (Captured& op : captured_) {
    op.span.phase = phase_;
    op.span.step = step_;
    op.span.issued = Clock::now();
    timed_.push_back({op.times, keep(op.span)});
  }
  const std::int64_t number = ++operations_;
  const OutstandingOp graph{number, last_->op, last_->with, false, phase_, step_, /*replayed=*/true};
  Pending& kept = pending_.emplace(number, Pending{graph}).first->second;
  set_waiting(kept, true);
  if (board_ != nullptr) board_->set_issued(rank_, number, last_->op);
  run_on(number, kept, std::move(ended));
}

// Keeps an operation outstanding after its wait: the host has gone on, the GPU perhaps not.
void CommRecord::run_on(std::int64_t number, Pending& pending, std::function<bool()> ended) {
  sweep(false);
  if (ended && !ended()) {
    pending.ended = std::move(ended);
    running_.push_back(number);
    return;
  }
  set_waiting(pending, false);
  pending_.erase(number);
}

void CommRecord::sweep(bool all) {
  for (auto number = running_.begin(); number != running_.end();) {
    const auto found = pending_.find(*number);
    if (!found->second.ended()) {
      if (!all) return;
      ++number;
      continue;
    }
    set_waiting(found->second, false);
    pending_.erase(found);
    number = running_.erase(number);
  }
}

// --- times -------------------------------------------------------------------------------------------------

CommRecord::Place CommRecord::keep(const OpSpan& span) {
  if (span.step >= trace_steps_) return std::nullopt;
  spans_.push_back(span);
  return spans_.size() - 1;
}

// Queues a wait that a GPU measures; its times are read later.
void CommRecord::measure(const Pending& pending, const GpuTimes& times) {
  if (!times.captured) {
    timed_.push_back({times, pending.place});
    if (timed_.size() > kMostUnread) timed_.pop_front();
    return;
  }
  captured_.push_back({times, pending.span});
  if (pending.place) unreal_.insert(*pending.place);
}

void CommRecord::forget_launches() {
  std::erase_if(timed_, [](const Timed& timed) { return timed.times.captured; });
}

void CommRecord::forget_captured() {
  const std::lock_guard lock(mutex_);
  forget_launches();
  captured_.clear();
}

std::chrono::nanoseconds CommRecord::waited() const {
  const std::lock_guard lock(mutex_);
  return waited_;
}

// Reads first, so that earlier measurements count for the time before the reset.
void CommRecord::reset_waited() {
  const std::lock_guard lock(mutex_);
  read_all();
  waited_ = std::chrono::nanoseconds(0);
}

void CommRecord::read_gpu_times() {
  const std::lock_guard lock(mutex_);
  read_all();
}

void CommRecord::read_all() {
  std::erase_if(timed_, [this](const Timed& timed) { return read(timed); });
}

// Adds a measured wait to the times; false if the GPU has not passed it yet.
bool CommRecord::read(const Timed& timed) {
  const GpuTimes& t = timed.times;
  const std::optional<std::chrono::nanoseconds> waited = t.wait_ended->since(*t.wait_began);
  if (!waited) return false;
  waited_ += *waited;
  if (!timed.place || !origin_) return true;
  OpSpan& span = spans_[*timed.place];
  span.wait_began = origin_->on_host(*t.wait_began);
  span.wait_ended = origin_->on_host(*t.wait_ended);
  if (t.began) span.began = origin_->on_host(*t.began);
  if (t.ended) span.ended = origin_->on_host(*t.ended);
  return true;
}

void CommRecord::set_gpu_origin(GpuOrigin origin) {
  const std::lock_guard lock(mutex_);
  origin_ = std::move(origin);
}

std::vector<OpSpan> CommRecord::spans() const {
  const std::lock_guard lock(mutex_);
  std::vector<OpSpan> real;
  for (std::size_t i = 0; i < spans_.size(); ++i) {
    if (!unreal_.contains(i)) real.push_back(spans_[i]);
  }
  return real;
}

}  // namespace sc
