// Sums in rank order: where CPU transports add the ranks' numbers. No torch.
#pragma once

#include <cstdint>
#include <span>

#include "common/base/types.h"

namespace sc {

/// out[j][i] = ((in[0][i] + in[1][i]) + in[2][i]) + ... for every j and i < elements.
///   16 bits  bf16 and f16 accumulate in fp32 and are rounded once, to nearest even. Integers wrap.
///   Alias    an output may be exactly one of the inputs; no other overlap.
void sum_in_rank_order(DType dtype, std::span<const void* const> in, std::span<void* const> out,
                       std::int64_t elements);

}  // namespace sc
