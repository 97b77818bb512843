#include "common/model/part_plan.h"

#include <algorithm>
#include <string>

#include "common/base/check.h"

namespace sc {
namespace {

Range tokens_of(std::int64_t all, const TensorCut& cut, TokenShare share) {
  if (share == TokenShare::whole) return {0, all};
  return {all * cut.rank / cut.ranks, all * (cut.rank + 1) / cut.ranks};
}

}  // namespace

PartSizes::PartSizes(const RunShape& run)
    : PartSizes(run, ParamLayout(run.workload.model, WorldSize{1}), TokenShare::whole) {}

PartSizes::PartSizes(const RunShape& run, const ParamLayout& layout, TokenShare share)
    : B(run.workload.batch.micro),
      T(run.workload.batch.sequence),
      N(B * T),
      d(run.workload.model.width),
      tokens(tokens_of(N, layout.cut(), share)),
      heads(layout.heads().size()),
      att(heads * run.workload.model.head_dim()),
      hidden(layout.hidden().size()),
      vocab(layout.vocab_rows()),
      chunk(std::min(run.workload.head_chunk, N)),
      ranks(layout.cut().ranks),
      e(size_of(run.workload.precision.dtype)),
      starts(run.starts) {
  if (share == TokenShare::whole || N % ranks == 0) return;
  std::int64_t rows = B + 1;
  while (rows * T % ranks != 0) ++rows;
  throw InputError(ExitCode::usage, "batch.micro",
                   std::to_string(B) + (B == 1 ? " row of " : " rows of ") + std::to_string(T) +
                       " tokens cannot be shared evenly by " + std::to_string(ranks) + " tensor ranks",
                   "--set batch.micro=" + std::to_string(rows) + ", or --set tokens=whole");
}

}  // namespace sc
