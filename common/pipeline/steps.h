// A pipeline's steps, as pipedream simulates them or as a run's marks show them. No torch.
#pragma once

#include <cstdint>
#include <vector>

#include "pipedream/simulate.h"
#include "pipedream/windows.h"

namespace sc {

/// When a stage did what in one step: a span for every action that takes time or is a message.
struct StageSpans {
  std::vector<pipedream::Action> actions;
  std::vector<pipedream::Span> spans;
};
/// By stage.
using StepSpans = std::vector<StageSpans>;

/// What takes a stage's time.
inline bool takes_time(pipedream::Kind kind) {
  return pipedream::is_compute(kind) || kind == pipedream::Kind::step;
}
/// From the first action that takes time to the end of the last one: of a stage, of all.
pipedream::Span computed(const StageSpans& stage);
pipedream::Span computed(const StepSpans& step);

struct StepTime {
  double seconds = 0;
  double idle = 0;  // share of the stages' time
};

/// Each step is the schedule's list, and ends before the next one begins; or, with windows, one of these, and
/// the next one overlaps it.
struct Steps {
  const pipedream::Schedule& schedule;
  const pipedream::Windows* windows = nullptr;

  /// What of a stage's list leaves a span.
  [[nodiscard]] std::vector<pipedream::Action> actions(int stage, std::int64_t step) const;
  /// From its beginning to its end; of a window from the end of the one before, which is needed then.
  [[nodiscard]] StepTime time_of(const StepSpans& step, const StepSpans* before) const;
  /// The last one is a step; of windows it is one in the steady state, and the one before it comes first.
  [[nodiscard]] std::vector<StepSpans> simulated(const pipedream::Costs& costs) const;
  [[nodiscard]] StepTime time_by(const pipedream::Costs& costs) const;
};

}  // namespace sc
