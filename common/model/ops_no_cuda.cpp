// Stand-ins that refuse, for a build without GPU code.
#include "common/base/gpu_code.h"
#include "common/model/ops_cuda.h"

namespace sc {

std::unique_ptr<const Ops> make_cuda_ops(OpsBackend, bool) { refuse_without_gpu_code(); }
bool cudnn_lacks_attention(const RunShape&) { refuse_without_gpu_code(); }

}  // namespace sc
