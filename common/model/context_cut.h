// Which tokens of a row a context rank has, and which of them meet whom when: one list of attention's calls,
// which both exchanges, lesson 00's order, plans and pictures read. No torch.
//   Source: Liu et al., Ring Attention, arXiv:2310.01889; zigzag as in Llama 3, arXiv:2407.21783, section
//   3.3.2.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/range.h"

namespace sc {

/// zigzag: a row is cut into 2c chunks, and rank r has chunks r and 2c - 1 - r; contiguous: into c, one each.
/// One rank has the row.
enum class Parts : std::uint8_t { zigzag, contiguous };

/// How keys and values travel: from rank to rank, or from all to all at once. Their gradients are added along
/// the ring, or in rank order.
enum class Exchange : std::uint8_t { ring, gather };

/// One call: queries of some of a rank's tokens meet the keys of some of another rank's, or its own. A rank
/// keeps its tokens of a row chunk after chunk.
struct AttentionCall {
  int hop;  // the keys are here then: those of rank (r - hop) mod c
  Range queries, keys;
  bool causal;  // own keys: a token sees those up to itself; elsewhere all, which come before it in the row
  bool operator==(const AttentionCall&) const = default;
};

struct ContextCut {
  int rank = 0, ranks = 1;
  Parts parts = Parts::zigzag;
  bool operator==(const ContextCut&) const = default;

  /// Chunks of a row, and of it those of one rank.
  [[nodiscard]] int chunks_of_row() const { return ranks * chunks_of_rank(); }
  [[nodiscard]] int chunks_of_rank() const { return parts == Parts::zigzag && ranks > 1 ? 2 : 1; }
  /// Those of `rank`, in the order in which it keeps them, that of the row.
  [[nodiscard]] std::vector<int> chunks_of(int rank) const;
  /// Whose keys and values are here at a hop.
  [[nodiscard]] int source(int hop) const { return (rank - hop + ranks) % ranks; }

  /// What this rank computes at hop 0, 1, and so on, with m tokens in a chunk; at hops after the last of
  /// these nothing. The first has all queries, the second all that any later one has; keys begin with the
  /// first.
  [[nodiscard]] std::vector<AttentionCall> calls(std::int64_t m) const;
  /// Pairs of a token and one that it sees, in a row of `tokens` (chunks_of_row() divides it).
  [[nodiscard]] std::int64_t token_pairs(std::int64_t tokens) const;
};

/// Mean over the largest of the ranks' token_pairs: the part of their time in which ranks have something to
/// compute.
double balance_of(ContextCut cut, std::int64_t tokens);

}  // namespace sc
