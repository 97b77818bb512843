// What a run says about its GPU, and its checks of the GPU's memory.
#pragma once

#include <map>
#include <string>

#include "common/gpu/gpu.h"
#include "common/memory/ledger.h"
#include "common/memory/plan.h"
#include "common/records/report.h"

namespace sc {

std::map<std::string, std::string> gpu_versions(const Gpu& gpu);
/// The line after "GPU" at the start of a run: device, libraries, kernels. `graph`: steps run as one graph.
std::string describe_gpu(const GpuFacts& gpu, const RunShape& shape, bool graph);
/// Why cuDNN's attention cannot be used; empty if it can (attention_uses_cudnn, model/ops_cuda.h).
std::string why_not_cudnn_attention(const RunShape& shape);
/// A warning if attention does without cuDNN's kernel where that is the fastest (Hopper), or where cuDNN has
/// it on other GPUs but not on this one; otherwise empty.
std::string warn_of_attention(const GpuFacts& gpu, const RunShape& shape);
/// Compares the peak of LibTorch's allocator since reset_peak(), and windows, with the ledger's peak, the
/// libraries' constants for each of `threads` and the scratch of one operation. No window may have come or
/// gone since. If that scratch is known to be zero, the step should not allocate at all: `allocations_before`
/// is gpu.allocations() right before the step. Also reports what the GPU holds outside the allocator.
AllocatorCheck check_allocator(Gpu& gpu, const RunShape& shape, std::int64_t threads, const Ledger& ledger,
                               std::int64_t allocations_before);

}  // namespace sc
