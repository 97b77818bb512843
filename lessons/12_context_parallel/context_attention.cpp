#include "context_attention.h"

#include <spdlog/fmt/fmt.h>

namespace sc {

ContextAttention::ContextAttention(Communicator& group, Timeline& timeline, const GptHalves& gpt,
                                   const ContextCut& cut, const ContextParallelOptions& options,
                                   PlannedBuffers& buffers)
    : group_(group),
      timeline_(timeline),
      hops_(gpt, cut, buffers),
      ring_(options.exchange == Exchange::ring),
      kept_(options.gathered == KeysForBackward::kept) {
  const std::int64_t columns = 2 * gpt.sizes().att;
  for (const at::Tensor& flat : buffers.all_zeros("keys_values"))
    keys_.push_back({flat.view({-1, columns}), {}});
  for (const at::Tensor& flat : buffers.all_zeros("grads_keys_values"))
    grads_.push_back({flat.view({-1, columns}), {}});
}

// [anchor: hop-by-hop]
// While a rank computes with the keys of a hop, it sends them on and those of the next hop arrive.
void ContextAttention::forward(int unit, BlockSaved& saved) {
  send_own(unit, saved);
  for (int hop = 0; hop < hops_.cut().ranks; ++hop) {
    comes_to("forward", unit, hop);
    hops_.forward(hop, keys_at(unit, hop), saved);
  }
  wait_sent();
}

// [anchor: gradients-go-home]
// A sum of gradients begins at the rank behind the keys' own and goes round with them: each adds its summand,
// and home, where it ends, the last one. Own keys are last, and the sums travel meanwhile.
void ContextAttention::backward(int unit, const BlockSaved& saved, BlockGrads& left) {
  for (int hop = 1; hop < hops_.cut().ranks; ++hop) {
    comes_to("backward", unit, hop);
    hops_.backward(hop, keys_at(unit, hop), saved, left);
    add_summand(unit, hop);
  }
  comes_to("backward", unit, 0);
  hops_.backward(0, {}, saved, left);
  at::Tensor own = hops_.keys_values(left.qkv);
  if (!ring_) {
    at::Tensor sum = of_source(grads_[0].values, 0);
    sum.copy_(own);
    group_.reduce_scatter(grads_[0].values, sum, {OpPurpose::activation_gradients, unit}).wait();
    own.copy_(sum);
  } else if (hops_.cut().ranks > 1) {
    grads_come_.wait();
    own.add_(sum_at(hops_.cut().ranks).values);
  }
  wait_sent();
}

// Of a ring's sums one leaves while the next hop's arrives.
void ContextAttention::add_summand(int unit, int hop) {
  const What what{OpPurpose::activation_gradients, unit};
  if (!ring_) {
    at::Tensor sum = of_source(grads_[0].values, hop);
    return hops_.add_keys_values(hop, sum, Write::overwrite);
  }
  Leaving &here = sum_at(hop), &next = sum_at(hop + 1);
  grads_come_.wait();
  hops_.add_keys_values(hop, here.values, hop == 1 ? Write::overwrite : Write::accumulate);
  next.sent.wait();
  here.sent = group_.send(here.values, neighbour(1), what);
  grads_come_ = group_.recv(next.values, neighbour(-1), what);
}

void ContextAttention::comes_to(const char* pass, int unit, int hop) {
  timeline_.comes_to(fmt::format("{} of block {}'s attention, hop {}", pass, unit, hop));
}

// What the others need of this rank: to the next one, or to all.
void ContextAttention::send_own(int unit, const BlockSaved& saved) {
  at::Tensor& all = gathered(unit);
  at::Tensor own = ring_ ? all : of_source(all, 0);
  own.copy_(hops_.keys_values(saved.qkv));
  if (ring_) return pass_on(unit, 0);
  keys_come_ = group_.all_gather(own, all, {OpPurpose::activations, unit});
}

// Keys and values of a hop, which in a ring go on to the next rank at once.
at::Tensor ContextAttention::keys_at(int unit, int hop) {
  if (hop > 0) keys_come_.wait();
  if (!ring_) return of_source(gathered(unit), hop);
  if (hop > 0) pass_on(unit, hop);
  return keys_[buffer_of(hop)].values;
}

// Those of a hop are sent, and the next hop's asked for; the last hop has none.
void ContextAttention::pass_on(int unit, int hop) {
  if (hop + 1 == hops_.cut().ranks) return;
  Leaving &here = keys_[buffer_of(hop)], &next = keys_[buffer_of(hop + 1)];
  next.sent.wait();
  here.sent = group_.send(here.values, neighbour(1), {OpPurpose::activations, unit});
  keys_come_ = group_.recv(next.values, neighbour(-1), {OpPurpose::activations, unit});
}

void ContextAttention::wait_sent() {
  keys_come_.wait();
  for (std::vector<Leaving>* buffers : {&keys_, &grads_})
    for (Leaving& buffer : *buffers) buffer.sent.wait();
}

at::Tensor& ContextAttention::gathered(int unit) {
  return keys_[kept_ ? static_cast<std::size_t>(unit - 1) : 0].values;
}

std::size_t ContextAttention::buffer_of(int hop) const {
  return !ring_ || hop == 0 ? 0 : static_cast<std::size_t>(2 - hop % 2);
}

at::Tensor ContextAttention::of_source(const at::Tensor& all, int hop) const {
  const std::int64_t rows = all.size(0) / hops_.cut().ranks;
  return all.narrow(0, hops_.cut().source(hop) * rows, rows);
}

}  // namespace sc
