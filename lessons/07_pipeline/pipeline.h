// Lesson 07: pipeline parallelism. Each rank holds a few blocks; micro-batches flow through the stages, and
// every stage executes its list of a schedule that pipedream has proven, whatever schedule that is.
//   Source: Huang et al., GPipe, arXiv:1811.06965; Narayanan et al., arXiv:1806.03377 and 2104.04473 (1F1B,
//   interleaved); Qi et al., arXiv:2401.10241 (ZB-H1).
#pragma once

#include <memory>
#include <vector>

#include "common/config/field_table.h"
#include "executor.h"

namespace sc {

class Pipeline {
 public:
  using Options = PipelineOptions;
  static FieldTable<Options> fields();
  static MemoryPlan memory_plan(const RunShape& shape, const Options& options);
  static CommPlan comm_plan(const RunShape& shape, const Options& options);
  static Division division(const Options& options, WorldSize world);
  static std::string predict(const RunShape& shape, const Options& options);
  static SlowLinks slow_links(const Options& options) { return {.message_ms = options.link_ms}; }

  Pipeline(RunContext& context, const Options& options);
  StepResult train_step(std::span<const Batch> micro_batches);
  void quiet() {}
  void forward_loss(const Batch& batch, at::Tensor& sums) { executor_.forward_loss(batch, 0, sums); }
  void after_step(std::int64_t step);
  std::optional<Timetable> timetable(Communicator& comm);
  [[nodiscard]] at::Tensor& sums() { return sums_; }
  [[nodiscard]] std::vector<StateSlice> state() const {
    return state_of(stage_.last_local(), stage_.slices());
  }
  [[nodiscard]] const ParamLayout& layout() const { return share_.layout; }

 private:
  void perform(const pipedream::Action& action, const Slot& slot, std::span<const Batch> micro_batches);
  void reduce_grads(int unit, bool last_micro_batch);
  void wait_reduced();
  void add_tied();
  void global_norm();
  void step();
  void step_unit(OwnedSlice& slice);
  void publish_params();
  void compare(Communicator& group, const Stage::Held& held, std::int64_t elements, std::int64_t step);

  RunContext& context_;
  Options options_;
  const Share share_;
  Executor executor_;
  Stage& stage_;
  at::Tensor sums_;  // [4] fp64: loss, tokens, sum of squares, overflow flag
  std::unique_ptr<Communicator> replicas_,
      ends_;                                 // of this stage; with the tied matrix's other copy. Or null
  std::vector<Ticket> reduced_, published_;  // by what the stage holds
};

}  // namespace sc
