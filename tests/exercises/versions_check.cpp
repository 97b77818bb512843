#include <array>

#include "pipedream/windows.h"
#include "tests/exercises/questions.h"

namespace sc::exercise {
namespace {

using pipedream::Family, pipedream::Kind, pipedream::VersionRule;

constexpr int kStages = 4, kMicroBatches = 4, kSteps = 4;

struct Question {
  VersionRule versions;
  int update_every, stage, microbatch;
  friend bool operator==(const Question&, const Question&) = default;
};
constexpr std::array<Question, 8> kQuestions = {{{VersionRule::none, 1, 0, 9},
                                                 {VersionRule::stash, 1, 0, 9},
                                                 {VersionRule::stash, 1, 2, 9},
                                                 {VersionRule::stash, 1, 0, 2},
                                                 {VersionRule::vertical_sync, 1, 2, 9},
                                                 {VersionRule::two_buffers, 4, 2, 9},
                                                 {VersionRule::stash, 2, 1, 9},
                                                 {VersionRule::none, 2, 1, 9}}};

std::string to_text(const Question& q) {
  return "versions=" + std::string(name_of(q.versions)) + ", update_every=" + std::to_string(q.update_every) +
         ", stage " + std::to_string(q.stage) + ", micro-batch " + std::to_string(q.microbatch);
}

// The version that a rank of lesson 08 uses.
int version_of(const Question& q, Kind kind) {
  const bool two = q.versions == VersionRule::two_buffers;
  const pipedream::Windows windows({.family = two ? Family::two_bw : Family::pipedream,
                                    .stages = kStages,
                                    .microbatches = kMicroBatches,
                                    .versions = two ? VersionRule::stash : q.versions,
                                    .update_every = q.update_every});
  const pipedream::Schedule schedule = windows.whole(kSteps);
  for (const pipedream::Action& action : schedule.actions.at(static_cast<std::size_t>(q.stage)))
    if (action.kind == kind && action.microbatch == q.microbatch) return action.version;
  throw std::logic_error("no such action");
}

// What is wrong with one answer; empty if nothing is.
std::string answered(const JsonNode& given, const Question& q, const char* key, Kind kind) {
  if (given[key].value().is_null()) return to_text(q) + ": " + key + " has no answer\n";
  if (given[key].integer() == version_of(q, kind)) return "";
  return to_text(q) + ": " + key + " reads another version\n";
}

std::string judged(const JsonNode& given, const Question& q) {
  given.only({"versions", "update_every", "stage", "microbatch", "forward", "backward"});
  VersionRule rule{};
  const bool known = rule_from_name(given["versions"].text(), rule);
  const Question asked{rule, given["update_every"].small(), given["stage"].small(),
                       given["microbatch"].small()};
  require(known && asked == q, "leave the questions as they were; here was " + to_text(q));
  return answered(given, q, "forward", Kind::forward) + answered(given, q, "backward", Kind::backward);
}

std::string check() {
  require_right_answers(kQuestions, judged);
  return "all 16 versions are those that the ranks read";
}

}  // namespace

const Exercise kExercise{
    "versions",
    "count the updates that the stage has made when the forward begins; vertical_sync: those of stage 0; "
    "two_buffers: those of stage 0 when the step's first forward begins",
    check};

}  // namespace sc::exercise
