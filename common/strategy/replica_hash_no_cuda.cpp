// Stand-ins that refuse, for a build without GPU code.
#include "common/base/gpu_code.h"
#include "common/strategy/replica_hash.h"

namespace sc {

std::int64_t replica_hash_cuda(const at::Tensor&) { refuse_without_gpu_code(); }

}  // namespace sc
