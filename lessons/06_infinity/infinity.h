// Lesson 06: ZeRO-Infinity. Optimizer states lie on a disk and stream through a window of host memory: the
// host needs as much memory for them as the window has, whatever the model's size.
//   Source: Rajbhandari et al., ZeRO-Infinity, arXiv:2104.07857 (section 5.1.2, the infinity offload engine;
//   6.3).
#pragma once

#include <memory>
#include <vector>

#include "common/offload/host_optimizer.h"
#include "common/offload/host_strategy.h"
#include "infinity_plan.h"
#include "states_on_disk.h"

namespace sc {

struct WindowPlan;

class Infinity final : public HostStrategy {
 public:
  using Plans = InfinityPlans;
  using Options = Plans::Options;

  Infinity(RunContext& context, const Options& options);
  StepResult train_step(std::span<const Batch> micro_batches) override;
  /// Brings the parameters of all updates that are due to the device. A delayed update stays pending.
  void quiet() override;
  /// From here on no update is delayed.
  std::vector<StepResult> drain() override;
  void forward_loss(const Batch& batch, at::Tensor& sums) override;
  [[nodiscard]] std::vector<StateSlice> state() const override;
  bool resume(const ResumeFrom& from) override;
  std::optional<Timetable> timetable(Communicator& comm) override;

 private:
  void end_updates();
  void forward(const Batch& batch, bool fetch = false);
  void fetch_params(int unit);
  void land_gradients(std::size_t i);
  [[nodiscard]] Ticket copy_up(std::size_t i, Copies::OfStep step = {});
  void gather_params(int unit);
  void reduce_grads(int unit, Write write, bool last);
  void leave(int unit);
  void global_norm();
  void post_update();
  void tell_norm();
  // infinity_state.cpp
  [[nodiscard]] std::shared_ptr<const HostPiece> wait_updated(std::size_t i);
  // infinity_memory.cpp
  void take_window(const WindowPlan& plan);
  void take_gradients(const WindowPlan& plan);
  void open_file(const WindowPlan& plan);

  // params_at.cpp
  /// Who sends parameters to the device: a row of the table in params_at.cpp.
  struct Delivery {
    /// Forward's fetch sends a piece; gathers send the pieces of their unit.
    bool by_forward = false, by_gathers = false;
    /// The window is the home: its buffer is kept until the piece has been sent.
    bool from_window = false;
  };
  [[nodiscard]] static Delivery delivery_of(const Options& options);
  [[nodiscard]] std::unique_ptr<ParamHome> make_home(const WindowPlan& plan);
  [[nodiscard]] bool to_send(std::size_t i) const;
  void send_now(std::size_t i);
  [[nodiscard]] std::int64_t after_sends() const;
  [[nodiscard]] std::int64_t kept_version() const;
  void end_gathers();
  void bring_params(int unit);
  void expect_gathers(bool backward);

  Options options_;
  const Delivery delivery_;
  const std::vector<Piece> pieces_;
  Window window_;
  /// With grads_at=device, by buffer of the window: a gradient comes down there at its piece's turn.
  std::vector<at::Tensor> grads_window_;
  /// With grads_at=device: the first Number whose gradient has not come down, and this step's copies down.
  Number next_landing_ = 0;
  std::vector<Ticket> coming_down_;
  /// With grads_at=host, by piece: update u's gradient lands in grads_host_[u % 2]. Both are one tensor
  /// unless updates are delayed.
  std::vector<at::Tensor> grads_host_[2];
  std::unique_ptr<StateFile> file_;
  std::unique_ptr<ParamHome> params_;
  std::unique_ptr<StatesOnDisk> states_;
  /// Declared last, so that its threads end before the members that they use.
  std::unique_ptr<HostOptimizer> optimizer_;
};

}  // namespace sc
