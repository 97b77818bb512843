// Lesson 03: ZeRO-2. A block's gradient goes to its owners as soon as it is complete, and its memory to the
// block below: of full gradients only four units' are ever alive.
//   Source: Rajbhandari et al., ZeRO, arXiv:1910.02054, section 5.2 (P_os+g).
#pragma once

#include <optional>
#include <vector>

#include "common/config/field_table.h"
#include "common/strategy/owned_slice.h"
#include "common/strategy/passes.h"
#include "grad_bucket.h"

namespace sc {

struct Zero2Options {
  std::int64_t bucket = 0;  // elements of gradient that one reduce-scatter carries; 0: a unit
  bool overlap = true;  // reduce while backward runs, publish while forward runs; off: wait for each at once
};

class Zero2 {
 public:
  using Options = Zero2Options;
  static FieldTable<Options> fields();
  static MemoryPlan memory_plan(const RunShape& shape, const Options& options);
  static CommPlan comm_plan(const RunShape& shape, const Options& options);

  Zero2(RunContext& context, const Options& options);
  StepResult train_step(std::span<const Batch> micro_batches);
  /// After it every rank holds all parameters of the last update.
  void quiet();
  void forward_loss(const Batch& batch, at::Tensor& sums);
  [[nodiscard]] at::Tensor& sums() { return sums_; }
  [[nodiscard]] std::vector<StateSlice> state() const { return state_of(passes_.last_local(), slices_); }
  [[nodiscard]] const ParamLayout& layout() const { return layout_; }

 private:
  void forward(const Batch& batch, bool publish);
  void publish_params(int unit);
  void reduce_grads(int unit, Write write);
  void wait_reduced(int unit);
  void wait_all_reduced();
  void global_norm();
  void step_shard(int unit);

  RunContext& context_;
  Options options_;
  ParamLayout layout_;
  Passes passes_;
  at::Tensor sums_;                       // [4] fp64: loss, tokens, sum of squares, overflow flag
  std::vector<UnitTensors> params_full_;  // by unit: views of an arena
  std::vector<UnitTensors> grads_full_;   // by unit; blocks take turns in two buffers
  std::vector<OwnedSlice> slices_;        // by unit; their parameters lie inside the full ones
  std::vector<Ticket> published_;         // by unit
  std::vector<PendingSum> in_flight_;     // by buffer: what is on its way out of it
  std::vector<at::Tensor> scratch_;       // by buffer: where later micro-batches' sums land
  std::optional<GradBucket> bucket_;      // where the options ask for one
};

}  // namespace sc
