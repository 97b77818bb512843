// The buffers of forward and backward for a run of blocks, on one device or on a tensor rank.
#pragma once

#include <cstddef>
#include <vector>

#include "common/memory/ledger.h"
#include "common/model/activation_plan.h"
#include "common/model/gpt.h"

namespace sc {

struct BufferMaker;

struct ActivationBuffers {
  /// Allocates for one device; plan_activation_buffers is the plan.
  ActivationBuffers(const Gpt& gpt, Ledger& ledger, const BufferShape& shape);
  ActivationBuffers(const Gpt& gpt, Ledger& ledger);  // for the whole model
  /// Allocates for a tensor rank, without sums and with `pending` 0; plan_part_stage and plan_part_buffers
  /// (all blocks) are the plans.
  ///   kept    rows gathered for the halves' norms are kept for backward
  ///   window  allocates what tensor ranks write to and read from each other; empty: the ledger does
  ActivationBuffers(const RunShape& run, const PartSizes& sizes, const BufferShape& shape, bool kept,
                    Ledger& ledger, const MakeMemory& window = {});

  /// The output of block `unit`; for the unit before the first block its input, if every set has one.
  [[nodiscard]] at::Tensor& x(int unit, int set = 0) {
    const auto s = static_cast<std::size_t>(set);
    return unit < shape.first ? inputs[s] : sets[s].x[static_cast<std::size_t>(unit - shape.first)];
  }
  [[nodiscard]] BlockSaved& saved(int unit, int set = 0) {
    return sets[static_cast<std::size_t>(set)].saved[static_cast<std::size_t>(unit - shape.first)];
  }
  [[nodiscard]] int last() const { return shape.first + shape.blocks - 1; }

  BufferShape shape;
  std::vector<at::Tensor> inputs;  // [B, T, d], or [n, d] on a tensor rank
  std::vector<ActivationSet> sets;
  Workspace ws;
  std::vector<BlockGrads> pending;  // separate from ws.grads, which the head also uses
  // Gradients of x, shaped like inputs; with two in turn, that of x(unit) is grad_x[unit % 2].
  std::vector<at::Tensor> grad_x;
  HeadResult result;  // views of `sums`: {loss sum, tokens}
  at::Tensor sums;    // [4] fp64, see common/optim/grad_norm.h

 private:
  ActivationBuffers(const BufferMaker& make, const BufferShape& shape, bool kept);
};

/// The buffers of one micro-batch on a tensor rank that has all blocks.
struct PartBuffers : ActivationSet, Workspace {
  PartBuffers(const RunShape& run, const PartSizes& sizes, bool kept, Ledger& ledger,
              const MakeMemory& window = {});
};

/// Buffers of one block at a time on one device, in the ledger as "saved" and "workspace".
BlockSaved make_saved(const Gpt& gpt, Ledger& ledger);
Workspace make_workspace(const Gpt& gpt, Ledger& ledger);

}  // namespace sc
