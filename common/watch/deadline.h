// A time limit for a part of a program that the watchdog does not cover. No torch, no MPI.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <thread>

namespace sc {

/// Calls `expire` once, on a thread of its own, unless it is destroyed within `limit`.
class Deadline {
 public:
  Deadline(std::chrono::milliseconds limit, std::function<void()> expire);
  /// Prints "error: " and `text` to stderr when the limit has passed, and ends the process with exit code 75.
  Deadline(std::chrono::milliseconds limit, std::string text);

 private:
  std::jthread thread_;
};

}  // namespace sc
