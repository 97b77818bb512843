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
  complete,  // every microbatch passes every stage and chunk: one forward, one backward (or one of each half)
  order,     // backward after its forward, weights' half after the input's half; backwards of a chunk's
             // microbatches ascend, and so do the weights' halves
  message,   // a value needed is received before, a value made is sent behind, each once; k-th send and k-th
             // receive agree
  deadlock,  // with sends that block until their receive is posted, every list can be finished
  step,  // steps number 1, 2, ...; all stages and chunks apply the same microbatches in each; no gradient is
         // left over
  version,  // the weights that an action reads are there, and are those that the version rule demands
  alive,    // no more weight versions at once than the version rule promises
};
constexpr int kRules = 7;
std::string_view name_of(Rule rule);

struct Violation {
  Rule rule = Rule::complete;
  int stage = 0;
  std::size_t index = 0;  // of the action in the stage's list; its length for what is missing at the end
  std::string text;
};

/// One stage of a deadlock: what it cannot do, and what it waits for, which that stage would do later.
struct Wait {
  int stage = 0;
  std::size_t index = 0;
  Action action;
  int for_stage = 0;
  Action for_action;
};

/// What a stage holds at most, and sends. Independent of how long anything takes.
struct StageCounts {
  int activations = 0;      // (microbatch, chunk) pairs between forward and the end of backward
  int versions = 0;         // weight versions alive: the newest and the stashed
  int receive_buffers = 0;  // receives posted whose value no action has used yet
  std::int64_t sends = 0;   // messages
  std::int64_t steps = 0;
  friend bool operator==(const StageCounts&, const StageCounts&) = default;
};

struct CheckReport {
  std::vector<Violation> violations;  // the first kMostViolations
  std::int64_t more = 0;              // how many are not listed
  std::vector<Wait> cycle;            // of a deadlock, in the order of waiting
  std::vector<StageCounts> stages;
  [[nodiscard]] bool ok() const { return violations.empty(); }
};
constexpr std::size_t kMostViolations = 20;

/// Checks all rules. Versions alive on stage s of S under the rules flush and none: 1; stash: S - s;
/// vertical_sync: S; two_buffers: 2. The deadlock rule is examined only where the message rule holds.
///   Errors  InputError (data) where numbers lie out of range (require_shape).
CheckReport check(const Schedule& schedule);

/// The counts alone, of any schedule within range.
std::vector<StageCounts> count(const Schedule& schedule);

/// How many versions the rule allows on the stage.
int versions_allowed(const Schedule& schedule, int stage);

/// "stage 1, action 7: SA1 waits until stage 2 posts RA1".
std::string to_text(const Wait& wait);
/// "deadlock: stage 1, action 7: ..."
std::string to_text(const Violation& violation);

}  // namespace sc::pipedream
