// Lesson 06: ZeRO-Infinity. Optimizer states lie on a disk and stream through a window of host memory: the host needs
// as much memory for them as the window has, whatever the model's size.
//   Source: Rajbhandari et al., ZeRO-Infinity, arXiv:2104.07857 (section 5.1.2, the infinity offload engine; 6.3).
#pragma once

#include "lessons/05_offload/offload.h"
#include "options.h"

namespace sc {

/// Lesson 05 with another place for the states.
class Infinity : public Offload {
 public:
  using Options = InfinityOptions;
  static FieldTable<Options> fields();
  static MemoryPlan memory_plan(const RunShape& shape, const Options& options);
  static CommPlan comm_plan(const RunShape& shape, const Options& options);
  static std::string predict(const RunShape& shape, const Options& options);
  static SlowLinks slow_links(const Options& options) { return Offload::slow_links(options); }
  static constexpr std::int64_t kSteadyFrom = 1;  // the first step has no update behind it

  Infinity(RunContext& context, const Options& options);
  std::optional<Timetable> timetable(Communicator& comm);
};

}  // namespace sc
