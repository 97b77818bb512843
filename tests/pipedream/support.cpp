#include "tests/pipedream/support.h"

#include <sstream>

namespace sc::pipedream::test {

namespace {

bool has_meaning(const GenerateOptions& o) {
  const bool chunked = o.family == Family::interleaved || o.family == Family::zb_h1;
  if (o.chunks > 1 && !chunked) return false;
  if (o.versions != VersionRule::stash && o.family != Family::pipedream) return false;
  return o.family != Family::two_bw || o.microbatches >= o.stages;
}

}  // namespace

std::vector<GenerateOptions> every_schedule(int most) {
  std::vector<GenerateOptions> all;
  GenerateOptions o;
  for (o.family = Family::naive; o.family <= Family::two_bw;
       o.family = static_cast<Family>(static_cast<int>(o.family) + 1))
    for (o.stages = 1; o.stages <= most; ++o.stages)
      for (o.microbatches = 1; o.microbatches <= most; ++o.microbatches)
        for (o.batches = 1; o.batches <= 3; ++o.batches)
          for (o.chunks = 1; o.chunks <= 3; ++o.chunks)
            for (const VersionRule rule :
                 {VersionRule::none, VersionRule::stash, VersionRule::vertical_sync}) {
              o.versions = rule;
              const int warmup = has_meaning(o) ? most_warmup(o) : -1;
              for (o.warmup = 0; o.warmup <= warmup; ++o.warmup) all.push_back(o);
              o.warmup = 0;
            }
  return all;
}

std::string describe(const GenerateOptions& o) {
  std::ostringstream text;
  text << name_of(o.family) << " S" << o.stages << " M" << o.microbatches << " v" << o.chunks << " b"
       << o.batches << ' ' << name_of(o.versions) << " k" << o.warmup;
  return text.str();
}

Schedule written(const std::vector<std::string>& lists, int microbatches, int chunks, VersionRule rule) {
  Schedule schedule{"written", static_cast<int>(lists.size()), microbatches, chunks, rule, {}};
  for (const std::string& list : lists) {
    const auto stage = static_cast<int>(schedule.actions.size());
    std::istringstream words(list);
    std::vector<Action> actions;
    for (std::string word; words >> word;) actions.push_back(parse_action(word, stage, "test"));
    schedule.actions.push_back(actions);
  }
  return schedule;
}

std::string violations(const CheckReport& report) {
  std::string text;
  for (const Violation& violation : report.violations) text += to_text(violation) + '\n';
  return text;
}

std::string error_of(const std::function<void()>& body, ExitCode code) {
  try {
    body();
  } catch (const InputError& error) {
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << error.what();
    EXPECT_FALSE(error.fix().empty()) << error.what();
    return std::string(error.what()) + " | " + error.fix();
  }
  return "nothing thrown";
}

}  // namespace sc::pipedream::test
