// The order in which context ranks compute and add: each is a thread here, and they meet in every attention.
// One computes at a time, all on the stream of whoever calls: operations share that stream's scratch.
#pragma once

#include <barrier>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "common/model/activation_buffers.h"
#include "common/model/hop_attention.h"
#include "common/strategy/strategy.h"
#include "reference_plan.h"

namespace sc {

class ContextRanks;

/// One rank's attention. It reads the other ranks' keys and values where they lie, as they read its own.
class MeetingAttention final : public Attention {
 public:
  ///   others  all of them by rank, this one included
  MeetingAttention(ContextRanks& ranks, const std::deque<MeetingAttention>& others, const GptHalves& gpt,
                   const ContextCut& cut, Exchange exchange, PlannedBuffers& planned);
  void forward(int unit, BlockSaved& saved) override;
  void backward(int unit, const BlockSaved& saved, BlockGrads& left) override;

 private:
  void share_keys(const BlockSaved& saved);
  [[nodiscard]] const MeetingAttention& source(int hop) const {
    return others_[static_cast<std::size_t>(hops_.cut().source(hop))];
  }

  ContextRanks& ranks_;
  const std::deque<MeetingAttention>& others_;
  HopAttention hops_;
  const Exchange exchange_;
  at::Tensor keys_;                // [N, 2 a]
  std::vector<at::Tensor> grads_;  // [N, 2 a] fp32: what it adds for the keys of each rank
};

/// Those of a run with `context_ranks`, of which one alone is no rank of a row.
class ContextRanks {
 public:
  explicit ContextRanks(const ReduceOrder& order) : order_(order), all_(order.context_ranks) {}
  [[nodiscard]] int size() const { return static_cast<int>(order_.context_ranks); }
  [[nodiscard]] ContextCut cut(int rank) const { return {rank, size(), order_.parts}; }
  /// f(rank) of all, in turns. What one of them throws leaves here when all have ended.
  void each(at::Device device, const std::function<void(int)>& f);
  /// `gpt`, of which every rank has one in turn, attends with the others; where there is one rank, alone.
  void join(GptHalves& gpt, int rank, int tensor_rank, PlannedBuffers& buffers);
  void meet();

 private:
  const ReduceOrder order_;
  std::barrier<> all_;
  std::mutex turn_;                                     // held by the one that computes
  std::deque<std::deque<MeetingAttention>> attention_;  // by tensor rank and rank
};

/// Forward and backward of one device's model as context ranks would compute them, each with its own tokens
/// of every row and a gradient of its own.
class ContextOrder {
 public:
  ContextOrder(const RunContext& context, const ParamLayout& layout, ContextRanks& ranks,
               PlannedBuffers& buffers);
  /// Where a rank's gradients go, unit by unit; `head`: where the head's matrix has its own.
  struct Into {
    std::span<const UnitTensors> units, head;
    at::Tensor& sums;
  };
  /// alone: wte's gradient of the embedding, not onto the head's.
  void forward_backward(const Batch& batch, std::span<const UnitTensors> params, std::span<const Into> into,
                        Write write, bool alone);
  /// Loss and tokens alone, onto the sums of each.
  void forward_loss(const Batch& batch, std::span<const UnitTensors> params, std::span<at::Tensor> sums);

 private:
  struct Part {
    Part(const RunContext& context, const ParamLayout& layout, const ContextCut& cut,
         PlannedBuffers& buffers);
    void forward(const Batch& batch, std::span<const UnitTensors> params);
    void forward_backward(const Batch& batch, std::span<const UnitTensors> params, const Into& into,
                          Write write, bool alone);

    Gpt gpt;
    ActivationBuffers buffers;
    at::Tensor own;  // [2, B, n] int64: tokens and targets
  };

  ContextRanks& ranks_;
  std::deque<Part> parts_;
};

}  // namespace sc
