#include "tensor_order.h"

#include "common/model/cut_places.h"
#include "common/model/unit_views.h"
#include "common/strategy/passes.h"

namespace sc {

void TensorOrder::cut(std::span<const UnitTensors> params) {
  for (Part& part : parts_) {
    for (int unit = 0; unit < whole_.num_units(); ++unit) {
      for (const Segment segment : {Segment::sharded, Segment::whole}) {
        for_each_piece(part, unit, segment, [&](Range here, Range whole) {
          part.params[unit]
              .segment(segment)
              .narrow(0, here.begin, here.size())
              .copy_(params[unit].sharded.narrow(0, whole.begin, whole.size()));
        });
      }
    }
  }
}

// Calls f(range of the part's segment, range of the whole unit's) for all that the part has in that segment.
template <class F>
void TensorOrder::for_each_piece(const Part& part, int unit, Segment segment, const F& f) const {
  for_each_place(part.layout, whole_, unit, segment, {0, part.layout.unit(unit).size(segment)},
                 [&](Range here, Segment /*sharded*/, std::int64_t at) {
                   f(here, Range{at, at + here.size()});
                 });
}

// --- what would be messages --------------------------------------------------------------------------------

// Copies each part's rows into the rows of all tokens, in order, from where the products read them. If every
// part has all tokens there is nothing to copy.
template <class Rows>
void TensorOrder::gather(const Rows& rows) {
  if (!split_) return;
  const at::Tensor& all = rows(parts_.front()).all;
  for (Part& part : parts_) {
    const Range tokens = part.gpt.sizes().tokens;
    all.narrow(0, tokens.begin, tokens.size()).copy_(rows(part).own);
  }
}
template <class Rows>
const at::Tensor& TensorOrder::all(Part& part, const Rows& rows) {
  return rows(split_ ? parts_.front() : part).all;
}

// [anchor: summands-in-rank-order]
// Adds ((p0 + p1) + p2) + ... in fp32 and rounds once, as a reduce_scatter or an all_reduce over ranks does.
template <class Summand>
void TensorOrder::add_in_rank_order(at::Tensor& total, const Summand& summand) {
  total.copy_(summand(parts_.front()));
  for (std::size_t i = 1; i < parts_.size(); ++i) total.add_(summand(parts_[i]));
}

void TensorOrder::add_partials() {
  add_in_rank_order(total_, [](Part& part) { return part.buffers.partial; });
  for (Part& part : parts_) {
    const Range tokens = part.gpt.sizes().tokens;
    part.buffers.sum.copy_(total_.narrow(0, tokens.begin, tokens.size()));
  }
}

// --- forward -----------------------------------------------------------------------------------------------

void TensorOrder::forward(const Batch& batch) {
  for (Part& part : parts_) part.gpt.embed(part.params[0], batch.tokens, part.buffers.partial);
  add_partials();
  for (Part& part : parts_) {
    part.gpt.positions(part.params[0], part.buffers.sum, part.buffers.input);
    part.gpt.norm(1, Half::attention, part.params[1], part.saved(1));
  }
  for (int unit = 1; unit <= whole_.num_blocks(); ++unit) {
    forward_half(unit, Half::attention);
    for (Part& part : parts_) {
      BlockSaved& s = part.saved(unit);
      part.gpt.add_norm(unit, Half::attention, part.params, s.x, part.buffers.sum, s.mid, &s.norm(Half::mlp));
    }
    forward_half(unit, Half::mlp);
    for (Part& part : parts_) {
      PartBuffers& b = part.buffers;
      BlockNorm& behind = unit == whole_.num_blocks() ? b.head : part.saved(unit + 1).norm(Half::attention);
      part.gpt.add_norm(unit, Half::mlp, part.params, part.saved(unit).mid, b.sum,
                        b.x[static_cast<std::size_t>(unit - 1)], &behind);
    }
  }
}

void TensorOrder::forward_half(int unit, Half half) {
  const auto norms = [&](Part& part) -> GatheredRows& { return part.saved(unit).norm(half).rows; };
  gather(norms);
  for (Part& part : parts_) {
    BlockSaved& s = part.saved(unit);
    part.gpt.first_product(unit, half, part.params[unit], all(part, norms), s, s.gelu);
    part.gpt.second_product(unit, half, part.params[unit], s, s.gelu, part.buffers.partial);
  }
  add_partials();
}

// --- head --------------------------------------------------------------------------------------------------

// If `scale` is undefined, only the loss is computed.
void TensorOrder::head(const Batch& batch, const at::Tensor& scale, Write write) {
  gather([](Part& part) -> GatheredRows& { return part.buffers.head.rows; });
  const PartSizes& s = parts_[0].gpt.sizes();
  for (std::int64_t begin = 0; begin < s.N; begin += s.chunk)
    head_chunk(batch, scale, begin == 0 ? write : Write::accumulate, {begin, std::min(s.N, begin + s.chunk)});
  if (!scale.defined()) return;
  add_partials();
  for (Part& part : parts_) {
    part.newest = 0;
    part.gpt.head_norm_backward(part.params.back(), part.buffers.x.back(), part.buffers.sum,
                                part.grads().back(), write, part.buffers, part.gradient().own);
  }
}

void TensorOrder::head_chunk(const Batch& batch, const at::Tensor& scale, Write write, Range rows) {
  const auto norms = [&](Part& part) {
    return all(part, [](Part& of) -> GatheredRows& { return of.buffers.head.rows; })
        .narrow(0, rows.begin, rows.size());
  };
  const auto head_of = [](Part& part, std::vector<UnitTensors>& units) {
    return part.gpt.head_matrix(units[static_cast<std::size_t>(part.gpt.head_unit())]);
  };
  const auto ranks = static_cast<std::int64_t>(parts_.size());
  at::Tensor statistics = parts_[0].buffers.of_all.view({-1}).narrow(0, 0, 2 * ranks * rows.size());
  std::int64_t rank = 0;
  for (Part& part : parts_) {
    at::Tensor logits = part.buffers.logits.narrow(0, 0, rows.size());
    at::Tensor mine = statistics.narrow(0, 2 * rank++ * rows.size(), 2 * rows.size()).view({rows.size(), 2});
    part.gpt.logits(head_of(part, part.params), norms(part), logits, mine);
  }
  for (Part& part : parts_) {
    at::Tensor logits = part.buffers.logits.narrow(0, 0, rows.size());
    at::Tensor& sums = part.sums[rank_];
    HeadResult result{sums.select(0, kLossSum), sums.select(0, kTokens)};
    part.gpt.loss(logits, batch.targets.view({-1}).narrow(0, rows.begin, rows.size()),
                  statistics.view({ranks, rows.size(), 2}), scale, result);
    if (!scale.defined()) continue;
    const at::Tensor& alone = part.gradients[part.into].head_arena;
    at::Tensor grad = alone.defined() ? part.gpt.head_matrix({alone, {}}) : head_of(part, part.grads()),
               partial = part.buffers.partial.narrow(0, rows.begin, rows.size());
    part.gpt.head_products(head_of(part, part.params), logits, norms(part), grad, write, partial);
  }
}

void TensorOrder::forward_loss(const Batch& batch) {
  const Batch own = own_of(batch);
  rank_ = 0;
  for (Part& part : parts_) part.sums[0].zero_();
  forward(own);
  head(own, /*scale=*/{}, Write::overwrite);
}

void TensorOrder::add_losses(at::Tensor& sums) {
  for (Part& part : parts_) sums.add_(part.sums[0]);
}

Batch TensorOrder::own_of(const Batch& batch) const {
  return own_.defined() ? own_tokens(batch, parts_[0].gpt.sizes(), own_) : batch;
}

// --- backward ----------------------------------------------------------------------------------------------

// Each virtual rank accumulates over its own micro-batches; then the virtual ranks are added in order. Before
// that, the gradients of tensors that every part has are summed over the parts of each virtual rank.
void TensorOrder::forward_backward(std::span<const Batch> micro_batches) {
  const auto ranks = static_cast<std::size_t>(order_.virtual_ranks),
             lanes = static_cast<std::size_t>(order_.lanes);
  const std::size_t each = micro_batches.size() / ranks;
  for (rank_ = 0; rank_ < ranks; ++rank_) {
    const std::size_t of = rank_ == 0 ? 0 : 1;
    for (Part& part : parts_) {
      part.sums[rank_].zero_();
      part.into = of;
    }
    const std::span<const Batch> mine = micro_batches.subspan(rank_ * each, each);
    for (std::size_t j = 0; j < each; j += lanes)
      compute(mine.subspan(j, std::min(lanes, each - j)), j == 0 ? Write::overwrite : Write::accumulate);
    add_replicated(of);
    if (of == 0) continue;
    for (Part& part : parts_) part.gradients[0].add(part.gradients[1]);
  }
}

// With two lanes both heads come before both embeddings. `write` is what the first micro-batch does.
void TensorOrder::compute(std::span<const Batch> batches, Write write) {
  const bool two = batches.size() > 1;
  const Batch first = own_of(batches.front()), last = two ? batches.back() : first;
  backward(first, write);
  if (two) {
    for (Part& part : parts_) part.waiting.copy_(part.gradient().own);
    backward(last, Write::accumulate);
    embed_backward(first, write, /*waited=*/true);
  }
  embed_backward(last, two ? Write::accumulate : write, /*waited=*/false);
}

// Computes all of backward but the embedding's.
void TensorOrder::backward(const Batch& batch, Write write) {
  forward(batch);
  head(batch, batch.scale, write);
  for (int unit = whole_.num_blocks(); unit >= 1; --unit) {
    backward_half(unit, Half::mlp, write);
    backward_half(unit, Half::attention, write);
    for (Part& part : parts_) part.gpt.vectors(unit, part.buffers.grads, part.grads()[unit], write);
  }
}

void TensorOrder::embed_backward(const Batch& batch, Write write, bool waited) {
  const auto gradient = [&](Part& part) -> GatheredRows& {
    return part.buffers.gradients[waited ? 1 - part.newest : part.newest];
  };
  if (waited)
    for (Part& part : parts_) gradient(part).own.copy_(part.waiting);
  gather(gradient);
  for (Part& part : parts_) {
    const bool joint = whole_.config().tied && order_.tied_sum == TiedSum::joint;
    const Write wte = joint ? Write::accumulate : write;
    part.gpt.embed_backward(batch.tokens, all(part, gradient), part.grads()[0], wte);
    part.gpt.positions_backward(gradient(part).own, part.grads()[0], write);
  }
}

void TensorOrder::backward_half(int unit, Half half, Write write) {
  const auto gradient = [](Part& part) -> GatheredRows& { return part.gradient(); };
  const auto norms = [&](Part& part) -> GatheredRows& { return part.saved(unit).norm(half).rows; };
  if (split_)
    for (Part& part : parts_) part.gpt.norm(unit, half, part.params[unit], part.saved(unit));
  gather(gradient);
  gather(norms);
  for (Part& part : parts_) {
    BlockSaved& s = part.saved(unit);
    part.gpt.backward_to_norm(unit, half, part.params[unit], s, all(part, gradient), part.buffers.grads,
                              part.buffers.partial);
    part.gpt.second_weights(unit, half, s, s.gelu, all(part, gradient), part.grads()[unit], write);
    part.gpt.first_weights(unit, half, all(part, norms), part.buffers.grads, part.grads()[unit], write);
  }
  add_partials();
  for (Part& part : parts_) {
    const at::Tensor& grad_y = part.gradient().own;
    part.newest = 1 - part.newest;
    part.gpt.norm_backward(unit, half, part.params[unit], part.saved(unit), part.buffers.sum, grad_y,
                           part.buffers.grads, part.gradient().own);
  }
}

// --- a step's end ------------------------------------------------------------------------------------------

// The gradients of tensors that every part has are of its own tokens alone, so they are summed in rank order
// too.
void TensorOrder::add_replicated(std::size_t gradient) {
  if (!split_) return;
  const auto replicated = [&](Part& part) {
    return whole_segments(part.layout, part.gradients[gradient].arena);
  };
  add_in_rank_order(total_of_whole_, replicated);
  replicated(parts_.front()).copy_(total_of_whole_);
}

void TensorOrder::add(const TensorOrder& behind) {
  for (std::size_t i = 0; i < parts_.size(); ++i) parts_[i].gradients[0].add(behind.parts_[i].gradients[0]);
}

void TensorOrder::Gradient::add(const Gradient& other) {
  arena.add_(other.arena);
  if (head_arena.defined()) head_arena.add_(other.head_arena);
}

void TensorOrder::put_together(std::span<const UnitTensors> grads, at::Tensor& sums) {
  sums.zero_();
  for (Part& part : parts_) {
    part.into = 0;
    if (part.gradients[0].head_arena.defined())
      part.gpt.head_matrix(part.grads()[0]).view({-1}).add_(part.gradients[0].head_arena);
    std::vector<at::Tensor> mine;
    for (int unit = 0; unit < whole_.num_units(); ++unit) {
      for (const Segment segment : {Segment::sharded, Segment::whole}) {
        // A tensor that every part has counts once.
        const bool repeated = segment == Segment::whole && &part != &parts_.front();
        if (repeated || part.layout.unit(unit).size(segment) == 0) continue;
        const at::Tensor& gradient = part.grads()[unit].segment(segment);
        mine.push_back(gradient);
        for_each_piece(part, unit, segment, [&](Range here, Range whole) {
          grads[unit]
              .sharded.narrow(0, whole.begin, whole.size())
              .copy_(gradient.narrow(0, here.begin, here.size()));
        });
      }
    }
    add_sums_of_squares(mine, part.sums[0]);
    finish_sums(part.sums[0]);
  }
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(order_.virtual_ranks); ++rank)
    for (Part& part : parts_) sums.add_(part.sums[rank]);
}

}  // namespace sc
