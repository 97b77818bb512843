// A second opinion on memory: counts what LibTorch's CPU allocator really hands out, whoever asks.
#pragma once

#include "common/base/types.h"

namespace sc {

/// Wraps LibTorch's CPU allocator from construction to destruction. Process-wide (all threads), so a run on
/// the CPU has one rank a process.
///   Bytes of tensors alive before construction are not counted, and may be freed at any time.
///   Two witnesses at once are an error (std::logic_error).
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
