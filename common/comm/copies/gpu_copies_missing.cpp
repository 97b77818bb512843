// The build without GPU code.
#include "common/base/gpu_code.h"
#include "common/comm/copies/copies.h"

namespace sc {

std::unique_ptr<Copies> make_gpu_copies() { refuse_without_gpu_code(); }

}  // namespace sc
