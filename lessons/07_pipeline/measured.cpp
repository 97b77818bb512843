#include "measured.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <sstream>
#include <utility>

#include "common/comm/gather_text.h"
#include "pipedream/cost_files.h"
#include "pipedream/formulas.h"
#include "pipedream/generate.h"

namespace sc {
namespace {

using pipedream::Action;
using pipedream::Kind;

/// Begin and end of every action of a stage's list, in seconds of the host's clock.
using Spans = std::vector<pipedream::Span>;
/// By stage.
using Step = std::vector<Spans>;

bool takes_time(Kind kind) { return pipedream::is_compute(kind) || kind == Kind::step; }

double seconds(Timeline::Clock::time_point at) {
  return std::chrono::duration<double>(at.time_since_epoch()).count();
}

std::string pack(const std::vector<Timeline::Span>& spans) {
  std::ostringstream out;
  out.precision(17);
  for (const Timeline::Span& s : spans)
    out << s.step << ' ' << seconds(s.begin) << ' ' << seconds(s.end) << '\n';
  return out.str();
}

// Every action has left one mark, in the list's order: steps of which a stage has more or fewer are left out.
std::map<std::int64_t, Spans> unpack(const std::string& text, std::size_t actions) {
  std::map<std::int64_t, Spans> steps;
  std::istringstream in(text);
  std::int64_t step = 0;
  for (pipedream::Span span; in >> step >> span.start >> span.end;) steps[step].push_back(span);
  std::erase_if(steps, [&](const auto& entry) { return entry.second.size() != actions; });
  return steps;
}

std::vector<Step> whole_steps(const pipedream::Schedule& schedule,
                              const std::vector<std::string>& of_stages) {
  std::map<std::int64_t, Step> steps;
  for (std::size_t s = 0; s < of_stages.size(); ++s)
    for (auto& [step, spans] : unpack(of_stages[s], schedule.actions[s].size()))
      steps[step].push_back(std::move(spans));
  std::erase_if(steps, [&](const auto& entry) { return entry.second.size() != of_stages.size(); });
  if (steps.size() > 1) steps.erase(0);  // makes what is made once
  std::vector<Step> whole;
  for (auto& [number, step] : steps) whole.push_back(std::move(step));
  return whole;
}

struct Reading {
  const pipedream::Schedule& schedule;

