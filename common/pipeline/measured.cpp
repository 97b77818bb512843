#include "common/pipeline/measured.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "common/comm/gather_text.h"
#include "pipedream/cost_files.h"
#include "pipedream/formulas.h"

namespace sc {
namespace {

using pipedream::Action;
using pipedream::Kind;

double seconds(Timeline::Clock::time_point at) {
  return std::chrono::duration<double>(at.time_since_epoch()).count();
}

struct OfStep {
  std::int64_t step;  // of the run
  pipedream::Span span;
};

std::vector<OfStep> spans_of(const std::vector<Timeline::Span>& spans, std::int64_t first) {
  std::vector<OfStep> of_steps;
  for (const Timeline::Span& s : spans)
    of_steps.push_back({s.step - first, {seconds(s.begin), seconds(s.end)}});
  return of_steps;
}

// The steps with exactly one mark per action of the list. Others are left out: a stage did not see all of
// them, or something was made for the first time or the pipeline was filled.
std::map<std::int64_t, StepSpans> whole_steps(const Steps& steps,
                                              const std::vector<std::vector<OfStep>>& of_stages) {
  std::map<std::int64_t, StepSpans> whole;
  for (std::size_t s = 0; s < of_stages.size(); ++s) {
    std::map<std::int64_t, std::vector<pipedream::Span>> of_stage;
    for (const auto& [step, span] : of_stages[s]) of_stage[step].push_back(span);
    for (auto& [t, spans] : of_stage) {
      if (t < 0) continue;
      StageSpans stage{steps.actions(static_cast<int>(s), t), std::move(spans)};
      if (stage.actions.size() == stage.spans.size()) whole[t].push_back(std::move(stage));
    }
  }
  std::erase_if(whole, [&](const auto& entry) {
    return entry.second.size() != of_stages.size() ||
           (steps.windows != nullptr && entry.first < pipedream::Windows::kSteady);
  });
  if (steps.windows == nullptr && whole.size() > 1) whole.erase(0);
  return whole;
}

/// Calls visit(stage, index, action, spans of that stage) for all actions of a step.
template <class Visit>
void for_each(const StepSpans& step, const Visit& visit) {
  for (std::size_t s = 0; s < step.size(); ++s)
    for (std::size_t i = 0; i < step[s].actions.size(); ++i) visit(s, i, step[s].actions[i], step[s].spans);
}

double mean(const std::vector<double>& values) {
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Each stage's times for one micro-batch, over all its chunks, and for an update.
std::vector<pipedream::StageTimes> stage_times(const StepSpans& step) {
  std::map<std::tuple<std::size_t, Kind, int>, std::vector<double>> taken;  // by stage, kind, chunk
  for_each(step, [&](std::size_t s, std::size_t i, const Action& a, const auto& spans) {
    if (takes_time(a.kind)) taken[{s, a.kind, a.chunk}].push_back(spans[i].end - spans[i].start);
  });
  std::vector<pipedream::StageTimes> times(step.size(), {0, 0, 0, 0});
  for (const auto& [key, seconds] : taken) {
    const auto& [stage, kind, chunk] = key;
    const bool halves = taken.contains({stage, Kind::backward_input, chunk});
    pipedream::StageTimes& t = times[stage];
    const double took = mean(seconds);
    if (kind == Kind::forward) t.forward += took;
    if (kind == Kind::backward_input) t.backward_input += took;
    if (kind == Kind::backward_weights) t.backward_weights += took;
    if (kind == Kind::backward && !halves) t.backward_input += took / 2, t.backward_weights += took / 2;
    if (kind == Kind::step) t.step = took;
  }
  return times;
}

// The seconds of a message: from the moment when both its send and its receive were posted to the computation
// that waited for it. Messages that arrived before anybody waited are not counted.
double message_time(const pipedream::Schedule& schedule, const StepSpans& step) {
  constexpr double kNoWait = 50e-6;  // between two actions of a stage that does not wait
  std::vector<double> times, ready(message_slots(schedule), 0);
  for_each(step, [&](std::size_t, std::size_t i, const Action& a, const auto& spans) {
    if (!is_message(a.kind)) return;
    double& at = ready[message_slot(schedule, message_of(schedule, a))];
    at = std::max(at, spans[i].start);
  });
  for_each(step, [&](std::size_t, std::size_t i, const Action& a, const auto& spans) {
    pipedream::Message message;
    if (i == 0 || !is_compute(a.kind) || !needs_message(schedule, a, message)) return;
    if (spans[i].start - spans[i - 1].end > kNoWait)
      times.push_back(std::max(0.0, spans[i].start - ready[message_slot(schedule, message)]));
  });
  return mean(times);
}

// The times by the formula for equal stages, from the average of the run's stage times.
std::optional<Timetable::Row> formula_row(pipedream::Family family, const pipedream::Schedule& schedule,
                                          const std::vector<pipedream::StageTimes>& stages) {
  pipedream::StageTimes mean{0, 0, 0, 0};
  const double S = schedule.stages;
  for (const pipedream::StageTimes& t : stages) {
    mean.forward += t.forward / S, mean.step += t.step / S;
    mean.backward_input += t.backward_input / S, mean.backward_weights += t.backward_weights / S;
  }
  const double step = std::exchange(mean.step, 0), both = mean.forward + mean.backward();
  if (family == pipedream::Family::zb_h1)
    mean.forward = mean.backward_input = mean.backward_weights = both / 3;
  const std::optional<double> makespan = formula_makespan({.family = family,
                                                           .stages = schedule.stages,
                                                           .microbatches = schedule.microbatches,
                                                           .chunks = schedule.chunks},
                                                          mean);
  if (!makespan) return {};
  return Timetable::Row{"formula", *makespan + step,
                        1 - (schedule.microbatches * both + step) / (*makespan + step),
                        "equal stages, messages that take no time"};
}

// Draws the measured step, with windows also the one before, over the simulated ones.
void lay_over(const std::vector<const StepSpans*>& measured, const std::vector<StepSpans>& simulated,
              Timetable& table) {
  const double began = computed(*measured.front()).start, expected = computed(simulated.front()).start;
  table.ranks.resize(measured.front()->size());
  for (std::size_t n = 0; n < measured.size(); ++n)
    for_each(*measured[n], [&](std::size_t s, std::size_t i, const Action& a, const auto& spans) {
      if (!takes_time(a.kind)) return;
      const pipedream::Span e = simulated[n][s].spans[i];
      table.ranks[s].push_back(
          {to_text(a), spans[i].start - began, spans[i].end - began, e.start - expected, e.end - expected});
    });
}

void add_rows(const MeasuredRun& run, const std::map<std::int64_t, StepSpans>& whole, Timetable& table) {
  const bool overlap = run.steps.windows != nullptr;
  struct Timed {
    StepTime time;
    std::vector<const StepSpans*> spans;  // of the step; with windows, after those of the one before
  };
  std::vector<Timed> timed;
  for (const auto& [t, step] : whole) {
    const auto before = whole.find(t - 1);
    if (!overlap) timed.push_back({run.steps.time_of(step, nullptr), {&step}});
    if (overlap && before != whole.end())
      timed.push_back({run.steps.time_of(step, &before->second), {&before->second, &step}});
  }
  if (timed.empty()) return;
  if (run.last_alone) timed.erase(timed.begin(), timed.end() - 1);
  std::ranges::sort(timed, {}, [](const Timed& one) { return one.time.seconds; });
  const Timed& usual = timed[(timed.size() - 1) / 2];
  pipedream::Costs costs;
  costs.times = stage_times(*usual.spans.back());
  if (!overlap) costs.latency = message_time(run.share.schedule, *usual.spans.back());
  table.costs = to_json(costs);

  const auto row = [&](const char* name, const StepTime& time, const std::string& from) {
    table.rows.push_back({name, time.seconds, time.idle, from});
  };
  const std::string n = std::to_string(timed.size());
  row("measured", usual.time,
      overlap ? "from the end of a step to that of the next, the median of " + n
              : "the median of " + n + (timed.size() == 1 ? " step" : " steps"));
  row("simulated", run.steps.time_by(costs),
      overlap ? "from what the stages took in that step, messages taking no time"
              : "from what stages and messages took in that step");
  if (run.share.costs) row("predicted", run.steps.time_by(*run.share.costs), "by " + run.options.costs);
  if (run.share.pace) {
    pipedream::Costs paced = *run.share.pace;
    paced.latency += run.options.link_ms / 1e3;
    row("paced", run.steps.time_by(paced), "by " + run.options.pace);
  }
  if (run.family) {
    if (const auto formula = formula_row(*run.family, run.share.schedule, costs.times))
      table.rows.push_back(*formula);
  }
  lay_over(usual.spans, run.steps.simulated(costs), table);
}

}  // namespace

Timetable timetable_of(const MeasuredRun& run, const Timeline& timeline, Communicator& comm) {
  Timetable table;
  const std::vector<std::vector<OfStep>> of_ranks =
      gather_values(comm, spans_of(timeline.recent(), run.first));
  std::vector<std::vector<OfStep>> of_stages;
  const std::size_t of_a_stage = of_ranks.size() / static_cast<std::size_t>(run.share.schedule.stages);
  for (std::size_t r = 0; r < of_ranks.size(); r += of_a_stage) of_stages.push_back(of_ranks[r]);
  if (!of_stages.empty()) add_rows(run, whole_steps(run.steps, of_stages), table);
  return table;
}

}  // namespace sc
