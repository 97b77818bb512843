// A stretch of a program that must not last: where no watchdog sees a hang yet, or any more. No torch, no
// MPI.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <thread>

namespace sc {

/// Calls `expire` once from a thread of its own unless it is destroyed within `limit`.
class Deadline {
 public:
  Deadline(std::chrono::milliseconds limit, std::function<void()> expire);
  /// Prints "error: " and `text` to stderr and ends the process with exit code 75.
  Deadline(std::chrono::milliseconds limit, std::string text);

 private:
  std::jthread thread_;
};

}  // namespace sc
