// The run itself: opens the world, data and strategy, steps, checks what was predicted, writes what happened.
#pragma once

#include <optional>

#include "common/config/command_line.h"
#include "common/config/resolve.h"
#include "common/memory/plan.h"
#include "common/records/compare.h"
#include "common/run/run_lesson.h"
#include "common/watch/launch.h"

namespace sc::detail {

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
};

/// Trains, and returns 0, or ends the process with the code of what went wrong, reported once for all ranks.
int train(const TrainJob& job);

}  // namespace sc::detail
