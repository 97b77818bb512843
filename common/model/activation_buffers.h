// The buffers of one forward and backward over all blocks, as a strategy without a pipeline allocates
// them.
#pragma once

#include <vector>

#include "common/memory/plan.h"
#include "common/model/gpt.h"

namespace sc {

/// x[0] is the embedding's output, x[unit] block `unit`'s, x[L] the head's input. Two gradients of x, used in
/// turn.
struct ActivationBuffers {
  ActivationBuffers(const Gpt& gpt, Ledger& ledger);

  std::vector<at::Tensor> x;      // L + 1 of [B, T, d]
  std::vector<BlockSaved> saved;  // saved[unit - 1]: of block `unit`
  Workspace ws;
  at::Tensor grad_x[2];  // [B, T, d]: the gradient of x[unit] is grad_x[unit % 2]
  HeadResult result;     // views of `sums`: {loss sum, tokens}
  at::Tensor sums;       // [4] fp64, see common/optim/grad_norm.h
};

/// Adds what ActivationBuffers takes from the ledger, by formula.
void plan_activation_buffers(const RunShape& run, MemoryPlan& plan);

}  // namespace sc
