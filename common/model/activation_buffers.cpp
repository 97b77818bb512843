// All buffers of forward and backward. activation_plan.cpp predicts their bytes by formula, one name a
// formula.
#include "common/model/activation_buffers.h"

#include <utility>

namespace sc {
namespace {

/// Takes tensors of one name from the ledger.
struct Taken {
  Ledger& ledger;
  Purpose purpose;
  const char* name;
  DType dtype;
  const MakeMemory& window;
  [[nodiscard]] at::Tensor rows(std::int64_t count, std::int64_t columns) const {
    return ledger.allocate(purpose, name, {count, columns}, dtype);
  }
  [[nodiscard]] at::Tensor f32(std::vector<std::int64_t> shape) const {
    return ledger.allocate(purpose, name, shape, DType::f32);
  }
  /// Rows of all tokens, in memory that all ranks reach.
  [[nodiscard]] at::Tensor shared_rows(const PartSizes& s) const {
    if (!window) return rows(s.N, s.d);
    return ledger.zeros({purpose, name, s.N * s.d, dtype}, window).view({s.N, s.d});
  }
  /// With this rank's own among them; nobody else reads them where tokens are whole.
  [[nodiscard]] GatheredRows gathered_rows(const PartSizes& s) const {
    const at::Tensor all = s.split() ? shared_rows(s) : rows(s.N, s.d);
    return {all, all.narrow(0, s.tokens.begin, s.n())};
  }
};

}  // namespace

/// Where all buffers come from. One device has all of its workspace under one name.
struct BufferMaker {
  const RunShape& run;
  const PartSizes& s;
  Ledger& ledger;
  const MakeMemory& window;
  bool part;

  [[nodiscard]] Taken take(Purpose purpose, const char* name) const {
    return {ledger, purpose, name, run.workload.precision.dtype, window};
  }
  [[nodiscard]] Taken work(const char* name) const {
    return take(Purpose::workspace, part ? name : "workspace");
  }
  [[nodiscard]] bool saves(Activations mode) const { return run.workload.activations == mode; }

