// The build without GPU code.
#include "common/base/check.h"
#include "common/model/ops_cuda.h"

namespace sc {

std::unique_ptr<const Ops> make_cuda_ops(OpsBackend) {
  throw InputError(ExitCode::missing, "--device cuda", "this build has no GPU code",
                   "cmake --preset cuda && cmake --build --preset cuda, or --device cpu");
}

}  // namespace sc
