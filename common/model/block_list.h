// The tensors that a block's halves and the head read and write, listed once: activation_buffers.cpp makes
// tensors from this list, activation_plan.cpp counts its bytes. No torch.
//   N = B T tokens of a micro-batch, n of them this rank's own; a elements per token of its heads, m columns
//   of the MLP, v rows of the vocabulary (part_plan.h). One device has n = N, a = d, m = 4d, and all of the
//   vocabulary. Tensors have the workload's dtype unless another is given.
#pragma once

#include <array>
#include <utility>

#include "common/model/block_tensors.h"
#include "common/model/part_plan.h"

namespace sc {

/// Rows of all tokens (`all`), which this rank's matrices read, and among them those of its own (`own`),
/// gathered in place. If tokens are not split, both are the same.
template <class T>
struct GatheredRowsOf {
  T all, own;  // [N, d], [n, d]
};

/// The results of a norm. On a tensor rank all norms share `rows`, unless a run keeps them: the next norm
/// overwrites them, and backward recomputes them from the norm's input.
template <class T>
struct BlockNormOf {
  GatheredRowsOf<T> rows;
  T mean, rstd;  // [n] fp32
};

/// What a block's backward needs from its forward. Allocated once; never aliases parameters. With
/// activations=recompute only `x` is set; with recompute_gelu `gelu` is undefined, and the Workspace's is
/// used.
template <class T>
struct BlockSavedOf {
  T x;  // [n, d] handle of the block's input, set by forward; the caller keeps its memory
  std::array<BlockNormOf<T>, 2> norms;
  T mid;            // [n, d] between the halves
  T qkv, lse, att;  // [N, 3 a], [B, h, T] fp32, [N, a]
  T fc, gelu;       // [N, m] before and after GELU
  [[nodiscard]] BlockNormOf<T>& norm(Half half) { return norms[static_cast<std::size_t>(half)]; }
  [[nodiscard]] const BlockNormOf<T>& norm(Half half) const { return norms[static_cast<std::size_t>(half)]; }
  /// The input of one half of the block.
  [[nodiscard]] const T& in(Half half) const { return half == Half::attention ? x : mid; }
};

/// What backward_input leaves for backward_weights. One does if backward_weights follows immediately;
/// otherwise each waiting block needs its own.
template <class T>
struct BlockGradsOf {
  T fc, qkv;      // [N, m], [N, 3 a] gradients of the first matrices' results
  T att;          // [N, a] gradient of the heads' output; on one device it lies in Workspace::partial
  T vectors;      // [6 d + 3 a + m] fp32: gradients of norms and biases, in the layout's order
  T mid = {};     // [N, d] gradient between the halves; one device only
  T grad_y = {};  // [N, d] handle of the block's output gradient; one device only
  [[nodiscard]] const T& of_first(Half half) const { return half == Half::attention ? qkv : fc; }
};

/// Scratch for one block at a time, and for the head.
template <class T>
struct WorkspaceOf {
  // With recompute the one set that forward writes and backward refills; with recompute_gelu only its `gelu`.
  BlockSavedOf<T> recomputed;
  BlockGradsOf<T> grads;
  T partial;  // [N, d] a temporary of backward; on a tensor rank the summand of a reduction
  // The head's tensors, undefined if the head is computed on another rank.
  BlockNormOf<T> head;  // of ln_f
  T logits;             // [chunk, v]
  // Only tensor ranks have the tensors below.
  GatheredRowsOf<T> norms;                     // shared by all norms that are not kept
  std::array<GatheredRowsOf<T>, 2> gradients;  // gradients of rows: one is read, one is written
  T sum;                                       // [n, d]; `partial` itself if tokens are not split
  T statistics, of_all;                        // [chunk, 2], [t, chunk, 2] fp32; undefined without a head
};

/// Makes the lists. A Maker makes each tensor (of type Maker::Tensor) under one name: rows(count, columns) in
/// the workload's dtype, f32(shape), shared_rows() [N, d] that all tensor ranks can reach, gathered_rows().
/// named(name) is the same Maker with another name.
template <class Maker>
struct BlockList {
  using T = typename Maker::Tensor;
  const PartSizes& s;
  Activations mode;
  bool part;  // for a tensor rank

  /// The tensors of a block; `norms` are the rows that all norms share, or null if each norm has its own.
  [[nodiscard]] BlockSavedOf<T> block(const Maker& make, bool with_gelu,
                                      const GatheredRowsOf<T>* norms) const {
    BlockSavedOf<T> saved;
    for (BlockNormOf<T>& norm : saved.norms)
      norm = {norms != nullptr ? *norms : make.gathered_rows(), make.f32({s.n()}), make.f32({s.n()})};
    saved.mid = make.rows(s.n(), s.d);
    saved.qkv = make.rows(s.N, 3 * s.att);
    saved.lse = make.f32({s.B, s.heads, s.T});
    saved.att = make.rows(s.N, s.att);
    saved.fc = make.rows(s.N, s.hidden);
    if (with_gelu) saved.gelu = make.rows(s.N, s.hidden);
    return saved;
  }
  /// What forward keeps of a block for its backward.
  [[nodiscard]] BlockSavedOf<T> saved(const Maker& make, const GatheredRowsOf<T>* norms) const {
    if (mode == Activations::recompute) return {};
    return block(make, mode == Activations::keep, norms);
  }
  [[nodiscard]] BlockGradsOf<T> grads(const Maker& make) const {
    BlockGradsOf<T> grads{.fc = make.rows(s.N, s.hidden),
                          .qkv = make.rows(s.N, 3 * s.att),
                          .att = make.rows(s.N, s.att),
                          .vectors = make.f32({6 * s.d + 3 * s.att + s.hidden})};
    if (!part) std::swap(grads.att, grads.mid);
    return grads;
  }
  /// One rank's scratch; all norms share the rows `norms`, but for those of blocks if `of_blocks` is given.
  [[nodiscard]] WorkspaceOf<T> workspace(const Maker& make, const GatheredRowsOf<T>& norms,
                                         const GatheredRowsOf<T>* of_blocks, bool head) const {
    WorkspaceOf<T> w;
    if (part) {
      w.norms = norms;
      for (GatheredRowsOf<T>& gradient : w.gradients) gradient = make.named("gathered").gathered_rows();
    }
    w.partial = make.named("gathered").shared_rows();
    if (part) w.sum = s.split() ? make.named("rows").rows(s.n(), s.d) : w.partial;
    if (mode == Activations::recompute) w.recomputed = block(make.named("recomputed"), true, of_blocks);
    if (mode == Activations::recompute_gelu) w.recomputed.gelu = make.named("recomputed").rows(s.N, s.hidden);
    w.grads = grads(make.named("block_grads"));
    if (!head) return w;
    const auto& numbers = make.named("statistics");
    w.logits = make.named("logits").rows(s.chunk, s.vocab.size());
    w.head = {part ? norms : numbers.gathered_rows(), numbers.f32({s.n()}), numbers.f32({s.n()})};
    if (!part) return w;
    w.statistics = numbers.f32({s.chunk, 2});
    w.of_all = numbers.f32({s.ranks, s.chunk, 2});
    return w;
  }
};

}  // namespace sc
