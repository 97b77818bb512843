// Host threads that work through long vectors in chunks; host Adam uses them. No torch.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace sc {

/// The function that a HostPool calls for each chunk [begin, end) of a piece's elements.
using HostWork = std::function<void(std::int64_t begin, std::int64_t end)>;

/// A piece of work that was posted to a HostPool. Thread-safe.
class HostPiece {
 public:
  using Clock = std::chrono::steady_clock;
  [[nodiscard]] bool done() const;
  /// Blocks until every chunk of the piece is done. A thread of the pool must not call it.
  ///   Errors  what the first failing chunk threw; the other chunks are worked on all the same.
  void wait() const;
  /// When the piece's first chunk began and its last chunk ended; valid after wait().
  [[nodiscard]] Clock::time_point began_at() const { return began_; }
  [[nodiscard]] Clock::time_point ended_at() const { return ended_; }

 private:
  friend class HostPool;
  HostPiece(std::int64_t n, HostWork work, std::int64_t chunk);
  void take_chunks();  // works on chunks until none is left

  const std::int64_t n_, chunk_;
  HostWork work_;
  std::atomic<std::int64_t> next_ = 0;  // first element of the next chunk
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::int64_t left_;  // chunks that have not ended
  std::exception_ptr error_;
  Clock::time_point began_ = Clock::now(), ended_ = began_;
};

/// Threads that work on the chunks of one piece after another, in the order of post(). A thread that finds no
/// chunk left starts on the next piece while others finish this one. Idle threads sleep.
class HostPool {
 public:
  static constexpr std::int64_t kChunk = std::int64_t{1} << 18;  // in elements; Adam takes less than a
                                                                 // millisecond for one

  /// Starts `threads` threads, at least 1.
  ///   Errors  std::system_error if the system has no more threads.
  explicit HostPool(int threads);
  ~HostPool() = default;
  HostPool(const HostPool&) = delete;
  HostPool& operator=(const HostPool&) = delete;

  /// Returns at once. The pool calls `work` once for every chunk [k * chunk, (k + 1) * chunk) of [0, n). What
  /// `work` captures is destroyed when wait() returns.
  std::shared_ptr<const HostPiece> post(std::int64_t n, HostWork work, std::int64_t chunk = kChunk);
  /// The number of posted pieces of which some chunk is not yet taken by a thread.
  [[nodiscard]] std::size_t waiting() const;
  [[nodiscard]] int size() const { return static_cast<int>(threads_.size()); }

 private:
  void run(const std::stop_token& stop);

  mutable std::mutex mutex_;
  std::condition_variable_any posted_;
  std::deque<std::shared_ptr<HostPiece>> queue_;  // pieces that still have chunks to take
  std::vector<std::jthread> threads_;  // declared last, so that the threads end before the members they use
};

}  // namespace sc
