// Fuzzes schedules as CSV and as JSON, costs and profiles: each reader tries the input. What is taken is
// written and reads back equal; checker and simulator survive it, and agree.
#include "pipedream/check.h"
#include "pipedream/cost_files.h"
#include "pipedream/error.h"
#include "pipedream/schedule_file.h"
#include "pipedream/simulate.h"
#include "tests/fuzz/support.h"

namespace sc::fuzz {
namespace {

using namespace sc::pipedream;  // NOLINT
using Refusal = pipedream::InputError;

void use(const Schedule& schedule) {
  require(schedule_from_csv(to_csv(schedule), "csv") == schedule, "CSV does not read back equal");
  require(schedule_from_json(to_json(schedule), "json") == schedule, "JSON does not read back equal");
  if (std::int64_t{schedule.positions()} * schedule.microbatches > 4096)
    return;  // arrays of every microbatch: slow
  const bool holds = check(schedule).ok();
  try {
    (void)simulate(schedule, {});
  } catch (const Refusal&) {
    require(!holds, "the simulator refuses what the checker accepts");
  }
}

}  // namespace
}  // namespace sc::fuzz

SC_FUZZ_TARGET(schedule) {
  const std::string text = text_of(data, size);
  if (const auto schedule = taken<Refusal>([&] { return schedule_from_csv(text, "csv"); })) use(*schedule);
  if (const auto schedule = taken<Refusal>([&] { return schedule_from_json(text, "json"); })) use(*schedule);
  if (const auto costs = taken<Refusal>([&] { return costs_from_json(text, "costs"); }))
    require(costs_from_json(to_json(*costs), "written") == *costs, "costs do not read back equal");
  if (const auto profile = taken<Refusal>([&] { return profile_from_json(text, "profile"); }))
    require(profile_from_json(to_json(*profile), "written") == *profile,
            "a profile does not read back equal");
  return 0;
}
