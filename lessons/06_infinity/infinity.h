// Lesson 06: ZeRO-Infinity. Optimizer states lie on a disk and stream through a window of host memory: the
// host needs as much memory for them as the window has, whatever the model's size.
//   Source: Rajbhandari et al., ZeRO-Infinity, arXiv:2104.07857 (section 5.1.2, the infinity offload engine;
//   6.3).
#pragma once

#include <memory>
#include <vector>

#include "common/offload/host_optimizer.h"
#include "common/offload/unit_buffers.h"
#include "common/offload/update_clock.h"
#include "common/offload/update_scalars.h"
#include "common/strategy/passes.h"
#include "infinity_plan.h"
#include "states_on_disk.h"

namespace sc {

struct WindowPlan;

class Infinity final : public Strategy {
 public:
  using Plans = InfinityPlans;
  using Options = Plans::Options;

  Infinity(RunContext& context, const Options& options);
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
  std::optional<Timetable> timetable(Communicator& comm) override;
  [[nodiscard]] const ParamLayout& layout() const override { return layout_; }

 private:
  /// How new parameters come to the device: out of the window, which keeps a buffer until then; once a step
  /// from the host's memory; or whenever a unit is gathered.
  enum class Delivery { from_window, once_a_step, by_gathers };

  void begin_step();
  void end_updates();
  void forward(const Batch& batch, bool fetch);
  void finish_update(int unit);
  [[nodiscard]] std::shared_ptr<const HostPiece> wait_updated(std::size_t piece);
  [[nodiscard]] bool to_send(std::size_t piece) const;
  [[nodiscard]] Ticket send_params(std::size_t piece, Copies::OfStep of_step = {});
  void gather_params(int unit);
  void reduce_grads(int unit, Write write);
  void bring_params(int unit);
  void expect_gathers(bool backward);
  void leave(int unit, bool last_micro_batch);
  void land_gradients(std::size_t piece);
  void global_norm();
  void post_update();
  [[nodiscard]] std::int64_t due() const { return clock_.due(step_); }
  // infinity_memory.cpp
  void take_window(const WindowPlan& plan);
  void take_gradients(const WindowPlan& plan);
  void open_file(const WindowPlan& plan);
  [[nodiscard]] std::unique_ptr<ParamHome> make_home(const WindowPlan& plan);

  RunContext& context_;
  Options options_;
  const Delivery delivery_;
  PlannedBuffers buffers_;
  ParamLayout layout_;
  Passes passes_;
  at::Tensor sums_;  // [4] fp64: loss, tokens, sum of squares, overflow flag
  UnitBuffers units_;
  UpdateScalars scalars_;
  UpdateClock clock_;
  std::int64_t step_;  // the one that runs; between steps the coming one
  const std::vector<Piece> pieces_;
  Window window_;
  std::vector<at::Tensor>
      grads_window_;                 // grads_at=device: by buffer, where they come down at their piece's turn
  Number next_landing_ = 0;          // the same
  std::vector<Ticket> coming_down_;  // the same: of the update that is under way
  // grads_at=host: by piece. Update u's land in u % 2: one and the same where updates are exact.
  std::vector<at::Tensor> grads_host_[2];
  std::unique_ptr<StateFile> file_;
  std::unique_ptr<ParamHome> params_;
  std::unique_ptr<StatesOnDisk> states_;
  std::unique_ptr<HostOptimizer> optimizer_;  // last: its threads end first
};

}  // namespace sc
