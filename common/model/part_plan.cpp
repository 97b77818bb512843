#include "common/model/part_plan.h"

#include <algorithm>
#include <string>

#include "common/base/check.h"

namespace sc {
namespace {

constexpr std::int64_t kFp32 = 4;  // statistics and sums are fp32 whatever the dtype

Range tokens_of(std::int64_t all, const TensorCut& cut, TokenShare share) {
  if (share == TokenShare::whole) return {0, all};
  return {all * cut.rank / cut.ranks, all * (cut.rank + 1) / cut.ranks};
}

// Everything that backward of one block reads, its input aside: mid of this rank's tokens, norms (2) of all
// if they are kept; qkv (3), att, fc, gelu of all; four statistics a token of its own, one lse a token and
// head.
std::int64_t block_bytes(const PartSizes& s, std::int64_t e, bool with_gelu, bool kept) {
  const std::int64_t norms = kept ? 2 * s.N : 0;
  return e * ((norms + s.n()) * s.d + s.N * (4 * s.att + (with_gelu ? 2 : 1) * s.hidden)) +
         kFp32 * (4 * s.n() + s.heads * s.N);
}

}  // namespace

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
      ranks(layout.cut().ranks) {
  if (share == TokenShare::whole || N % ranks == 0) return;
  std::int64_t rows = B + 1;
  while (rows * T % ranks != 0) ++rows;
  throw InputError(ExitCode::usage, "batch.micro",
                   std::to_string(B) + (B == 1 ? " row of " : " rows of ") + std::to_string(T) +
                       " tokens cannot be shared evenly by " + std::to_string(ranks) + " tensor ranks",
                   "--set batch.micro=" + std::to_string(rows) + ", or --set tokens=whole");
}

namespace {

// What a rank has of purpose and name, for each of `times` micro-batches.
struct Adds {
  MemoryPlan& plan;
  std::int64_t times = 1;
  void add(Purpose purpose, const char* name, const std::string& formula, std::int64_t size) const {
    plan.add(purpose, name, times == 1 ? formula : std::to_string(times) + " (" + formula + ")",
             Bytes(times * size));
  }
  void work(const char* name, const std::string& formula, std::int64_t size) const {
    add(Purpose::workspace, name, formula, size);
  }
};

// PartWork.
void plan_work(const Adds& to, const RunShape& run, const PartSizes& s, std::int64_t block, bool head) {
  const Workload& w = run.workload;
  const std::int64_t e = size_of(w.precision.dtype);
  const std::string bytes = std::to_string(e) + " ";
  if (w.activations == Activations::recompute) to.work("recomputed", "part", block);
  if (w.activations == Activations::recompute_gelu)
    to.work("recomputed", bytes + "B T m", e * s.N * s.hidden);
  to.work("gathered", bytes + "x 4 B T d", e * 4 * s.N * s.d);     // norms, two gradients, a summand
  if (s.split()) to.work("rows", bytes + "n d", e * s.n() * s.d);  // a sum
  to.work("block_grads", bytes + "B T (m + 4 a) + 4 (6 d + 3 a + m)",
          e * s.N * (s.hidden + 4 * s.att) + kFp32 * s.vectors());
  if (!head) return;
  to.work("logits", bytes + "chunk v", e * s.chunk * s.vocab.size());
  to.work("statistics", "4 (2 n + 2 chunk (1 + t))", kFp32 * (2 * s.n() + 2 * s.chunk * (1 + s.ranks)));
}

}  // namespace

void plan_part_buffers(const RunShape& run, const PartSizes& s, bool kept, std::int64_t lanes,
                       MemoryPlan& plan) {
  const Workload& w = run.workload;
  const std::int64_t e = size_of(w.precision.dtype);
  const Adds to{plan, lanes};
  to.add(Purpose::activations, "x", std::to_string(e) + " (L + 1) n d",
         e * (w.model.layers + 1) * s.n() * s.d);
  const std::int64_t block =
      block_bytes(s, e, w.activations != Activations::recompute_gelu, kept || !s.split());
  if (w.activations != Activations::recompute)
    to.add(Purpose::activations, "saved", "L part", block * w.model.layers);
  plan_work(to, run, s, block, /*head=*/true);
}

void plan_part_stage(const RunShape& run, const PartSizes& s, const BufferShape& of, MemoryPlan& plan) {
  const Workload& w = run.workload;
  const std::int64_t e = size_of(w.precision.dtype), blocks = std::int64_t{of.sets} * of.blocks;
  const std::string bytes = std::to_string(e) + " ";
  const Adds to{plan};
  to.add(Purpose::activations, "x", bytes + "x " + std::to_string(of.inputs + blocks) + " n d",
         e * (of.inputs + blocks) * s.n() * s.d);
  const std::int64_t block = block_bytes(s, e, w.activations != Activations::recompute_gelu, !s.split());
  if (w.activations != Activations::recompute)
    to.add(Purpose::activations, "saved", std::to_string(blocks) + " part", block * blocks);
  if (of.grads > 0)
    to.work("grad_x", bytes + "x " + std::to_string(of.grads) + " n d", e * of.grads * s.n() * s.d);
  plan_work(to, run, s, block, of.head);
}

}  // namespace sc
