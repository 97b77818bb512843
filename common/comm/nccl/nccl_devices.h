// Which GPU a rank uses, and the environment of NCCL. Includes neither torch nor CUDA; in a build without GPU
// code the same functions refuse.
#pragma once

#include <string>

#include "common/watch/launch.h"

namespace sc {

/// The number of GPUs that this process may use. Creates no context: cudaGetDeviceCount asks the driver only,
/// and it obeys CUDA_VISIBLE_DEVICES, which NVML and /proc/driver/nvidia do not.
///   Errors  InputError 69 without a GPU, a driver or GPU code.
int visible_gpus();

/// This rank's GPU out of `gpus`, chosen by its local rank. With `share`,surplus ranks are dealt out in turn.
///   Errors  InputError 69 with the fix, if there are more local ranks than GPUs and `share` is false.
int gpu_of(const Launch& launch, int gpus, bool share);
/// This rank's GPU out of all visible ones. Must be the process's first CUDA call.
///   Errors  those of visible_gpus() and of gpu_of() above.
inline int gpu_of(const Launch& launch, bool share) { return gpu_of(launch, visible_gpus(), share); }

/// Sets environment variables that NCCL and CUDA read when they start, unless the user has set them. Call it
/// before other threads and CUDA start.
///   NCCL_NVLS_ENABLE=0              NVLink multicast is off: machines that lend single GPUs of a host do not
///                                   have it, and NCCL would fail there.
///   NCCL_GRAPH_REGISTER=0           otherwise each rank decides for itself whether a captured call's buffers
///                                   are registered. If allocations differ (2 heads here, 3 there), so do the
///                                   decisions, and the replay hangs. Steps of lessons 01, 03, 04 and 10 take
///                                   as long without it (355M, two H200).
///   CUDA_DEVICE_MAX_CONNECTIONS=32  streams that share a hardware queue wait for each other's kernels: with
///                                   CUDA's default of 8 a pending receive could block the work that its
///                                   sender waits for.
///   Source                          NCCL user guide, "User Buffer Registration": buffers of all ranks of a
///                                   call are registered, or none.
void set_nccl_environment();

/// Whether NCCL may leave all_gathers between windows to copy engines on this machine. All GPUs must reach
/// each other. Drivers before CUDA 12.5 lack the calls, and those of 13.1 refuse a call by which NCCL 2.28
/// signals other GPUs.
///   Source  NVIDIA/nccl issue 2052; ce_coll.cc of 2.28.9 and 2.29.2.
bool nccl_may_use_copy_engines();

/// The loaded NCCL and the one compiled against: "NCCL 2.28.9 (header 2.28.9)". Empty without GPU code.
std::string describe_nccl();

}  // namespace sc
