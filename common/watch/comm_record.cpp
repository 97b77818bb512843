#include "common/watch/comm_record.h"

#include <utility>

namespace sc {

CommRecord::CommRecord(Rank world_rank, const RecordOptions& options)
    : rank_(world_rank), board_(options.board), counts_(options.keep_steps), times_(options.trace_steps) {}

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

std::int64_t CommRecord::issuing(const CommOp& op, Bytes sent, std::optional<Rank> peer,
                                 Clock::time_point at) {
  const std::lock_guard lock(mutex_);
  sweep(false);
  const std::int64_t number = ++operations_;
  counts_.add(phase_, step_, op);
  Pending pending{{number, op, peer, false, phase_, step_},
                  times_.issued({number, phase_, step_, op, sent, at, {}, {}, {}, {}}),
                  [] { return false; }};
  set_waiting(pending, true);
  last_ = pending.op;
  pending_.emplace(number, std::move(pending));
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
  if (board_ != nullptr) board_->add_waiting(rank_, waiting ? 1 : -1);
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

void CommRecord::replayed(std::function<bool()> ended) {
  const std::lock_guard lock(mutex_);
  if (!last_) return;
  times_.replayed(phase_, step_);
  const std::int64_t number = ++operations_;
  Pending pending{{number, last_->op, last_->peer, false, phase_, step_}, {}, {}};
  set_waiting(pending, true);
  if (board_ != nullptr) board_->set_issued(rank_, number, last_->op);
  run_on(number, pending_.emplace(number, std::move(pending)).first->second, std::move(ended));
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
