// Where a step's time goes: how long the disk reads and writes, the host updates, and the strategy waits for
// either: in forward, with parameters elsewhere also in backward, and before an evaluation or a save.
#pragma once

#include <algorithm>
#include <chrono>
#include <deque>
#include <mutex>

#include "common/storage/block_file.h"
#include "common/watch/comm_op.h"
#include "common/watch/timetable.h"

namespace sc {

/// One rank's. Thread-safe.
class StepClock {
 public:
  using Clock = std::chrono::steady_clock;
  void issued(CommKind kind, Clock::time_point at, DiskTransfer transfer);
  void updated(Clock::time_point began, Clock::time_point ended);
  void waited(Clock::time_point began, Clock::time_point ended);
  /// A step's backward has ended. What counts is what happens between the first call and the last.
  void end_step();
  /// Means over the steps that count. Empty: there is none.
  [[nodiscard]] std::vector<Timetable::Share> of_a_step();

 private:
  /// Seconds in which at least one of some spans was under way. Spans in the order of their beginnings.
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
  std::deque<Transfer> transfers_;  // that have not been counted
  struct Work {
    Busy read, write, either, update, wait;
  };
  Work now_, counted_;  // up to now, up to the last call of end_step()
  int ends_ = 0;
  Clock::time_point began_, ended_;
};

}  // namespace sc
