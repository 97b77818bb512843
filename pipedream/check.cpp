#include "pipedream/check.h"

#include <algorithm>
#include <map>
#include <utility>

#include "pipedream/findings.h"

namespace sc::pipedream {

namespace {

constexpr std::string_view kRuleNames[kRules] = {"complete", "order",   "message", "deadlock",
                                                 "step",     "version", "alive"};

// The actions that a stage has done for one microbatch and chunk, as one bit per kind.
using Done = std::uint16_t;
constexpr Done bit(Kind kind) { return static_cast<Done>(1U << static_cast<unsigned>(kind)); }
bool has(Done done, Kind kind) { return (done & bit(kind)) != 0; }
bool has_input_gradient(Done done) { return has(done, Kind::backward) || has(done, Kind::backward_input); }

// Checks on one stage the rules complete and order, and the part of rule message that one stage shows alone.
class StageCheck {
 public:
  StageCheck(const Schedule& schedule, int stage, Findings& findings)
      : schedule_(schedule),
        stage_(stage),
        findings_(findings),
        done_(static_cast<std::size_t>(schedule.chunks) * static_cast<std::size_t>(schedule.microbatches), 0),
        last_(2, std::vector<int>(static_cast<std::size_t>(schedule.chunks), -1)) {}

  void run() {
    const std::vector<Action>& list = schedule_.actions[static_cast<std::size_t>(stage_)];
    for (index_ = 0; index_ < list.size(); ++index_) {
      const Action& action = list[index_];
      if (action.microbatch == kNoMicrobatch) continue;
      Done& done = done_of(action.chunk, action.microbatch);
      if (has(done, action.kind)) add(Rule::complete, to_text(action) + " happens twice");
      if (is_compute(action.kind)) compute(action, done);
      if (is_send(action.kind)) send(action, done);
      done |= bit(action.kind);
    }
    finish();
  }

 private:
  Done& done_of(int chunk, int microbatch) {
    return done_[static_cast<std::size_t>(chunk) * static_cast<std::size_t>(schedule_.microbatches) +
                 static_cast<std::size_t>(microbatch)];
  }
  void add(Rule rule, const std::string& text) { findings_.add(rule, stage_, index_, text); }

  void compute(const Action& action, Done done) {
    if (action.kind != Kind::forward && !has(done, Kind::forward)) {
      add(Rule::order, to_text(action) + " comes before its forward");
    }
    if (action.kind == Kind::backward_weights && !has(done, Kind::backward_input)) {
      add(Rule::order, to_text(action) + " comes before its backward_input");
    }
    if (action.kind != Kind::forward) ascend(action);
    Message message;
    if (needs_message(schedule_, action, message)) {
      const Kind receive = message.gradient ? Kind::receive_gradient : Kind::receive_activation;
      if (!has(done, receive)) add(Rule::message, to_text(action) + " has no receive before it");
    } else if (schedule_.stages == 1) {
      local_input(action);
    }
  }

  // On a single stage with chunks the value comes from its own neighbouring chunk.
  void local_input(const Action& action) {
    if (action.kind == Kind::forward && action.chunk > 0 &&
        !has(done_of(action.chunk - 1, action.microbatch), Kind::forward)) {
      add(Rule::order, to_text(action) + " comes before the forward of the chunk below");
    }
    if (makes_input_gradient(action.kind) && action.chunk + 1 < schedule_.chunks &&
        !has_input_gradient(done_of(action.chunk + 1, action.microbatch))) {
      add(Rule::order, to_text(action) + " comes before the backward of the chunk above");
    }
  }

  // Requires ascending microbatches for both halves, because gradients are added as they come and sums depend
  // on the order.
  void ascend(const Action& action) {
    for (const bool weights : {false, true}) {
      if (!(weights ? ends_microbatch(action.kind) : makes_input_gradient(action.kind))) continue;
      int& last = last_[weights ? 1 : 0][static_cast<std::size_t>(action.chunk)];
      if (action.microbatch < last)
        return add(Rule::order, to_text(action) + " comes after the backward of microbatch " +
                                    std::to_string(last) +
                                    ": backwards, and the weights' halves, of a chunk ascend");
      last = action.microbatch;
    }
  }

  void send(const Action& action, Done done) {
    const bool made =
        action.kind == Kind::send_activation ? has(done, Kind::forward) : has_input_gradient(done);
    if (!made) add(Rule::message, to_text(action) + " comes before the action that makes it");
  }

  void finish() {
    for (int chunk = 0; chunk < schedule_.chunks; ++chunk) {
      for (int m = 0; m < schedule_.microbatches; ++m) finish(chunk, m);
    }
  }

  void finish(int chunk, int microbatch) {
    const Done done = done_of(chunk, microbatch);
    const bool whole = has(done, Kind::backward);
    const bool halves = has(done, Kind::backward_input) && has(done, Kind::backward_weights);
    const bool half = has(done, Kind::backward_input) || has(done, Kind::backward_weights);
    if (!has(done, Kind::forward) || whole == halves || (whole && half)) {
      const std::string of = chunk == 0 ? "" : " of chunk " + std::to_string(chunk);
      add(Rule::complete,
          "microbatch " + std::to_string(microbatch) + of + " has not one forward and one backward");
    }
    for (const Kind kind : {Kind::forward, Kind::backward}) {
      Action send;
      if (!makes_message(schedule_, {stage_, kind, microbatch, chunk, 0}, send)) continue;
      if (!has(done, send.kind)) add(Rule::message, to_text(send) + " is missing");
    }
  }

