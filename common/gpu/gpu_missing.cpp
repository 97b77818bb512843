// Stand-ins that refuse, for a build without GPU code.
#include "common/base/gpu_code.h"
#include "common/gpu/gpu.h"
#include "common/gpu/gpu_profile.h"

namespace sc {

std::unique_ptr<Gpu> take_gpu(int) { refuse_without_gpu_code(); }
std::unique_ptr<GpuProfile> profile_gpu() { refuse_without_gpu_code(); }
bool gpu_available() { return false; }

}  // namespace sc
