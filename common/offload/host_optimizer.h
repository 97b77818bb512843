// The optimizer on the host: gradients land in pieces, and a pool of threads updates what they belong to,
// wherever the states lie and the new parameters go.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "common/base/host_pool.h"
#include "common/comm/communicator.h"
#include "common/offload/host_plan.h"
#include "common/optim/host_adam.h"

namespace sc {

class HostOptimizer;

/// A piece's turn in the endless row of updates: update u, piece i of n is number u n + i.
using Number = std::int64_t;

/// [n] fp32 on the host.
struct PieceStates {
  at::Tensor master, momentum, variance;
};

/// Where states lie while nobody updates them. Called by the thread that updates.
class StateStore {
 public:
  virtual ~StateStore() = default;
  /// Begins to bring what comes next, as far as there is room. Never blocks.  Returns whether there will be
  /// room for more without another update.
  virtual bool fetch_ahead(const HostOptimizer& /*host*/) { return false; }
  /// Never blocks.
  [[nodiscard]] virtual bool fetched(Number /*number*/) const { return true; }
  virtual PieceStates states(Number number) = 0;
  /// Where an update leaves the new ones. Empty: in place.
  virtual std::optional<PieceStates> destination(Number /*number*/) { return {}; }
  /// The update counts: what it left is what states() shows from now on.
  virtual void keep(Number /*number*/) {}
  /// They are updated when `work` is done; null: nothing changes.
  virtual void put_back(Number /*number*/, const std::shared_ptr<const HostPiece>& /*work*/) {}
};

/// Where an update leaves the new parameters for those who send them to the device. A version is a number of
/// updates.
class ParamSlots {
 public:
  virtual ~ParamSlots() = default;
  /// [n] on the host. Undefined: the master itself, where it lies.
  virtual at::Tensor destination(std::size_t piece, std::int64_t version) = 0;
  /// They will be there when `work` is done.
  virtual void written(std::size_t /*piece*/, std::int64_t /*version*/,
                       const std::shared_ptr<const HostPiece>& /*work*/) {}
};

class StatesInMemory final : public StateStore {
 public:
  struct Of {
    PieceStates now;
    std::optional<PieceStates> next = {};  // what an update writes that may turn out not to count
  };
  explicit StatesInMemory(std::vector<Of> pieces) : pieces_(std::move(pieces)) {}
  PieceStates states(Number number) override { return of(number).now; }
  std::optional<PieceStates> destination(Number number) override { return of(number).next; }
  void keep(Number number) override {
    if (Of& piece = of(number); piece.next) std::swap(piece.now, *piece.next);
  }

 private:
  Of& of(Number number) { return pieces_[static_cast<std::size_t>(number) % pieces_.size()]; }
  std::vector<Of> pieces_;
};

class ParamsInMemory final : public ParamSlots {
 public:
  explicit ParamsInMemory(std::vector<at::Tensor> pieces) : pieces_(std::move(pieces)) {}
  at::Tensor destination(std::size_t piece, std::int64_t /*version*/) override { return pieces_[piece]; }

 private:
  const std::vector<at::Tensor> pieces_;
};

/// lr, step, clip, as StepScalars has them; there when `landed` has passed.
struct LandedScalars {
  OpEnd landed;
  const double* numbers = nullptr;
};

/// What an update needs of its step's norm. needed: nothing begins before norm_known() has brought the
/// scalars. not_needed: they are the same whatever the norm is. guessed: they are what they will be if
/// nothing is clipped.
enum class NormIs : std::uint8_t { needed, not_needed, guessed };

/// What all pieces of an update need to know.
struct UpdateOrder {
  std::int64_t after_sends = 0;  // a piece may be overwritten once it has been sent this many times
  NormIs norm = NormIs::needed;
  LandedScalars scalars = {};  // where the norm is not needed or guessed
};

/// Pieces of all updates.
struct UpdateCounts {
  std::int64_t updated = 0;
  std::int64_t before_norm = 0;  // begun when their step's norm was not known
  std::int64_t again = 0;        // of these: updated a second time, since the guess was wrong
};

/// Updates one after the other; each waits for its scalars, then takes of the pieces that may be updated the
/// one first that forward needs first. Only who needs its
/// parameters waits for an update. Called by the strategy's thread.
class HostOptimizer {
 public:
  HostOptimizer(std::vector<Piece> pieces, const AdamWHyper& hyper, int threads, StateStore& store,
                ParamSlots& slots);
  /// What has begun ends; what has not is forgotten.
  ~HostOptimizer();
  HostOptimizer(const HostOptimizer&) = delete;
  HostOptimizer& operator=(const HostOptimizer&) = delete;

