// A pipeline schedule as data: for every stage the list of its actions, in order. Generators make it, the
// checker proves it, the simulator times it, lessons 07 and 08 execute it.
//
// How an executor reads a stage's list (check.h proves this reading, and simulate.h times it):
//   forward, backward, backward_input, backward_weights
//       compute. An input from another stage has its receive earlier in the list, and compute waits for its
//       arrival.
//   receive_activation, receive_gradient
//       posts the buffer and continues at once.
//   send_activation, send_gradient
//       sends the result of a compute action earlier in the list. It may block until its receive has been
//       posted (rendezvous), so nothing after it in the list may be needed for that receive. The k-th send
//       from stage a to stage b matches the k-th receive of b from a, whatever they carry.
//   step     applies the gradients accumulated since the last step; the newest weights become `version`.
//   stash    keeps a copy of the newest weights, which are `version`, under that number.
//   drop     frees the copy of `version`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sc::pipedream {

enum class Kind : std::uint8_t {
  forward,
  backward,          // input and weights in one
  backward_input,    // the gradient of the stage's input, for which the previous stage waits
  backward_weights,  // the gradient of the weights, for which only the step waits
  send_activation,
  receive_activation,
  send_gradient,
  receive_gradient,
  step,
  stash,
  drop,
};
constexpr int kKinds = 11;

/// The microbatch of actions that have none: step, stash and drop.
constexpr int kNoMicrobatch = -1;

struct Action {
  int stage = 0;  // the rank that carries it out, 0-based
  Kind kind = Kind::forward;
  int microbatch = 0;  // 0-based over the whole schedule; kNoMicrobatch for step, stash, drop
  int chunk = 0;       // the stage's model chunk, 0-based; for a message, the chunk at this stage's end
  // The weights that a compute action reads, a step makes, or a stash or drop keeps or frees; 0 for messages.
  int version = 0;
  friend bool operator==(const Action&, const Action&) = default;
};

/// Which weights a microbatch may read, and how many versions are therefore alive on stage s of S.
enum class VersionRule : std::uint8_t {
  flush,          // the pipeline drains before a step: one version everywhere
  none,           // always the newest: forward and backward may differ, so the gradient is not exact
  stash,          // a stage's backward reads what its forward read: S - s versions
  vertical_sync,  // also, all stages read the version that stage 0 read: S versions
  // PipeDream-2BW: the gradients of a step are computed with the version before the newest, on all stages
  // (one step for every M >= S microbatches): 2 versions.
  two_buffers,
};

/// The model is cut into stages * chunks consecutive parts; part (position, or virtual stage) k is chunk k /
/// stages of stage k % stages.
struct Schedule {
  std::string name;
  int stages = 1;
  int microbatches = 1;  // of the whole schedule, all batches
  int chunks = 1;
  VersionRule versions = VersionRule::flush;
  std::vector<std::vector<Action>> actions;  // one list per stage

  [[nodiscard]] int positions() const { return stages * chunks; }
  [[nodiscard]] int position(const Action& action) const { return action.chunk * stages + action.stage; }
  friend bool operator==(const Schedule&, const Schedule&) = default;
};

constexpr bool is_compute(Kind kind) { return kind <= Kind::backward_weights; }
constexpr bool is_send(Kind kind) { return kind == Kind::send_activation || kind == Kind::send_gradient; }
constexpr bool is_receive(Kind kind) {
  return kind == Kind::receive_activation || kind == Kind::receive_gradient;
}
constexpr bool is_message(Kind kind) { return is_send(kind) || is_receive(kind); }
/// Whether the action makes the gradient for which the previous stage waits: backward, or its first half.
constexpr bool makes_input_gradient(Kind kind) {
  return kind == Kind::backward || kind == Kind::backward_input;
}
/// Whether the microbatch's activations are free and its gradient complete after the action: backward, or its
/// second half.
constexpr bool ends_microbatch(Kind kind) { return kind == Kind::backward || kind == Kind::backward_weights; }

/// Throws InputError (data) unless the schedule's numbers are within the limits below, there is one list per
/// stage, and every action's stage, microbatch, chunk and version are in range. All other code may then index
/// without checks.
void require_shape(const Schedule& schedule);
constexpr int kMostStages = 1024;
constexpr int kMostMicrobatches = 1 << 20;
constexpr int kMostChunks = 64;
// The limit of stages * chunks * microbatches; generating a schedule of that size takes about 2.6 GB.
constexpr std::int64_t kMostCells = std::int64_t{1} << 22;

/// The payload between two stages: the activation that enters position `to`, or the gradient that enters it
/// from above.
struct Message {
  bool gradient = false;
  int to = 0;  // position
  int microbatch = 0;
  friend bool operator==(const Message&, const Message&) = default;
};

/// The message that a send or receive carries; other actions have none.
Message message_of(const Schedule& schedule, const Action& action);
/// The stage at the other end of a send or receive.
int peer_of(const Schedule& schedule, const Action& action);
/// A distinct number for every message, 0 <= index < message_slots(schedule).
std::size_t message_slot(const Schedule& schedule, const Message& message);
std::size_t message_slots(const Schedule& schedule);

/// Whether `action` (compute) needs a value that another stage sends; `message` is then that value. False for
/// the first forward, the last backward, backward_weights, and if both ends are on one stage (a single stage
/// with chunks).
bool needs_message(const Schedule& schedule, const Action& action, Message& message);
/// Whether another stage waits for the result of `action` (compute); `send` is then the action that sends it.
bool makes_message(const Schedule& schedule, const Action& action, Action& send);
Action receive_of(const Schedule& schedule, const Action& send);

/// An action in short: kind, microbatch, "/chunk" unless 0, "@version" unless 0 (always for step, stash,
/// drop), as "F0", "B3/1@2", "SA0", "step@1", "stash@0". F forward, B backward, I backward_input, W
/// backward_weights, SA RA SG RG sends and receives of activations and gradients.
std::string to_text(const Action& action);
/// All actions of a stage in short, separated by blanks.
std::string to_text(const std::vector<Action>& actions);
/// Reads an action in short. Throws InputError (data) with `where` in its message.
Action parse_action(std::string_view text, int stage, const std::string& where);

std::string_view name_of(Kind kind);         // "forward", "backward_input", ...
std::string_view name_of(VersionRule rule);  // "flush", "stash", ...
/// Finds the kind or rule that a name stands for; false if there is none.
bool kind_from_name(std::string_view name, Kind& kind);
bool rule_from_name(std::string_view name, VersionRule& rule);

/// One stage's list cut after every step: window k holds what the stage does between its k-th and (k+1)-th
/// step. What follows the last step (only drops, in a schedule that checks) belongs to the last window.
std::vector<std::vector<Action>> split_at_steps(const std::vector<Action>& actions);

}  // namespace sc::pipedream
