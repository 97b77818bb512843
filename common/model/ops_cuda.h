// The operations of a GPU, whether this build has any or not.
#pragma once

#include <memory>

#include "common/model/ops.h"

namespace sc {

/// aten: ATen with cuDNN's attention; fused: the kernels of ops_fused.h.
///   Errors  InputError (exit 69) in a build without GPU code.
std::unique_ptr<const Ops> make_cuda_ops(OpsBackend backend);

}  // namespace sc
