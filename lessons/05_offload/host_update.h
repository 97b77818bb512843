// The optimizer on the host: gradients land in pieces, and a pool of threads updates what they belong to.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "common/base/host_pool.h"
#include "common/comm/communicator.h"
#include "common/optim/host_adam.h"
#include "common/strategy/state_slice.h"
#include "common/watch/timeline.h"
#include "common/watch/timetable.h"

namespace sc {

/// Elements of one unit's slice that are copied and updated together. All tensors are the host's, [range.size()].
struct Piece {
  int unit = 0;
  Range range;               // of the unit
  std::vector<Range> decay;  // in the piece's own elements
  at::Tensor grads[2];       // where gradients land, in turn; the second for delayed updates alone
  at::Tensor master, momentum, variance;  // fp32
  at::Tensor params;                      // what goes back to the device: rounded, or the master itself
  at::Tensor on_device,
      grads_on_device;  // the device's: parameters, and the gradient while it is complete there
};

/// What all updates of an update's pieces need to know.
struct UpdateOrder {
  std::vector<OpEnd> landed;  // by piece: its gradient is there
  OpEnd scalars_landed;
  const double* scalars = nullptr;  // lr, step, clip, as StepScalars has them
  int turn = 0;                     // which of `grads`
  std::int64_t after_sends = 0;     // a piece may be overwritten when it has been sent so often
};

/// Who updates this rank's pieces on the host, wherever their states lie. Called by the strategy's thread.
class PieceUpdates {
 public:
  explicit PieceUpdates(std::vector<Piece> pieces) : pieces_(std::move(pieces)) {}
  virtual ~PieceUpdates() = default;
  PieceUpdates(const PieceUpdates&) = delete;
  PieceUpdates& operator=(const PieceUpdates&) = delete;

  /// In forward's order.
  [[nodiscard]] const std::vector<Piece>& pieces() const { return pieces_; }
  /// Whether gradients leave for Piece::grads as soon as they are complete. Otherwise they stay on the device, and
  /// wait() takes them.
  [[nodiscard]] virtual bool takes_gradients_in_backward() const { return true; }
  /// Returns at once.
  virtual void post(UpdateOrder order) = 0;
  /// Whether, and until, that piece's parameters are those of `updates` updates.
  ///   Returns  of wait: the last update's work; null where it had nothing to do.
  ///   Errors   of wait: what the update failed with.
  [[nodiscard]] virtual bool ready(std::size_t piece, std::int64_t updates) = 0;
  virtual std::shared_ptr<const HostPiece> wait(std::size_t piece, std::int64_t updates) = 0;
  /// After wait(): whether they have to be sent (again), as which step's operation (empty: the present one's), and from where.
  [[nodiscard]] virtual bool to_send(std::size_t /*piece*/, std::int64_t /*updates*/) { return true; }
  [[nodiscard]] virtual std::optional<std::int64_t> step_of_sending(std::size_t /*piece*/,
                                                                    std::int64_t /*updates*/) {
    return {};
  }
  [[nodiscard]] virtual at::Tensor params(std::size_t piece, std::int64_t /*updates*/) {
    return pieces_[piece].params;
  }
  /// Where they are sent with each gather: those that the coming passes will send, in order.
  virtual void expect(const std::vector<std::size_t>& /*pieces*/) {}
  /// The piece's parameters are on their way to the device; in_step: as a step's operation.
  virtual void sent(std::size_t piece, OpEnd end, bool in_step) = 0;
  /// Nothing more will be sent: what waits for that begins.
  virtual void release() = 0;
  /// A step begins.
  virtual void begin_step() {}
  /// A step's backward has ended: of updates before its own nothing is in flight any more.
  virtual void end_step() {}
  /// States of all pieces, after quiet(). turn: which of `grads` has the last step's.
  virtual std::vector<StateSlice> state(int turn) = 0;
  /// This rank's.
  [[nodiscard]] virtual std::vector<Timetable::Share> time_of_a_step() { return {}; }

 protected:
  const std::vector<Piece> pieces_;
};

/// States that stay in memory. Updates one after the other; each waits for its scalars, then takes of the pieces that have landed the one first that forward needs
/// first. Nothing waits for an update but who needs its parameters.
class HostUpdate final : public PieceUpdates {
 public:
  /// pieces in forward's order.
  HostUpdate(std::vector<Piece> pieces, const AdamWHyper& hyper, int threads);
  /// What has begun ends; what has not is forgotten.
  ~HostUpdate() override;

  void post(UpdateOrder order) override;
  [[nodiscard]] bool ready(std::size_t piece, std::int64_t updates) override;
  std::shared_ptr<const HostPiece> wait(std::size_t piece, std::int64_t updates) override;
  void sent(std::size_t piece, OpEnd end, bool in_step) override;
  void release() override;
  std::vector<StateSlice> state(int turn) override;

 private:
  struct State {
    std::int64_t updates = 0, sends = 0;
    std::shared_ptr<const HostPiece> work;  // of the last update; null: there was nothing to do
    OpEnd sent;
  };
  void run(const std::stop_token& stop);
  void apply(const UpdateOrder& order, const std::stop_token& stop);
  [[nodiscard]] std::optional<std::size_t> next(const UpdateOrder& order, const std::vector<bool>& begun);
  void begin(std::size_t piece, const UpdateOrder& order, const AdamWFactors& factors);
  [[nodiscard]] static bool done(const State& state) { return !state.work || state.work->done(); }

  const AdamWHyper hyper_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<State> states_;  // by piece
  std::deque<UpdateOrder> orders_;
  bool released_ = false;
  std::exception_ptr error_;
  HostPool pool_;
  std::jthread thread_;  // last: ends first
};

}  // namespace sc
