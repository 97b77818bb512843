// The buffers of GptParts. part_plan.cpp predicts their bytes by formula, one name a formula.
#include "common/model/gpt_parts.h"

namespace sc {
namespace {

/// Takes tensors of one name from the ledger.
struct Taken {
  Ledger& ledger;
  Purpose purpose;
  const char* name;
  DType dtype;
  const SharedRows& made;
  [[nodiscard]] at::Tensor shared_rows(const PartSizes& s) const {
    return made ? made(purpose, name, Elements(s.N * s.d)).view({s.N, s.d}) : rows(s.N, s.d);
  }
  [[nodiscard]] at::Tensor rows(std::int64_t count, std::int64_t columns) const {
    return ledger.allocate(purpose, name, {count, columns}, dtype);
  }
  [[nodiscard]] at::Tensor f32(std::vector<std::int64_t> shape) const {
    return ledger.allocate(purpose, name, shape, DType::f32);
  }
};

/// Makes rows of all tokens, in memory that all ranks reach where tokens are split, with this rank's own among them.
GatheredRows gathered_rows(const Taken& take, const PartSizes& s) {
  const at::Tensor all = s.split() ? take.shared_rows(s) : take.rows(s.N, s.d);
  return {all, all.narrow(0, s.tokens.begin, s.n())};
}

/// shared: rows of every norm; undefined: each has its own.
PartSaved one_block(const Taken& take, const PartSizes& s, bool with_gelu, const GatheredRows& shared) {
  PartSaved saved;
  for (PartNorm& norm : saved.norms) {
    norm.rows = shared.all.defined() ? shared : gathered_rows(take, s);
    norm.mean = take.f32({s.n()});
    norm.rstd = take.f32({s.n()});
  }
  saved.mid = take.rows(s.n(), s.d);
  saved.qkv = take.rows(s.N, 3 * s.att);
  saved.lse = take.f32({s.B, s.heads, s.T});
  saved.att = take.rows(s.N, s.att);
  saved.fc = take.rows(s.N, s.hidden);
  if (with_gelu) saved.gelu = take.rows(s.N, s.hidden);
  return saved;
}

}  // namespace

PartBuffers::PartBuffers(const GptShape& shape, const PartSizes& s, bool kept, Ledger& ledger,
                         const SharedRows& shared) {
  const auto take = [&](Purpose purpose, const char* name) {
    return Taken{ledger, purpose, name, shape.dtype, shared};
  };
  const auto work = [&](const char* name) { return take(Purpose::workspace, name); };
  const std::int64_t blocks = shape.config.layers;
  const Taken gathered = work("gathered"), rows = work("rows"), grads_of_block = work("block_grads");
  norms = gathered_rows(gathered, s);
  for (GatheredRows& gradient : gradients) gradient = gathered_rows(gathered, s);
  partial = gathered.shared_rows(s);
  sum = s.split() ? rows.rows(s.n(), s.d) : partial;

  const at::Tensor chain = ledger.allocate(Purpose::activations, "x", {blocks + 1, s.n(), s.d}, shape.dtype);
  for (std::int64_t i = 0; i <= blocks; ++i) x.push_back(chain.select(0, i));
  const bool nothing = shape.activations == Activations::recompute;
  const GatheredRows of_norms = kept || !s.split() ? GatheredRows{} : norms;
  for (std::int64_t i = 0; i < blocks; ++i) {
    saved.push_back(nothing ? PartSaved{}
                            : one_block(take(Purpose::activations, "saved"), s,
                                        shape.activations == Activations::keep, of_norms));
  }
  if (nothing) recomputed = one_block(work("recomputed"), s, true, of_norms);
  if (shape.activations == Activations::recompute_gelu)
    recomputed.gelu = work("recomputed").rows(s.N, s.hidden);

  grads = {grads_of_block.rows(s.N, s.hidden), grads_of_block.rows(s.N, 3 * s.att),
           grads_of_block.rows(s.N, s.att), grads_of_block.f32({s.vectors()})};
  logits = work("logits").rows(s.chunk, s.vocab.size());
  const Taken numbers = work("statistics");
  head.rows = norms;
  head.mean = numbers.f32({s.n()});
  head.rstd = numbers.f32({s.n()});
  statistics = numbers.f32({s.chunk, 2});
  of_all = numbers.f32({s.ranks, s.chunk, 2});
}

}  // namespace sc
