// What the orders take from the ledger besides OneDevice's buffers, as reference_plan.cpp declares it.
#include "common/model/unit_views.h"
#include "reference_order.h"

namespace sc {

ReferenceOrder::ReferenceOrder(RunContext& context, const Options& order)
    : OneDevice(context, ranks_of(order), Plans(order).memory_plan(context.shape)),
      order_(order),
      rank_sums_(buffers_.zeros("rank_sums").view({-1, 4}).unbind()),
      ranks_(order) {
  const std::int64_t psi = layout_.arena_size().value();
  for (const at::Tensor& both : grads_arena_.view({gradients_held(order), -1}).unbind()) {
    const at::Tensor head = both.narrow(0, psi, both.numel() - psi);
    gradients_.push_back(make_gradient(both.narrow(0, 0, psi), head.numel() > 0 ? head : at::Tensor()));
  }
  if (order.tensor_ranks > 1)
    for (int rank = 0; rank < ranks_.size(); ++rank)
      parts_.emplace_back(context, layout_, order, ranks_, rank, buffers_);
  else if (order.context_ranks > 1)
    context_parts_ = std::make_unique<ContextOrder>(context, layout_, ranks_, buffers_);
}

TensorOrder::Part::Part(const RunContext& context, const RunShape& shape, const ReduceOrder& order, int rank)
    : layout(layout_of_part(shape, order, rank)),
      gpt(shape, layout, PartSizes(shape, layout, order.tokens)),
      buffers(shape, gpt.sizes(), /*kept=*/false, context.ledger) {
  MemoryPlan plan;
  plan_part(shape, order, rank, plan);
  PlannedBuffers planned(context.ledger, plan);
  params_arena = planned.zeros("params_part");
  params = unit_views_of_both(layout, params_arena);
  for (const at::Tensor& arena : planned.all_zeros("grads_part")) {
    // An arena as long as the parameters holds all units' gradients; the shorter one that follows is the
    // head's.
    if (arena.numel() < params_arena.numel()) {
      gradients.back().head_arena = arena;
    } else {
      gradients.push_back({arena, {}, unit_views_of_both(layout, arena)});
    }
  }
}

BlockSaved& TensorOrder::Part::saved(int unit) {
  const auto block = static_cast<std::size_t>(unit - 1);
  buffers.saved[block].x = block == 0 ? buffers.input : buffers.x[block - 1];
  return buffers.saved[block];
}

TensorOrder::TensorOrder(const RunContext& context, const ParamLayout& whole, const ReduceOrder& order,
                         ContextRanks& ranks, int of_context, PlannedBuffers& buffers)
    : whole_(whole), order_(order) {
  const RunShape shape = shape_of_part(shape_of_parts(context.shape), ranks.cut(of_context));
  const std::int64_t t = order.tensor_ranks;
  const at::Tensor sums = buffers.zeros("part_sums").view({t, -1, 4}),
                   waiting = buffers.zeros("part_waiting");
  for (int rank = 0; rank < t; ++rank) {
    Part& part = parts_.emplace_back(context, shape, order, rank);
    ranks.join(part.gpt, of_context, rank, buffers);
    part.sums = sums.select(0, rank).unbind();
    if (waiting.defined()) part.waiting = waiting.view({t, -1, part.gpt.sizes().d}).select(0, rank);
  }
  const PartSizes& s = parts_[0].gpt.sizes();
  if (ranks.size() > 1) own_ = buffers.zeros("part_tokens").view({2, s.B, s.T});
  split_ = s.split();
  total_ = buffers.zeros("total_of_parts").view({s.N, s.d});
  if (split_) total_of_whole_ = buffers.zeros("total_of_whole").view(at::kFloat);
}

// head_matrix() looks for wte at the beginning of unit 0's vector, so a vector with that matrix alone will
// do.
ReferenceOrder::Gradient ReferenceOrder::make_gradient(const at::Tensor& arena,
                                                       const at::Tensor& head_arena) const {
  Gradient g{arena, head_arena, unit_views(layout_, arena), unit_views(layout_, arena)};
  if (head_arena.defined()) g.head[0] = {head_arena, {}};
  return g;
}

}  // namespace sc
