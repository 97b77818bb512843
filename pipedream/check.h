// Proves a schedule, or says what is wrong with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "pipedream/schedule.h"

namespace sc::pipedream {

enum class Rule : std::uint8_t {
  // Every microbatch passes every stage and chunk: one forward, one backward (or one of each half).
  complete,
  // Backward after its forward, the weights' half after the input's half; for each chunk the backwards of its
  // microbatches ascend, and so do the weights' halves.
  order,
  // A needed value is received before its use, a result is sent after it was made, each once; the k-th send
  // and the k-th receive of a pair agree.
  message,
  // With sends that block until their receive is posted, every list can be finished.
  deadlock,
  // Steps are numbered 1, 2, ...; all stages and chunks apply the same microbatches in each; no gradient is
  // left over.
  step,
  // The weights that an action reads exist, and are those that the version rule demands.
  version,
  // No more weight versions exist at once than the version rule promises.
  alive,
};
constexpr int kRules = 7;
std::string_view name_of(Rule rule);

struct Violation {
  Rule rule = Rule::complete;
  int stage = 0;
  std::size_t index = 0;  // of the action in the stage's list; its length for something missing at the end
  std::string text;
};

/// One stage of a deadlock: the action that it cannot do, and the action of another stage that it waits for.
struct Wait {
  int stage = 0;
  std::size_t index = 0;
  Action action;
  int for_stage = 0;
  Action for_action;
};

/// The most that a stage holds, and what it sends. Independent of durations.
struct StageCounts {
  int activations = 0;      // (microbatch, chunk) pairs between forward and the end of backward
  int versions = 0;         // existing weight versions: the newest and the stashed ones
  int receive_buffers = 0;  // posted receives whose value no action has used yet
  std::int64_t sends = 0;   // number of messages
  std::int64_t steps = 0;
  friend bool operator==(const StageCounts&, const StageCounts&) = default;
};

struct CheckReport {
  std::vector<Violation> violations;  // the first kMostViolations
  std::int64_t more = 0;              // number of those not listed
  std::vector<Wait> cycle;            // of a deadlock, in the order of waiting
  std::vector<StageCounts> stages;
  [[nodiscard]] bool ok() const { return violations.empty(); }
};
constexpr std::size_t kMostViolations = 20;

/// Checks all rules. Versions alive on stage s of S under the rules flush and none: 1; stash: S - s;
/// vertical_sync: S; two_buffers: 2. The deadlock rule is examined only if the message rule holds.
///   Errors  InputError (data) if numbers lie out of range (require_shape).
CheckReport check(const Schedule& schedule);

/// Counts without checking, for any schedule within range.
std::vector<StageCounts> count(const Schedule& schedule);

int versions_allowed(const Schedule& schedule, int stage);

/// A wait in words: "stage 1, action 7: SA1 waits until stage 2 posts RA1".
std::string to_text(const Wait& wait);
/// A violation in words: "deadlock: stage 1, action 7: ..."
std::string to_text(const Violation& violation);

}  // namespace sc::pipedream
