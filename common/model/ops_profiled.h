// A decorator of Ops that reports every call for --profile.
#pragma once

#include <memory>

#include "common/model/ops.h"

namespace sc {

/// Reports every call of `inner` to OpProfiler::current(), with the work and traffic that its shapes need.
std::shared_ptr<const Ops> make_profiled_ops(std::shared_ptr<const Ops> inner);

}  // namespace sc
