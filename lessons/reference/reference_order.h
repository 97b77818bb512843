// Floating-point sums depend on their order. Every later lesson adds a step's gradients in one of these
// orders, and must end with the bits of one device that adds in the same order.
#pragma once

#include <deque>
#include <memory>

#include "context_order.h"
#include "lessons/00_one_device/one_device.h"
#include "reference_plan.h"
#include "tensor_order.h"

namespace sc {

/// Lesson 00 as a program: OneDevice, and every other order of its sums.
class ReferenceOrder final : public OneDevice {
 public:
  using Plans = ReferenceOrderPlans;
  using Options = Plans::Options;

  ReferenceOrder(RunContext& context, const Options& order);
  StepResult train_step(std::span<const Batch> micro_batches) override;
  void quiet() override;
  void forward_loss(const Batch& batch, at::Tensor& sums) override;

 private:
  /// One whole gradient. With tied_sum=split the head's part of wte is a vector of its own.
  struct Gradient {
    at::Tensor arena, head_arena;         // head_arena [V_pad d]; undefined with tied_sum=joint
    std::vector<UnitTensors> unit, head;  // by unit; head() writes to `head`, which differs in a split wte
    void add(const Gradient& other, Write write = Write::accumulate);
  };
  Gradient make_gradient(const at::Tensor& arena, const at::Tensor& head_arena) const;
  void forward_backward(const Batch& batch, Gradient& into, Write write, at::Tensor& sums);
  void sum_of_step(std::span<const Batch> micro_batches);
  void sum_of_micro_batches(std::span<const Batch> micro_batches);
  void sum_of_context(std::span<const Batch> micro_batches);
  void global_norm();
  StepResult step_in_parts(std::span<const Batch> micro_batches);

  ReduceOrder order_;
  std::vector<Gradient> gradients_;    // [0] is OneDevice's, and ends up with the step's sum
  std::vector<at::Tensor> rank_sums_;  // by virtual rank, [4] fp64 as sums_
  ContextRanks ranks_;
  std::deque<TensorOrder> parts_;                // by context rank, with tensor_ranks > 1
  std::unique_ptr<ContextOrder> context_parts_;  // null unless it is context_ranks > 1 alone
};

}  // namespace sc
