// Floating-point sums depend on their order. Every later lesson adds a step's gradients in one of these
// orders, and must end with the bits that one device has which adds in it.
#pragma once

#include "common/config/field_table.h"
#include "one_device.h"

namespace sc {

enum class ReduceEvery { step, micro_batch };
enum class TiedSum { joint, split };

struct ReduceOrder {
  std::int64_t virtual_ranks = 1;  // W: the micro-batches are dealt to W ranks as a real world of W would
  ReduceEvery reduce_every = ReduceEvery::step;  // sum over ranks once a step, or after every micro-batch
  TiedSum tied_sum =
      TiedSum::joint;  // split: the head's and the embedding's part of wte's gradient meet at the end
  bool operator==(const ReduceOrder&) const = default;
};

/// Lesson 00 as a program: OneDevice, and every other order of its sums.
class ReferenceOrder : public OneDevice {
 public:
  using Options = ReduceOrder;
  static FieldTable<Options> fields();
  static MemoryPlan memory_plan(const RunShape& shape, const Options& order);
  static CommPlan comm_plan(const RunShape& shape, const Options& order);
  static Division division(const Options& order, WorldSize /*world*/) {
    return {.virtual_ranks = order.virtual_ranks};
  }

  ReferenceOrder(RunContext& context, const Options& order);
  StepResult train_step(std::span<const Batch> micro_batches);

 private:
  /// One whole gradient; with tied_sum = split the head's part of wte is a vector of its own.
  struct Gradient {
    at::Tensor arena, head_arena;         // head_arena [V_pad d], undefined where it is joint
    std::vector<UnitTensors> unit, head;  // head: where head() writes; unit's, but for a split wte
    void add(const Gradient& other);
  };
  Gradient make_gradient(const at::Tensor& arena, const at::Tensor& head_arena) const;
  void forward_backward(const Batch& batch, Gradient& into, Write write, at::Tensor& sums);
  void sum_of_step(std::span<const Batch> micro_batches);
  void sum_of_micro_batches(std::span<const Batch> micro_batches);
  void global_norm();

  ReduceOrder order_;
  std::vector<Gradient> gradients_;    // [0] is OneDevice's, and ends up with the step's sum
  std::vector<at::Tensor> rank_sums_;  // of each virtual rank: loss sum, tokens, sum of squares, flag
};

}  // namespace sc
