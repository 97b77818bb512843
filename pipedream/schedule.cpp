#include "pipedream/schedule.h"

#include <array>
#include <charconv>

#include "pipedream/error.h"

namespace sc::pipedream {

namespace {

constexpr std::array<std::string_view, kKinds> kKindNames = {"forward",
                                                             "backward",
                                                             "backward_input",
                                                             "backward_weights",
                                                             "send_activation",
                                                             "receive_activation",
                                                             "send_gradient",
                                                             "receive_gradient",
                                                             "step",
                                                             "stash",
                                                             "drop"};
constexpr std::array<std::string_view, kKinds> kKindMarks = {"F",  "B",  "I",    "W",     "SA",  "RA",
                                                             "SG", "RG", "step", "stash", "drop"};
constexpr std::array<std::string_view, 5> kVersionRuleNames = {"flush", "none", "stash", "vertical_sync",
                                                               "two_buffers"};

bool has_microbatch(Kind kind) { return is_compute(kind) || is_message(kind); }

// Removes a number of at most 7 digits from the front of `text`; false if there is none.
bool take_number(std::string_view& text, int& value) {
  constexpr std::size_t kMostDigits = 7;
  const char* begin = text.data();
  const auto [end, error] = std::from_chars(begin, begin + text.size(), value);
  const auto length = static_cast<std::size_t>(end - begin);
  if (error != std::errc() || length > kMostDigits || text.front() == '-') return false;
  text.remove_prefix(length);
  return true;
}

// Removes an action's mark from the front of `text`. No mark is the beginning of another.
bool take_mark(std::string_view& text, Kind& kind) {
  for (std::size_t i = 0; i < kKindMarks.size(); ++i) {
    if (!text.starts_with(kKindMarks[i])) continue;
    text.remove_prefix(kKindMarks[i].size());
    kind = static_cast<Kind>(i);
    return true;
  }
  return false;
}

bool take_action(std::string_view text, Action& action) {
  if (!take_mark(text, action.kind)) return false;
  action.microbatch = kNoMicrobatch;
  if (has_microbatch(action.kind)) {
    if (!take_number(text, action.microbatch)) return false;
    if (text.starts_with('/')) {
      text.remove_prefix(1);
      if (!take_number(text, action.chunk)) return false;
    }
  }
  if (text.starts_with('@') && !is_message(action.kind)) {
    text.remove_prefix(1);
    if (!take_number(text, action.version)) return false;
  }
  return text.empty();
}

[[noreturn]] void refuse(const std::string& where, const std::string& what, const std::string& fix) {
  throw InputError(ExitCode::data, where, what, fix);
}

void require_range(const std::string& what, std::int64_t value, std::int64_t most) {
  if (value >= 1 && value <= most) return;
  refuse(what, std::to_string(value) + " is out of range", "choose 1 to " + std::to_string(most));
}

// Whether the action may be in the list of `stage`.
bool in_range(const Schedule& schedule, const Action& action, int stage) {
  const bool microbatch = has_microbatch(action.kind)
                              ? action.microbatch >= 0 && action.microbatch < schedule.microbatches
                              : action.microbatch == kNoMicrobatch;
  return action.stage == stage && microbatch && action.chunk >= 0 && action.chunk < schedule.chunks &&
         action.version >= 0 && action.version <= kMostMicrobatches &&
         (action.version == 0 || !is_message(action.kind));
}

// Whether a message's other end is a position of the model.
bool has_other_end(const Schedule& schedule, const Action& action) {
  if (!is_message(action.kind)) return true;
  const int here = schedule.position(action);
  const bool below = action.kind == Kind::receive_activation || action.kind == Kind::send_gradient;
  return schedule.stages > 1 && here != (below ? 0 : schedule.positions() - 1);
}

}  // namespace

void require_shape(const Schedule& schedule) {
  require_range("stages", schedule.stages, kMostStages);
  require_range("microbatches", schedule.microbatches, kMostMicrobatches);
  require_range("chunks", schedule.chunks, kMostChunks);
  require_range("stages x chunks x microbatches",
                static_cast<std::int64_t>(schedule.positions()) * schedule.microbatches, kMostCells);
  if (schedule.actions.size() != static_cast<std::size_t>(schedule.stages)) {
    refuse("actions",
           "there are " + std::to_string(schedule.actions.size()) + " lists for " +
               std::to_string(schedule.stages) + " stages",
           "write one list a stage");
  }
  for (int stage = 0; stage < schedule.stages; ++stage) {
    const std::vector<Action>& list = schedule.actions[static_cast<std::size_t>(stage)];
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (in_range(schedule, list[i], stage) && has_other_end(schedule, list[i])) continue;
      refuse("stage " + std::to_string(stage) + ", action " + std::to_string(i),
             to_text(list[i]) + " lies outside " + std::to_string(schedule.stages) + " stages, " +
                 std::to_string(schedule.microbatches) + " microbatches, " + std::to_string(schedule.chunks) +
                 " chunks, or its message has no other end",
             "correct the action, or the counts of the schedule");
    }
  }
}

