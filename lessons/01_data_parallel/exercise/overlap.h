// An exercise of lesson 01; overlap.cpp says what is asked for.
#pragma once

#include <span>

#include "common/comm/communicator.h"
#include "common/model/param_layout.h"

namespace sc {

/// One rank's backward pass over all units, and the arena that it fills with gradients.
class Backward {
 public:
  virtual ~Backward() = default;
  [[nodiscard]] virtual int last_unit() const = 0;
  /// The elements of grads() that compute(unit) writes; units follow each other, unit 0 first.
  [[nodiscard]] virtual Range range(int unit) const = 0;
  [[nodiscard]] virtual at::Tensor& grads() = 0;
  /// Computes one unit's gradient: the last unit first, then down to 0, each once.
  virtual void compute(int unit) = 0;
};

void backward_and_reduce(Backward& backward, std::span<const Range> buckets, Communicator& comm);

}  // namespace sc
