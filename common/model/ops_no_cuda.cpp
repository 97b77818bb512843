// The build without GPU code.
#include "common/base/gpu_code.h"
#include "common/model/ops_cuda.h"

namespace sc {

std::unique_ptr<const Ops> make_cuda_ops(OpsBackend) { refuse_without_gpu_code(); }

}  // namespace sc
