// An exercise of lesson 03; two_alive.cpp says what is asked for.
#pragma once

#include "common/comm/communicator.h"
#include "common/memory/ledger.h"

namespace sc {

/// One rank's backward pass over blocks, and the slices of their gradients that the rank owns.
class BlocksBackward {
 public:
  virtual ~BlocksBackward() = default;
  [[nodiscard]] virtual int num_blocks() const = 0;
  /// The number of elements in one block's full gradient; N divides it.
  [[nodiscard]] virtual std::int64_t size() const = 0;
  /// Writes this rank's gradient of `block`, all of it: the last block first, then down to 0, each once.
  virtual void compute(int block, at::Tensor& grads) = 0;
  /// Where the sum over ranks of this rank's slice belongs, [size() / N].
  [[nodiscard]] virtual at::Tensor& slice(int block) = 0;
};

void backward_into_slices(BlocksBackward& backward, Ledger& ledger, Communicator& comm);

}  // namespace sc
