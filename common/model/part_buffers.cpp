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

/// Makes rows of all tokens, in memory that all ranks reach where tokens are split, with this rank's own
/// among them.
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

/// All buffers of a rank come from here.
struct Maker {
  const GptShape& shape;
  const PartSizes& sizes;
  Ledger& ledger;
  const SharedRows& shared;
  [[nodiscard]] Taken take(Purpose purpose, const char* name) const {
    return {ledger, purpose, name, shape.dtype, shared};
  }
  [[nodiscard]] Taken work(const char* name) const { return take(Purpose::workspace, name); }
  [[nodiscard]] bool nothing_saved() const { return shape.activations == Activations::recompute; }

  /// Inputs and outputs of blocks, one behind the other.
  [[nodiscard]] at::Tensor chain(std::int64_t count) const {
    return ledger.allocate(Purpose::activations, "x", {count, sizes.n(), sizes.d}, shape.dtype);
  }
  [[nodiscard]] std::vector<PartSaved> saved(std::int64_t blocks, const GatheredRows& norms) const {
    std::vector<PartSaved> all;
    for (std::int64_t i = 0; i < blocks; ++i)
      all.push_back(nothing_saved() ? PartSaved{}
                                    : one_block(take(Purpose::activations, "saved"), sizes,
                                                shape.activations == Activations::keep, norms));
    return all;
  }
  [[nodiscard]] PartWork work_of(const GatheredRows& norms, bool kept, bool head) const {
    const PartSizes& s = sizes;
    const Taken gathered = work("gathered"), rows = work("rows"), grads_of_block = work("block_grads");
    PartWork w;
    w.norms = norms;
    for (GatheredRows& gradient : w.gradients) gradient = gathered_rows(gathered, s);
    w.partial = gathered.shared_rows(s);
    w.sum = s.split() ? rows.rows(s.n(), s.d) : w.partial;
    if (nothing_saved()) w.recomputed = one_block(work("recomputed"), s, true, of_blocks(norms, kept));
    if (shape.activations == Activations::recompute_gelu)
      w.recomputed.gelu = work("recomputed").rows(s.N, s.hidden);
    w.grads = {grads_of_block.rows(s.N, s.hidden), grads_of_block.rows(s.N, 3 * s.att),
               grads_of_block.rows(s.N, s.att), grads_of_block.f32({s.vectors()})};
    if (!head) return w;
    w.logits = work("logits").rows(s.chunk, s.vocab.size());
    const Taken numbers = work("statistics");
    w.head = {norms, numbers.f32({s.n()}), numbers.f32({s.n()})};
    w.statistics = numbers.f32({s.chunk, 2});
    w.of_all = numbers.f32({s.ranks, s.chunk, 2});
    return w;
  }
  /// What norms of blocks share; nothing: each has its own.
  [[nodiscard]] GatheredRows of_blocks(const GatheredRows& norms, bool kept) const {
    return kept || !sizes.split() ? GatheredRows{} : norms;
  }
};

}  // namespace

PartBuffers::PartBuffers(const GptShape& shape, const PartSizes& s, bool kept, Ledger& ledger,
                         const SharedRows& shared) {
  const Maker make{shape, s, ledger, shared};
  const std::int64_t blocks = shape.config.layers;
  const GatheredRows norms_of_all = gathered_rows(make.work("gathered"), s);
  const at::Tensor chain = make.chain(blocks + 1);
  input = chain.select(0, 0);
  for (std::int64_t i = 1; i <= blocks; ++i) x.push_back(chain.select(0, i));
  saved = make.saved(blocks, make.of_blocks(norms_of_all, kept));
  static_cast<PartWork&>(*this) = make.work_of(norms_of_all, kept, /*head=*/true);
}

PartStageBuffers::PartStageBuffers(const GptShape& shape, const PartSizes& s, const BufferShape& of,
                                   Ledger& ledger, const SharedRows& shared) {
  const Maker make{shape, s, ledger, shared};
  const GatheredRows norms = gathered_rows(make.work("gathered"), s);
  const at::Tensor chain = make.chain(of.inputs + of.sets * of.blocks);
  std::int64_t next = 0;
  for (int i = 0; i < of.inputs; ++i) inputs.push_back(chain.select(0, next++));
  for (int set = 0; set < of.sets; ++set) {
    PartActivations& kept = sets.emplace_back();
    for (int i = 0; i < of.blocks; ++i) kept.x.push_back(chain.select(0, next++));
    kept.saved = make.saved(of.blocks, make.of_blocks(norms, /*kept=*/false));
  }
  for (int i = 0; i < of.grads; ++i) grads.push_back(make.work("grad_x").rows(s.n(), s.d));
  work = make.work_of(norms, /*kept=*/false, of.head);
}

}  // namespace sc
