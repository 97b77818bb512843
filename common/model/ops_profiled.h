// Any Ops, with every call bracketed for --profile.
#pragma once

#include <memory>

#include "common/model/ops.h"

namespace sc {

/// `inner`, told to OpProfiler::current() with the arithmetic and the traffic that its shapes imply.
std::shared_ptr<const Ops> make_profiled_ops(std::shared_ptr<const Ops> inner);

}  // namespace sc
