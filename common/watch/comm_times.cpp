#include "common/watch/comm_times.h"

namespace sc {

std::optional<std::chrono::steady_clock::time_point> GpuOrigin::on_host(const GpuMoment& passed) const {
  const std::optional<std::chrono::nanoseconds> since = passed.since(*moment);
  if (!since) return std::nullopt;
  return at + *since;
}

std::optional<std::size_t> CommTimes::keep(const OpSpan& span) {
  if (span.step >= trace_steps_) return std::nullopt;
  spans_.push_back(span);
  return spans_.size() - 1;
}

void CommTimes::take_back(const Op& op) {
  if (op.place && *op.place + 1 == spans_.size()) spans_.pop_back();
}

void CommTimes::wait_ended(const Op& op, std::optional<Clock::time_point> op_ended, const GpuTimes& times) {
  const Clock::time_point now = Clock::now();
  if (times.wait_ended) {
    take(op, times);
  } else {
    waited_ += now - op.wait_began;
  }
  if (!op.place) return;
  OpSpan& span = spans_[*op.place];
  span.ended = op_ended;
  span.wait_began = op.wait_began;
  span.wait_ended = now;
}

void CommTimes::take(const Op& op, const GpuTimes& times) {
  if (!times.captured) {
    timed_.push_back({times, op.place});
    if (timed_.size() > kMostUnread) timed_.pop_front();
    return;
  }
  captured_.push_back({times, op.span});
  if (op.place) unreal_.insert(*op.place);
}

void CommTimes::replayed(Phase phase, std::int64_t step) {
  // Their moments have been passed again, or will be.
  std::erase_if(timed_, [](const Timed& timed) { return timed.times.captured; });
  for (Captured& op : captured_) {
    op.span.phase = phase;
    op.span.step = step;
    op.span.issued = Clock::now();
    timed_.push_back({op.times, keep(op.span)});
  }
}

void CommTimes::forget_captured() {
  std::erase_if(timed_, [](const Timed& timed) { return timed.times.captured; });
  captured_.clear();
}

// What has been measured before belongs to what came before.
void CommTimes::reset_waited() {
  read_gpu_times();
  waited_ = std::chrono::nanoseconds(0);
}

void CommTimes::read_gpu_times() {
  std::erase_if(timed_, [this](const Timed& timed) { return read(timed); });
}

// False while the GPU has not come past the wait.
bool CommTimes::read(const Timed& timed) {
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

std::vector<OpSpan> CommTimes::spans() const {
  std::vector<OpSpan> real;
  for (std::size_t i = 0; i < spans_.size(); ++i) {
    if (!unreal_.contains(i)) real.push_back(spans_[i]);
  }
  return real;
}

}  // namespace sc
