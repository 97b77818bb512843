#include "common/model/activation_buffers.h"

#include <utility>

namespace sc {

/// Takes tensors of one name from the ledger: the Maker of BlockList (block_list.h) that allocates.
struct BufferMaker {
  using Tensor = at::Tensor;
  const RunShape& run;
  const PartSizes& s;
  Ledger& ledger;
  const MakeMemory& window;
  bool part;  // for a tensor rank
  Purpose purpose = Purpose::workspace;
  const char* name = "workspace";

  [[nodiscard]] BufferMaker of(Purpose other, const char* its) const {
    return {run, s, ledger, window, part, other, its};
  }
  [[nodiscard]] BufferMaker named(const char* other) const { return part ? of(purpose, other) : *this; }
  [[nodiscard]] DType dtype() const { return run.workload.precision.dtype; }

  [[nodiscard]] at::Tensor rows(std::int64_t count, std::int64_t columns) const {
    return ledger.allocate(purpose, name, {count, columns}, dtype());
  }
  [[nodiscard]] at::Tensor f32(const std::vector<std::int64_t>& shape) const {
    return ledger.allocate(purpose, name, shape, DType::f32);
  }
  [[nodiscard]] at::Tensor shared_rows() const {
    if (!window) return rows(s.N, s.d);
    return ledger.zeros({purpose, name, s.N * s.d, dtype()}, window).view({s.N, s.d});
  }
  /// Rows that all tensor ranks reach; ordinary ones if tokens are not split, as no other rank reads them.
  [[nodiscard]] GatheredRows gathered_rows() const {
    const at::Tensor all = s.split() ? shared_rows() : rows(s.N, s.d);
    return {all, all.narrow(0, s.tokens.begin, s.n())};
  }
  /// `count` consecutive tensors of the shape that blocks pass on: [B, T, d], or [n, d] on a tensor rank.
  [[nodiscard]] at::Tensor chain(std::int64_t count) const {
    return part ? rows(count * s.n(), s.d).view({count, s.n(), s.d})
                : rows(count * s.N, s.d).view({count, s.B, s.T, s.d});
  }
};

namespace {

const MakeMemory kNoWindow;

BlockList<BufferMaker> list_of(const BufferMaker& make) {
  return {make.s, make.run.workload.activations, make.part};
}

BufferMaker maker_of(const Gpt& gpt, Ledger& ledger) {
  return {gpt.shape(), gpt.sizes(), ledger, kNoWindow, /*part=*/false};
}

}  // namespace

ActivationBuffers::ActivationBuffers(const BufferMaker& make, const BufferShape& of, bool kept) : shape(of) {
  const GatheredRows norms = make.part ? make.named("gathered").gathered_rows() : GatheredRows{};
  const GatheredRows* of_blocks = kept || !make.s.split() ? nullptr : &norms;
  const BlockList<BufferMaker> list = list_of(make);
  const at::Tensor chain = make.of(Purpose::activations, "x").chain(of.inputs + of.sets * of.blocks);
  std::int64_t next = 0;
  for (int i = 0; i < of.inputs; ++i) inputs.push_back(chain.select(0, next++));
  for (int set = 0; set < of.sets; ++set) {
    ActivationSet& under_way = sets.emplace_back();
    for (int i = 0; i < of.blocks; ++i) {
      under_way.x.push_back(chain.select(0, next++));
      under_way.saved.push_back(list.saved(make.of(Purpose::activations, "saved"), of_blocks));
    }
  }
  ws = list.workspace(make, norms, of_blocks, of.head);
  for (int i = 0; i < of.pending; ++i) pending.push_back(list.grads(make.of(Purpose::workspace, "pending")));
  for (int i = 0; i < of.grads; ++i)
    grad_x.push_back(make.of(Purpose::workspace, "grad_x").chain(1).select(0, 0));
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

BlockSaved make_saved(const Gpt& gpt, Ledger& ledger) {
  const BufferMaker make = maker_of(gpt, ledger);
  return list_of(make).saved(make.of(Purpose::activations, "saved"), nullptr);
}
Workspace make_workspace(const Gpt& gpt, Ledger& ledger) {
  const BufferMaker make = maker_of(gpt, ledger);
  return list_of(make).workspace(make, {}, nullptr, /*head=*/true);
}

}  // namespace sc
