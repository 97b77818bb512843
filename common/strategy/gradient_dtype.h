// For strategies that can sum gradients only in the dtype in which they are computed.
#pragma once

#include "common/base/check.h"
#include "common/memory/plan.h"

namespace sc {

/// Refuses to sum gradients in another dtype than theirs.
///   Errors  InputError (exit 64) if precision.reduce_dtype differs from the gradients' dtype.
inline void refuse_other_reduce_dtype(const RunShape& shape) {
  const PrecisionConfig& p = shape.workload.precision;
  if (p.reduce_dtype == p.grad_dtype) return;
  throw InputError(ExitCode::usage, "precision.reduce_dtype",
                   "this lesson sums gradients in the dtype in which it holds them",
                   "precision.grad_dtype=fp32, or precision.reduce_dtype=same");
}

}  // namespace sc
