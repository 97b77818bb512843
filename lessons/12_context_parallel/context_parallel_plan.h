// What lesson 12 holds and sends, known before a run; and its settings. No torch.
#pragma once

#include "common/model/context_plan.h"
#include "common/model/param_layout.h"
#include "common/strategy/plans.h"

namespace sc {

enum class KeysForBackward { again, kept };

struct ContextParallelOptions {
  Parts parts = Parts::zigzag;                        // which tokens of a row a rank has
  Exchange exchange = Exchange::ring;                 // keys and values go round, or all to all at once
  KeysForBackward gathered = KeysForBackward::again;  // with gather: once more for backward, or kept
  std::int64_t verify_replicas = 50;  // every k steps all ranks compare a hash of their parameters; 0 = never
};

/// What the exchange holds of a rank with so many heads, and what a step of it sends for blocks first to
/// last.
void plan_exchange(const RunShape& shape, const ContextParallelOptions& options, std::int64_t heads,
                   MemoryPlan& plan);
void plan_exchange_messages(const RunShape& shape, const ContextParallelOptions& options, std::int64_t heads,
                            int first, int last, CommPlan& plan);
/// Tokens and targets of so many of a rank's micro-batches.
Buffer own_tokens_of(const RunShape& shape, std::int64_t micro_batches);

class ContextParallelPlans final : public PlansWith<ContextParallelPlans, ContextParallelOptions> {
 public:
  using PlansWith::PlansWith;
  [[nodiscard]] MemoryPlan memory_plan(const RunShape& shape) const override;
  [[nodiscard]] CommPlan comm_plan(const RunShape& shape) const override;
  [[nodiscard]] Mesh mesh(WorldSize world) const override {
    return Mesh(world, {{Axis::context, to_int(world)}});
  }
  [[nodiscard]] Facts facts(const RunShape& shape) const override;
  [[nodiscard]] std::string predict(const RunShape& shape) const override;

 private:
  [[nodiscard]] FieldTable<Options> table() const override;
};

}  // namespace sc
