// Lesson 00: one device. The reference that every other lesson must end equal to, bit for bit.
#pragma once

#include <vector>

#include "common/config/field_table.h"
#include "common/model/activation_buffers.h"
#include "common/strategy/strategy.h"

namespace sc {

enum class ReduceEvery { step, micro_batch };
enum class TiedSum { joint, split };

/// The order in which a step's gradients are added. Floating-point sums depend on it, so every strategy
/// declares one, and this lesson can run each.
struct ReduceOrder {
  std::int64_t virtual_ranks = 1;  // W: the micro-batches are dealt to W ranks as a real world of W would
  ReduceEvery reduce_every = ReduceEvery::step;  // sum over ranks once a step, or after every micro-batch
  TiedSum tied_sum = TiedSum::joint;  // split: the head's and the embedding's part of wte's gradient meet at
                                      // the end of the step
};

class OneDevice {
 public:
  using Options = ReduceOrder;
  static FieldTable<Options> fields();
  static MemoryPlan memory_plan(const RunShape& shape, const Options& options);
  static CommPlan comm_plan(const RunShape& shape, const Options& options);

  OneDevice(RunContext& context, const Options& options);
  StepResult train_step(std::span<const Batch> micro_batches);
  void settle() {}
  double evaluate(std::span<const Batch> batches);
  void visit_state(StateVisitor& visitor);
  void after_step(std::int64_t /*step*/) {}
  [[nodiscard]] const ParamLayout& layout() const { return layout_; }

 private:
  /// One whole gradient: every unit's vector in one arena, and with tied_sum = split the head's part of wte
  /// behind them.
  struct Gradient {
    at::Tensor arena;
    std::vector<UnitTensors> unit;
    at::Tensor head;  // [V_pad, d]: inside unit 0, inside unit L+1 or, split, in the arena's tail
  };
  Gradient make_gradient(const char* name);
  void forward(const Batch& batch);
  void forward_backward(const Batch& batch, Gradient& into, Write write, at::Tensor& sums);
  void sum_of_step(std::span<const Batch> micro_batches);
  void sum_of_micro_batches(std::span<const Batch> micro_batches);
  void join_tied(Gradient& gradient);
  StepResult update();

  RunContext& context_;
  ReduceOrder order_;
  ParamLayout layout_;
  Gpt gpt_;
  at::Tensor params_, master_, momentum_, variance_;  // arenas, all units
  std::vector<UnitTensors> params_unit_, master_unit_;
  std::vector<Gradient> gradients_;    // [0] ends up with the step's sum
  std::vector<at::Tensor> rank_sums_;  // of each virtual rank: loss sum, tokens, sum of squares, flag
  ActivationBuffers buffers_;
};

}  // namespace sc
