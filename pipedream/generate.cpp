#include "pipedream/generate.h"

#include <algorithm>
#include <string>

#include "pipedream/error.h"
#include "pipedream/messages.h"
#include "pipedream/weight_versions.h"

namespace sc::pipedream {

namespace {

constexpr std::array<std::string_view, 7> kNames = {"naive", "gpipe",     "1f1b", "interleaved",
                                                    "zb_h1", "pipedream", "2bw"};

void refuse_setting(const std::string& where, const std::string& what, const std::string& fix) {
  throw InputError(ExitCode::usage, where, what, fix);
}

void require_setting(const char* name, std::int64_t value, std::int64_t most) {
  if (value >= 1 && value <= most) return;
  refuse_setting(name, std::to_string(value) + " is out of range", "choose 1 to " + std::to_string(most));
}

// The number of microbatches that a step applies.
int update_every(const GenerateOptions& o) {
  if (o.update_every > 0) return o.update_every;
  return o.family == Family::pipedream ? 1 : o.microbatches;
}

void require_update_every(const GenerateOptions& o) {
  if (o.update_every != 0) {
    if (!is_asynchronous(o.family)) {
      refuse_setting("update_every", std::string(name_of(o.family)) + " steps once a batch",
                     "leave update_every at 0, or choose pipedream or 2bw");
    }
    require_setting("update_every", o.update_every, o.microbatches);
    if (o.microbatches % o.update_every != 0) {
      refuse_setting("update_every",
                     std::to_string(o.update_every) + " does not divide the " +
                         std::to_string(o.microbatches) + " microbatches of a batch",
                     "choose a divisor");
    }
  }
  if (o.family == Family::two_bw && update_every(o) < o.stages) {
    refuse_setting("microbatches",
                   "two weight versions need an update every M >= S microbatches, here M = " +
                       std::to_string(update_every(o)) + " and S = " + std::to_string(o.stages),
                   "choose at least " + std::to_string(o.stages) + " microbatches a batch");
  }
}

void require_warmup(const GenerateOptions& o) {
  const int most = most_warmup(o);
  if (o.warmup >= 0 && o.warmup <= most) return;
  if (o.family != Family::one_f_one_b) {
    refuse_setting(
        "warmup",
        "1f1b alone has a warm-up that can be longer, and this is " + std::string(name_of(o.family)),
        "leave warmup at 0, or choose 1f1b");
  }
  refuse_setting("warmup",
                 std::to_string(o.warmup) + " is out of range: " + std::to_string(most) +
                     " more forwards are the most that stages = " + std::to_string(o.stages) +
                     " and microbatches = " + std::to_string(o.microbatches) + " allow",
                 most == 0 ? "leave warmup at 0" : "choose 0 to " + std::to_string(most));
}

void require_options(const GenerateOptions& o) {
  require_setting("stages", o.stages, kMostStages);
  require_setting("microbatches", o.microbatches, kMostMicrobatches);
  require_setting("batches", o.batches, kMostMicrobatches);
  require_setting("chunks", o.chunks, kMostChunks);
  require_setting("microbatches x batches", std::int64_t{o.microbatches} * o.batches, kMostMicrobatches);
  require_setting("stages x chunks x microbatches x batches",
                  std::int64_t{o.stages} * o.chunks * o.microbatches * o.batches, kMostCells);
  const bool chunked = o.family == Family::interleaved || o.family == Family::zb_h1;
  if (o.chunks > 1 && !chunked) {
    refuse_setting("chunks", std::string(name_of(o.family)) + " has one chunk a stage",
                   "leave chunks at 1, or choose interleaved or zb_h1");
  }
  const bool pipedream_rule = o.versions == VersionRule::none || o.versions == VersionRule::stash ||
                              o.versions == VersionRule::vertical_sync;
  if (o.family == Family::pipedream && !pipedream_rule) {
    refuse_setting("versions", "pipedream has no rule " + std::string(name_of(o.versions)),
                   "choose none, stash or vertical_sync");
  }
  require_update_every(o);
  require_warmup(o);
}

VersionRule rule_of(const GenerateOptions& o) {
  if (o.family == Family::pipedream) return o.versions;
  return o.family == Family::two_bw ? VersionRule::two_buffers : VersionRule::flush;
}

std::vector<Action> naive_or_gpipe(const GenerateOptions& o, int stage) {
  const bool naive = o.family == Family::naive;
  std::vector<Action> list;
  for (int m = 0; m < o.microbatches; ++m) {
    list.push_back({stage, Kind::forward, m, 0, 0});
    if (naive) list.push_back({stage, Kind::backward, m, 0, 0});
  }
  for (int m = 0; m < o.microbatches && !naive; ++m) list.push_back({stage, Kind::backward, m, 0, 0});
  return list;
}

// The order in which a stage meets the (microbatch, chunk) pairs: rounds of `round` microbatches, chunk after
// chunk.
struct Order {
  int round = 1;
  int chunks = 1;
  [[nodiscard]] Action forward(int stage, int i) const {
    const int within = i % (round * chunks);
    return {stage, Kind::forward, i / (round * chunks) * round + within % round, within / round, 0};
  }
  [[nodiscard]] Action backward(int stage, int i, Kind kind) const {
    Action action = forward(stage, i);
    action.kind = kind;
    action.chunk = chunks - 1 - action.chunk;
    return action;
  }
};

// The properties in which members of the 1F1B family differ.
struct OneForwardOneBackward {
  Order order;
  int total = 0;       // (microbatch, chunk) pairs
  int warm_up = 0;     // forwards before the first pair of forward and backward
  bool split = false;  // backward in two halves
  int weight_lag = 0;  // the weights' half follows this many backwards later
};

std::vector<Action> one_forward_one_backward(const OneForwardOneBackward& f, int stage) {
  const Kind kind = f.split ? Kind::backward_input : Kind::backward;
  std::vector<Action> list;
  int forwards = 0;
  for (int i = 0; i < f.total; ++i) {
    // [anchor: warm-up]
    for (; forwards < std::min(f.total, f.warm_up + i + 1); ++forwards)
      list.push_back(f.order.forward(stage, forwards));
    list.push_back(f.order.backward(stage, i, kind));
    if (f.split && i >= f.weight_lag) {
      list.push_back(f.order.backward(stage, i - f.weight_lag, Kind::backward_weights));
    }
  }
  for (int i = std::max(0, f.total - f.weight_lag); i < f.total && f.split; ++i) {
    list.push_back(f.order.backward(stage, i, Kind::backward_weights));
  }
  return list;
}

// The list of one stage for 1F1B and its relatives; `microbatches` pass without a flush.
std::vector<Action> one_f_one_b_family(const GenerateOptions& o, int microbatches, int stage) {
  const bool interleaved = o.family == Family::interleaved;
  const bool split = o.family == Family::zb_h1;
  const bool rounds = interleaved || split;
  const int behind = o.stages - 1 - stage;  // stages between this one and the last
  const int full_rounds = std::max(1, microbatches / o.stages);
  const int round = rounds ? (microbatches + full_rounds - 1) / full_rounds : 1;
  const int padded = rounds ? round * full_rounds : microbatches;
  OneForwardOneBackward family;
  family.order = {round, o.chunks};
  family.total = padded * o.chunks;
  family.warm_up = (o.chunks - 1) * round + (interleaved ? 2 : 1) * behind + (behind > 0 ? o.warmup : 0);
  family.split = split;
  family.weight_lag = split ? stage : 0;
  std::vector<Action> list = one_forward_one_backward(family, stage);
  std::erase_if(list, [&](const Action& action) { return action.microbatch >= microbatches; });
  return list;
}

std::vector<Action> one_batch(const GenerateOptions& o, int stage) {
  if (o.family == Family::naive || o.family == Family::gpipe) return naive_or_gpipe(o, stage);
  return one_f_one_b_family(o, o.microbatches, stage);
}

std::vector<Action> repeat(const std::vector<Action>& batch, const GenerateOptions& o) {
  std::vector<Action> list;
  list.reserve(batch.size() * static_cast<std::size_t>(o.batches));
  for (int b = 0; b < o.batches; ++b) {
    for (Action action : batch) {
      action.microbatch += b * o.microbatches;
      list.push_back(action);
    }
  }
  return list;
}

// Removes the receive of `message` from `receives` and returns it.
Action take_receive(const Schedule& schedule, const Message& message, std::vector<Action>& receives) {
  const auto match = std::find_if(receives.begin(), receives.end(), [&](const Action& receive) {
    return message_of(schedule, receive) == message;
  });
  const Action found = *match;
  receives.erase(match);
  return found;
}

// Places every receive directly before the action that needs its value.
std::vector<Action> receive_when_needed(const Schedule& schedule, const std::vector<Action>& list) {
  std::vector<Action> late;
  std::vector<Action> receives;
  for (const Action& action : list) {
    if (is_receive(action.kind)) {
      receives.push_back(action);
      continue;
    }
    Message message;
    const bool needs = is_compute(action.kind) && needs_message(schedule, action, message);
    if (needs) late.push_back(take_receive(schedule, message, receives));
    late.push_back(action);
  }
  return late;
}

void receive_when_needed(Schedule& schedule) {
  for (std::vector<Action>& list : schedule.actions) list = receive_when_needed(schedule, list);
}

}  // namespace

std::string_view name_of(Family family) { return kNames[static_cast<std::size_t>(family)]; }

bool family_from_name(std::string_view name, Family& family) {
  const auto* const found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) return false;
  family = kFamilies[static_cast<std::size_t>(found - kNames.begin())];
  return true;
}

