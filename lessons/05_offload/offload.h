// Lesson 05: ZeRO-Offload. Optimizer states lie in the host's memory, and the host updates them; the device
// holds parameters, activations and a few units' gradients.
//   Source: Ren et al., ZeRO-Offload, arXiv:2101.06840 (sections 4 and 5: delayed parameter update).
#pragma once

#include <memory>
#include <vector>

#include "common/offload/host_optimizer.h"
#include "common/offload/unit_buffers.h"
#include "common/offload/update_clock.h"
#include "common/offload/update_scalars.h"
#include "common/strategy/passes.h"
#include "offload_plan.h"

namespace sc {

class Offload final : public Strategy {
 public:
  using Plans = OffloadPlans;
  using Options = Plans::Options;

  Offload(RunContext& context, const Options& options);
  StepResult train_step(std::span<const Batch> micro_batches) override;
  /// A delayed update stays put off; what is due is on every rank's device.
  void quiet() override;
  /// From here on nothing is put off.
  std::vector<StepResult> drain() override;
  void forward_loss(const Batch& batch, at::Tensor& sums) override;
  [[nodiscard]] at::Tensor& sums() override { return sums_; }
  [[nodiscard]] std::vector<StateSlice> state() const override;
  /// A delayed update that is still to come: its gradients are in state(), its scalars here.
  std::string pending() override;
  bool resume(const ResumeFrom& from) override;
  [[nodiscard]] const ParamLayout& layout() const override { return layout_; }
  Counts counts(Communicator& comm) override;

 private:
  /// A piece on the host, pinned.
  struct OnHost {
    at::Tensor params;    // rounded; undefined: the master itself goes to the device
    at::Tensor grads[2];  // update u's land in u % 2: one and the same where updates are exact
  };

  void forward(const Batch& batch, bool fetch);
  void fetch_params(int unit);
  [[nodiscard]] Ticket send_params(std::size_t piece, const Copies::After& after = {});
  void gather_params(int unit);
  void reduce_grads(int unit, Write write);
  void leave(int unit, bool last_micro_batch);
  OpEnd global_norm();
  void post_update();
  void confirm_update(const OpEnd& summed);
  [[nodiscard]] at::Tensor params_of(std::size_t piece) const;
  [[nodiscard]] PieceStates states_of(std::size_t piece) const {
    return states_->states(static_cast<Number>(piece));
  }
  void end_step();
  [[nodiscard]] std::int64_t due() const { return clock_.due(step_); }

  RunContext& context_;
  Options options_;
  PlannedBuffers buffers_;
  ParamLayout layout_;
  Passes passes_;
  at::Tensor sums_;  // [4] fp64: loss, tokens, sum of squares, overflow flag
  UnitBuffers units_;
  UpdateScalars scalars_;
  UpdateClock clock_;
  const NormIs norm_;         // when an update is posted
  std::int64_t step_;         // the one that runs; between steps the coming one
  Copies::After before_;      // the step that runs: the work of those before it
  std::vector<OnHost> host_;  // by piece
  // What host_ has, as the optimizer asks for it:
  std::unique_ptr<StatesInMemory> states_;
  std::unique_ptr<ParamsInMemory> params_;
  std::unique_ptr<HostOptimizer> optimizer_;  // last: its threads end first
};

}  // namespace sc
