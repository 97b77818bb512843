// Lesson 05: ZeRO-Offload. Optimizer states lie in the host's memory, and the host updates them; the device holds
// parameters, activations and a few units' gradients.
//   Source: Ren et al., ZeRO-Offload, arXiv:2101.06840 (sections 4 and 5: delayed parameter update).
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "common/config/field_table.h"
#include "common/strategy/owned_slice.h"
#include "common/strategy/passes.h"
#include "host_update.h"
#include "options.h"

namespace sc {

class OffloadPlans final : public PlansWith<OffloadPlans, OffloadOptions> {
 public:
  using PlansWith::PlansWith;
  [[nodiscard]] MemoryPlan memory_plan(const RunShape& shape) const override;
  [[nodiscard]] CommPlan comm_plan(const RunShape& shape) const override;
  [[nodiscard]] Facts facts(const RunShape& shape) const override;
  [[nodiscard]] std::string predict(const RunShape& shape) const override;

 private:
  [[nodiscard]] FieldTable<Options> table() const override;
};

class Offload : public Strategy {
 public:
  using Plans = OffloadPlans;
  using Options = Plans::Options;

  Offload(RunContext& context, const Options& options);

  // For a strategy whose host keeps states elsewhere (lesson 06):
  using MakeUpdates =
      std::function<std::unique_ptr<PieceUpdates>(const ParamLayout& layout, std::vector<Piece> pieces)>;
  /// What stays on the device between steps.
  struct Keeps {
    bool gradients = false;  // this rank's slice of them, until the next step's forward
    bool parameters = true;  // this rank's slice of them; otherwise every gather brings it from the host
  };
  Offload(RunContext& context, const Options& options, const Keeps& keeps, const MakeUpdates& make_updates);
  static void refuse_contradictions(const RunShape& shape, const Options& options);
  static void plan_device(const RunShape& shape, const Options& options, const Keeps& keeps,
                          MemoryPlan& plan);
  static void plan_host(const RunShape& shape, const Options& options, MemoryPlan& plan);
  static Facts facts_of(const RunShape& shape, const Options& options);
  /// Buffers that blocks' parameters take turns in.
  static int pool_of(const ParamLayout& layout, const Options& options);
  /// This rank's, without memory.
  static std::vector<Piece> cut_pieces(const ParamLayout& layout, Rank rank, const Options& options);
  static int threads_of(const Options& options, WorldSize world);

  StepResult train_step(std::span<const Batch> micro_batches) override;
  /// A delayed update stays put off; what is due is on every rank's device.
  void quiet() override;
  /// And what was put off is applied.
  std::vector<StepResult> drain() override;
  void forward_loss(const Batch& batch, at::Tensor& sums) override;
  [[nodiscard]] at::Tensor& sums() override { return sums_; }
  [[nodiscard]] std::vector<StateSlice> state() const override;
  /// A delayed update that is still to come: its gradients are in state(), its scalars here.
  std::string pending() override;
  bool resume(const ResumeFrom& from) override;
  [[nodiscard]] std::vector<Timetable::Share> time_of_a_step() { return update_->time_of_a_step(); }
  [[nodiscard]] const ParamLayout& layout() const override { return layout_; }

 private:
  void forward(const Batch& batch, bool fetch);
  void fetch_params(int unit);
  Ticket send_params(std::size_t piece, bool in_step);
  [[nodiscard]] bool updated(int unit);
  [[nodiscard]] bool arrived(int unit);
  void gather_params(int unit);
  void bring_params(int unit);
  void release_params();
  void expect_gathers(bool backward);
  void wait_gathered(int unit);
  void reduce_grads(int unit, Write write);
  void leave(int unit, bool last_micro_batch);
  void wait_left(int unit);
  void global_norm();
  void post_update();
  /// How many updates the coming forward's parameters have seen.
  [[nodiscard]] std::int64_t due() const;
  [[nodiscard]] bool delayed(std::int64_t step) const;
  [[nodiscard]] bool puts_off() const;
  /// Steps of the run that are done.
  [[nodiscard]] std::int64_t done() const { return context_.first_step + steps_ - taken_over_; }
  [[nodiscard]] int turn() const;  // which of the host's buffers for gradients
  [[nodiscard]] std::span<const std::size_t> pieces_of(int unit) const {
    return pieces_of_[static_cast<std::size_t>(unit)];
  }

  RunContext& context_;
  Options options_;
  const Keeps keeps_;
  ParamLayout layout_;
  Passes passes_;
  at::Tensor sums_;     // [4] fp64: loss, tokens, sum of squares, overflow flag
  at::Tensor squares_;  // [units, 4] fp64: each unit's own sum of squares, as its slice leaves
  at::Tensor scalars_, scalars_host_[2];  // [4] fp64: lr, step, clip; on the device, on the host in turn
  std::vector<OwnedSlice> slices_;        // by unit; params and grads on the device, states on the host
  std::vector<UnitTensors> params_full_;  // by unit; whole: views of one arena; sharded: a pool of buffers
  std::vector<UnitTensors> grads_full_;   // by unit; blocks take turns in two buffers
  std::vector<std::size_t> params_buffer_, grads_buffer_;  // by unit: which buffer
  std::vector<int> resident_;     // by buffer of parameters: the unit whose parameters are in it, or none
  std::vector<Ticket> gathered_;  // by unit
  std::vector<std::vector<Ticket>> fetched_;  // by unit: its pieces, on their way to the device
  std::vector<PendingSum> in_flight_;         // by buffer of gradients
  std::vector<at::Tensor> scratch_;           // the same: where later micro-batches' sums land
  std::vector<std::vector<Ticket>> left_;     // the same: copies to the host that read it
  Ticket scalars_left_;
  std::vector<std::vector<std::size_t>> pieces_of_;  // by unit
  std::vector<OpEnd> landed_;                        // by piece: the coming update's gradients
  std::int64_t steps_ = 0;                           // updates that were posted
  std::int64_t taken_over_ = 0;                      // of them, the one that was pending in a checkpoint
  bool restoring_ = false;
  bool drained_ = false;
  std::unique_ptr<PieceUpdates> update_;  // last: its threads end first
};

}  // namespace sc