  /// In forward's order.
  [[nodiscard]] const std::vector<Piece>& pieces() const { return pieces_; }
  [[nodiscard]] std::span<const std::size_t> pieces_of(int unit) const {
    return pieces_of_.at(static_cast<std::size_t>(unit));
  }
  /// A piece's gradient for that update, before or after post(): where it is when `end` has passed.
  void lands(std::size_t piece, std::int64_t update, const at::Tensor& grad, OpEnd end);
  /// Until that update's gradients have landed, as far as they are on their way.
  void wait_landed(std::int64_t update) const;
  /// The next update. Returns at once.
  void post(UpdateOrder order);
  /// The scalars of the update that has been posted last, once its step's norm is known.
  void norm_known(std::int64_t update, LandedScalars scalars);
  /// Whether a unit's pieces have all seen that many updates.
  [[nodiscard]] bool updated(int unit, std::int64_t updates) const;
  /// Blocks until a piece has seen that many.  Returns the last update's work; null: it had nothing to do.
  ///   Errors  what an update failed with.
  std::shared_ptr<const HostPiece> wait(std::size_t piece, std::int64_t updates) const;
  /// The piece's parameters are on their way to the device.
  void sent(std::size_t piece, OpEnd end);
  [[nodiscard]] std::int64_t sends(std::size_t piece) const;
  /// Nothing more will be sent: what waits for that begins.
  void release();
  /// Until nothing happens here before the strategy goes on.  Returns the updates that are done.
  std::int64_t settle() const;

  /// So far.
  [[nodiscard]] UpdateCounts counts() const;
  /// Any thread: whether what a number's update has made is on the device.
  [[nodiscard]] bool sent_since(Number number) const;
  [[nodiscard]] Number number_of(std::int64_t update, std::size_t piece) const {
    return update * static_cast<Number>(pieces_.size()) + static_cast<Number>(piece);
  }

 private:
  struct State {
    std::int64_t updates = 0, sends = 0;
    std::shared_ptr<const HostPiece> work;  // of the last update; null: there was nothing to do
    OpEnd sent;
    struct Gradient {
      std::int64_t update = -1;
      at::Tensor values;
      OpEnd landed;
    } gradients[2];  // of an update and the next
    [[nodiscard]] bool done() const { return !work || work->done(); }
    [[nodiscard]] const Gradient& gradient(std::int64_t update) const { return gradients[update % 2]; }
  };
  void begin(UpdateOrder order);
  void run(const std::stop_token& stop);
  std::optional<UpdateOrder> next_order(bool more, const std::stop_token& stop);
  void apply(const UpdateOrder& order, const std::stop_token& stop);
  [[nodiscard]] const double* known_norm() const;
  [[nodiscard]] std::optional<std::size_t> first_ready(const UpdateOrder& order,
                                                       const std::vector<bool>& begun, bool more);
  [[nodiscard]] bool may_begin(const State& state, const UpdateOrder& order) const;
  [[nodiscard]] static AdamWVectors places_of(const at::Tensor& grad, const PieceStates& from,
                                              const PieceStates& to, at::Tensor& params);
  void update(std::size_t piece, const AdamWFactors& factors);
  void keep(std::size_t piece, const AdamWFactors& factors);
  void count(std::int64_t UpdateCounts::*what, std::int64_t pieces);

  const std::vector<Piece> pieces_;
  std::vector<std::vector<std::size_t>> pieces_of_;  // by unit
  const AdamWHyper hyper_;
  StateStore& store_;
  ParamSlots& slots_;
  mutable std::mutex mutex_;  // for what follows
  mutable std::condition_variable_any changed_;
  std::vector<State> states_;  // by piece
  std::deque<UpdateOrder> orders_;
  std::optional<UpdateOrder> needs_norm_;  // posted, and not in orders_ yet
  std::int64_t done_ = 0;                  // updates; changed by the thread
  struct Norm {
    std::int64_t update = -1;
    LandedScalars scalars;
  } norm_;
  UpdateCounts counts_;
  bool released_ = false;
  bool idle_ = true;   // the thread waits for an order, and its store has no room for more
  bool held_ = false;  // or all that is left of its order waits for the strategy: a gradient, or a send
  std::exception_ptr error_;
  bool trusted_ = true;  // the thread's: the last guess was right, or there was none
  HostPool pool_;
  std::jthread thread_;  // last: ends first
};

}  // namespace sc
