// Where lesson 03 keeps gradients while they are full.
#pragma once

#include <array>
#include <cstddef>

#include "common/model/param_layout.h"

namespace sc {

/// The buffers of full gradients: unit 0, which the tied head opens and only the embedding completes; two
/// blocks, the one that is computed and the one that travels; the last unit.
enum GradBuffer : std::size_t { kUnit0, kEvenBlocks, kOddBlocks, kLastUnit, kGradBuffers };
/// The ends of the buffers' names in the ledger.
constexpr std::array<const char*, kGradBuffers> kGradBufferNames = {", unit 0", ", even blocks",
                                                                    ", odd blocks", ", last unit"};
std::size_t grad_buffer_of(const ParamLayout& layout, int unit);

/// The elements of each buffer: those of the largest unit that uses it.
std::array<std::int64_t, kGradBuffers> grad_buffer_sizes(const ParamLayout& layout);

}  // namespace sc
