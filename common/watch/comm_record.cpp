#include "common/watch/comm_record.h"

#include <utility>

namespace sc {

CommRecord::CommRecord(Rank world_rank, const RecordOptions& options)
    : rank_(world_rank), board_(options.board), counts_(options.keep_steps), times_(options.trace_steps) {
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
  return counts_.of(phase, step);
}

std::chrono::nanoseconds CommRecord::waited() const {
  const std::lock_guard lock(mutex_);
  return times_.waited();
}

void CommRecord::reset_waited() {
  const std::lock_guard lock(mutex_);
  times_.reset_waited();
}

void CommRecord::read_gpu_times() {
  const std::lock_guard lock(mutex_);
  times_.read_gpu_times();
}

void CommRecord::set_gpu_origin(GpuOrigin origin) {
  const std::lock_guard lock(mutex_);
  times_.set_gpu_origin(std::move(origin));
}

std::vector<OpSpan> CommRecord::spans() const {
  const std::lock_guard lock(mutex_);
  return times_.spans();
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
  counts_.add(phase, step, op);
  Pending pending{{number, op, with, false, phase, step},
                  times_.issued({number, phase, step, op, sent, with.peer, at, {}, {}, {}, {}}),
                  [] { return false; }};
  last_ = pending.op;
  set_waiting(pending_.emplace(number, std::move(pending)).first->second, true);
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
  counts_.take_back(pending.op.phase, pending.op.step, pending.op.op);
  times_.take_back(pending.times);
  set_waiting(pending, false);
  pending_.erase(found);
  if (number == operations_) --operations_;
}

void CommRecord::set_waiting(Pending& pending, bool waiting) {
  if (pending.op.waiting == waiting) return;
  pending.op.waiting = waiting;
  if (board_ == nullptr) return;
  board_->add_waiting(rank_, waiting ? 1 : -1);
  publish_waits();
}

// Of several waits the oldest operation's: a GPU may be behind with many.
void CommRecord::publish_waits() {
  for (const auto& [number, pending] : pending_) {
    if (!pending.op.waiting) continue;
    board_->set_meeting(rank_, pending.op.with);
    return;
  }
}

void CommRecord::wait_began(std::int64_t number) {
  const std::lock_guard lock(mutex_);
  Pending& pending = pending_.at(number);
  set_waiting(pending, true);
  pending.times.wait_began = Clock::now();
}

void CommRecord::wait_ended(std::int64_t number, std::optional<Clock::time_point> op_ended,
                            std::function<bool()> ended, const GpuTimes& times) {
  const std::lock_guard lock(mutex_);
  Pending& pending = pending_.at(number);
  times_.wait_ended(pending.times, op_ended, times);
  run_on(number, pending, std::move(ended));
}

void CommRecord::forget(std::int64_t number) {
  const std::lock_guard lock(mutex_);
  pending_.erase(number);
}

void CommRecord::forget_captured() {
  const std::lock_guard lock(mutex_);
  times_.forget_captured();
}

void CommRecord::replayed(std::function<bool()> ended) {
  const std::lock_guard lock(mutex_);
  if (!last_) return;
  times_.replayed(phase_, step_);
  const std::int64_t number = ++operations_;
  Pending pending{{number, last_->op, last_->with, false, phase_, step_, /*replayed=*/true}, {}, {}};
  Pending& kept = pending_.emplace(number, std::move(pending)).first->second;
  set_waiting(kept, true);
  if (board_ != nullptr) board_->set_issued(rank_, number, last_->op);
  run_on(number, kept, std::move(ended));
}

// Its host has gone on; its GPU may not have.
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

}  // namespace sc
