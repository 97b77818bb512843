// An independent measurement of memory: counts what LibTorch's CPU allocator really hands out, to any caller.
#pragma once

#include "common/base/types.h"

namespace sc {

/// Counts the bytes from LibTorch's CPU allocator from construction to destruction. The allocator belongs to
/// the process (all threads), so a run on the CPU has one rank per process. Tensors alive before construction
/// are not counted and may be freed at any time.
///   Errors  std::logic_error for a second witness at the same time
class AllocatorWitness {
 public:
  AllocatorWitness();
  ~AllocatorWitness();
  AllocatorWitness(const AllocatorWitness&) = delete;
  AllocatorWitness& operator=(const AllocatorWitness&) = delete;

  [[nodiscard]] Bytes live() const;
  [[nodiscard]] Bytes peak() const;
  void reset_peak();
  [[nodiscard]] std::int64_t allocations() const;  // since construction
};

}  // namespace sc
