// What one run was asked for: the lesson, the command line and the configuration that came of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/config/batch_plan.h"
#include "common/config/command_line.h"
#include "common/config/resolve.h"
#include "common/memory/plan.h"
#include "common/records/compare.h"
#include "common/records/record.h"
#include "common/run/run_lesson.h"
#include "common/watch/launch.h"

namespace sc::detail {

/// Steps that --trace draws: the first ones.
inline constexpr std::int64_t kTracedSteps = 8;

struct TrainJob {
  const AnyLesson& lesson;
  const Launch& launch;
  const CommandLine& line;
  const ResolvedConfig& config;
  const BatchPlan& batch;
  std::string command;  // as typed
  DeviceKind device;
  OpsBackend ops;
  std::optional<OtherRun> other = {};  // --compare

  [[nodiscard]] bool traces(std::int64_t step) const { return line.trace && step < kTracedSteps; }
  [[nodiscard]] bool profiles(std::int64_t step) const { return line.profile && step >= kWarmupSteps; }
  /// Whether a GPU's step is captured once and replayed.
  [[nodiscard]] bool graph() const { return line.graph.value_or(!line.profile && !line.share_gpu); }
};

}  // namespace sc::detail
