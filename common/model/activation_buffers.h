// The buffers of forward and backward over a run of blocks, of one device or of a tensor rank.
#pragma once

#include <cstddef>
#include <vector>

#include "common/memory/ledger.h"
#include "common/model/activation_plan.h"
#include "common/model/gpt.h"

namespace sc {

struct BufferMaker;

struct ActivationBuffers {
  /// Of one device. Bytes: plan_activation_buffers.
  ActivationBuffers(const Gpt& gpt, Ledger& ledger, const BufferShape& shape);
  ActivationBuffers(const Gpt& gpt, Ledger& ledger);  // of the whole model
  /// Of a tensor rank, without sums; pending 0. Bytes: plan_part_stage, or plan_part_buffers of all blocks.
  ///   kept    what the halves' norms gathered stays for backward
  ///   window  for what tensor ranks write to and read from each other; empty: the ledger has that, too
  ActivationBuffers(const RunShape& run, const PartSizes& sizes, const BufferShape& shape, bool kept,
                    Ledger& ledger, const MakeMemory& window = {});

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
  std::vector<at::Tensor> inputs;  // [B, T, d], or [n, d]
  std::vector<ActivationSet> sets;
  Workspace ws;
  std::vector<BlockGrads> pending;  // beside ws.grads, which the head uses, too
  std::vector<at::Tensor> grad_x;   // as inputs; of two in turn, that of x(unit) is grad_x[unit % 2]
  HeadResult result;                // views of `sums`: {loss sum, tokens}
  at::Tensor sums;                  // [4] fp64, see common/optim/grad_norm.h

 private:
  ActivationBuffers(const BufferMaker& make, const BufferShape& shape, bool kept);
};

/// Of one micro-batch of a tensor rank that has all blocks.
struct PartBuffers : ActivationSet, Workspace {
  PartBuffers(const RunShape& run, const PartSizes& sizes, bool kept, Ledger& ledger,
              const MakeMemory& window = {});
};

/// One device's for a block at a time, as "saved" and "workspace".
BlockSaved make_saved(const Gpt& gpt, Ledger& ledger);
Workspace make_workspace(const Gpt& gpt, Ledger& ledger);

}  // namespace sc
