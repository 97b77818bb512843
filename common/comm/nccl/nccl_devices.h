// Which GPU a rank takes, and what NCCL finds in its environment. No torch, no CUDA in here; a build without
// GPU code has the same functions.
#pragma once

#include <string>

#include "common/watch/launch.h"

namespace sc {

/// GPUs that this process may use. Creates no context: cudaGetDeviceCount asks the driver only, and it obeys
/// CUDA_VISIBLE_DEVICES, which NVML and /proc/driver/nvidia do not.
///   Errors  InputError 69 without a GPU, a driver or GPU code.
int visible_gpus();

/// The GPU of this rank, of so many: its local rank. With `share` ranks go round where there are more of them
/// than GPUs.
///   Errors  InputError 69: more local ranks than GPUs, with the fix.
int gpu_of(const Launch& launch, int gpus, bool share);
/// Of all visible ones. To be asked before anything else of CUDA.  Errors: as both above.
inline int gpu_of(const Launch& launch, bool share) { return gpu_of(launch, visible_gpus(), share); }

/// Sets what NCCL and CUDA read from the environment when they start, unless the user has set it. To be
/// called before other threads and before CUDA start.
///   NCCL_NVLS_ENABLE=0              NVLink multicast: machines that lend single GPUs of a host do not have
///                                   it, and NCCL would fail there.
///   NCCL_GRAPH_REGISTER=0           each rank decides for itself whether a captured call's buffers are
///                                   registered. Where allocations differ (2 heads here, 3 there) so do the
///                                   decisions, and the replay hangs. Steps of lessons 01, 03, 04 and 10 take
///                                   as long without it (355M, two H200).
///   CUDA_DEVICE_MAX_CONNECTIONS=32  streams that share a hardware queue wait for each other's kernels: with
///                                   CUDA's 8 a receive that is pending could stop the work its sender waits
///                                   for.
///   Source  NCCL user guide, "User Buffer Registration": buffers of all ranks of a call are registered, or
///           none.
void set_nccl_environment();

/// Whether NCCL may leave all_gathers between windows to copy engines here, where all GPUs reach each other:
/// drivers before CUDA 12.5 lack the calls, and those of 13.1 refuse one by which NCCL 2.28 signals other
/// GPUs.
///   Source  NVIDIA/nccl issue 2052; ce_coll.cc of 2.28.9 and 2.29.2.
bool nccl_may_use_copy_engines();

/// "NCCL 2.28.9 (header 2.28.9)": the one that was loaded at run time, and the one compiled against. Empty in
/// a build without GPU code.
std::string describe_nccl();

}  // namespace sc
