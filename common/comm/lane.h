// A thread that runs tasks in order. Internal to comm.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace sc {

/// Runs the tasks that it is given one after another, in its own thread. The destructor finishes them all.
class Lane {
 public:
  void post(std::function<void()> work) {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(work));
    }
    changed_.notify_all();
  }

 private:
  void run(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (changed_.wait(lock, stop, [this] { return !queue_.empty(); })) {
      const std::function<void()> work = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      work();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<std::function<void()>> queue_;
  // The thread is declared last, so that it starts when the other members exist.
  std::jthread thread_{[this](const std::stop_token& stop) { run(stop); }};
};

}  // namespace sc
