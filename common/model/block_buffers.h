// The tensors of block_list.h, and those that belong to several blocks.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "common/model/block_list.h"
#include "common/model/param_layout.h"

namespace sc {

/// One unit's flat vectors. `whole` is undefined unless persist_below made that segment non-empty.
struct UnitTensors {
  at::Tensor sharded, whole;
  [[nodiscard]] const at::Tensor& segment(Segment s) const { return s == Segment::sharded ? sharded : whole; }
};

using GatheredRows = GatheredRowsOf<at::Tensor>;
using BlockNorm = BlockNormOf<at::Tensor>;
using BlockSaved = BlockSavedOf<at::Tensor>;
using BlockGrads = BlockGradsOf<at::Tensor>;
using Workspace = WorkspaceOf<at::Tensor>;

struct ActivationSet {
  at::Tensor input;               // a handle of the first block's input
  std::vector<at::Tensor> x;      // every block's output: [B, T, d], or [n, d] on a tensor rank
  std::vector<BlockSaved> saved;  // of every block; empty ones if everything is recomputed
};

/// Sums over tokens, to which every call of head() adds; they are zeroed once per step.
struct HeadResult {
  at::Tensor loss_sum;  // [] fp64, in nats
  at::Tensor tokens;    // [] fp64, number of targets >= 0
};

}  // namespace sc