  const Schedule& schedule_;
  const int stage_;
  Findings& findings_;
  std::size_t index_ = 0;
  std::vector<Done> done_;
  std::vector<std::vector<int>> last_;  // the last microbatch of each half, by chunk
};

using Place = std::pair<int, std::size_t>;  // stage, index

struct Pair {
  std::vector<Place> sends, receives;
};

// Checks the part of rule message that needs both ends of a message.
class PairCheck {
 public:
  PairCheck(const Schedule& schedule, Findings& findings) : schedule_(schedule), findings_(findings) {}

  void run() {
    std::map<std::pair<int, int>, Pair> pairs;  // by (from, to)
    for (const std::vector<Action>& list : schedule_.actions) {
      for (std::size_t i = 0; i < list.size(); ++i) {
        const Action& action = list[i];
        if (!is_message(action.kind)) continue;
        const int peer = peer_of(schedule_, action);
        if (is_send(action.kind)) pairs[{action.stage, peer}].sends.emplace_back(action.stage, i);
        if (is_receive(action.kind)) pairs[{peer, action.stage}].receives.emplace_back(action.stage, i);
      }
    }
    for (const auto& [ends, pair] : pairs) compare(pair);
  }

 private:
  [[nodiscard]] const Action& at(const Place& place) const {
    return schedule_.actions[static_cast<std::size_t>(place.first)][place.second];
  }

  void compare(const Pair& pair) {
    const std::size_t both = std::min(pair.sends.size(), pair.receives.size());
    for (std::size_t k = 0; k < both; ++k) {
      const Action& send = at(pair.sends[k]);
      const Action& receive = at(pair.receives[k]);
      if (receive_of(schedule_, send) == receive) continue;
      add(pair.sends[k], to_text(send) + " meets " + to_text(receive) + " of stage " +
                             std::to_string(receive.stage) + " (both are number " + std::to_string(k) +
                             " between the two stages)");
      return;  // later messages are only shifted, so one violation is enough
    }
    if (pair.sends.size() > both) add(pair.sends[both], to_text(at(pair.sends[both])) + " meets no receive");
    if (pair.receives.size() > both) {
      add(pair.receives[both], to_text(at(pair.receives[both])) + " meets no send");
    }
  }
  void add(const Place& place, const std::string& text) {
    findings_.add(Rule::message, place.first, place.second, text);
  }

  const Schedule& schedule_;
  Findings& findings_;
};

// Counts the resources of one stage, action by action.
class Counter {
 public:
  explicit Counter(const Schedule& schedule) : schedule_(schedule) {}

  StageCounts run(const std::vector<Action>& list) {
    for (const Action& action : list) count(action);
    return counts_;
  }

 private:
  void count(const Action& action) {
    Message message;
    if (is_compute(action.kind) && needs_message(schedule_, action, message)) --posted_;
    activations_ += action.kind == Kind::forward ? 1 : 0;
    counts_.activations = std::max(counts_.activations, activations_);
    activations_ -= ends_microbatch(action.kind) ? 1 : 0;
    posted_ += is_receive(action.kind) ? 1 : 0;
    counts_.receive_buffers = std::max(counts_.receive_buffers, posted_);
    counts_.sends += is_send(action.kind) ? 1 : 0;
    counts_.steps += action.kind == Kind::step ? 1 : 0;
    count_versions(action);
  }

  // Between a stash and the next step, the copy and the newest weights are the same version.
  void count_versions(const Action& action) {
    if (action.kind == Kind::stash) ++stashed_;
    if (action.kind == Kind::drop) --stashed_;
    const bool copy_of_newest = action.kind == Kind::stash;
    counts_.versions = std::max(counts_.versions, 1 + stashed_ - (copy_of_newest ? 1 : 0));
  }

  const Schedule& schedule_;
  StageCounts counts_;
  int activations_ = 0, posted_ = 0, stashed_ = 0;
};

}  // namespace

std::string_view name_of(Rule rule) { return kRuleNames[static_cast<std::size_t>(rule)]; }

int versions_allowed(const Schedule& schedule, int stage) {
  switch (schedule.versions) {
    case VersionRule::stash:
      return schedule.stages - stage;
    case VersionRule::vertical_sync:
      return schedule.stages;
    case VersionRule::two_buffers:
      return 2;
    default:
      return 1;
  }
}

std::vector<StageCounts> count(const Schedule& schedule) {
  require_shape(schedule);
  std::vector<StageCounts> stages;
  for (const std::vector<Action>& list : schedule.actions) stages.push_back(Counter(schedule).run(list));
  return stages;
}

CheckReport check(const Schedule& schedule) {
  CheckReport report;
  report.stages = count(schedule);
  Findings findings(report);
  for (int stage = 0; stage < schedule.stages; ++stage) StageCheck(schedule, stage, findings).run();
  PairCheck(schedule, findings).run();
  if (!findings.found(Rule::message)) check_deadlock(schedule, findings, report.cycle);
  check_versions(schedule, findings);
  return report;
}

std::string to_text(const Violation& violation) {
  return std::string(name_of(violation.rule)) + ": stage " + std::to_string(violation.stage) + ", action " +
         std::to_string(violation.index) + ": " + violation.text;
}

}  // namespace sc::pipedream
