// Lesson 05: ZeRO-Offload. Optimizer states lie in the host's memory, and the host updates them; the device
// holds parameters, activations and a few units' gradients.
//   Source: Ren et al., ZeRO-Offload, arXiv:2101.06840 (sections 4 and 5: delayed parameter update).
#pragma once

#include <memory>
#include <vector>

#include "common/offload/host_optimizer.h"
#include "common/offload/host_strategy.h"
#include "offload_plan.h"

namespace sc {

class Offload final : public HostStrategy {
 public:
  using Plans = OffloadPlans;
  using Options = Plans::Options;

  Offload(RunContext& context, const Options& options);
  StepResult train_step(std::span<const Batch> micro_batches) override;
  /// Brings the parameters of all updates that are due to the device. A delayed update stays pending.
  void quiet() override;
  /// From here on no update is delayed.
  std::vector<StepResult> drain() override;
  void forward_loss(const Batch& batch, at::Tensor& sums) override;
  [[nodiscard]] std::vector<StateSlice> state() const override;
  bool resume(const ResumeFrom& from) override;
  Counts counts(Communicator& comm) override;

 private:
  /// What the host has of a piece in pinned memory, for copies from and to the device.
  struct OnHost {
    /// Rounded parameters. Undefined in fp32, where the master itself is copied to the device.
    at::Tensor params;
    /// Update u's gradient lands in grads[u % 2]. Both are one tensor unless updates are delayed.
    at::Tensor grads[2];
  };

  void forward(const Batch& batch, bool fetch = false);
  void fetch_params(int unit);
  [[nodiscard]] Ticket copy_up(std::size_t i, const Copies::After& after = {});
  void gather_params(int unit);
  void reduce_grads(int unit, Write write, bool last);
  void leave(int unit);
  void global_norm();
  void post_update();
  void tell_norm();
  [[nodiscard]] at::Tensor params_on_host(std::size_t i) const;
  /// A Number is update x pieces + piece. In memory all updates of a piece find its states in one place.
  [[nodiscard]] PieceStates states_of(std::size_t i) const { return states_->states(static_cast<Number>(i)); }

  Options options_;
  /// Whether an update waits for the norm, goes by a guess, or needs none.
  const NormIs norm_;
  /// What this rank had issued when the step began: copies of parameters start after it.
  Copies::After before_;
  /// The end of the all-reduce from which the norm is computed.
  OpEnd summed_;
  /// By piece, in the order in which forward needs them.
  std::vector<OnHost> host_;
  /// The optimizer reads and writes states and parameters through these two.
  std::unique_ptr<StatesInMemory> states_;
  std::unique_ptr<ParamsInMemory> params_;
  /// Declared last, so that its threads end before the members that they use.
  std::unique_ptr<HostOptimizer> optimizer_;
};

}  // namespace sc
