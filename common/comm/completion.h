// The end of one operation, as the threads that care see it. No torch.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace sc {

/// Why an operation failed. Every waiting thread throws an exception of its own from it: none is shared
/// between threads.
struct OpFailure {
  enum class Kind { input, device, aborted };
  Kind kind = Kind::device;
  std::string where;  // "rank 1: all_reduce of 10 f32"; may be empty
  std::string what;
  /// Throws InputError (exit 64), DeviceError or AbortedError.
  [[noreturn]] void raise() const;
};
/// Inside a catch block: the failure that raises the same kind again.
OpFailure failure_from_current_exception();

/// One-shot event. Thread-safe; the first of finish() and fail() counts, later ones do nothing.
class Completion {
 public:
  using Clock = std::chrono::steady_clock;
  void finish(std::optional<OpFailure> failure = std::nullopt) noexcept;
  void fail(OpFailure failure) noexcept { finish(std::move(failure)); }
  [[nodiscard]] bool done() const { return ended_at().has_value(); }
  [[nodiscard]] std::optional<Clock::time_point> ended_at() const;
  /// Blocks until the end; throws if it was a failure.
  void wait();

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Clock::time_point> ended_;
  std::optional<OpFailure> failure_;
};

/// Tickets of one communicator that were dropped without a wait; a split's count is also its parent's.
class DropCounter {
 public:
  explicit DropCounter(std::shared_ptr<DropCounter> parent = nullptr) : parent_(std::move(parent)) {}
  void add() noexcept {
    ++count_;
    if (parent_) parent_->add();
  }
  [[nodiscard]] std::int64_t count() const { return count_; }

 private:
  std::atomic<std::int64_t> count_ = 0;
  std::shared_ptr<DropCounter> parent_;
};

}  // namespace sc
