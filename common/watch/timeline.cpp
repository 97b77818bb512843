#include "common/watch/timeline.h"

#include <exception>
#include <utility>

namespace sc {

void Timeline::begin_step(std::int64_t step, std::optional<GpuClock> gpu) {
  on_ = true;
  step_ = step;
  gpu_ = std::move(gpu);
}

Timeline::Mark Timeline::mark(std::string_view name) {
  if (!on_) return {nullptr, 0};
  Noted noted{{std::string(name), step_, Clock::now(), {}}, gpu_, {}, {}};
  if (gpu_) noted.began = gpu_->now();
  noted_.push_back(std::move(noted));
  return {this, noted_.size() - 1};
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

std::vector<Timeline::Span> Timeline::spans() const {
  std::vector<Span> spans;
  for (const Noted& noted : noted_) {
    Span span = noted.span;
    if (noted.gpu) {
      if (!noted.ended) continue;
      const GpuOrigin& origin = noted.gpu->origin;
      const auto begin = origin.on_host(*noted.began), end = origin.on_host(*noted.ended);
      if (!begin || !end) continue;
      span.begin = *begin, span.end = *end;
    }
    spans.push_back(std::move(span));
  }
  return spans;
}

}  // namespace sc
