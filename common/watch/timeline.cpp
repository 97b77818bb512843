#include "common/watch/timeline.h"

#include <exception>
#include <utility>

namespace sc {

void Timeline::begin_step(std::int64_t step, bool drawn, std::optional<GpuClock> gpu) {
  on_ = drawn || recent_steps_ > 0;
  drawn_ = drawn;
  step_ = step, micro_batch_ = -1;
  gpu_ = std::move(gpu);
  std::erase_if(noted_, [&](const Noted& n) { return !n.drawn && n.span.step <= step - recent_steps_; });
}

Timeline::Noted& Timeline::note() {
  Noted& noted = noted_.emplace_back();
  noted.span.step = step_, noted.span.begin = Clock::now();
  noted.drawn = drawn_, noted.gpu = gpu_;
  if (gpu_) noted.began = gpu_->now();
  return noted;
}

Timeline::Mark Timeline::mark(std::string_view name) {
  if (!on_) return {nullptr, 0};
  note().span.name = name;
  return {this, noted_.size() - 1};
}

Timeline::Mark Timeline::mark(Pass pass, int unit) {
  if (!on_) return {nullptr, 0};
  const bool of_all = pass == Pass::norm || pass == Pass::update;
  note().span.computed = {pass, unit, of_all ? -1 : micro_batch_};
  return {this, noted_.size() - 1};
}

void Timeline::add(std::string_view name, Clock::time_point begin, Clock::time_point end) {
  if (!on_) return;
  Noted& noted = noted_.emplace_back();
  noted.span.name = name, noted.span.step = step_, noted.span.begin = begin, noted.span.end = end;
  noted.drawn = drawn_;
}

void Timeline::end(std::size_t index) {
  Noted& noted = noted_[index];
  noted.span.end = Clock::now();
  if (!noted.gpu) return;
  try {
    noted.ended = noted.gpu->now();
  } catch (const std::exception&) {
    // Whoever uses the GPU next meets the error; a mark's end is no place to throw from.
  }
}

std::optional<Timeline::Span> Timeline::times_of(const Noted& noted) {
  Span span = noted.span;
  if (!noted.gpu) return span;
  if (!noted.ended) return {};
  const GpuOrigin& origin = noted.gpu->origin;
  const auto begin = origin.on_host(*noted.began), end = origin.on_host(*noted.ended);
  if (!begin || !end) return {};
  span.begin = *begin, span.end = *end;
  return span;
}

std::vector<Timeline::Span> Timeline::drawn() const {
  std::vector<Span> spans;
  for (const Noted& noted : noted_) {
    if (!noted.drawn) continue;
    if (std::optional<Span> span = times_of(noted)) spans.push_back(*std::move(span));
  }
  return spans;
}

std::vector<Timeline::Span> Timeline::recent() const {
  std::vector<Span> spans;
  for (const Noted& noted : noted_) {
    if (noted.span.step <= step_ - recent_steps_) continue;
    if (std::optional<Span> span = times_of(noted)) spans.push_back(*std::move(span));
  }
  return spans;
}

}  // namespace sc
