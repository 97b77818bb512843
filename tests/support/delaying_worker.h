// Delays operations: a thread issues them late, and tickets pause once more.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "common/comm/communicator.h"

namespace sc {

class DropCounter;

/// Sleeps for a random time, between 0 and `longest`. Thread-safe.
class Pause {
 public:
  Pause(std::uint64_t seed, std::chrono::microseconds longest) : random_(seed), longest_(longest) {}
  void operator()();

 private:
  std::mutex mutex_;
  std::mt19937_64 random_;
  const std::chrono::microseconds longest_;
};

/// Fills what an operation will overwrite with 0xff bytes (NaN): who reads it before the wait sees them.
void poison(const at::Tensor& t);

/// The tensors of one operation, which works on copies of them. So nothing depends on when it really happens:
/// what it writes comes to the caller's tensor with the wait and not before, and what it reads must be the
/// same then as now.
/// The copies are no memory of LibTorch's.
class SetApart {
 public:
  /// The copy that an operation reads.
  at::Tensor read(const at::Tensor& t);
  /// The copy that an operation writes; the original is NaN until the wait.
  at::Tensor written(const at::Tensor& t);
  /// The copy that an operation sums in place.
  at::Tensor changed(const at::Tensor& t);
  /// A copy of a tensor that is not used again.
  static at::Tensor copied(const at::Tensor& t);
  /// `copy`, or a part of one, goes to `t` with the wait. Until then t stays as it is.
  void lands(const at::Tensor& copy, const at::Tensor& t) { landings_.push_back({copy, t}); }
  /// With the wait.  Errors: logic_error: the caller has written to what was being read.
  void land();

 private:
  struct Pair {
    at::Tensor copy, callers;
  };
  std::vector<Pair> reads_, landings_;
};

class DelayingWorker {
 public:
  DelayingWorker(std::uint64_t seed, std::chrono::microseconds longest, std::shared_ptr<DropCounter> drops);
  ~DelayingWorker();
  /// Calls `issue` on the worker's thread, in order, each after a pause. `apart` lands when somebody waits
  /// for the ticket or its end, or is told that the end has passed.
  Ticket post(SetApart apart, std::function<Ticket()> issue);
  /// Blocks until every operation so far has been issued.
  void flush();
  [[nodiscard]] const std::shared_ptr<DropCounter>& drops() const { return drops_; }

 private:
  struct Job;
  class DelayedTicket;
  void run();

  Pause before_;
  std::shared_ptr<Pause> after_;
  const std::shared_ptr<DropCounter> drops_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Job>> jobs_;  // the front stays until it has been issued
  bool stop_ = false;
  std::thread thread_;  // last: starts when the rest is there
};

}  // namespace sc
