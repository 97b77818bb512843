// Stand-ins that refuse, for a build without GPU code.
#include "common/base/gpu_code.h"
#include "common/comm/copies/copies.h"
#include "common/comm/nccl/nccl_communicator.h"
#include "common/comm/nccl/nccl_devices.h"
#include "common/comm/staged/staged_communicator.h"
#include "common/watch/gpu_moment.h"

namespace sc {
std::unique_ptr<Communicator> NcclCommunicator::make(std::unique_ptr<Communicator>, const NcclOptions&) {
  refuse_without_gpu_code();
}
std::unique_ptr<Communicator> StagedCommunicator::make(std::unique_ptr<Communicator>, int,
                                                       const ScratchAllocator&) {
  refuse_without_gpu_code();
}
std::function<bool()> ended_on_current_stream() { refuse_without_gpu_code(); }
std::unique_ptr<Copies> make_gpu_copies() { refuse_without_gpu_code(); }
GpuMomentPtr gpu_moment() { refuse_without_gpu_code(); }
GpuOrigin gpu_origin() { refuse_without_gpu_code(); }
int visible_gpus() { refuse_without_gpu_code(); }
void set_nccl_environment() {}
std::string describe_nccl() { return ""; }

}  // namespace sc
