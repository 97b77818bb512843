// Attention over tokens that other ranks have: keys and values come here, and their gradients go home.
#pragma once

#include <vector>

#include "common/comm/communicator.h"
#include "common/model/hop_attention.h"
#include "context_parallel_plan.h"

namespace sc {

class ContextAttention final : public Attention {
 public:
  /// group: the context ranks. All outlive this.
  ContextAttention(Communicator& group, Timeline& timeline, const GptHalves& gpt, const ContextCut& cut,
                   const ContextParallelOptions& options, PlannedBuffers& buffers);
  void forward(int unit, BlockSaved& saved) override;
  void begin_backward(int unit, const BlockSaved& saved) override {
    if (!kept_) send_own(unit, saved);
  }
  void backward(int unit, const BlockSaved& saved, BlockGrads& left) override;

 private:
  /// A buffer and what still sends from it.
  struct Leaving {
    at::Tensor values;
    Ticket sent;
  };
  /// Says where the rank is, for the message of a hang.
  void comes_to(const char* pass, int unit, int hop);
  void send_own(int unit, const BlockSaved& saved);
  [[nodiscard]] at::Tensor keys_at(int unit, int hop);
  void pass_on(int unit, int hop);
  void add_summand(int unit, int hop);
  void wait_sent();
  [[nodiscard]] at::Tensor of_source(const at::Tensor& all, int hop) const;
  /// What a block's all-gather writes, or a ring's own keys and values.
  at::Tensor& gathered(int unit);
  /// Of a ring's buffers: a rank's own is the first, the others take turns.
  [[nodiscard]] std::size_t buffer_of(int hop) const;
  /// Where the ring's sum of a hop is; that of the last hop's next comes home.
  [[nodiscard]] Leaving& sum_at(int hop) { return grads_[static_cast<std::size_t>(hop % 2)]; }
  [[nodiscard]] Rank neighbour(int by) const {
    return Rank{(hops_.cut().rank + by + hops_.cut().ranks) % hops_.cut().ranks};
  }

  Communicator& group_;
  Timeline& timeline_;
  HopAttention hops_;
  const bool ring_, kept_;
  std::vector<Leaving> keys_;   // ring: own, and two that arrive in turn; gather: all, or every block's
  std::vector<Leaving> grads_;  // ring: two sums in turn, one leaves and one comes; gather: all
  Ticket keys_come_, grads_come_;
};

}  // namespace sc
