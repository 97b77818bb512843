#include "common/model/activation_buffers.h"

namespace sc {

ActivationBuffers::ActivationBuffers(const Gpt& gpt, Ledger& ledger)
    : ActivationBuffers(gpt, ledger, whole_model(gpt.shape().config)) {}

ActivationBuffers::ActivationBuffers(const Gpt& gpt, Ledger& ledger, const BufferShape& of) : shape(of) {
  const GptShape& model = gpt.shape();
  const std::int64_t slab[] = {model.batch, model.sequence, model.config.width};
  const at::Tensor chain = ledger.allocate(
      Purpose::activations, "x", {of.inputs + of.sets * of.blocks, slab[0], slab[1], slab[2]}, model.dtype);
  std::int64_t next = 0;
  for (int i = 0; i < of.inputs; ++i) inputs.push_back(chain.select(0, next++));
  for (int set = 0; set < of.sets; ++set) {
    ActivationSet& kept = sets.emplace_back();
    for (int i = 0; i < of.blocks; ++i) {
      kept.x.push_back(chain.select(0, next++));
      kept.saved.push_back(gpt.allocate_saved(ledger));
    }
  }
  ws = gpt.allocate_workspace(ledger, of.head);
  for (int i = 0; i < of.pending; ++i) pending.push_back(gpt.allocate_block_grads(ledger, "pending"));
  for (int i = 0; i < of.grads; ++i)
    grad_x.push_back(ledger.allocate(Purpose::workspace, "grad_x", slab, model.dtype));
  sums = ledger.zeros(Purpose::workspace, "sums", {4}, DType::f64);
  result = {sums.select(0, 0), sums.select(0, 1)};
}

}  // namespace sc
