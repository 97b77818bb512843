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
  /// A delayed update stays put off; what is due is on every rank's device.
  void quiet() override;
  /// From here on nothing is put off.
  std::vector<StepResult> drain() override;
  void forward_loss(const Batch& batch, at::Tensor& sums) override;
  [[nodiscard]] std::vector<StateSlice> state() const override;
  bool resume(const ResumeFrom& from) override;
  Counts counts(Communicator& comm) override;

 private:
  /// A piece on the host, pinned.
  struct OnHost {
    /// Rounded parameters. Undefined in fp32: the master itself goes to the device.
    at::Tensor params;
    /// Update u's gradient lands in u % 2. Where updates are exact both are the same tensor.
    at::Tensor grads[2];
  };

  void forward(const Batch& batch, bool fetch = false);
  void fetch_params(int unit);
  [[nodiscard]] Ticket send_params(std::size_t i, const Copies::After& after = {});
  void gather_params(int unit);
  void reduce_grads(int unit, Write write, bool last);
  void leave(int unit);
  void global_norm();
  void post_update();
  void tell_norm();
  [[nodiscard]] at::Tensor params_on_host(std::size_t i) const;
  [[nodiscard]] PieceStates states_of(std::size_t i) const { return states_->states(static_cast<Number>(i)); }

  Options options_;
  /// What an update needs of the norm.
  const NormIs norm_;
  /// The work of the steps before the one that runs.
  Copies::After before_;
  /// The sum over ranks that the norm is computed from.
  OpEnd summed_;
  /// By piece, in forward's order.
  std::vector<OnHost> host_;
  /// The optimizer finds states and parameters of host_ by these two.
  std::unique_ptr<StatesInMemory> states_;
  std::unique_ptr<ParamsInMemory> params_;
  /// The last member: its threads end before what they use.
  std::unique_ptr<HostOptimizer> optimizer_;
};

}  // namespace sc
