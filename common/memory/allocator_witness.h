// An independent measurement of memory: counts what LibTorch's CPU allocator really hands out, to any caller.
#pragma once

#include "common/base/types.h"

namespace sc {

/// Wraps LibTorch's CPU allocator from construction to destruction. The allocator belongs to the process (all
/// threads), so a run on the CPU has one rank per process.
///   Bytes of tensors alive before construction are not counted; those tensors may be freed at any time.
///   A second witness at the same time is an error (std::logic_error).
class AllocatorWitness {
 public:
  AllocatorWitness();
  ~AllocatorWitness();
  AllocatorWitness(const AllocatorWitness&) = delete;
  AllocatorWitness& operator=(const AllocatorWitness&) = delete;

  [[nodiscard]] Bytes live() const;
  /// The highest live() since construction or reset_peak().
  [[nodiscard]] Bytes peak() const;
  void reset_peak();
  [[nodiscard]] std::int64_t allocations() const;  // since construction
};

}  // namespace sc
