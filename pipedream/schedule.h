// A pipeline schedule as data: for every stage the list of what it does, in order. Generators make it, the
// checker proves it, the simulator clocks it, lessons 07 and 08 execute it.
//
// How an executor reads a stage's list (this is what check.h proves and simulate.h clocks):
//   forward, backward, backward_input, backward_weights
//       compute. The input that another stage sends has its receive earlier in the list; compute waits for
//       its arrival.
//   receive_activation, receive_gradient
//       posts the buffer and goes on at once.
//   send_activation, send_gradient
//       hands over the result of a compute action earlier in the list. It may block until the receive that it
//       meets has been posted (rendezvous), so nothing after it in the list may be needed for that receive.
//       The k-th send from stage a to stage b meets the k-th receive of b from a, whatever they carry.
//   step     applies the gradients gathered since the last step; the newest weights become `version`.
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
  backward_input,    // the gradient of the stage's input: what the stage before waits for
  backward_weights,  // the gradient of the weights: nobody waits for it but the step
  send_activation,
  receive_activation,
  send_gradient,
  receive_gradient,
  step,
  stash,
  drop,
};
constexpr int kKinds = 11;

/// step, stash and drop belong to no microbatch.
constexpr int kNoMicrobatch = -1;

struct Action {
  int stage = 0;  // the rank that does it, 0-based
  Kind kind = Kind::forward;
  int microbatch = 0;  // 0-based over the whole schedule; kNoMicrobatch for step, stash, drop
  int chunk = 0;  // which of the stage's model chunks, 0-based; of a message: the chunk at this stage's end
  int version =
      0;  // compute: the weights it reads; step: the weights it makes; stash, drop: which; messages: 0
  friend bool operator==(const Action&, const Action&) = default;
};

/// Which weights a microbatch may see, and so how many versions are alive on stage s of S.
enum class VersionRule : std::uint8_t {
  flush,  // the pipeline drains before a step: one version everywhere
  none,   // always the newest: forward and backward of a microbatch may differ (not a gradient of anything)
  stash,  // a stage's backward reads what its forward read: S - s versions
  vertical_sync,  // moreover all stages read the version that stage 0 read: S versions
  two_buffers,  // PipeDream-2BW: the gradients of a step were computed with the version before the newest, on
                // all stages (a step every M >= S microbatches): 2 versions
};

/// The model is cut into stages * chunks consecutive parts; part (position) k lies on stage k % stages as its
/// chunk k / stages.
struct Schedule {
  std::string name;
  int stages = 1;
  int microbatches = 1;  // of the whole schedule, all batches
  int chunks = 1;
  VersionRule versions = VersionRule::flush;
  std::vector<std::vector<Action>> actions;  // one list a stage

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
/// Backward, or its first half: what makes the gradient that the stage before waits for.
constexpr bool makes_input_gradient(Kind kind) {
  return kind == Kind::backward || kind == Kind::backward_input;
}
/// Backward, or its second half: after it the microbatch's activations are free and its gradient is complete.
constexpr bool ends_microbatch(Kind kind) { return kind == Kind::backward || kind == Kind::backward_weights; }

/// Throws InputError (data) unless the numbers of the schedule are within the limits below, there is one list
/// a stage, and every action's stage, microbatch, chunk and version lie in range. Everything else may then
/// index without a second thought.
void require_shape(const Schedule& schedule);
constexpr int kMostStages = 1024;
constexpr int kMostMicrobatches = 1 << 20;
constexpr int kMostChunks = 64;
// stages * chunks * microbatches; a schedule of so many takes about 2.6 GB to generate.
constexpr std::int64_t kMostCells = std::int64_t{1} << 22;

/// What travels between two stages: the activation that enters position `to`, or the gradient that enters it
/// from above.
struct Message {
  bool gradient = false;
  int to = 0;  // position
  int microbatch = 0;
  friend bool operator==(const Message&, const Message&) = default;
};

/// The message that a send or receive carries. Only for is_message(kind).
Message message_of(const Schedule& schedule, const Action& action);
/// The stage at the other end of a send or receive.
int peer_of(const Schedule& schedule, const Action& action);
/// A distinct number for every message, 0 <= index < message_slots(schedule).
std::size_t message_slot(const Schedule& schedule, const Message& message);
std::size_t message_slots(const Schedule& schedule);

/// True if `action` (compute) needs a value that another stage sends; `message` is then that value. False for
/// the first forward, the last backward, backward_weights, and where both ends lie on one stage (a single
/// stage with chunks).
bool needs_message(const Schedule& schedule, const Action& action, Message& message);
/// True if another stage waits for what `action` (compute) makes; `send` is then the action that sends it.
bool makes_message(const Schedule& schedule, const Action& action, Action& send);
/// The receive that meets `send`.
Action receive_of(const Schedule& schedule, const Action& send);

/// "F0", "B3/1@2" (microbatch 3, chunk 1, version 2), "SA0", "step@1", "stash@0": kind, microbatch, "/chunk"
/// unless 0, "@version" unless 0 (always for step, stash, drop). F forward, B backward, I backward_input, W
/// backward_weights, SA RA SG RG sends and receives of activations and gradients.
std::string to_text(const Action& action);
/// All of a stage's actions, separated by blanks.
std::string to_text(const std::vector<Action>& actions);
/// The inverse of to_text. Throws InputError (data) with `where` in its message.
Action parse_action(std::string_view text, int stage, const std::string& where);

std::string_view name_of(Kind kind);         // "forward", "backward_input", ...
std::string_view name_of(VersionRule rule);  // "flush", "stash", ...
/// The inverses; false if there is no such name.
bool kind_from_name(std::string_view name, Kind& kind);
bool rule_from_name(std::string_view name, VersionRule& rule);

/// One stage's list cut behind every step: window k holds what the stage does between its k-th and (k+1)-th
/// step. What follows the last step (a schedule that checks has nothing there but drops) belongs to the last
/// window.
std::vector<std::vector<Action>> split_at_steps(const std::vector<Action>& actions);

}  // namespace sc::pipedream
