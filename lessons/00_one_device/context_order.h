// The order in which context ranks compute: every pair of their lists, every sum as its way home adds it.
#pragma once

#include <deque>
#include <span>
#include <vector>

#include "common/model/activation_buffers.h"
#include "common/model/pair_attention.h"
#include "common/strategy/strategy.h"
#include "one_device_plan.h"

namespace sc {

/// Forward and backward of one device's model as `context_ranks` ranks would compute them, block by block one
/// rank after the other, each with its own tokens of every row and a gradient of its own.
class ContextOrder {
 public:
  ContextOrder(const RunContext& context, const ParamLayout& layout, const ReduceOrder& order,
               PlannedBuffers& buffers);
  /// Where a rank's gradients go, unit by unit; `head`: where the head's matrix has its own.
  struct Into {
    std::span<const UnitTensors> units, head;
    at::Tensor& sums;
  };
  /// alone: wte's gradient of the embedding, not onto the head's.
  void forward_backward(const Batch& batch, std::span<const UnitTensors> params, std::span<const Into> into,
                        Write write, bool alone);
  /// Loss and tokens alone, onto `sums`.
  void forward_loss(const Batch& batch, std::span<const UnitTensors> params, at::Tensor& sums);

 private:
  struct Part {
    Part(const RunContext& context, const ParamLayout& layout, const ReduceOrder& order, int rank,
         PlannedBuffers& buffers);
    [[nodiscard]] Batch own_tokens(const Batch& batch);

    Gpt gpt;
    ActivationBuffers buffers;
    PairAttention pairs;
    std::vector<std::int64_t> starts;  // positions of its chunks
    at::Tensor own;                    // [2, C B, m] int64: tokens and targets
    at::Tensor keys;                   // [N, 2 a]
    std::vector<at::Tensor> grads;     // [N, 2 a] fp32: what it adds for the keys of each rank
    Batch batch = {};                  // its part of the one that is computed
  };
  void forward(const Batch& batch, std::span<const UnitTensors> params);
  void share_keys(int unit);
  void attention_backward(int unit);

  const Exchange exchange_;
  std::deque<Part> parts_;
};

}  // namespace sc
