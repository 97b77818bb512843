#include "common/watch/comm_record.h"

#include <limits>
#include <stdexcept>
#include <string>

namespace sc {

std::optional<std::chrono::steady_clock::time_point> GpuOrigin::on_host(const GpuMoment& passed) const {
  const std::optional<std::chrono::nanoseconds> since = passed.since(*moment);
  if (!since) return std::nullopt;
  return at + *since;
}

CommRecord::CommRecord(Rank world_rank, const RecordOptions& options) : rank_(world_rank), options_(options) {
  forgotten_before_.fill(std::numeric_limits<std::int64_t>::min());
}

void CommRecord::set_phase(Phase phase) {
  const std::lock_guard lock(mutex_);
  phase_ = phase;
  if (options_.board != nullptr) options_.board->set_position(rank_, phase_, step_);
}

void CommRecord::set_step(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  step_ = step;
  if (options_.board != nullptr) options_.board->set_position(rank_, phase_, step_);
}

CommPlan CommRecord::recorded(Phase phase, std::int64_t step) const {
  const std::lock_guard lock(mutex_);
  const auto index = static_cast<std::size_t>(phase);
  if (step < forgotten_before_[index]) {
    throw std::out_of_range("the operations of step " + std::to_string(step) + " are not kept any more");
  }
  const auto found = steps_[index].find(step);
  return found == steps_[index].end() ? CommPlan{} : found->second.plan;
}

Bytes CommRecord::sent(Phase phase, std::int64_t step) const {
  const std::lock_guard lock(mutex_);
  const auto& steps = steps_[static_cast<std::size_t>(phase)];
  const auto found = steps.find(step);
  return found == steps.end() ? Bytes(0) : found->second.sent;
}

std::chrono::nanoseconds CommRecord::waited() const {
  const std::lock_guard lock(mutex_);
  return waited_;
}

// What has been measured before belongs to what came before.
void CommRecord::reset_waited() {
  read_gpu_times();
  const std::lock_guard lock(mutex_);
  waited_ = std::chrono::nanoseconds(0);
}

void CommRecord::read_gpu_times() {
  const std::lock_guard lock(mutex_);
  std::erase_if(timed_, [this](const Timed& timed) { return read(timed); });
}

void CommRecord::set_gpu_origin(GpuOrigin origin) {
  const std::lock_guard lock(mutex_);
  origin_ = std::move(origin);
}

// False while the GPU has not come past the wait.
bool CommRecord::read(const Timed& timed) {
  const GpuTimes& t = timed.times;
  const std::optional<std::chrono::nanoseconds> waited = t.wait_ended->since(*t.wait_began);
  if (!waited) return false;
  waited_ += *waited;
  if (!timed.span || !origin_) return true;
  OpSpan& span = spans_[*timed.span];
  span.wait_began = origin_->on_host(*t.wait_began);
  span.wait_ended = origin_->on_host(*t.wait_ended);
  if (t.began) span.began = origin_->on_host(*t.began);
  if (t.ended) span.ended = origin_->on_host(*t.ended);
  return true;
}

std::vector<OpSpan> CommRecord::spans() const {
  const std::lock_guard lock(mutex_);
  std::vector<OpSpan> real;
  for (std::size_t i = 0; i < spans_.size(); ++i) {
    if (!unreal_.contains(i)) real.push_back(spans_[i]);
  }
  return real;
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
  StepCount& step = steps_[static_cast<std::size_t>(phase_)][step_];
  step.plan.add(op.kind, op.dtype, op.elements);
  step.sent += sent;
  prune(phase_);
  Pending pending{{number, op, peer, false, phase_, step_}, sent, [] { return false; }, {}, {}};
  pending.span = open_span({number, phase_, step_, op, sent, at, {}, {}, {}, {}});
  set_waiting(pending, true);
  last_ = pending.op;
  pending_.emplace(number, std::move(pending));
  if (options_.board != nullptr) options_.board->set_issued(rank_, number, op);
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
  const Pending& pending = found->second;
  auto& steps = steps_[static_cast<std::size_t>(pending.op.phase)];
  if (const auto step = steps.find(pending.op.step); step != steps.end()) {
    auto& count = step->second.plan.count;
    const auto same = count.find(pending.op.op);
    if (same != count.end() && --same->second == 0) count.erase(same);
    step->second.sent -= pending.sent;
  }
  if (pending.span && *pending.span + 1 == spans_.size()) spans_.pop_back();
  set_waiting(found->second, false);
  pending_.erase(found);
  if (number == operations_) --operations_;
}

void CommRecord::set_waiting(Pending& pending, bool waiting) {
  if (pending.op.waiting == waiting) return;
  pending.op.waiting = waiting;
  if (options_.board != nullptr) options_.board->add_waiting(rank_, waiting ? 1 : -1);
}

void CommRecord::prune(Phase phase) {
  auto& steps = steps_[static_cast<std::size_t>(phase)];
  while (static_cast<std::int64_t>(steps.size()) > options_.keep_steps) {
    forgotten_before_[static_cast<std::size_t>(phase)] = steps.begin()->first + 1;
    steps.erase(steps.begin());
  }
}

std::optional<std::size_t> CommRecord::open_span(const OpSpan& span) {
  if (span.step >= options_.trace_steps) return std::nullopt;
  spans_.push_back(span);
  return spans_.size() - 1;
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
    take_times(pending, times);
  } else {
    waited_ += now - pending.wait_began;
  }
  if (pending.span) {
    OpSpan& span = spans_[*pending.span];
    span.ended = op_ended;
    span.wait_began = pending.wait_began;
    span.wait_ended = now;
  }
  run_on(number, pending, std::move(ended));
}

void CommRecord::take_times(const Pending& pending, const GpuTimes& times) {
  if (!times.captured) {
    timed_.push_back({times, pending.span});
    if (timed_.size() > kMostUnread) timed_.pop_front();
    return;
  }
  captured_.push_back({times,
                       {pending.op.number,
                        pending.op.phase,
                        pending.op.step,
                        pending.op.op,
                        pending.sent,
                        {},
                        {},
                        {},
                        {},
                        {}}});
  if (pending.span) unreal_.insert(*pending.span);
}

void CommRecord::forget(std::int64_t number) {
  const std::lock_guard lock(mutex_);
  pending_.erase(number);
}

void CommRecord::replayed(std::function<bool()> ended) {
  const std::lock_guard lock(mutex_);
  if (!last_) return;
  // Their moments have been passed again, or will be.
  std::erase_if(timed_, [](const Timed& timed) { return timed.times.captured; });
  for (Captured& op : captured_) {
    op.span.phase = phase_;
    op.span.step = step_;
    op.span.issued = Clock::now();
    timed_.push_back({op.times, open_span(op.span)});
  }
  const std::int64_t number = ++operations_;
  Pending pending{{number, last_->op, last_->peer, false, phase_, step_}, Bytes(0), {}, {}, {}};
  set_waiting(pending, true);
  if (options_.board != nullptr) options_.board->set_issued(rank_, number, last_->op);
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
