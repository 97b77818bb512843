// A pipeline's steps, simulated by pipedream or measured by a run's marks. No torch.
#pragma once

#include <cstdint>
#include <vector>

#include "pipedream/simulate.h"
#include "pipedream/windows.h"

namespace sc {

/// What a stage did when in one step: a span for every action that takes time or is a message.
struct StageSpans {
  std::vector<pipedream::Action> actions;
  std::vector<pipedream::Span> spans;
};
using StepSpans = std::vector<StageSpans>;

inline bool takes_time(pipedream::Kind kind) {
  return pipedream::is_compute(kind) || kind == pipedream::Kind::step;
}
/// From the begin of the first action that takes time to the end of the last, on one stage or on all.
pipedream::Span computed(const StageSpans& stage);
pipedream::Span computed(const StepSpans& step);

struct StepTime {
  double seconds = 0;
  double idle = 0;  // share of the stages' time
};

/// The steps of a schedule: each is its whole list and ends before the next begins; or, with windows, each is
/// one window, and the next overlaps it.
struct Steps {
  const pipedream::Schedule& schedule;
  const pipedream::Windows* windows = nullptr;

  /// The actions of a stage's list that leave a span.
  [[nodiscard]] std::vector<pipedream::Action> actions(int stage, std::int64_t step) const;
  /// The time from a step's begin to its end; for a window from the end of the one before(`before`).
  [[nodiscard]] StepTime time_of(const StepSpans& step, const StepSpans* before) const;
  /// Simulates some steps, of which the last one counts. With windows it is in the steady state, after the
  /// window before it.
  [[nodiscard]] std::vector<StepSpans> simulated(const pipedream::Costs& costs) const;
  [[nodiscard]] StepTime time_by(const pipedream::Costs& costs) const;
};

}  // namespace sc
