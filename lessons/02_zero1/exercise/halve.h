// An exercise of lesson 02; halve.cpp says what is asked for.
#pragma once

#include "common/comm/communicator.h"
#include "common/model/param_layout.h"

namespace sc {

/// One rank's vectors after backward: whole parameters, the gradient that this rank computed, and AdamW for
/// the slice that it owns.
class OwnedStep {
 public:
  virtual ~OwnedStep() = default;
  [[nodiscard]] virtual int num_units() const = 0;
  /// The vectors of one unit, [n] fp32, contiguous; N divides n.
  [[nodiscard]] virtual at::Tensor& params(int unit) = 0;
  [[nodiscard]] virtual at::Tensor& grads(int unit) = 0;
  /// The range of a unit's vectors that this rank owns.
  [[nodiscard]] virtual Range mine(int unit) const = 0;
  /// Updates params(unit)[mine] by grads(unit)[mine], which must be the sum over ranks. Reads nothing else.
  virtual void update(int unit) = 0;
};

void reduce_update_publish(OwnedStep& step, Communicator& comm);

}  // namespace sc
