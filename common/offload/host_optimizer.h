// The optimizer on the host: gradients arrive in pieces, and a pool of threads updates the states and
// parameters of each piece, wherever they lie.
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

/// The sequence number of a piece's update: piece i of n in update u has number u n + i.
using Number = std::int64_t;

/// The states of one piece: three tensors [n] fp32 on the host.
struct PieceStates {
  at::Tensor master, momentum, variance;
};

/// Where states lie between updates. The optimizer's thread calls it.
class StateStore {
 public:
  virtual ~StateStore() = default;
  /// Starts to fetch the states needed next, as far as there is room. Never blocks. True if there will be
  /// room for more without another update.
  virtual bool fetch_ahead(const HostOptimizer& /*host*/) { return false; }
  /// Whether the states for an update of a piece have arrived. Never blocks.
  [[nodiscard]] virtual bool fetched(Number /*number*/) const { return true; }
  virtual PieceStates states(Number number) = 0;
  /// Where the update of a piece writes its new states; nullopt: in place.
  virtual std::optional<PieceStates> destination(Number /*number*/) { return {}; }
  /// Makes the update of a piece final: states() returns its results from now on.
  virtual void keep(Number /*number*/) {}
  /// Takes back states that are updated when `work` is done; with null nothing changes them.
  virtual void put_back(Number /*number*/, const std::shared_ptr<const HostPiece>& /*work*/) {}
};

/// Where updates write new parameters for whoever sends them to the device. A version is a number of updates.
class ParamSlots {
 public:
  virtual ~ParamSlots() = default;
  /// The tensor [n] on the host for a piece's new parameters; undefined if the master itself is sent.
  virtual at::Tensor destination(std::size_t piece, std::int64_t version) = 0;
  /// Called when an update was posted to the pool: the piece's parameters are complete when `work` is done.
  virtual void written(std::size_t /*piece*/, std::int64_t /*version*/,
                       const std::shared_ptr<const HostPiece>& /*work*/) {}
};

class StatesInMemory final : public StateStore {
 public:
  struct Of {
    PieceStates now;
    std::optional<PieceStates> next = {};  // results of an update that may have to be repeated
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

/// The scalars of an update (lr, step and clip as in StepScalars), valid when `landed` has passed.
struct LandedScalars {
  OpEnd landed;
  const double* numbers = nullptr;
};

/// What an update needs of its step's norm. needed: nothing begins before norm_known() has brought the
/// scalars. not_needed: they are the same whatever the norm is. guessed: they are what they will be if
/// nothing is clipped.
enum class NormIs : std::uint8_t { needed, not_needed, guessed };

/// What all pieces of one update have in common.
struct UpdateOrder {
  std::int64_t after_sends = 0;  // a piece may be overwritten once it has been sent this many times
  NormIs norm = NormIs::needed;
  LandedScalars scalars = {};  // where the norm is not needed or guessed
};

/// How many pieces were updated, over all updates of a run.
struct UpdateCounts {
  std::int64_t updated = 0;
  std::int64_t before_norm = 0;  // begun before their step's norm was known
  std::int64_t again = 0;        // of before_norm: updated a second time, since the guess was wrong
};

/// Carries out updates one after another, in a thread of its own. Each waits for its scalars; then, of the
/// pieces that may be updated, the one that forward needs first comes first. The strategy's thread calls it,
/// and waits only where it needs the parameters.
class HostOptimizer {
 public:
  HostOptimizer(std::vector<Piece> pieces, const AdamWHyper& hyper, int threads, StateStore& store,
                ParamSlots& slots);
  /// Finishes the updates of pieces that have begun, and drops the others.
  ~HostOptimizer();
  HostOptimizer(const HostOptimizer&) = delete;
  HostOptimizer& operator=(const HostOptimizer&) = delete;

  /// All pieces, in the order in which forward needs them.
  [[nodiscard]] const std::vector<Piece>& pieces() const { return pieces_; }
  [[nodiscard]] std::span<const std::size_t> pieces_of(int unit) const {
    return pieces_of_.at(static_cast<std::size_t>(unit));
  }
  /// Announces the gradient for a piece's update, before or after post(). It is there when `end` has passed.
  void lands(std::size_t piece, std::int64_t update, const at::Tensor& grad, OpEnd end);
  /// Blocks until the gradients announced for an update have arrived.
  void wait_landed(std::int64_t update) const;
  void post(UpdateOrder order);
  /// Hands over the scalars of the update posted last, once its step's norm is known.
  void norm_known(std::int64_t update, LandedScalars scalars);
  /// Whether all of a unit's pieces have had so many updates.
  [[nodiscard]] bool updated(int unit, std::int64_t updates) const;
  /// Blocks until a piece has had so many updates. The last one's work; null if it had nothing to do.
  ///   Errors  what the update failed with.
  std::shared_ptr<const HostPiece> wait(std::size_t piece, std::int64_t updates) const;
  /// Announces that a piece's parameters are on their way to the device, until `end` has passed.
  void sent(std::size_t piece, OpEnd end);
  [[nodiscard]] std::int64_t sends(std::size_t piece) const;
  /// Announces that nothing more will be sent, so that updates waiting for a send begin.
  void release();
  /// Waits until nothing can happen before the strategy continues. Returns the number of finished updates.
  std::int64_t settle() const;

  [[nodiscard]] UpdateCounts counts() const;
  /// Whether the results of a piece's update are on the device. Callable from any thread.
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
    } gradients[2];  // of an update and the next one
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
  mutable std::mutex mutex_;  // guards the members below
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
  bool held_ = false;  // or everything left of its order waits for the strategy: a gradient, or a send
  std::exception_ptr error_;
  bool trusted_ = true;  // used by the thread: the last guess was right, or there was none
  HostPool pool_;
  std::jthread thread_;  // declared last, so that it ends first
};

}  // namespace sc
