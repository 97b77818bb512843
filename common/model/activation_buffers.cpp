#include "common/model/activation_buffers.h"

#include <string>

#include "common/model/activation_plan.h"

namespace sc {

ActivationBuffers::ActivationBuffers(const Gpt& gpt, Ledger& ledger) {
  const GptShape& shape = gpt.shape();
  const std::int64_t L = shape.config.layers;
  const std::int64_t slab[] = {shape.batch, shape.sequence, shape.config.width};
  at::Tensor chain =
      ledger.allocate(Purpose::activations, "x", {L + 1, slab[0], slab[1], slab[2]}, shape.dtype);
  for (std::int64_t i = 0; i <= L; ++i) x.push_back(chain.select(0, i));
  for (std::int64_t block = 0; block < L; ++block) saved.push_back(gpt.allocate_saved(ledger));
  ws = gpt.allocate_workspace(ledger);
  for (at::Tensor& grad : grad_x) grad = ledger.allocate(Purpose::workspace, "grad_x", slab, shape.dtype);
  sums = ledger.zeros(Purpose::workspace, "sums", {4}, DType::f64);
  result = {sums.select(0, 0), sums.select(0, 1)};
}

void plan_activation_buffers(const RunShape& run, MemoryPlan& plan) {
  const Workload& w = run.workload;
  const std::int64_t tokens = w.batch.micro * w.batch.sequence;
  const Bytes slab = bytes_of(Elements(tokens * w.model.width), w.precision.dtype);
  plan.add(Purpose::activations, "x", "(L + 1) B T d", slab * (w.model.layers + 1));
  plan.add(Purpose::activations, "saved", "L x saved of a block", plan_saved_bytes(run) * w.model.layers);
  plan.add(Purpose::workspace, "workspace", "one block, head and logits", plan_workspace_bytes(run));
  plan.add(Purpose::workspace, "grad_x", "2 B T d", slab * 2);
  plan.add(Purpose::workspace, "sums", "4 numbers", Bytes(4 * size_of(DType::f64)));
}

}  // namespace sc
