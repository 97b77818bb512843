#include "common/strategy/passes.h"

namespace sc {

Passes::Passes(const RunContext& context, const ParamLayout& layout)
    : gpt_(shape_of(context.shape), layout), buffers_(gpt_, context.ledger) {}

void Passes::embed(const Batch& batch, const UnitTensors& params0) {
  gpt_.embed(params0, batch.tokens, buffers_.x[0]);
}

void Passes::forward_block(int unit, const UnitTensors& params) {
  gpt_.forward_block(unit, params, buffers_.x[unit - 1], buffers_.saved[unit - 1], buffers_.ws,
                     buffers_.x[unit]);
}

void Passes::head(const Batch& batch, std::span<const UnitTensors> params, std::span<const UnitTensors> grads,
                  Write write) {
  at::Tensor grad_head = gpt_.head_matrix(grads[gpt_.head_unit()]);
  gpt_.head(gpt_.head_matrix(params[gpt_.head_unit()]), params.back(), buffers_.x.back(), batch.targets,
            batch.scale, buffers_.grad_x[gpt_.layout().num_blocks() % 2], grad_head, grads.back(), write,
            buffers_.ws, buffers_.result);
}

void Passes::head_loss(const Batch& batch, std::span<const UnitTensors> params) {
  gpt_.head_loss(gpt_.head_matrix(params[gpt_.head_unit()]), params.back(), buffers_.x.back(), batch.targets,
                 buffers_.ws, buffers_.result);
}

void Passes::backward_input(int unit, const UnitTensors& params) {
  const at::Tensor& grad_y = buffers_.grad_x[unit % 2];
  at::Tensor& grad_x = buffers_.grad_x[(unit - 1) % 2];
  gpt_.backward_input(unit, params, buffers_.saved[unit - 1], grad_y, buffers_.ws, grad_x);
}

void Passes::backward_weights(int unit, const UnitTensors& grads, Write write) {
  gpt_.backward_weights(unit, buffers_.saved[unit - 1], buffers_.ws, grads, write);
}

void Passes::embed_backward(const Batch& batch, const UnitTensors& grads0, Write write) {
  const Write wte = gpt_.layout().config().tied ? Write::accumulate : write;
  gpt_.embed_backward(batch.tokens, buffers_.grad_x[0], grads0, wte, write);
}

void Passes::visit_last_local(StateVisitor& visitor) const {
  const at::Tensor last_local = buffers_.grad_x[0].view({-1});
  visitor.visit({Purpose::workspace, 0, Segment::sharded, {0, last_local.numel()}, last_local});
}

}  // namespace sc
