// The build without GPU code.
#include <unistd.h>

#include "common/base/check.h"
#include "common/comm/nccl_communicator.h"
#include "common/comm/nccl_devices.h"
#include "common/comm/staged_communicator.h"

namespace sc {
namespace {

[[noreturn]] void refuse() {
  throw InputError(ExitCode::missing, "--device cuda", "this build has no GPU code",
                   ::access("/dev/nvidiactl", F_OK) == 0 ? "run.sh --preset cuda, or --device cpu"
                                                         : "--device cpu: no GPU is visible on this machine");
}

}  // namespace

std::unique_ptr<Communicator> NcclCommunicator::make(std::unique_ptr<Communicator>, const NcclOptions&) {
  refuse();
}
std::unique_ptr<Communicator> StagedCommunicator::make(std::unique_ptr<Communicator>, int,
                                                       const ScratchAllocator&) {
  refuse();
}
std::function<bool()> ended_on_current_stream() { refuse(); }
int visible_gpus() { refuse(); }
int gpu_of(const Launch&, bool) { refuse(); }
void set_nccl_environment() {}
std::string describe_nccl() { return ""; }

}  // namespace sc
