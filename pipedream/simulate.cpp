#include "pipedream/simulate.h"

#include <algorithm>
#include <cmath>

#include "pipedream/check.h"
#include "pipedream/error.h"
#include "pipedream/worklist.h"

namespace sc::pipedream {

namespace {

template <class Entry>
const Entry& of_stage(const std::vector<Entry>& entries, std::size_t stage) {
  return entries[entries.size() == 1 ? 0 : stage];
}

void require_numbers(const char* name, const std::vector<double>& values) {
  for (const double value : values) {
    if (std::isfinite(value) && value >= 0) continue;
    throw InputError(ExitCode::data, std::string("costs, ") + name, "a number is negative or not finite",
                     "give 0 or more");
  }
}

void require_entries(const char* name, std::size_t entries, int stages) {
  if (entries == 1 || entries == static_cast<std::size_t>(stages)) return;
  throw InputError(ExitCode::data, std::string("costs, ") + name,
                   std::to_string(entries) + " entries for " + std::to_string(stages) + " stages",
                   "give one entry for all stages, or one a stage");
}

// A directed pair of stages. Sends and receives are numbered in the order of issue; equal numbers match.
struct Wire {
  std::vector<double> sent, posted;
  std::vector<std::size_t> slot_of_send, slot_of_receive;
  std::vector<Span*> span_of_send, span_of_receive;
  std::size_t started = 0;  // messages whose send and receive have matched
  double free = 0;          // when the last message has left
};

class Clock {
 public:
  Clock(const Schedule& schedule, const Costs& costs)
      : schedule_(schedule),
        costs_(costs),
        work_(schedule, message_slots(schedule)),
        arrival_(message_slots(schedule), 0),
        now_(schedule.actions.size(), 0),
        wires_(2 * schedule.actions.size()) {}

  Timeline run() {
    for (const std::vector<Action>& list : schedule_.actions) timeline_.spans.emplace_back(list.size());
    const bool done = work_.run([&](const Action& action, std::size_t index, std::size_t& token) {
      return act(action, timeline_.spans[static_cast<std::size_t>(action.stage)][index], token);
    });
    if (!done) refuse("the schedule cannot be finished");
    sum_up();
    return std::move(timeline_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw InputError(ExitCode::data, "schedule " + schedule_.name, what,
                     "run 'pipedream check' on it: it says where and why");
  }

  bool act(const Action& action, Span& span, std::size_t& token) {
    double& now = now_[static_cast<std::size_t>(action.stage)];
    if (is_message(action.kind)) {
      post(action, span, now);
      return true;
    }
    double start = now;
    Message message;
    if (is_compute(action.kind) && needs_message(schedule_, action, message)) {
      token = message_slot(schedule_, message);
      if (!work_.fulfilled(token)) return false;
      start = std::max(start, arrival_[token]);
    }
    now = start + duration(action);
    span = {start, now};
    return true;
  }

  [[nodiscard]] double duration(const Action& action) const { return duration_of(schedule_, costs_, action); }

  // The wire between neighbours, which alone are connected: a stage's wire 0 leads to the next stage, wire 1
  // to the previous one (with two stages wire 0 is both).
  Wire& wire(int from, int to) {
    const bool next = (from + 1) % schedule_.stages == to;
    return wires_[2 * static_cast<std::size_t>(from) + (next ? 0 : 1)];
  }

  void post(const Action& action, Span& span, double now) {
    const int peer = peer_of(schedule_, action);
    const std::size_t slot = message_slot(schedule_, message_of(schedule_, action));
    const bool send = is_send(action.kind);
    Wire& w = send ? wire(action.stage, peer) : wire(peer, action.stage);
    (send ? w.sent : w.posted).push_back(now);
    (send ? w.slot_of_send : w.slot_of_receive).push_back(slot);
    (send ? w.span_of_send : w.span_of_receive).push_back(&span);
    if (w.started < std::min(w.sent.size(), w.posted.size()))
      deliver(w, bandwidth(send ? action.stage : peer, send ? peer : action.stage));
  }

  [[nodiscard]] double bandwidth(int from, int to) const {
    if (costs_.bandwidths.empty()) return costs_.bandwidth;
    return costs_.bandwidths[static_cast<std::size_t>((from + 1) % schedule_.stages == to ? from : to)];
  }

  void deliver(Wire& w, double bandwidth) {
    const std::size_t k = w.started++;
    if (w.slot_of_send[k] != w.slot_of_receive[k]) refuse("a send meets the receive of another value");
    const double start = std::max({w.sent[k], w.posted[k], w.free});
    w.free = start + (bandwidth > 0 ? costs_.message_bytes / bandwidth : 0);
    const double arrival = w.free + costs_.latency;
    *w.span_of_send[k] = {start, arrival};
    *w.span_of_receive[k] = {w.posted[k], arrival};
    arrival_[w.slot_of_send[k]] = arrival;
    work_.fulfil(w.slot_of_send[k]);
  }

  void sum_up() {
    for (const double end : now_) timeline_.makespan = std::max(timeline_.makespan, end);
    const std::vector<StageCounts> counts = count(schedule_);
    double busy = 0;
    for (std::size_t stage = 0; stage < schedule_.actions.size(); ++stage) {
      StageUse use = use_of(stage);
      const StageBytes& bytes = of_stage(costs_.bytes, stage);
      use.activation_bytes = counts[stage].activations * bytes.activations / schedule_.chunks;
      use.weight_bytes = counts[stage].versions * bytes.weights;
      use.receive_bytes = counts[stage].receive_buffers * costs_.message_bytes;
      use.idle_share = timeline_.makespan > 0 ? 1 - use.busy / timeline_.makespan : 0;
      busy += use.busy;
      timeline_.stages.push_back(use);
    }
    timeline_.utilization = timeline_.makespan > 0 ? busy / (timeline_.makespan * schedule_.stages) : 0;
  }

  [[nodiscard]] StageUse use_of(std::size_t stage) const {
    const std::vector<Action>& list = schedule_.actions[stage];
    const std::vector<Span>& spans = timeline_.spans[stage];
    StageUse use;
    double first_backward = timeline_.makespan;
    double last_forward = 0;
    for (std::size_t i = 0; i < list.size(); ++i) {
      use.busy += duration(list[i]);
      if (list[i].kind == Kind::forward) last_forward = spans[i].end;
      if (makes_input_gradient(list[i].kind)) first_backward = std::min(first_backward, spans[i].start);
    }
    double steady_busy = 0;
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (spans[i].start >= first_backward && spans[i].end <= last_forward) steady_busy += duration(list[i]);
    }
    const double steady = last_forward - first_backward;
    if (steady > 0) use.steady_idle = 1 - steady_busy / steady;
    return use;
  }

