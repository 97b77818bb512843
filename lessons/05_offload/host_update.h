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
#include "common/watch/timeline.h"

namespace sc {

/// Elements of one unit's slice that are copied and updated together. All tensors are the host's, [range.size()].
struct Piece {
  int unit = 0;
  Range range;               // of the unit
  std::vector<Range> decay;  // in the piece's own elements
  at::Tensor grads[2];       // where gradients land, in turn; the second for delayed updates alone
  at::Tensor master, momentum, variance;  // fp32
  at::Tensor params;                      // what goes back to the device: rounded, or the master itself
};

/// What all updates of an update's pieces need to know.
struct UpdateOrder {
  std::vector<OpEnd> landed;  // by piece: its gradient is there
  OpEnd scalars_landed;
  const double* scalars = nullptr;  // lr, step, clip, as StepScalars has them
  int turn = 0;                     // which of `grads`
  std::int64_t after_sends = 0;     // a piece may be overwritten when it has been sent so often
};

/// Updates one after the other; each takes its pieces as they land, of those the one first that forward needs
/// first. Nothing waits for an update but who needs its parameters.
class HostUpdate {
 public:
  /// pieces in forward's order.
  HostUpdate(std::vector<Piece> pieces, const AdamWHyper& hyper, int threads);
  /// What has begun ends; what has not is forgotten.
  ~HostUpdate();
  HostUpdate(const HostUpdate&) = delete;
  HostUpdate& operator=(const HostUpdate&) = delete;

  [[nodiscard]] const std::vector<Piece>& pieces() const { return pieces_; }
  /// Returns at once.
  void post(UpdateOrder order);
  /// Whether, and until, that piece's parameters are those of `updates` updates.
  ///   Returns  of wait: the last update's work; null where it had nothing to do.
  ///   Errors   of wait: what the update failed with.
  [[nodiscard]] bool ready(std::size_t piece, std::int64_t updates);
  std::shared_ptr<const HostPiece> wait(std::size_t piece, std::int64_t updates);
  /// The piece's parameters are on their way to the device.
  void sent(std::size_t piece, OpEnd end);
  /// Nothing more will be sent: what waits for that begins.
  void release();

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

  const std::vector<Piece> pieces_;
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
