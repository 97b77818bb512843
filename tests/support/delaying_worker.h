// What delays operations: a thread that issues them late, and tickets that pause once more.
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

class DelayingWorker {
 public:
  DelayingWorker(std::uint64_t seed, std::chrono::microseconds longest, std::shared_ptr<DropCounter> drops);
  ~DelayingWorker();
  /// Calls `issue` on the worker's thread, in order, each after a pause.
  Ticket post(std::function<Ticket()> issue);
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

/// Fills what an operation will overwrite with 0xff bytes (NaN): who reads it before the wait sees them.
void poison(const at::Tensor& t);

}  // namespace sc