  /// As many of what lies between blocks, one behind the other.
  [[nodiscard]] at::Tensor chain(Purpose purpose, const char* name, std::int64_t count) const {
    const Taken from = take(purpose, name);
    return part ? from.rows(count * s.n(), s.d).view({count, s.n(), s.d})
                : from.rows(count * s.N, s.d).view({count, s.B, s.T, s.d});
  }
  /// norms: rows of every norm; undefined: each has its own.
  [[nodiscard]] BlockSaved block(const Taken& from, bool with_gelu, const GatheredRows& norms) const {
    BlockSaved saved;
    for (BlockNorm& norm : saved.norms)
      norm = {norms.all.defined() ? norms : from.gathered_rows(s), from.f32({s.n()}), from.f32({s.n()})};
    saved.mid = from.rows(s.n(), s.d);
    saved.qkv = from.rows(s.N, 3 * s.att);
    saved.lse = from.f32({s.B, s.heads, s.T});
    saved.att = from.rows(s.N, s.att);
    saved.fc = from.rows(s.N, s.hidden);
    if (with_gelu) saved.gelu = from.rows(s.N, s.hidden);
    return saved;
  }
  [[nodiscard]] BlockSaved saved(const GatheredRows& norms) const {
    if (saves(Activations::recompute)) return {};
    return block(take(Purpose::activations, "saved"), saves(Activations::keep), norms);
  }
  [[nodiscard]] BlockGrads grads(const Taken& from) const {
    BlockGrads grads{.fc = from.rows(s.N, s.hidden),
                     .qkv = from.rows(s.N, 3 * s.att),
                     .att = from.rows(s.N, s.att),
                     .vectors = from.f32({s.vectors()})};
    if (!part) std::swap(grads.att, grads.mid);
    return grads;
  }
  /// norms: of a tensor rank, which all norms share that are not of_blocks' own.
  [[nodiscard]] Workspace workspace(const GatheredRows& norms, const GatheredRows& of_blocks,
                                    bool head) const {
    Workspace w;
    if (part) {
      w.norms = norms;
      for (GatheredRows& gradient : w.gradients) gradient = work("gathered").gathered_rows(s);
    }
    w.partial = work("gathered").shared_rows(s);
    if (part) w.sum = s.split() ? work("rows").rows(s.n(), s.d) : w.partial;
    if (saves(Activations::recompute)) w.recomputed = block(work("recomputed"), true, of_blocks);
    if (saves(Activations::recompute_gelu)) w.recomputed.gelu = work("recomputed").rows(s.N, s.hidden);
    w.grads = grads(work("block_grads"));
    if (!head) return w;
    const Taken numbers = work("statistics");
    w.logits = work("logits").rows(s.chunk, s.vocab.size());
    w.head = {part ? norms : numbers.gathered_rows(s), numbers.f32({s.n()}), numbers.f32({s.n()})};
    if (!part) return w;
    w.statistics = numbers.f32({s.chunk, 2});
    w.of_all = numbers.f32({s.ranks, s.chunk, 2});
    return w;
  }
};

namespace {

const MakeMemory kNoWindow;

BufferMaker maker_of(const Gpt& gpt, Ledger& ledger) {
  return {gpt.shape(), gpt.sizes(), ledger, kNoWindow, /*part=*/false};
}

}  // namespace

ActivationBuffers::ActivationBuffers(const BufferMaker& make, const BufferShape& of, bool kept) : shape(of) {
  const GatheredRows norms = make.part ? make.work("gathered").gathered_rows(make.s) : GatheredRows{},
                     of_blocks = kept || !make.s.split() ? GatheredRows{} : norms;
  const at::Tensor chain = make.chain(Purpose::activations, "x", of.inputs + of.sets * of.blocks);
  std::int64_t next = 0;
  for (int i = 0; i < of.inputs; ++i) inputs.push_back(chain.select(0, next++));
  for (int set = 0; set < of.sets; ++set) {
    ActivationSet& under_way = sets.emplace_back();
    for (int i = 0; i < of.blocks; ++i) {
      under_way.x.push_back(chain.select(0, next++));
      under_way.saved.push_back(make.saved(of_blocks));
    }
  }
  ws = make.workspace(norms, of_blocks, of.head);
  for (int i = 0; i < of.pending; ++i)
    pending.push_back(make.grads(make.take(Purpose::workspace, "pending")));
  for (int i = 0; i < of.grads; ++i)
    grad_x.push_back(make.chain(Purpose::workspace, "grad_x", 1).select(0, 0));
}

ActivationBuffers::ActivationBuffers(const Gpt& gpt, Ledger& ledger)
    : ActivationBuffers(gpt, ledger, whole_model(gpt.layout().config())) {}

ActivationBuffers::ActivationBuffers(const Gpt& gpt, Ledger& ledger, const BufferShape& of)
    : ActivationBuffers(maker_of(gpt, ledger), of, /*kept=*/true) {
  sums = ledger.zeros(step_sums());
  result = {sums.select(0, 0), sums.select(0, 1)};
}

ActivationBuffers::ActivationBuffers(const RunShape& run, const PartSizes& sizes, const BufferShape& of,
                                     bool kept, Ledger& ledger, const MakeMemory& window)
    : ActivationBuffers(BufferMaker{run, sizes, ledger, window, /*part=*/true}, of, kept) {}

PartBuffers::PartBuffers(const RunShape& run, const PartSizes& sizes, bool kept, Ledger& ledger,
                         const MakeMemory& window) {
  ActivationBuffers buffers(run, sizes, whole_model(run.workload.model, /*grads=*/0), kept, ledger, window);
  static_cast<ActivationSet&>(*this) = std::move(buffers.sets[0]);
  static_cast<Workspace&>(*this) = std::move(buffers.ws);
  input = buffers.inputs[0];
}

BlockSaved make_saved(const Gpt& gpt, Ledger& ledger) { return maker_of(gpt, ledger).saved({}); }
Workspace make_workspace(const Gpt& gpt, Ledger& ledger) {
  return maker_of(gpt, ledger).workspace({}, {}, /*head=*/true);
}

}  // namespace sc
