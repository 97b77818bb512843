// What a run on a GPU says about it and checks on it.
#pragma once

#include <map>
#include <string>

#include "common/gpu/gpu.h"
#include "common/memory/ledger.h"
#include "common/memory/plan.h"
#include "common/records/report.h"

namespace sc {

/// Names and versions for the record.
std::map<std::string, std::string> gpu_versions(const Gpu& gpu);
/// What stands behind "GPU" at the start of a run: device, libraries, who computes. graph: one a step.
std::string describe_gpu(const GpuFacts& gpu, const RunShape& shape, bool graph);
/// Why cuDNN's attention cannot serve; empty where it does (attention_uses_cudnn, model/ops_cuda.h).
std::string why_not_cudnn_attention(const RunShape& shape);
/// A line of warning where a GPU for which cuDNN has the fastest kernel (Hopper) computes attention another
/// way, or where a GPU has none for a shape that cuDNN takes elsewhere; else empty.
std::string warn_of_attention(const GpuFacts& gpu, const RunShape& shape);
/// LibTorch's allocator since reset_peak(), and windows, none of which came or went since, beside the
/// ledger's peak, the libraries' constants and what one operation takes for itself. Where that is exactly
/// nothing, the step should not allocate: allocations_before is gpu.allocations() right before it. What the
/// GPU holds beside is noted, too.
AllocatorCheck check_allocator(Gpu& gpu, const RunShape& shape, const Ledger& ledger,
                               std::int64_t allocations_before);

}  // namespace sc
