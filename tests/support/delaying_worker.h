// A thread that issues operations late; their tickets pause once more.
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

/// Fills a tensor that an operation will overwrite with 0xff bytes (NaN), so that a read before the wait
/// shows.
void poison(const at::Tensor& t);

/// Copies of one operation's tensors, on which it works, so that results do not depend on when it runs:
/// outputs reach the caller's tensors in the wait and not before, and inputs must be the same then as when it
/// was issued. The copies are not allocated by LibTorch.
class SetApart {
 public:
  /// Returns a copy of `t` for an operation that reads it.
  at::Tensor read(const at::Tensor& t);
  /// Returns the copy that an operation writes, and fills `t` itself with NaN until the wait.
  at::Tensor written(const at::Tensor& t);
  /// Returns a copy of `t` for an operation that sums in place.
  at::Tensor changed(const at::Tensor& t);
  /// A plain copy of a tensor, which no wait copies back.
  static at::Tensor copied(const at::Tensor& t);
  /// Copies `copy`, or a part of a copy, to `t` in the wait; until then `t` stays as it is.
  void lands(const at::Tensor& copy, const at::Tensor& t) { landings_.push_back({copy, t}); }
  /// Called in the wait. Errors: logic_error if the caller has overwritten an input.
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
  /// Calls `issue` on the worker's thread, in order, each after a pause. `apart` lands when a caller waits
  /// for the ticket or for its end, or learns that the end has passed.
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
