// The last lines of a run, one or three. No torch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/records/record.h"
#include "common/records/report.h"

namespace sc {

/// One line with seconds per step, samples (rows of `sequence` tokens) per second, and seconds per epoch: for
/// the steps after the warm-up, or, with a remark, for all steps if those are too few for a measurement.
/// Empty if no step was trained.
std::string format_rates(const std::vector<StepRecord>& steps, std::int64_t sequence, double steps_per_epoch);

/// Two lines for --brief: the bytes that a rank holds, by place, and sends per step. `measured` is null if
/// the bytes were not checked.
std::string format_brief(const MemoryPlan& memory, const CommPlan& comm, const Measured* measured, Rank rank);

}  // namespace sc
