#include "common/model/context_cut.h"

#include <algorithm>

namespace sc {

std::vector<int> ContextCut::chunks_of(int rank) const {
  if (chunks_of_rank() == 1) return {rank};
  return {rank, 2 * ranks - 1 - rank};
}

// [anchor: one-call-a-hop]
// Of an earlier rank all queries see the first chunk and none the second; of a later one none but the second
// chunk's queries see any, and these see both.
std::vector<AttentionCall> ContextCut::calls(std::int64_t m) const {
  const Range all{0, chunks_of_rank() * m}, first{0, m}, second{m, 2 * m};
  std::vector<AttentionCall> calls = {{0, all, all, /*causal=*/true}};
  for (int hop = 1; hop < ranks; ++hop) {
    if (source(hop) < rank)
      calls.push_back({hop, all, first, false});
    else if (all != first)
      calls.push_back({hop, second, all, false});
  }
  return calls;
}

std::int64_t ContextCut::token_pairs(std::int64_t tokens) const {
  std::int64_t sum = 0;
  for (const AttentionCall& call : calls(tokens / chunks_of_row())) {
    const std::int64_t n = call.queries.size();
    sum += call.causal ? n * (n + 1) / 2 : n * call.keys.size();
  }
  return sum;
}

double balance_of(ContextCut cut, std::int64_t tokens) {
  std::int64_t sum = 0, most = 0;
  for (cut.rank = 0; cut.rank < cut.ranks; ++cut.rank) {
    sum += cut.token_pairs(tokens);
    most = std::max(most, cut.token_pairs(tokens));
  }
  return static_cast<double>(sum) / static_cast<double>(cut.ranks * most);
}

}  // namespace sc
