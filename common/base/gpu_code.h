// The error thrown by the stand-ins of GPU functions in a build without GPU code. No torch.
#pragma once

#include <unistd.h>

#include "common/base/check.h"

namespace sc {

[[noreturn]] inline void refuse_without_gpu_code() {
  throw InputError(
      ExitCode::missing, "--device cuda", "this build has no GPU code",
      ::access("/dev/nvidiactl", F_OK) == 0
          ? "run.sh --preset cuda, or --device cpu"
          : "--device cpu, which trains in fp32 (--plan needs no GPU): no GPU is visible on this machine");
}

}  // namespace sc
