// A world of ranks that are threads, watched from below: who talked to whom, and whether anybody can go on.
#pragma once

#include <functional>
#include <memory>
#include <type_traits>
#include <vector>

#include "common/comm/local_communicator.h"
#include "common/comm/recording_communicator.h"

namespace sc::exercise {

class RankWatch;

/// Runs a learner's code on every rank and measures it. A hang is found without a clock: as soon as every
/// rank waits for an operation that has not ended, or is done, nobody will ever go on.
class World {
 public:
  /// With `delays` operations take random times; then nobody watches, and only the Deadline finds a hang.
  explicit World(int ranks, bool delays = false);
  ~World();

  /// Runs `body` on every rank, one thread each, in phase "train".
  ///   Errors  NotReached naming who waits for what if they hang, or if a ticket was dropped without a wait;
  ///           else what the first rank threw.
  void run(const std::function<void(RecordingCommunicator& comm)>& body);
  /// Runs `body` on every rank, and returns its results by rank.
  template <class Body>
  auto each(const Body& body) {
    std::vector<std::invoke_result_t<Body, RecordingCommunicator&>> results(comms_.size());
    run([&](RecordingCommunicator& comm) { results[static_cast<std::size_t>(comm.rank())] = body(comm); });
    return results;
  }

  [[nodiscard]] int size() const { return static_cast<int>(comms_.size()); }
  /// The operations that a rank issued in phase "train".
  [[nodiscard]] CommPlan issued(int rank) const {
    return comms_[static_cast<std::size_t>(rank)]->recorded("train", 0);
  }
  /// The peers of a watched rank's sends and receives of at least one element, in order; and the waits that
  /// it began.
  struct Traffic {
    std::vector<int> to, from;
    std::int64_t waits = 0;
  };
  [[nodiscard]] const Traffic& traffic(int rank) const;

 private:
  LocalWorld local_;
  const bool delays_;
  std::shared_ptr<RankWatch> watch_;
  std::vector<std::unique_ptr<RecordingCommunicator>> comms_;
};

/// The computations of one rank, and how far communication had come before each of them.
class Moments {
 public:
  struct Moment {
    int computed;
    std::int64_t issued, waited;  // operations
  };
  Moments(const World& world, RecordingCommunicator& comm) : world_(world), comm_(comm) {}
  void note(int computed);
  /// Requires that the moments are `last`, ..., 1, 0, and that judge(number, moment, "before unit 2 was
  /// computed, ") has no objection. `name` is what is computed, e.g. "unit".
  void require_descent(int last, const std::string& where, const std::string& name,
                       const std::function<void(int, const Moment&, const std::string&)>& judge) const;

 private:
  const World& world_;
  RecordingCommunicator& comm_;
  std::vector<Moment> moments_;
};

}  // namespace sc::exercise