int most_warmup(const GenerateOptions& o) {
  if (o.family != Family::one_f_one_b || o.stages == 1) return 0;
  return std::max(0, o.microbatches - 2);
}

Schedule generate(const GenerateOptions& options) {
  require_options(options);
  Schedule compute;
  compute.name = name_of(options.family);
  if (options.warmup > 0) compute.name += "_warmup_" + std::to_string(options.warmup);
  compute.stages = options.stages;
  compute.microbatches = options.microbatches * options.batches;
  compute.chunks = options.chunks;
  compute.versions = rule_of(options);
  for (int stage = 0; stage < options.stages; ++stage) {
    compute.actions.push_back(is_asynchronous(options.family)
                                  ? one_f_one_b_family(options, compute.microbatches, stage)
                                  : repeat(one_batch(options, stage), options));
  }
  return with_messages(with_versions(compute, update_every(options)));
}

Schedule deadlock_send_first() {
  Schedule schedule = generate({.family = Family::one_f_one_b, .stages = 4, .microbatches = 4});
  schedule.name = "deadlock_send_first";
  receive_when_needed(schedule);
  return schedule;
}

Schedule deadlock_ring() {
  Schedule schedule = generate({.family = Family::interleaved, .stages = 4, .microbatches = 4, .chunks = 2});
  schedule.name = "deadlock_ring";
  receive_when_needed(schedule);
  return schedule;
}

}  // namespace sc::pipedream
