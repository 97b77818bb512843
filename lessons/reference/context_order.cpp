#include "context_order.h"

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>

#include <exception>
#include <thread>

#include "common/strategy/passes.h"

namespace sc {

MeetingAttention::MeetingAttention(ContextRanks& ranks, const std::deque<MeetingAttention>& others,
                                   const GptHalves& gpt, const ContextCut& cut, Exchange exchange,
                                   PlannedBuffers& planned)
    : ranks_(ranks), others_(others), hops_(gpt, cut, planned), exchange_(exchange) {
  const std::int64_t columns = 2 * gpt.sizes().att;
  keys_ = planned.zeros("part_keys").view({-1, columns});
  for (int of = 0; of < cut.ranks; ++of)
    grads_.push_back(planned.zeros("part_grads_keys").view({-1, columns}));
}

void MeetingAttention::share_keys(const BlockSaved& saved) {
  keys_.copy_(hops_.keys_values(saved.qkv));
  ranks_.meet();
}

void MeetingAttention::forward(int /*unit*/, BlockSaved& saved) {
  share_keys(saved);
  for (int hop = 0; hop < hops_.cut().ranks; ++hop) hops_.forward(hop, source(hop).keys_, saved);
  ranks_.meet();  // all have read
}

// [anchor: the-way-home]
// Of the keys of rank s: what s + 1 adds, then s + 2, ..., and s itself last; gathered ones in rank order.
void MeetingAttention::backward(int /*unit*/, const BlockSaved& saved, BlockGrads& left) {
  share_keys(saved);
  const int ranks = hops_.cut().ranks, home = hops_.cut().rank;
  for (int hop = 1; hop < ranks; ++hop) {
    hops_.backward(hop, source(hop).keys_, saved, left);
    hops_.add_keys_values(hop, grads_[static_cast<std::size_t>(hops_.cut().source(hop))], Write::overwrite);
  }
  hops_.backward(0, keys_, saved, left);
  const at::Tensor own = hops_.keys_values(left.qkv);
  grads_[static_cast<std::size_t>(home)].copy_(own);
  ranks_.meet();
  const auto of = [&](int rank) {
    return others_[static_cast<std::size_t>(rank % ranks)].grads_[static_cast<std::size_t>(home)];
  };
  const int first = exchange_ == Exchange::ring ? home + 1 : 0;
  const at::Tensor sum = of(first);
  for (int i = 1; i < ranks; ++i) sum.add_(of(first + i));
  own.copy_(sum);
  ranks_.meet();
}

void ContextRanks::meet() {
  turn_.unlock();
  all_.arrive_and_wait();
  turn_.lock();
}

void ContextRanks::each(at::Device device, const std::function<void(int)>& f) {
  if (size() == 1) return f(0);
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  std::vector<std::exception_ptr> thrown(static_cast<std::size_t>(size()));
  const int threads = at::get_num_threads();
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < size(); ++rank) {
      ranks.emplace_back([&, rank] {
        const c10::InferenceMode inference;
        const c10::StreamGuard on(stream);
        at::set_num_threads(threads);  // each thread has a number of its own, and bits depend on it
        const std::lock_guard turn(turn_);
        try {
          f(rank);
        } catch (...) {
          thrown[static_cast<std::size_t>(rank)] = std::current_exception();
          all_.arrive_and_drop();
        }
      });
    }
  }
  for (const std::exception_ptr& error : thrown)
    if (error) std::rethrow_exception(error);
}

void ContextRanks::join(GptHalves& gpt, int rank, int tensor_rank, PlannedBuffers& buffers) {
  if (size() == 1) return;
  if (attention_.size() == static_cast<std::size_t>(tensor_rank)) attention_.emplace_back();
  std::deque<MeetingAttention>& ranks = attention_[static_cast<std::size_t>(tensor_rank)];
  gpt.use(ranks.emplace_back(*this, ranks, gpt, cut(rank), order_.exchange, buffers));
}

ContextOrder::Part::Part(const RunContext& context, const ParamLayout& layout, const ContextCut& cut,
                         PlannedBuffers& planned)
    : gpt(shape_of_part(shape_of_parts(context.shape), cut), layout), buffers(gpt, context.ledger) {
  own = planned.zeros("part_tokens").view({2, gpt.sizes().B, gpt.sizes().T});
}

ContextOrder::ContextOrder(const RunContext& context, const ParamLayout& layout, ContextRanks& ranks,
                           PlannedBuffers& buffers)
    : ranks_(ranks) {
  for (int rank = 0; rank < ranks.size(); ++rank) {
    Part& part = parts_.emplace_back(context, layout, ranks.cut(rank), buffers);
    ranks.join(part.gpt, rank, /*tensor_rank=*/0, buffers);
  }
}

void ContextOrder::Part::forward(const Batch& batch, std::span<const UnitTensors> params) {
  gpt.embed(params[0], batch.tokens, buffers.x(0));
  for (int unit = 1; unit <= buffers.last(); ++unit)
    gpt.forward_block(unit, params[unit], buffers.x(unit - 1), buffers.saved(unit), buffers.ws,
                      buffers.x(unit));
}

void ContextOrder::Part::forward_backward(const Batch& batch, std::span<const UnitTensors> params,
                                          const Into& into, Write write, bool alone) {
  ActivationBuffers& b = buffers;
  forward(batch, params);
  HeadResult result{into.sums.select(0, kLossSum), into.sums.select(0, kTokens)};
  at::Tensor grad_head = gpt.head_matrix(into.head[gpt.head_unit()]);
  gpt.head(gpt.head_matrix(params[gpt.head_unit()]), params.back(), b.x(b.last()), batch.targets, batch.scale,
           b.grad_x[b.last() % 2], grad_head, into.units.back(), write, b.ws, result);
  for (int unit = b.last(); unit >= 1; --unit) {
    gpt.backward_input(unit, params[unit], b.saved(unit), b.grad_x[unit % 2], b.ws, b.ws.grads,
                       b.grad_x[(unit - 1) % 2]);
    gpt.backward_weights(unit, b.saved(unit), b.ws, b.ws.grads, into.units[unit], write);
  }
  const bool joint = gpt.layout().config().tied && !alone;
  gpt.embed_backward(batch.tokens, b.grad_x[0], into.units[0], joint ? Write::accumulate : write, write);
}

void ContextOrder::forward_backward(const Batch& batch, std::span<const UnitTensors> params,
                                    std::span<const Into> into, Write write, bool alone) {
  ranks_.each(batch.tokens.device(), [&](int rank) {
    Part& part = parts_[static_cast<std::size_t>(rank)];
    part.forward_backward(own_tokens(batch, part.gpt.sizes(), part.own), params,
                          into[static_cast<std::size_t>(rank)], write, alone);
  });
}

void ContextOrder::forward_loss(const Batch& batch, std::span<const UnitTensors> params,
                                std::span<at::Tensor> sums) {
  ranks_.each(batch.tokens.device(), [&](int rank) {
    Part& part = parts_[static_cast<std::size_t>(rank)];
    const at::Tensor& to = sums[static_cast<std::size_t>(rank)];
    const Batch own = own_tokens(batch, part.gpt.sizes(), part.own);
    HeadResult result{to.select(0, kLossSum), to.select(0, kTokens)};
    part.forward(own, params);
    part.gpt.head_loss(part.gpt.head_matrix(params[part.gpt.head_unit()]), params.back(),
                       part.buffers.x(part.buffers.last()), own.targets, part.buffers.ws, result);
  });
}

}  // namespace sc
