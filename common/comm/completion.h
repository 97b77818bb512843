// The end of one operation, shared between threads. No torch.
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

/// Why an operation failed. Each waiting thread makes its own exception from it, because exceptions must not
/// be shared between threads.
struct OpFailure {
  enum class Kind { input, device, aborted };
  Kind kind = Kind::device;
  std::string where;  // e.g. "rank 1: all_reduce of 10 f32"; may be empty
  std::string what;
  [[noreturn]] void raise() const;
};
/// The failure whose raise() throws the current exception's kind of error again. Call it in a catch block.
OpFailure failure_from_current_exception();

/// A one-shot event. Thread-safe. Only the first call of finish() or fail() counts.
class Completion {
 public:
  using Clock = std::chrono::steady_clock;
  void finish(std::optional<OpFailure> failure = std::nullopt) noexcept;
  void fail(OpFailure failure) noexcept { finish(std::move(failure)); }
  [[nodiscard]] bool done() const { return ended_at().has_value(); }
  [[nodiscard]] std::optional<Clock::time_point> ended_at() const;
  /// Blocks until finish() or fail(); throws after fail().
  void wait();

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Clock::time_point> ended_;
  std::optional<OpFailure> failure_;
};

/// Counts a communicator's tickets that were destroyed without a wait, including those of its splits.
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
