// The tensors of block_list.h, and those around them.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "common/model/block_list.h"
#include "common/model/param_layout.h"

namespace sc {

/// One unit's flat vectors; `whole` is undefined unless persist_below made that segment non-empty.
struct UnitTensors {
  at::Tensor sharded, whole;
  [[nodiscard]] const at::Tensor& segment(Segment s) const { return s == Segment::sharded ? sharded : whole; }
};

using GatheredRows = GatheredRowsOf<at::Tensor>;
using BlockNorm = BlockNormOf<at::Tensor>;
using BlockSaved = BlockSavedOf<at::Tensor>;
using BlockGrads = BlockGradsOf<at::Tensor>;
using Workspace = WorkspaceOf<at::Tensor>;

/// One micro-batch's activations.
struct ActivationSet {
  at::Tensor input;               // handle of the first block's input
  std::vector<at::Tensor> x;      // every block's output: [B, T, d], or a tensor rank's [n, d]
  std::vector<BlockSaved> saved;  // of every block; empty ones where all is computed again
};

/// Sums over this call's tokens, added onto what is there: zero them once a step.
struct HeadResult {
  at::Tensor loss_sum;  // [] fp64, nats
  at::Tensor tokens;    // [] fp64, targets >= 0
};

}  // namespace sc
