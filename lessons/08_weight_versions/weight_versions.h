// Lesson 08: pipelines without a flush. No stage waits for the others between updates: each makes its own as
// soon as it has a gradient, and keeps older versions of its weights for the micro-batches that began with
// them.
//   Source: Harlap, Narayanan et al., PipeDream, arXiv:1806.03377 (weight stashing, vertical sync); Narayanan
//   et al., PipeDream-2BW, arXiv:2006.09503 (two buffers).
#pragma once

#include <memory>
#include <vector>

#include "common/pipeline/messages.h"
#include "common/pipeline/pace.h"
#include "common/watch/timetable.h"
#include "endless.h"
#include "ring.h"
#include "weight_versions_plan.h"

namespace sc {

struct SavedNumbers;

class WeightVersions final : public Strategy {
 public:
  using Plans = WeightVersionsPlans;
  using Options = Plans::Options;

  WeightVersions(RunContext& context, const Options& options);
  /// Forwards of its micro-batches, and the updates that have come due meanwhile. The result is an earlier
  /// step's.
  StepResult train_step(std::span<const Batch> micro_batches) override;
  /// Messages have arrived. Micro-batches stay on their way through the stages.
  void quiet() override { messages_.wait_received(); }
  /// What is in the pipeline ends, with the updates it makes.
  std::vector<StepResult> drain() override;
  void forward_loss(const Batch& batch, at::Tensor& sums) override;
  void after_step(std::int64_t step) override { pace_.check(step); }
  std::optional<Timetable> timetable(Communicator& comm) override;
  [[nodiscard]] at::Tensor& sums() override { return evaluated_; }
  [[nodiscard]] std::vector<StateSlice> state() const override;
  std::string pending() override;
  std::vector<InFlight> in_flight() override;
  bool resume(const ResumeFrom& from) override;
  [[nodiscard]] const ParamLayout& layout() const override { return endless_.share.layout; }

 private:
  using Action = pipedream::Action;
  void execute(const std::vector<Action>& actions, std::span<const Batch> micro_batches);
  void load_params(const Action& action, const Slot& slot);
  void forward(const Action& action, const Slot& slot, const Batch& batch);
  void backward(const Action& action, const Slot& slot, std::span<const Batch> micro_batches);
  void set_loss_scale(std::span<const Batch> of_update);
  void warm_up();
  void update(const Action& action, const Slot& slot);
  void sum_over_stages(std::int64_t update);
  void norm_and_clip(std::int64_t update);
  void step(const Slot& slot);
  void note_sums(std::int64_t update);
  void send_result(std::int64_t step);
  StepResult result_of(std::int64_t step);
  [[nodiscard]] double learning_rate_of(std::int64_t update) const;
  /// What came of the list's windows so far: an action and its slot, of the last window.
  struct Done {
    pipedream::Action action;
    Slot slot;
  };
  std::vector<Done> follow_the_list();
  void restore_numbers(const SavedNumbers& saved);
  void forward_again(const std::vector<Done>& last_window, std::span<const Batch> micro_batches);
  [[nodiscard]] bool on_its_way(int stage, int microbatch) const;
  [[nodiscard]] std::size_t in_window(const Action& action) const {
    return static_cast<std::size_t>(action.microbatch - windows_ * endless_.microbatches);
  }

  RunContext& context_;
  const Endless endless_;
  const Options options_;
  Stage stage_;
  Messages messages_;
  Pace pace_;
  SlotWalk slots_;
  std::unique_ptr<Communicator> everyone_;   // all stages, for sums alone: each is at another update
  at::Tensor evaluated_;                     // [4] fp64
  at::Tensor clip_by_;                       // [4] fp64: what the coming update is clipped by
  at::Tensor loss_scale_;                    // [] fp32: 1 / targets of an update
  Ring<at::Tensor> sums_;                    // by update, [4] fp64: loss, tokens, squares, flag
  Ring<at::Tensor> own_sums_;                // the same, before other stages' are added
  Ring<Ticket> summed_;                      // the same
  Ring<at::Tensor> results_, results_host_;  // by step, [5] fp64: its sums, its last update's norm
  Ring<Ticket> results_left_;                // the same
  Ring<at::Tensor> tokens_;  // by micro-batch in flight, [B, T] int64: on the first of several stages
  Ring<int> forward_read_;   // by micro-batch in flight: the version
  std::vector<int> tags_;    // by buffer of parameters: the version that is in it
  VersionsRead seen_;
  std::int64_t since_;                      // the run's step that counts as window 0
  std::int64_t windows_ = 0, updates_ = 0;  // executed; made. Resumed: as if this run had done the last few
  std::int64_t noted_ = 0;                  // updates whose sums over all stages are known
};

}  // namespace sc