  /// visit(stage, index, action, spans of that stage).
  template <class Visit>
  void for_each(const Step& step, const Visit& visit) const {
    for (std::size_t s = 0; s < step.size(); ++s)
      for (std::size_t i = 0; i < step[s].size(); ++i) visit(s, i, schedule.actions[s][i], step[s]);
  }
  [[nodiscard]] pipedream::Span whole(const Step& step) const {
    pipedream::Span all{step[0][0].end, step[0][0].end};
    for_each(step, [&](std::size_t, std::size_t i, const Action& a, const Spans& spans) {
      if (!takes_time(a.kind)) return;
      all.start = std::min(all.start, spans[i].start), all.end = std::max(all.end, spans[i].end);
    });
    return all;
  }
  [[nodiscard]] double makespan(const Step& step) const { return whole(step).end - whole(step).start; }
  [[nodiscard]] double idle(const Step& step) const {
    double busy = 0;
    for_each(step, [&](std::size_t, std::size_t i, const Action& a, const Spans& spans) {
      if (takes_time(a.kind)) busy += spans[i].end - spans[i].start;
    });
    return 1 - busy / (makespan(step) * schedule.stages);
  }
};

double mean(const std::vector<double>& values) {
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// What each stage takes for one micro-batch, all its chunks together.
std::vector<pipedream::StageTimes> stage_times(const Reading& run, const Step& step) {
  std::map<std::tuple<std::size_t, Kind, int>, std::vector<double>> taken;  // by stage, kind, chunk
  run.for_each(step, [&](std::size_t s, std::size_t i, const Action& a, const Spans& spans) {
    if (takes_time(a.kind)) taken[{s, a.kind, a.chunk}].push_back(spans[i].end - spans[i].start);
  });
  std::vector<pipedream::StageTimes> times(run.schedule.actions.size(), {0, 0, 0, 0});
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

// From the moment when both its send and its receive were there to the computation that waited for it. Messages
// that came before anybody waited tell nothing.
double message_time(const Reading& run, const Step& step) {
  constexpr double kNoWait = 50e-6;  // between two actions of a stage that waits for nothing
  const pipedream::Schedule& schedule = run.schedule;
  std::vector<double> times, ready(message_slots(schedule), 0);
  run.for_each(step, [&](std::size_t, std::size_t i, const Action& a, const Spans& spans) {
    if (!is_message(a.kind)) return;
    double& at = ready[message_slot(schedule, message_of(schedule, a))];
    at = std::max(at, spans[i].start);
  });
  run.for_each(step, [&](std::size_t, std::size_t i, const Action& a, const Spans& spans) {
    pipedream::Message message;
    if (i == 0 || !is_compute(a.kind) || !needs_message(schedule, a, message)) return;
    if (spans[i].start - spans[i - 1].end > kNoWait)
      times.push_back(std::max(0.0, spans[i].start - ready[message_slot(schedule, message)]));
  });
  return mean(times);
}

Timetable::Row simulated_row(const pipedream::Schedule& schedule, const pipedream::Costs& costs,
                             const std::string& name, const std::string& from) {
  const pipedream::Timeline timeline = simulate(schedule, costs);
  return {name, timeline.makespan, 1 - timeline.utilization, from};
}

// Of equal stages, each of which takes what the run's stages take on average.
std::optional<Timetable::Row> formula_row(const PipelineOptions& options, const pipedream::Schedule& schedule,
                                          const std::vector<pipedream::StageTimes>& stages) {
  pipedream::Family family{};
  if (!pipedream::family_from_name(options.schedule, family)) return {};
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

std::vector<std::vector<Timetable::Span>> lay_over(const Reading& run, const Step& step,
                                                   const pipedream::Timeline& expected) {
  std::vector<std::vector<Timetable::Span>> ranks(step.size());
  const double began = run.whole(step).start;
  run.for_each(step, [&](std::size_t s, std::size_t i, const Action& a, const Spans& spans) {
    if (!takes_time(a.kind)) return;
    const pipedream::Span e = expected.spans[s][i];
    ranks[s].push_back({to_text(a), spans[i].start - began, spans[i].end - began, e.start, e.end});
  });
  return ranks;
}

}  // namespace

std::optional<Timetable> timetable_of(const Share& share, const PipelineOptions& options,
                                      const RunShape& shape, const Timeline& timeline, Communicator& comm) {
  const std::vector<std::string> of_ranks = gather_strings(comm, pack(timeline.recent()));
  if (of_ranks.empty()) return {};
  std::vector<std::string> of_stages;
  for (std::size_t r = 0; r < of_ranks.size(); r += static_cast<std::size_t>(share.replicas))
    of_stages.push_back(of_ranks[r]);
  const pipedream::Schedule& schedule = share.schedule;
  std::vector<Step> steps = whole_steps(schedule, of_stages);
  if (steps.empty()) return {};
  if (shape.device == DeviceKind::cuda)
    steps.erase(steps.begin(), steps.end() - 1);  // a graph's, where there is one
  const Reading run{schedule};
  std::ranges::sort(steps, {}, [&](const Step& step) { return run.makespan(step); });
  const Step& usual = steps[(steps.size() - 1) / 2];
  pipedream::Costs costs;
  costs.times = stage_times(run, usual);
  costs.latency = message_time(run, usual);

  Timetable table;
  table.costs = to_json(costs);
  table.rows.push_back(
      {"measured", run.makespan(usual), run.idle(usual),
       "the median of " + std::to_string(steps.size()) + (steps.size() == 1 ? " step" : " steps")});
  table.rows.push_back(
      simulated_row(schedule, costs, "simulated", "from what stages and messages took in that step"));
  if (share.costs)
    table.rows.push_back(simulated_row(schedule, *share.costs, "predicted", "by " + options.costs));
  if (share.pace) {
    pipedream::Costs paced = *share.pace;
    paced.latency += options.link_ms / 1e3;
    table.rows.push_back(simulated_row(schedule, paced, "paced", "by " + options.pace));
  }
  if (const auto row = formula_row(options, schedule, costs.times)) table.rows.push_back(*row);
  table.ranks = lay_over(run, usual, simulate(schedule, costs));
  return table;
}

}  // namespace sc
