// What one run was asked for: the lesson, the command line and the resulting configuration.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "common/config/batch_plan.h"
#include "common/config/command_line.h"
#include "common/memory/plan.h"
#include "common/records/compare.h"
#include "common/records/record.h"
#include "common/run/run_lesson.h"
#include "common/run/run_plans.h"
#include "common/watch/launch.h"

namespace sc::detail {

/// The step of a run whose bytes and operations are checked: the second, after everything that is made once.
inline constexpr std::int64_t kCheckedStep = 1;
inline constexpr std::int64_t kTracedSteps = 8;
inline constexpr std::int64_t kMarkedSteps = 2;

inline double seconds_since(std::chrono::steady_clock::time_point moment) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - moment).count();
}

struct TrainJob {
  const AnyLesson& lesson;
  const Launch& launch;
  const CommandLine& line;
  const BatchPlan& batch;
  std::string note;                    // a remark about the configuration
  std::string command;                 // as typed
  RunShape shape = {};                 // of this rank
  RunPlans plans = {};                 // for that shape
  std::optional<OtherRun> other = {};  // of --compare
  std::string arithmetic = {};         // what the bits of its sums depend on
  // The step at which the run begins; checked, traced and warm-up steps count from it.
  std::int64_t first_step = 0;

  /// Whether this rank prints and writes the record.
  [[nodiscard]] bool speaks() const { return shape.rank == Rank{0}; }
  [[nodiscard]] std::int64_t checked_step() const { return first_step + kCheckedStep; }
  [[nodiscard]] std::int64_t traced_end() const { return first_step + kTracedSteps; }
  [[nodiscard]] bool traces(std::int64_t step) const { return line.trace && step < traced_end(); }
  /// The first step that the page shows: that after the checked one, or earlier in a short run.
  [[nodiscard]] std::int64_t marked_begin() const {
    return std::max(first_step, std::min(checked_step() + 1, shape.workload.steps - kMarkedSteps));
  }
  [[nodiscard]] std::int64_t marked_end() const { return marked_begin() + kMarkedSteps; }
  [[nodiscard]] bool marks(std::int64_t step) const {
    return line.page && step >= marked_begin() && step < marked_end();
  }
  /// Whether the screen shows generated text without --sample; with a memory cap there may be no room for a
  /// second model.
  [[nodiscard]] bool shows_text() const {
    return !line.evaluation.sample && !line.verbose && !line.brief && !line.memory_cap;
  }
  [[nodiscard]] bool profiles(std::int64_t step) const {
    return line.profile && step >= first_step + kWarmupSteps;
  }
  [[nodiscard]] bool graph() const {
    return plans.facts.no_graph.empty() && line.graph.value_or(!line.profile && !line.share_gpu);
  }
  /// Whether a step replays the graph. On a GPU the first two run as they are: libraries choose their
  /// kernels, and the second is checked. The third is captured, and replayed from then on: one launch instead
  /// of thousands.
  [[nodiscard]] bool replays(std::int64_t step) const {
    return shape.device == DeviceKind::cuda && graph() && step > checked_step();
  }
};

}  // namespace sc::detail
