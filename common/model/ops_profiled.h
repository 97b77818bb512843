// Any Ops with every call reported for --profile.
#pragma once

#include <memory>

#include "common/model/ops.h"

namespace sc {

/// Reports every call of `inner` to OpProfiler::current(), with the arithmetic and traffic that follow from
/// its shapes.
std::shared_ptr<const Ops> make_profiled_ops(std::shared_ptr<const Ops> inner);

}  // namespace sc
