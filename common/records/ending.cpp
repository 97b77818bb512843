#include "common/records/ending.h"

#include <spdlog/fmt/fmt.h>

#include <optional>

#include "common/base/text.h"

namespace sc {

std::string format_rates(const std::vector<StepRecord>& steps, std::int64_t sequence,
                         double steps_per_epoch) {
  if (steps.empty()) return "";
  double seconds = 0;
  std::string of;
  if (const std::optional<StepTiming> timing = timing_of(steps)) {
    seconds = timing->median;
    of = fmt::format("median of {} steps after the warm-up, p10 to p90 {:.2f} to {:.2f} ms", timing->steps,
                     1e3 * timing->p10, 1e3 * timing->p90);
  } else {
    for (const StepRecord& step : steps) seconds += step.seconds / static_cast<double>(steps.size());
    of = fmt::format("mean of {} step{}, the warm-up among them: no measurement", steps.size(),
                     steps.size() == 1 ? "" : "s");
  }
  if (!(seconds > 0)) return "";
  const double samples = static_cast<double>(steps.back().tokens) / static_cast<double>(sequence);
  return fmt::format("{:.2f} ms a step, {:.4g} samples a second, {:.4g} s an epoch ({})\n", 1e3 * seconds,
                     samples / seconds, steps_per_epoch * seconds, of);
}

std::string format_brief(const MemoryPlan& memory, const CommPlan& comm, const Measured* measured,
                         Rank rank) {
  const std::string checked = measured != nullptr ? "as predicted" : "predicted, not checked";
  std::string held, sent;
  for_each_place([&](Place place) {
    const Bytes bytes = memory.total(place);
    if (bytes.value() > 0 || place == Place::device)
      held += fmt::format("{} ({}), ", human_count(bytes.value()), name_of(place));
  });
  for (const Way way : {Way::wire, Way::link, Way::disk}) {
    const Bytes bytes = moved_bytes(comm, way, rank);
    if (bytes.value() > 0 || way == Way::wire)
      sent += fmt::format("{} ({}), ", human_count(bytes.value()), name_of(way));
  }
  return fmt::format("held  rank {0}, bytes: {1}{3}\nsent  rank {0}, bytes a step: {2}{3}\n", to_int(rank),
                     held, sent, checked);
}

}  // namespace sc
