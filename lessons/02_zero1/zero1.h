// Lesson 02: ZeRO-1. Every rank still holds all parameters and all gradients, but the optimizer's state only
// of one slice of each unit: it updates that slice and gets the others from their owners.
//   Source: Rajbhandari et al., ZeRO, arXiv:1910.02054, section 5.1 (P_os).
#pragma once

#include <vector>

#include "common/config/field_table.h"
#include "common/strategy/owned_slice.h"
#include "common/strategy/passes.h"
#include "common/strategy/strategy.h"

namespace sc {

struct Zero1Options {
  bool overlap = true;  // reduce behind backward, publish under forward; off: wait for each at once
};

class Zero1 {
 public:
  using Options = Zero1Options;
  static FieldTable<Options> fields();
  static MemoryPlan memory_plan(const RunShape& shape, const Options& options);
  static CommPlan comm_plan(const RunShape& shape, const Options& options);

  Zero1(RunContext& context, const Options& options);
  StepResult train_step(std::span<const Batch> micro_batches);
  /// After it every rank holds all parameters of the last update.
  void settle();
  double evaluate(std::span<const Batch> batches);
  void visit_state(StateVisitor& visitor);
  void after_step(std::int64_t) {}
  [[nodiscard]] const ParamLayout& layout() const { return layout_; }

 private:
  void forward(const Batch& batch);
  void reduce_grads(int unit);
  void wait_reduced();
  void global_norm();
  void step_shard(int unit);
  void publish_through(int last);
  void wait_published(int unit);

  RunContext& context_;
  Options options_;
  ParamLayout layout_;
  // By unit:
  std::vector<UnitTensors> params_, grads_;  // views of arenas that hold all units, on every rank
  std::vector<OwnedSlice> slices_;           // their parameters and gradients lie inside the full ones
  std::vector<Ticket> reduced_, published_;
  int to_publish_ = 0;  // the first unit whose gather this step has not issued yet
  Passes passes_;
};

}  // namespace sc
