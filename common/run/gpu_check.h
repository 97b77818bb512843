// What a run on a GPU says about it and checks on it.
#pragma once

#include <map>
#include <string>

#include "common/memory/plan.h"
#include "common/run/gpu.h"
#include "common/run/report.h"

namespace sc {

/// Names and versions for the record.
std::map<std::string, std::string> gpu_versions(const Gpu& gpu);
/// The line "GPU" at the start of a run: device, libraries, who computes. graph: one a step.
std::string describe_gpu(const Gpu& gpu, const RunShape& shape, bool graph);
/// LibTorch's allocator since reset_peak(), beside the ledger's peak, the libraries' constants and what one
/// operation takes for itself.
AllocatorCheck check_allocator(const Gpu& gpu, const RunShape& shape, Bytes ledger_peak);

}  // namespace sc
