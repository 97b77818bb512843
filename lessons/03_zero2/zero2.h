// Lesson 03: ZeRO-2. A block's gradient goes to its owners as soon as it is complete, and its memory to the
// block below: of full gradients only four units' are ever alive.
//   Source: Rajbhandari et al., ZeRO, arXiv:1910.02054, section 5.2 (P_os+g).
#pragma once

#include <optional>
#include <vector>

#include "common/config/field_table.h"
#include "common/strategy/owned_slice.h"
#include "common/strategy/passes.h"
#include "common/strategy/strategy.h"
#include "grad_buffers.h"

namespace sc {

/// What several micro-batches add up in: the owned slice, reduced every time, or full gradients, reduced
/// once.
enum class Accumulate { shard, full };

struct Zero2Options {
  Accumulate accumulate = Accumulate::shard;
  std::int64_t bucket = 0;  // elements of gradient that one reduce-scatter carries; 0: a unit
  bool overlap = true;      // reduce behind backward, publish under forward; off: wait for each at once
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
  void settle();
  double evaluate(std::span<const Batch> batches);
  void visit_state(StateVisitor& visitor);
  void after_step(std::int64_t) {}
  [[nodiscard]] const ParamLayout& layout() const { return layout_; }

 private:
  void forward(const Batch& batch);
  void reduce_grads(int unit, Write write);
  void fill_buckets(int unit, Write write);
  void send(std::size_t buffer, const at::Tensor& full, const at::Tensor& slice, Write write);
  void wait_reduced(std::size_t buffer);
  void wait_all_reduced();
  void global_norm();
  void step_shard(int unit);
  void publish_through(int last);
  void wait_published(int unit);
  [[nodiscard]] std::size_t buffer_of(int unit) const;

  RunContext& context_;
  Options options_;
  ParamLayout layout_;
  // By unit:
  std::vector<UnitTensors> params_;      // views of an arena that holds all units, on every rank
  std::vector<UnitTensors> grads_full_;  // blocks take turns in two buffers (accumulate: full: an arena)
  std::vector<OwnedSlice> slices_;       // their parameters lie inside the full ones
  std::vector<Ticket> published_;
  int to_publish_ = 0;                // the first unit whose gather this step has not issued yet
  at::Tensor grads_shard_;            // this rank's slices of all units, one after another
  std::vector<ShardBucket> buckets_;  // bucket > 0
  at::Tensor grads_bucket_;           // rank-major copy of one bucket
  /// What is on its way out of a full buffer: the sum lands in the slice, or beside it and is then added.
  struct InFlight {
    Ticket ticket;
    at::Tensor sum, into;  // `into` undefined: the sum is where it belongs
  };
  std::vector<InFlight> in_flight_;  // by buffer: see buffer_of()
  std::vector<at::Tensor> scratch_;  // by buffer: where later micro-batches' sums land
  Passes passes_;
};

}  // namespace sc
