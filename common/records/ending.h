// What a run says of itself at its end, in a line or three. No torch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/records/record.h"
#include "common/records/report.h"

namespace sc {

/// Steps' seconds, samples (rows of `sequence` tokens) a second, seconds an epoch: a line. Of the steps after
/// the warm-up, or of all where those are too few for a measurement, and it says so. Nothing where no step
/// was trained.
std::string format_rates(const std::vector<StepRecord>& steps, std::int64_t sequence, double steps_per_epoch);

/// Bytes that a rank holds by place, and sends a step: two lines, for --brief.
///   measured  null: they were not checked
std::string format_brief(const MemoryPlan& memory, const CommPlan& comm, const Measured* measured, Rank rank);

}  // namespace sc
