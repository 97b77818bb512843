// Lesson 04: ZeRO-3. Parameters are sharded too: a unit's are gathered when it computes, and their memory is
// used again when it has.
//   Source: Rajbhandari et al., ZeRO, arXiv:1910.02054, section 5.3 (P_os+g+p); FSDP, arXiv:2304.11277
//   (prefetch).
#pragma once

#include <array>
#include <vector>

#include "common/config/field_table.h"
#include "common/strategy/owned_slice.h"
#include "common/strategy/passes.h"
#include "common/strategy/strategy.h"

namespace sc {

struct Zero3Options {
  std::int64_t prefetch = 1;          // units whose gather is issued ahead of the one that computes
  bool reshard_after_forward = true;  // off: every block has a buffer, and is gathered once a step
  std::int64_t persist_below = 0;     // tensors of fewer elements stay whole on every rank
};

class Zero3 {
 public:
  using Options = Zero3Options;
  static FieldTable<Options> fields();
  static MemoryPlan memory_plan(const RunShape& shape, const Options& options);
  static CommPlan comm_plan(const RunShape& shape, const Options& options);

  Zero3(RunContext& context, const Options& options);
  StepResult train_step(std::span<const Batch> micro_batches);
  /// After it every rank holds the whole segments of the last update; the rest stays sharded.
  void settle();
  double evaluate(std::span<const Batch> batches);
  void visit_state(StateVisitor& visitor);
  void after_step(std::int64_t) {}
  [[nodiscard]] const ParamLayout& layout() const { return layout_; }

 private:
  void forward(const Batch& batch);
  void gather_params(int unit);
  void wait_gathered(int unit);
  void release_all();
  void reduce_grads(int unit, Write write);
  void wait_reduced(std::size_t buffer);
  void global_norm();
  void step_shard(int unit);
  void publish_params();

  /// Of its two segments; either may be empty.
  [[nodiscard]] std::span<OwnedSlice> slices_of(int unit);

  RunContext& context_;
  Options options_;
  ParamLayout layout_;
  std::vector<OwnedSlice> slices_;       // [2 unit + segment]; parameters of whole segments lie in params_
  std::vector<UnitTensors> params_;      // by unit: its buffer's view; blocks take turns in a pool
  std::vector<int> resident_;            // by buffer: the unit that is in it, or none
  std::vector<Ticket> gathered_;         // by unit
  std::vector<Ticket> published_;        // by unit: its whole segment
  std::vector<UnitTensors> grads_full_;  // by unit; blocks take turns in two buffers
  /// What is on its way out of a full buffer: the sum lands in the slice, or beside it and is then added.
  struct InFlight {
    Ticket ticket;
    at::Tensor sum, into;  // `into` undefined: the sum is where it belongs
  };
  std::vector<std::array<InFlight, 2>> in_flight_;  // by buffer and segment
  std::vector<UnitTensors> scratch_;                // by buffer: where later micro-batches' sums land
  Passes passes_;
};

}  // namespace sc
