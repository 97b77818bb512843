// What a run says about its GPU, and its checks of the GPU's memory.
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
/// The line after "GPU" at the start of a run: device, libraries, kernels used. `graph`: steps run as one
/// graph.
std::string describe_gpu(const GpuFacts& gpu, const RunShape& shape, bool graph);
/// Why cuDNN's attention cannot be used; empty if it can (attention_uses_cudnn, model/ops_cuda.h).
std::string why_not_cudnn_attention(const RunShape& shape);
/// A warning if attention does not use cuDNN's kernel although cuDNN has the fastest one for this GPU
/// (Hopper), or if cuDNN lacks a kernel for a shape that it takes on other GPUs; otherwise empty.
std::string warn_of_attention(const GpuFacts& gpu, const RunShape& shape);
/// Compares the peak of LibTorch's allocator since reset_peak(), and windows, with the ledger's peak, the
/// libraries' constants and the scratch of one operation. No window may have come or gone since reset_peak().
/// If that scratch is known to be zero, the step should not allocate at all: `allocations_before` is
/// gpu.allocations() right before the step. Also reports what the GPU holds outside the allocator.
AllocatorCheck check_allocator(Gpu& gpu, const RunShape& shape, const Ledger& ledger,
                               std::int64_t allocations_before);

}  // namespace sc
