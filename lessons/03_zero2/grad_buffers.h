// Where the gradients of lesson 03 lie while they are full.
#pragma once

#include <array>
#include <cstddef>

#include "common/model/param_layout.h"

namespace sc {

/// Full gradients: unit 0, which the tied head opens and only the embedding completes; two blocks, the one
/// that is computed and the one that travels; the last unit. Each is a buffer.
enum GradBuffer : std::size_t { kUnit0, kEvenBlocks, kOddBlocks, kLastUnit, kGradBuffers };
/// The ends of their names.
constexpr std::array<const char*, kGradBuffers> kGradBufferNames = {", unit 0", ", even blocks",
                                                                    ", odd blocks", ", last unit"};
std::size_t grad_buffer_of(const ParamLayout& layout, int unit);

/// Elements of each buffer: the largest unit that uses it.
std::array<std::int64_t, kGradBuffers> grad_buffer_sizes(const ParamLayout& layout);

}  // namespace sc