  const Schedule& schedule_;
  const Costs& costs_;
  Worklist work_;
  std::vector<double> arrival_;  // by message
  std::vector<double> now_;      // when a stage is free
  std::vector<Wire> wires_;
  Timeline timeline_;
};

}  // namespace

void require_costs(const Costs& costs, int stages) {
  require_entries("times", costs.times.size(), stages);
  require_entries("bytes", costs.bytes.size(), stages);
  for (const StageTimes& t : costs.times) {
    require_numbers("times", {t.forward, t.backward_input, t.backward_weights, t.step});
  }
  for (const StageBytes& b : costs.bytes) require_numbers("bytes", {b.activations, b.weights});
  require_numbers("link", {costs.message_bytes, costs.latency, costs.bandwidth});
  if (costs.bandwidths.empty()) return;
  require_numbers("bandwidths", costs.bandwidths);
  if (costs.bandwidths.size() != static_cast<std::size_t>(stages) || costs.bandwidth > 0)
    throw InputError(ExitCode::data, "costs, bandwidths",
                     std::to_string(costs.bandwidths.size()) + " links of " + std::to_string(stages) +
                         " stages" + (costs.bandwidth > 0 ? ", and one bandwidth of all" : ""),
                     "one for each stage, or \"bandwidth\" alone");
}

double duration_of(const Schedule& schedule, const Costs& costs, const Action& action) {
  const StageTimes& times = of_stage(costs.times, static_cast<std::size_t>(action.stage));
  switch (action.kind) {
    case Kind::forward:
      return times.forward / schedule.chunks;
    case Kind::backward:
      return times.backward() / schedule.chunks;
    case Kind::backward_input:
      return times.backward_input / schedule.chunks;
    case Kind::backward_weights:
      return times.backward_weights / schedule.chunks;
    case Kind::step:
      return times.step;
    default:
      return 0;
  }
}

Timeline simulate(const Schedule& schedule, const Costs& costs) {
  require_shape(schedule);
  require_costs(costs, schedule.stages);
  return Clock(schedule, costs).run();
}

}  // namespace sc::pipedream
