// The buffers of forward and backward over a run of blocks.
#pragma once

#include <cstddef>
#include <vector>

#include "common/model/activation_plan.h"
#include "common/model/gpt.h"

namespace sc {

/// One micro-batch's activations.
struct ActivationSet {
  std::vector<at::Tensor> x;      // [B, T, d]: every block's output
  std::vector<BlockSaved> saved;  // of every block
};

struct ActivationBuffers {
  ActivationBuffers(const Gpt& gpt, Ledger& ledger, const BufferShape& shape);
  ActivationBuffers(const Gpt& gpt, Ledger& ledger);  // of the whole model

  /// Block `unit`'s output; of the unit before the first block its input (unit 0: what it embeds), where
  /// every set has one.
  [[nodiscard]] at::Tensor& x(int unit, int set = 0) {
    const auto s = static_cast<std::size_t>(set);
    return unit < shape.first ? inputs[s] : sets[s].x[static_cast<std::size_t>(unit - shape.first)];
  }
  [[nodiscard]] BlockSaved& saved(int unit, int set = 0) {
    return sets[static_cast<std::size_t>(set)].saved[static_cast<std::size_t>(unit - shape.first)];
  }
  [[nodiscard]] int last() const { return shape.first + shape.blocks - 1; }

  BufferShape shape;
  std::vector<at::Tensor> inputs;  // [B, T, d]
  std::vector<ActivationSet> sets;
  Workspace ws;
  std::vector<BlockGrads> pending;  // beside ws.grads, which the head uses, too
  std::vector<at::Tensor> grad_x;   // [B, T, d]; of two in turn, that of x(unit) is grad_x[unit % 2]
  HeadResult result;                // views of `sums`: {loss sum, tokens}
  at::Tensor sums;                  // [4] fp64, see common/optim/grad_norm.h
};

}  // namespace sc
