// What a block's halves read and write, of one device that computes all of a model, or of a tensor rank that
// computes its part of every matrix.
//   N = B T tokens of a micro-batch, n of them this rank's own; a elements of its heads a token, m columns of
//   the MLP, v rows of the vocabulary (part_plan.h). One device has n = N, a = d, m = 4d, all of the
//   vocabulary. In the workload's dtype where nothing else is said.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <vector>

#include "common/model/block_tensors.h"
#include "common/model/param_layout.h"

namespace sc {

/// One unit's flat vectors; `whole` is undefined unless persist_below made that segment non-empty.
struct UnitTensors {
  at::Tensor sharded, whole;
  [[nodiscard]] const at::Tensor& segment(Segment s) const { return s == Segment::sharded ? sharded : whole; }
};

/// Rows of this rank's tokens within those of all, which its matrices read: gathered in place. Where tokens
/// are whole both are one.
struct GatheredRows {
  at::Tensor all, own;  // [N, d], [n, d]
};

/// What a norm leaves. `rows` are a tensor rank's only ones, unless a run keeps them: the next norm
/// overwrites them, and backward makes them again from the norm's input.
struct BlockNorm {
  GatheredRows rows;
  at::Tensor mean, rstd;  // [n] fp32
};

/// What backward of a block needs from its forward. Allocated once; never aliases parameters. With
/// activations = recompute only `x` is set; with recompute_gelu `gelu` is undefined and the Workspace's is
/// used.
struct BlockSaved {
  at::Tensor x;  // [n, d] handle of the block's input, set by forward: the caller keeps its memory
  std::array<BlockNorm, 2> norms;
  at::Tensor mid;            // [n, d] between the halves
  at::Tensor qkv, lse, att;  // [N, 3 a], [B, h, T] fp32, [N, a]
  at::Tensor fc, gelu;       // [N, m] before and after GELU
  [[nodiscard]] BlockNorm& norm(Half half) { return norms[static_cast<std::size_t>(half)]; }
  [[nodiscard]] const BlockNorm& norm(Half half) const { return norms[static_cast<std::size_t>(half)]; }
  /// What a half begins with.
  [[nodiscard]] const at::Tensor& in(Half half) const { return half == Half::attention ? x : mid; }
};

/// What backward of a block leaves for its weights. One is enough where the one follows the other; where
/// weights come later, one for each block that has not had them.
struct BlockGrads {
  at::Tensor fc, qkv;      // [N, m], [N, 3 a] gradients of what the first matrices made
  at::Tensor att;          // [N, a] of what the heads made; one device's lies in Workspace::partial
  at::Tensor vectors;      // [6 d + 3 a + m] fp32: of norms and biases, in the layout's order
  at::Tensor mid = {};     // [N, d] of what lies between the halves; of one device alone
  at::Tensor grad_y = {};  // [N, d] handle of the block's output gradient; of one device alone
  [[nodiscard]] const at::Tensor& of_first(Half half) const { return half == Half::attention ? qkv : fc; }
};

/// Scratch of one block at a time, and of the head.
struct Workspace {
  BlockSaved recomputed;  // with recompute the one set that forward writes and backward refills;
                          // with recompute_gelu its `gelu` alone
  BlockGrads grads;
  at::Tensor partial;  // [N, d] a temporary of backward; a tensor rank's summand
  // The head's; undefined where that is computed elsewhere.
  BlockNorm head;     // ln_f's
  at::Tensor logits;  // [chunk, v]
  // Of tensor ranks alone:
  GatheredRows norms;                     // shared by all norms that are not kept
  std::array<GatheredRows, 2> gradients;  // of rows: those read, those written
  at::Tensor sum;                         // [n, d]; `partial` itself where tokens are whole
  at::Tensor statistics, of_all;          // [chunk, 2], [t, chunk, 2] fp32; undefined without a head
};

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
