// What lesson 10 holds and sends, known before a run, and its settings. No torch.
#pragma once

#include "common/model/part_plan.h"
#include "common/strategy/plans.h"

namespace sc {

/// Where backward has the norms of all tokens from: gathered again, or kept from forward.
enum class NormsForBackward { again, kept };

struct TensorParallelOptions {
  TokenShare tokens = TokenShare::split;  // which tokens a rank has between the halves of a block
  NormsForBackward gathered = NormsForBackward::again;
  std::int64_t lanes = 1;  // micro-batches that take turns: one's messages travel during the other's products
  std::int64_t verify_replicas = 50;  // steps between comparisons of what each has whole; 0: never
  [[nodiscard]] bool kept() const { return gathered == NormsForBackward::kept; }
};

/// The layout of this rank's part, where all ranks share every matrix.
ParamLayout tensor_layout(const RunShape& shape);

/// What a rank computes of each micro-batch: blocks first to last, and perhaps the ends of the model.
struct BlockRun {
  int first, last;
  bool embeds, head;
};
/// Adds the messages of a step's forwards and backwards between the ranks that share matrices, which are
/// neighbours.
void plan_tensor_messages(const RunShape& shape, const PartSizes& sizes, const BlockRun& run, bool kept,
                          CommPlan& plan);

class TensorParallelPlans final : public PlansWith<TensorParallelPlans, TensorParallelOptions> {
 public:
  using PlansWith::PlansWith;
  [[nodiscard]] MemoryPlan memory_plan(const RunShape& shape) const override;
  [[nodiscard]] CommPlan comm_plan(const RunShape& shape) const override;
  [[nodiscard]] Mesh mesh(WorldSize world) const override {
    return Mesh(world, {{Axis::tensor, to_int(world)}});
  }
  [[nodiscard]] Facts facts(const RunShape& shape) const override;
  [[nodiscard]] Contents contents(const RunShape& shape) const override;

 private:
  [[nodiscard]] FieldTable<Options> table() const override;
};

}  // namespace sc
