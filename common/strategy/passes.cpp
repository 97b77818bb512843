#include "common/strategy/passes.h"

namespace sc {
namespace {

HeadResult result_in(const at::Tensor& sums) { return {sums.select(0, kLossSum), sums.select(0, kTokens)}; }

}  // namespace

Batch own_tokens(const Batch& batch, const PartSizes& sizes, const at::Tensor& own) {
  const std::int64_t run = sizes.run();
  for (std::size_t i = 0; i < sizes.starts.size(); ++i) {
    const at::Tensor here = own.narrow(2, static_cast<std::int64_t>(i) * run, run);
    here.select(0, 0).copy_(batch.tokens.narrow(1, sizes.starts[i], run));
    here.select(0, 1).copy_(batch.targets.narrow(1, sizes.starts[i], run));
  }
  Batch part = batch;
  part.tokens = own.select(0, 0);
  part.targets = own.select(0, 1);
  return part;
}

Passes::Passes(const RunContext& context, const RunShape& shape, const ParamLayout& layout)
    : timeline_(context.timeline),
      gpt_(shape, layout),
      buffers_(gpt_, context.ledger, whole_model(layout.config())) {}

void Passes::forward(int unit, const Batch& batch, const UnitTensors& params) {
  if (unit == gpt_.layout().last_unit()) return;
  if (unit == 0) timeline_.begin_micro_batch();
  const auto mark = timeline_.mark(Pass::forward, unit);
  at::Tensor& out = buffers_.x(unit);
  if (unit == 0) {
    gpt_.embed(params, batch.tokens, out);
  } else {
    gpt_.forward_block(unit, params, buffers_.x(unit - 1), buffers_.saved(unit), buffers_.ws, out);
  }
}

void Passes::head(const Batch& batch, std::span<const UnitTensors> params, std::span<const UnitTensors> grads,
                  Write write, at::Tensor& sums) {
  const auto mark = timeline_.mark(Pass::head, gpt_.layout().last_unit());
  HeadResult result = result_in(sums);
  at::Tensor grad_head = gpt_.head_matrix(grads[gpt_.head_unit()]);
  gpt_.head(gpt_.head_matrix(params[gpt_.head_unit()]), params.back(), buffers_.x(buffers_.last()),
            batch.targets, batch.scale, buffers_.grad_x[gpt_.layout().num_blocks() % 2], grad_head,
            grads.back(), write, buffers_.ws, result);
}

void Passes::head_loss(const Batch& batch, std::span<const UnitTensors> params, at::Tensor& sums) {
  const auto mark = timeline_.mark(Pass::head, gpt_.layout().last_unit());
  HeadResult result = result_in(sums);
  gpt_.head_loss(gpt_.head_matrix(params[gpt_.head_unit()]), params.back(), buffers_.x(buffers_.last()),
                 batch.targets, buffers_.ws, result);
}

void Passes::backward_input(int unit, const UnitTensors& params) {
  const auto mark = timeline_.mark(Pass::backward_input, unit);
  const at::Tensor& grad_y = buffers_.grad_x[unit % 2];
  at::Tensor& grad_x = buffers_.grad_x[(unit - 1) % 2];
  gpt_.backward_input(unit, params, buffers_.saved(unit), grad_y, buffers_.ws, buffers_.ws.grads, grad_x);
}

void Passes::backward_weights(int unit, const UnitTensors& grads, Write write) {
  const auto mark = timeline_.mark(Pass::backward_weights, unit);
  gpt_.backward_weights(unit, buffers_.saved(unit), buffers_.ws, buffers_.ws.grads, grads, write);
}

void Passes::embed_backward(const Batch& batch, const UnitTensors& grads0, Write write) {
  const auto mark = timeline_.mark(Pass::embed_backward, 0);
  const Write wte = gpt_.layout().config().tied ? Write::accumulate : write;
  gpt_.embed_backward(batch.tokens, buffers_.grad_x[0], grads0, wte, write);
}

void Passes::embed_backward_alone(const Batch& batch, const UnitTensors& grads0, Write write) {
  const auto mark = timeline_.mark(Pass::embed_backward, 0);
  gpt_.embed_backward(batch.tokens, buffers_.grad_x[0], grads0, write, write);
}

StateSlice Passes::last_local() const {
  const int unit = buffers_.shape.first - 1;
  const at::Tensor values = buffers_.grad_x[unit % 2].view({-1});
  return {Purpose::workspace, unit, Segment::sharded, {0, values.numel()}, in_tensor(values)};
}

}  // namespace sc
