// Lesson 08: pipelines without a flush. No stage waits for the others between updates: each makes its own as
// soon as it has a gradient, and keeps older versions of its weights for the micro-batches that began with
// them.
//   Source: Harlap, Narayanan et al., PipeDream, arXiv:1806.03377 (weight stashing, vertical sync); Narayanan
//   et al., PipeDream-2BW, arXiv:2006.09503 (two buffers).
#pragma once

#include <vector>

#include "common/pipeline/messages.h"
#include "common/pipeline/pace.h"
#include "common/watch/timetable.h"
#include "endless.h"
#include "late_sums.h"
#include "ring.h"
#include "weight_versions_plan.h"

namespace sc {

class WeightVersions final : public Strategy {
 public:
  using Plans = WeightVersionsPlans;
  using Options = Plans::Options;

  WeightVersions(RunContext& context, const Options& options);
  /// Computes the forwards of these micro-batches, and the backwards and updates that have come due. The
  /// result is an earlier step's.
  StepResult train_step(std::span<const Batch> micro_batches) override;
  /// Waits until messages have arrived. Micro-batches stay on their way through the stages.
  void quiet() override { messages_.wait_received(); }
  /// Computes what is in the pipeline to its end, with the updates that it makes.
  std::vector<StepResult> drain() override;
  /// Computes with the newest weights, in whichever buffer they are. Only after drain().
  void forward_loss(const Batch& batch, at::Tensor& sums) override {
    stage_.load_params(newest_buffer());
    messages_.forward_loss(batch, sums);
  }
  void after_step(std::int64_t step) override { pace_.check(step); }
  std::optional<Timetable> timetable(Communicator& comm) override;
  [[nodiscard]] at::Tensor& sums() override { return stage_.sums(); }
  [[nodiscard]] std::vector<StateSlice> state() const override;
  std::string pending() override;
  std::vector<InFlight> in_flight() override;
  bool resume(const ResumeFrom& from) override;
  [[nodiscard]] const ParamLayout& layout() const override { return share_.layout; }

 private:
  using Action = pipedream::Action;
  void execute(const std::vector<Action>& actions, std::span<const Batch> micro_batches);
  void load_params(const Action& a, const Slot& slot);
  void forward(const Action& a, const Slot& slot, const Batch& batch);
  void backward(const Action& a, const Slot& slot, std::span<const Batch> micro_batches);
  void set_scale(std::span<const Batch> of_update);
  void warm_up();
  void update(const Action& a, const Slot& slot);
  void global_norm();
  StepResult result_of(std::int64_t step);
  [[nodiscard]] double learning_rate_of(std::int64_t update) const;
  [[nodiscard]] int newest_buffer() const { return slots_.versions().rbegin()->second; }
  [[nodiscard]] std::size_t in_window(const Action& a) const {
    return static_cast<std::size_t>(a.microbatch - windows_ * endless_.microbatches);
  }
  /// An action of the list that a resumed run counts as done, with its buffers (in_flight.cpp).
  struct Done {
    Action action;
    Slot slot;
  };
  std::vector<Done> follow_the_list();
  void forward_again(const std::vector<Done>& last_window, std::span<const Batch> micro_batches);
  [[nodiscard]] bool on_its_way(int stage, int microbatch) const;

  /// A micro-batch between its forward and its backward.
  struct MicroBatch {
    int version = 0;         // the weights that its forward has read
    at::Tensor tokens = {};  // [B, T] int64; undefined where backward finds them in its own step's batches
  };
  struct Versions {
    std::vector<int> in_buffer;  // by buffer of the parameters: the version that was written there last
    VersionsRead read = {};
  };

  RunContext& context_;
  const Endless endless_;
  const Share& share_ = endless_.share;
  Stage stage_;
  Messages messages_;
  Pace pace_;
  SlotWalk slots_;
  LateSums sums_;
  at::Tensor scale_;        // [] fp32: 1 / targets of an update
  Ring<MicroBatch> alive_;  // by micro-batch of the run
  Versions versions_;
  /// The run's step that is window 0. A resumed run counts as if it had done the last few windows itself.
  std::int64_t since_;
  std::int64_t windows_ = 0, updates_ = 0;  // windows that this stage has executed, updates it has made
};

}  // namespace sc
