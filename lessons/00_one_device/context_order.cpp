#include "context_order.h"

#include "common/optim/grad_norm.h"

namespace sc {
namespace {

HeadResult result_in(const at::Tensor& sums) { return {sums.select(0, kLossSum), sums.select(0, kTokens)}; }

ContextCut cut_of(const ReduceOrder& order, int rank) {
  return {rank, static_cast<int>(order.context_ranks), order.parts};
}

}  // namespace

ContextOrder::Part::Part(const RunContext& context, const ParamLayout& layout, const ReduceOrder& order,
                         int rank, PlannedBuffers& planned)
    : gpt(shape_of_part(shape_of_parts(context.shape), cut_of(order, rank)), layout,
          starts_of(cut_of(order, rank), context.shape.workload.batch.sequence)),
      buffers(gpt, context.ledger),
      pairs(gpt, cut_of(order, rank), planned),
      starts(starts_of(cut_of(order, rank), context.shape.workload.batch.sequence)) {
  const PartSizes& s = gpt.sizes();
  own = planned.zeros("part_tokens").view({2, s.B, s.T});
  keys = planned.zeros("part_keys").view({s.N, 2 * s.att});
  for (int other = 0; other < order.context_ranks; ++other)
    grads.push_back(planned.zeros("part_grads_keys").view({s.N, 2 * s.att}));
}

ContextOrder::ContextOrder(const RunContext& context, const ParamLayout& layout, const ReduceOrder& order,
                           PlannedBuffers& buffers)
    : exchange_(order.exchange) {
  for (int rank = 0; rank < order.context_ranks; ++rank)
    parts_.emplace_back(context, layout, order, rank, buffers);
}

Batch ContextOrder::Part::own_tokens(const Batch& whole) {
  const std::int64_t rows = whole.tokens.size(0), length = own.size(2);
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const auto first = static_cast<std::int64_t>(i) * rows;
    own.select(0, 0).narrow(0, first, rows).copy_(whole.tokens.narrow(1, starts[i], length));
    own.select(0, 1).narrow(0, first, rows).copy_(whole.targets.narrow(1, starts[i], length));
  }
  return {own.select(0, 0), own.select(0, 1), whole.scale, whole.with_loss};
}

void ContextOrder::forward(const Batch& batch, std::span<const UnitTensors> params) {
  for (Part& part : parts_) {
    part.batch = part.own_tokens(batch);
    part.gpt.embed(params[0], part.batch.tokens, part.buffers.x(0));
  }
  for (int unit = 1; unit <= parts_[0].gpt.layout().num_blocks(); ++unit) {
    for (Part& part : parts_)
      part.gpt.forward_to_attention(unit, params[unit], part.buffers.x(unit - 1), part.buffers.saved(unit),
                                    part.buffers.ws);
    share_keys(unit);
    for (Part& part : parts_) {
      BlockSaved& saved = part.buffers.saved(unit);
      for (int hop = 0; hop < part.pairs.cut().ranks; ++hop)
        part.pairs.forward(hop, parts_[static_cast<std::size_t>(part.pairs.cut().source(hop))].keys, saved);
      part.pairs.end_forward(saved);
      part.gpt.forward_from_attention(unit, params[unit], saved, part.buffers.ws, part.buffers.x(unit));
    }
  }
}

void ContextOrder::share_keys(int unit) {
  for (Part& part : parts_) part.pairs.keys_values(part.buffers.saved(unit), part.keys);
}

void ContextOrder::forward_backward(const Batch& batch, std::span<const UnitTensors> params,
                                    std::span<const Into> into, Write write, bool alone) {
  forward(batch, params);
  const int blocks = parts_[0].gpt.layout().num_blocks();
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    ActivationBuffers& b = parts_[i].buffers;
    const Gpt& gpt = parts_[i].gpt;
    HeadResult result = result_in(into[i].sums);
    at::Tensor grad_head = gpt.head_matrix(into[i].head[gpt.head_unit()]);
    gpt.head(gpt.head_matrix(params[gpt.head_unit()]), params.back(), b.x(blocks), parts_[i].batch.targets,
             batch.scale, b.grad_x[blocks % 2], grad_head, into[i].units.back(), write, b.ws, result);
  }
  for (int unit = blocks; unit >= 1; --unit) {
    for (Part& part : parts_) {
      ActivationBuffers& b = part.buffers;
      part.gpt.backward_to_attention(unit, params[unit], b.saved(unit), b.grad_x[unit % 2], b.ws, b.ws.grads);
    }
    attention_backward(unit);
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      ActivationBuffers& b = parts_[i].buffers;
      parts_[i].gpt.backward_from_attention(unit, params[unit], b.saved(unit), b.ws, b.ws.grads,
                                            b.grad_x[(unit - 1) % 2]);
      parts_[i].gpt.backward_weights(unit, b.saved(unit), b.ws, b.ws.grads, into[i].units[unit], write);
    }
  }
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const bool joint = parts_[i].gpt.layout().config().tied && !alone;
    parts_[i].gpt.embed_backward(parts_[i].batch.tokens, parts_[i].buffers.grad_x[0], into[i].units[0],
                                 joint ? Write::accumulate : write, write);
  }
}

// [anchor: the-way-home]
// Of the keys of rank s: what s + 1 adds, then s + 2, ..., and s itself last; gathered ones in rank order.
void ContextOrder::attention_backward(int unit) {
  share_keys(unit);
  const int ranks = static_cast<int>(parts_.size());
  for (Part& part : parts_) {
    for (int hop = 0; hop < ranks; ++hop) {
      const auto source = static_cast<std::size_t>(part.pairs.cut().source(hop));
      part.pairs.backward(hop, parts_[source].keys, part.buffers.saved(unit), part.buffers.ws.grads,
                          part.grads[source]);
    }
  }
  for (int home = 0; home < ranks; ++home) {
    const auto of = [&](int rank) { return parts_[static_cast<std::size_t>(rank % ranks)].grads[home]; };
    const int first = exchange_ == Exchange::ring ? home + 1 : 0;
    const at::Tensor sum = of(first);
    for (int i = 1; i < ranks; ++i) sum.add_(of(first + i));
    parts_[static_cast<std::size_t>(home)].pairs.end_backward(
        sum, parts_[static_cast<std::size_t>(home)].buffers.ws.grads);
  }
}

void ContextOrder::forward_loss(const Batch& batch, std::span<const UnitTensors> params, at::Tensor& sums) {
  forward(batch, params);
  for (Part& part : parts_) {
    HeadResult result = result_in(sums);
    part.gpt.head_loss(part.gpt.head_matrix(params[part.gpt.head_unit()]), params.back(),
                       part.buffers.x(part.buffers.last()), part.batch.targets, part.buffers.ws, result);
  }
}

}  // namespace sc
