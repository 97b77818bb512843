#include "common/model/activation_buffers.h"

#include <string>

#include "common/model/activation_plan.h"

namespace sc {

BufferShape whole_model(const GptConfig& model) { return {.blocks = static_cast<int>(model.layers)}; }

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
  for (int i = 0; i < of.pending; ++i) pending.push_back(gpt.allocate_block_grads(ledger));
  for (int i = 0; i < of.grads; ++i)
    grad_x.push_back(ledger.allocate(Purpose::workspace, "grad_x", slab, model.dtype));
  sums = ledger.zeros(Purpose::workspace, "sums", {4}, DType::f64);
  result = {sums.select(0, 0), sums.select(0, 1)};
}

void plan_activation_buffers(const RunShape& run, MemoryPlan& plan) {
  plan_activation_buffers(run, whole_model(run.workload.model), plan);
}

void plan_activation_buffers(const RunShape& run, const BufferShape& shape, MemoryPlan& plan) {
  const Workload& w = run.workload;
  const std::int64_t tokens = w.batch.micro * w.batch.sequence;
  const Bytes slab = bytes_of(Elements(tokens * w.model.width), w.precision.dtype);
  const bool whole = shape == whole_model(w.model);
  const std::string blocks = std::to_string(shape.blocks),
                    sets = shape.sets == 1 ? "" : std::to_string(shape.sets) + " x ";
  plan.add(Purpose::activations, "x",
           whole ? "(L + 1) B T d" : "(" + std::to_string(shape.inputs) + " + " + sets + blocks + ") B T d",
           slab * (shape.inputs + shape.blocks * shape.sets));
  plan.add(Purpose::activations, "saved", (whole ? "L" : sets + blocks) + " x saved of a block",
           plan_saved_bytes(run) * shape.blocks * shape.sets);
  plan.add(Purpose::workspace, "workspace", shape.head ? "one block, head and logits" : "one block",
           plan_workspace_bytes(run, shape.head));
  if (shape.pending > 0) {
    plan.add(Purpose::workspace, "pending", std::to_string(shape.pending) + " x what weights wait with",
             plan_block_grads_bytes(run) * shape.pending);
  }
  plan.add(Purpose::workspace, "grad_x", std::to_string(shape.grads) + " B T d", slab * shape.grads);
  plan.add(Purpose::workspace, "sums", "4 numbers", Bytes(4 * size_of(DType::f64)));
}

}  // namespace sc
