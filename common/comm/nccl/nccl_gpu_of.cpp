#include "common/base/check.h"
#include "common/comm/nccl/nccl_devices.h"

namespace sc {

int gpu_of(const Launch& launch, int gpus, bool share) {
  const auto local_rank = static_cast<int>(to_int(launch.local_rank));
  if (share) return local_rank % gpus;
  if (to_int(launch.local_world) <= gpus) return local_rank;
  throw InputError(ExitCode::missing, "--device cuda",
                   std::to_string(to_int(launch.local_world)) + " ranks on this host, but " +
                       std::to_string(gpus) + (gpus == 1 ? " GPU" : " GPUs"),
                   "-n " + std::to_string(gpus) + ", or --share-gpu to let ranks share one (slow)");
}

}  // namespace sc
