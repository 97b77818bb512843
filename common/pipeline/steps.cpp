#include "common/pipeline/steps.h"

#include <algorithm>

namespace sc {

using pipedream::Action;
using pipedream::Kind;
using pipedream::Span;

namespace {

// The first of two windows in the middle of the simulated ones.
constexpr int kFirst = pipedream::Windows::kSteady + 1;
constexpr int kSimulated = kFirst + 3;

}  // namespace

Span computed(const StageSpans& stage) {
  std::vector<Span> spans;
  for (std::size_t i = 0; i < stage.actions.size(); ++i)
    if (takes_time(stage.actions[i].kind)) spans.push_back(stage.spans[i]);
  return {spans.front().start, spans.back().end};
}

Span computed(const StepSpans& step) {
  Span all = computed(step.front());
  for (const StageSpans& stage : step) {
    const Span span = computed(stage);
    all.start = std::min(all.start, span.start), all.end = std::max(all.end, span.end);
  }
  return all;
}

std::vector<Action> Steps::actions(int stage, std::int64_t step) const {
  std::vector<Action> list =
      windows == nullptr ? schedule.actions[static_cast<std::size_t>(stage)] : windows->window(stage, step);
  std::erase_if(list, [](const Action& a) { return a.kind == Kind::stash || a.kind == Kind::drop; });
  return list;
}

StepTime Steps::time_of(const StepSpans& step, const StepSpans* before) const {
  const Span whole = computed(step);
  const double seconds =
      windows == nullptr ? whole.end - whole.start : computed(step.back()).end - computed(before->back()).end;
  double busy = 0;
  for (const StageSpans& stage : step) {
    double of_stage = 0;
    for (std::size_t i = 0; i < stage.actions.size(); ++i)
      if (takes_time(stage.actions[i].kind)) of_stage += stage.spans[i].end - stage.spans[i].start;
    busy += of_stage;
  }
  return {seconds, std::max(0.0, 1 - busy / (seconds * static_cast<double>(step.size())))};
}

std::vector<StepSpans> Steps::simulated(const pipedream::Costs& costs) const {
  const pipedream::Schedule whole = windows == nullptr ? schedule : windows->whole(kSimulated);
  const pipedream::Timeline timeline = simulate(whole, costs);
  const std::int64_t last = windows == nullptr ? 0 : kFirst + 1, first = windows == nullptr ? 0 : kFirst;
  std::vector<StepSpans> steps(static_cast<std::size_t>(last - first + 1));
  for (int stage = 0; stage < whole.stages; ++stage) {
    const auto s = static_cast<std::size_t>(stage);
    std::size_t at = 0;
    for (std::int64_t t = 0; t <= last; ++t) {
      StageSpans of_stage{actions(stage, t), {}};
      for (const Action& next : of_stage.actions) {
        while (whole.actions[s][at] != next) ++at;  // skips actions without a span
        of_stage.spans.push_back(timeline.spans[s][at++]);
      }
      if (t >= first) steps[static_cast<std::size_t>(t - first)].push_back(std::move(of_stage));
    }
  }
  return steps;
}

StepTime Steps::time_by(const pipedream::Costs& costs) const {
  const std::vector<StepSpans> steps = simulated(costs);
  return time_of(steps.back(), &steps.front());
}

}  // namespace sc