Message message_of(const Schedule& schedule, const Action& action) {
  const int here = schedule.position(action);
  switch (action.kind) {
    case Kind::send_activation:
      return {false, here + 1, action.microbatch};
    case Kind::send_gradient:
      return {true, here - 1, action.microbatch};
    default:
      return {action.kind == Kind::receive_gradient, here, action.microbatch};
  }
}

int peer_of(const Schedule& schedule, const Action& action) {
  const bool next = action.kind == Kind::send_activation || action.kind == Kind::receive_gradient;
  return (action.stage + (next ? 1 : schedule.stages - 1)) % schedule.stages;
}

std::size_t message_slot(const Schedule& schedule, const Message& message) {
  const auto positions = static_cast<std::size_t>(schedule.positions());
  const std::size_t row = (message.gradient ? positions : 0) + static_cast<std::size_t>(message.to);
  return row * static_cast<std::size_t>(schedule.microbatches) + static_cast<std::size_t>(message.microbatch);
}

std::size_t message_slots(const Schedule& schedule) {
  return 2 * static_cast<std::size_t>(schedule.positions()) * static_cast<std::size_t>(schedule.microbatches);
}

bool needs_message(const Schedule& schedule, const Action& action, Message& message) {
  if (schedule.stages == 1 || action.kind == Kind::backward_weights) return false;
  const int here = schedule.position(action);
  const bool gradient = action.kind != Kind::forward;
  if (here == (gradient ? schedule.positions() - 1 : 0)) return false;
  message = {gradient, here, action.microbatch};
  return true;
}

bool makes_message(const Schedule& schedule, const Action& action, Action& send) {
  if (schedule.stages == 1 || action.kind == Kind::backward_weights) return false;
  const int here = schedule.position(action);
  const bool gradient = action.kind != Kind::forward;
  if (here == (gradient ? 0 : schedule.positions() - 1)) return false;
  send = {action.stage, gradient ? Kind::send_gradient : Kind::send_activation, action.microbatch,
          action.chunk, 0};
  return true;
}

Action receive_of(const Schedule& schedule, const Action& send) {
  const Message message = message_of(schedule, send);
  return {message.to % schedule.stages, message.gradient ? Kind::receive_gradient : Kind::receive_activation,
          send.microbatch, message.to / schedule.stages, 0};
}

std::string to_text(const Action& action) {
  std::string text(kKindMarks[static_cast<std::size_t>(action.kind)]);
  if (has_microbatch(action.kind)) {
    text += std::to_string(action.microbatch);
    if (action.chunk != 0) text += '/' + std::to_string(action.chunk);
  }
  if (action.version != 0 || !has_microbatch(action.kind)) text += '@' + std::to_string(action.version);
  return text;
}

std::string to_text(const std::vector<Action>& actions) {
  std::string text;
  for (const Action& action : actions) {
    if (!text.empty()) text += ' ';
    text += to_text(action);
  }
  return text;
}

Action parse_action(std::string_view text, int stage, const std::string& where) {
  Action action;
  action.stage = stage;
  if (!take_action(text, action)) {
    throw InputError(ExitCode::data, where, "'" + std::string(text.substr(0, 40)) + "' is no action",
                     "write for example F0, B3/1@2, SA0, RG0, step@1, stash@0, drop@0");
  }
  return action;
}

std::string_view name_of(Kind kind) { return kKindNames[static_cast<std::size_t>(kind)]; }
std::string_view name_of(VersionRule rule) { return kVersionRuleNames[static_cast<std::size_t>(rule)]; }

bool kind_from_name(std::string_view name, Kind& kind) {
  for (std::size_t i = 0; i < kKindNames.size(); ++i) {
    if (kKindNames[i] != name) continue;
    kind = static_cast<Kind>(i);
    return true;
  }
  return false;
}

bool rule_from_name(std::string_view name, VersionRule& rule) {
  for (std::size_t i = 0; i < kVersionRuleNames.size(); ++i) {
    if (kVersionRuleNames[i] != name) continue;
    rule = static_cast<VersionRule>(i);
    return true;
  }
  return false;
}

std::vector<std::vector<Action>> split_at_steps(const std::vector<Action>& actions) {
  std::size_t last_step = 0;
  for (std::size_t i = 0; i < actions.size(); ++i) {
    if (actions[i].kind == Kind::step) last_step = i;
  }
  std::vector<std::vector<Action>> windows(1);
  for (std::size_t i = 0; i < actions.size(); ++i) {
    windows.back().push_back(actions[i]);
    if (actions[i].kind == Kind::step && i < last_step) windows.emplace_back();
  }
  return windows;
}

}  // namespace sc::pipedream
