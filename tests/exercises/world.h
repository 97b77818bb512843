// A world of ranks that are threads, watched from beneath: who talked to whom, and whether anybody can go on.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "common/comm/local_communicator.h"
#include "common/comm/recording_communicator.h"

namespace sc::exercise {

class RankWatch;

/// Runs a learner's code on every rank and measures it. A hang is found without a clock: as soon as every
/// rank waits for an operation that has not ended, or is done, nobody will ever go on.
class World {
 public:
  using Wrap = std::function<std::unique_ptr<Communicator>(std::unique_ptr<Communicator>)>;
  explicit World(int ranks);
  /// Also puts a decorator round each rank's communicator (delays). Then a hang is the Deadline's to find.
  World(int ranks, const Wrap& wrap);
  ~World();

  /// `body` on every rank, a thread each, in phase "train".
  ///   Errors  NotReached naming who waits for what if they hang, or if a ticket was dropped without a wait;
  ///           else what the first rank threw.
  void run(const std::function<void(RecordingCommunicator& comm)>& body);

  [[nodiscard]] int size() const { return static_cast<int>(comms_.size()); }
  /// Of all that a rank has issued in phase "train".
  [[nodiscard]] CommPlan issued(int rank) const {
    return comms_[static_cast<std::size_t>(rank)]->recorded("train", 0);
  }
  /// Messages and their elements that a rank has sent; those of no element do not count.
  struct Sent {
    std::int64_t messages = 0, elements = 0;
  };
  [[nodiscard]] Sent sent(int rank) const;
  /// Peers of a rank's sends, or of its receives, of at least one element; in order.
  [[nodiscard]] const std::vector<int>& peers(int rank, CommKind kind) const;
  /// Waits that a rank has begun.
  [[nodiscard]] std::int64_t waits(int rank) const;

 private:
  LocalWorld local_;
  std::shared_ptr<RankWatch> watch_;  // null: not watched
  std::vector<std::unique_ptr<RecordingCommunicator>> comms_;
};

}  // namespace sc::exercise
