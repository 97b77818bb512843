// The order in which tensor ranks add: every product in parts, every sum of parts in rank order.
#pragma once

#include <deque>
#include <span>
#include <vector>

#include "common/memory/planned_buffers.h"
#include "common/model/activation_buffers.h"
#include "common/model/gpt_parts.h"
#include "common/strategy/strategy.h"
#include "context_order.h"
#include "reference_plan.h"

namespace sc {

/// Forward and backward of one device's model as `tensor_ranks` ranks would compute them, one rank after the
/// other. Each has its part of the parameters, cut anew for every step, and gradients of its own, which are
/// put together at the end of the step. If there are several virtual ranks, each has such a group.
class TensorOrder {
 public:
  ///   rank  which of `ranks`, who make theirs in turn
  TensorOrder(const RunContext& context, const ParamLayout& whole, const ReduceOrder& order,
              ContextRanks& ranks, int rank, PlannedBuffers& buffers);

  /// Cuts parameters, given by unit, into the parts that the next calls compute with.
  void cut(std::span<const UnitTensors> params);
  /// Leaves a step's gradients, losses and tokens in the parts. Each virtual rank has a run of the
  /// micro-batches.
  void forward_backward(std::span<const Batch> micro_batches);
  /// Computes loss and tokens alone; add_losses adds all parts' to `sums`, in rank order.
  void forward_loss(const Batch& batch);
  void add_losses(at::Tensor& sums);
  /// Adds the gradients of the next context rank.
  void add(const TensorOrder& behind);
  /// Copies each tensor's gradient to where `grads` has it, and adds loss, tokens, squares and flag of all
  /// parts to `sums` in rank order.
  void put_together(std::span<const UnitTensors> grads, at::Tensor& sums);

 private:
  struct Gradient {
    at::Tensor arena, head_arena;   // head_arena [v d]; undefined where the head's part of wte is joint
    std::vector<UnitTensors> unit;  // by unit: what is cut (sharded), and what every part has (whole)
    void add(const Gradient& other);
  };
  struct Part {
    Part(const RunContext& context, const RunShape& shape, const ReduceOrder& order, int rank);
    [[nodiscard]] GatheredRows& gradient() { return buffers.gradients[newest]; }
    [[nodiscard]] BlockSaved& saved(int unit);

    ParamLayout layout;
    GptParts gpt;
    PartBuffers buffers;
    std::vector<at::Tensor> sums;  // by virtual rank, [4] fp64
    at::Tensor waiting;            // [n, d]: with two lanes the gradient of the first one's embedded tokens
    at::Tensor params_arena;
    std::vector<UnitTensors> params;  // by unit
    std::vector<Gradient> gradients;  // [0] is the step's, [1] that of a later virtual rank
    std::size_t into = 0;             // the gradient that backward writes to
    [[nodiscard]] std::vector<UnitTensors>& grads() { return gradients[into].unit; }
    std::size_t newest = 0;  // of buffers.gradients: the one that backward has come to
  };
  template <class F>
  void for_each_piece(const Part& part, int unit, Segment segment, const F& f) const;
  template <class Rows>
  void gather(const Rows& rows);
  template <class Rows>
  [[nodiscard]] const at::Tensor& all(Part& part, const Rows& rows);
  template <class Summand>
  void add_in_rank_order(at::Tensor& total, const Summand& summand);
  void add_partials();
  [[nodiscard]] Batch own_of(const Batch& batch) const;
  void compute(std::span<const Batch> batches, Write write);
  void add_replicated(std::size_t gradient);
  void forward(const Batch& batch);
  void forward_half(int unit, Half half);
  void head(const Batch& batch, const at::Tensor& scale, Write write);
  void head_chunk(const Batch& batch, const at::Tensor& scale, Write write, Range rows);
  void backward(const Batch& batch, Write write);
  void embed_backward(const Batch& batch, Write write, bool waited);
  void backward_half(int unit, Half half, Write write);

  ParamLayout whole_;
  ReduceOrder order_;
  std::size_t rank_ = 0;  // the virtual rank that computes
  bool split_ = false;    // whether each part has a run of the tokens only
  at::Tensor own_;        // [2, B, n] int64, of context ranks: tokens and targets
  at::Tensor total_;      // [N, d] fp32: the sum of all parts' summands
  /// The sum of the gradients of tensors that every part has, fp32; undefined if all parts have seen all
  /// tokens.
  at::Tensor total_of_whole_;
  std::deque<Part> parts_;  // by tensor rank
};

}  // namespace sc
