// Where a step's time goes: how long the disk reads and writes, how long the host updates, and how long the
// strategy waits for either. It waits in forward, with parameters on the host or the disk also in backward,
// and before an evaluation or a save.
#pragma once

#include <algorithm>
#include <chrono>
#include <deque>
#include <mutex>

#include "common/storage/block_file.h"
#include "common/watch/comm_op.h"
#include "common/watch/timetable.h"

namespace sc {

/// One rank's times. Thread-safe.
class StepClock {
 public:
  using Clock = std::chrono::steady_clock;
  void issued(CommKind kind, Clock::time_point at, DiskTransfer transfer);
  void updated(Clock::time_point began, Clock::time_point ended);
  void waited(Clock::time_point began, Clock::time_point ended);
  /// Called when a step's backward has ended. Only what happens between the first call and the last counts.
  void end_step();
  /// Means over the steps that count; empty if there is none.
  [[nodiscard]] std::vector<Timetable::Share> of_a_step();

 private:
  /// The time in which at least one of some spans was under way. Spans come in the order of their beginnings.
  struct Busy {
    Clock::duration sum{};
    Clock::time_point until{};
    void add(Clock::time_point began, Clock::time_point ended) {
      sum += std::max(Clock::duration{}, ended - std::max(began, until));
      until = std::max(until, ended);
    }
  };
  struct Transfer {
    CommKind kind;
    Clock::time_point issued;
    DiskTransfer transfer;
  };
  void take_what_has_ended();

  std::mutex mutex_;
  std::deque<Transfer> transfers_;
  struct Work {
    Busy read, write, either, update, wait;
  };
  /// The work up to now, and up to the last call of end_step().
  Work now_, counted_;
  int ends_ = 0;
  Clock::time_point began_, ended_;
};

}  // namespace sc
