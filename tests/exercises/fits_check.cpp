#include <spdlog/fmt/fmt.h>

#include "common/base/text.h"
#include "common/config/json_reader.h"
#include "tests/exercises/check.h"
#include "tests/exercises/fits.h"

namespace sc::exercise {
namespace {

// Judges by plans alone: nothing is allocated, and no rank is started.
std::string check() {
  const std::string path = edited_file();
  const FitsAnswer answer = read_answer(read_config_file(path, path), path);
  const std::vector<std::string> missed = missed_limits(answer);
  require(missed.empty(), fmt::format("{}\nevery buffer: {}", fmt::join(missed, "\n"), answer.plan_command));
  return fmt::format("a rank holds {} of {} on its GPU, {} ranks {} of {} on the host",
                     human_bytes(answer.device()), human_bytes(kFitsLimits.device), kFitsLimits.ranks,
                     human_bytes(answer.host()), human_bytes(kFitsLimits.host));
}

}  // namespace

const Exercise kExercise{
    "fits",
    "take the largest purpose first, and ask which key it depends on (--explain KEY); the host holds "
    "what the GPUs do not, and a second set of gradients if the update is delayed",
    check};

}  // namespace sc::exercise
