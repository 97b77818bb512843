#include "common/watch/timeline.h"

#include <exception>
#include <utility>

namespace sc {

void Timeline::begin_step(std::int64_t step, Wanted wanted, std::optional<GpuClock> gpu) {
  on_ = wanted.drawn || wanted.marked || recent_steps_ > 0;
  wanted_ = wanted;
  step_ = step, micro_batch_ = -1;
  gpu_ = std::move(gpu);
  std::erase_if(noted_, [&](const Noted& n) {
    return !n.wanted.drawn && !n.wanted.marked && n.span.step <= step - recent_steps_;
  });
}

Timeline::Noted& Timeline::note() {
  Noted& noted = noted_.emplace_back();
  noted.span.step = step_, noted.span.begin = Clock::now();
  noted.wanted = wanted_, noted.gpu = gpu_;
  if (gpu_) noted.began = gpu_->now();
  return noted;
}

Timeline::Mark Timeline::mark(std::string_view name, const Computed& computed) {
  comes_to({});
  if (!on_) return nullptr;
  Span& span = note().span;
  span.name = name;
  if (computed.pass != Pass::none) span.computed = computed;
  return Mark(this, EndSpan{noted_.size() - 1});
}

Timeline::Mark Timeline::mark(Pass pass, int unit) {
  const bool of_all = pass == Pass::norm || pass == Pass::update;
  return mark("", {pass, unit, of_all ? -1 : micro_batch_});
}

void Timeline::add(const Computed& computed, Clock::time_point begin, Clock::time_point end,
                   std::string_view name) {
  if (!on_) return;
  Span& span = noted_.emplace_back().span;
  span.name = name, span.step = step_, span.begin = begin, span.end = end, span.on_host = true;
  if (computed.pass != Pass::none) span.computed = computed;
  noted_.back().wanted = wanted_;
}

void Timeline::gives_up_params(int unit) {
  if (unit >= 0) note({.unit = unit});
}

void Timeline::has_versions(int versions) { note({.versions = versions}); }

void Timeline::note(const Change& change) {
  if (!on_ || !wanted_.marked) return;
  NotedChange& noted = noted_changes_.emplace_back(NotedChange{change, gpu_, gpu_ ? gpu_->now() : nullptr});
  noted.change.step = step_, noted.change.at = Clock::now();
}

void Timeline::settle(std::optional<std::int64_t> replayed) {
  for (Noted& noted : noted_) {
    if (!noted.wanted.marked || (noted.settled && !replayed)) continue;
    std::optional<Span> span = times_of(noted);
    if (!span) continue;
    noted.settled = true;
    span->step = replayed.value_or(span->step);
    marked_.push_back(*std::move(span));
  }
  for (NotedChange& noted : noted_changes_) {
    if (noted.settled && !replayed) continue;
    Change change = noted.change;
    change.step = replayed.value_or(change.step);
    if (noted.gpu) {
      const auto at = noted.gpu->origin.on_host(*noted.moment);
      if (!at) continue;
      change.at = *at;
    }
    noted.settled = true;
    changes_.push_back(change);
  }
}

void Timeline::end(std::size_t index) {
  Noted& noted = noted_[index];
  noted.span.end = Clock::now();
  if (!noted.gpu) return;
  try {
    noted.ended = noted.gpu->now();
  } catch (const std::exception&) {
    // Errors are ignored here: the next user of the GPU meets them, and the end of a mark must not throw.
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
    if (!noted.wanted.drawn) continue;
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
