// Threads of the host for long vectors in pieces, such as host Adam's. No torch.
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

/// Works on elements [begin, end) of a piece.
using HostWork = std::function<void(std::int64_t begin, std::int64_t end)>;

/// A piece that a HostPool was given. Thread-safe.
class HostPiece {
 public:
  using Clock = std::chrono::steady_clock;
  [[nodiscard]] bool done() const;
  /// Blocks until every chunk has been worked on. From any thread but the pool's own.
  ///   Errors  what the first chunk to fail threw; the others were worked on all the same.
  void wait() const;
  /// When its first chunk began and its last one ended; once done.
  [[nodiscard]] Clock::time_point began_at() const { return began_; }
  [[nodiscard]] Clock::time_point ended_at() const { return ended_; }

 private:
  friend class HostPool;
  HostPiece(std::int64_t n, HostWork work, std::int64_t chunk);
  void take_chunks();  // until there is none left

  const std::int64_t n_, chunk_;
  HostWork work_;
  std::atomic<std::int64_t> next_ = 0;  // where the next chunk begins
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::int64_t left_;  // chunks that have not ended
  std::exception_ptr error_;
  Clock::time_point began_ = Clock::now(), ended_ = began_;
};

/// Threads that take chunks of one piece after the other, in the order of post(): whoever finds no chunk left
/// goes on to the next piece, and nobody waits for the others. Without work they sleep.
class HostPool {
 public:
  static constexpr std::int64_t kChunk = std::int64_t{1} << 18;  // elements: less than a millisecond of Adam

  /// threads: at least 1.  Errors: std::system_error if the system has none left.
  explicit HostPool(int threads);
  /// Everything that was posted is worked on first.
  ~HostPool() = default;
  HostPool(const HostPool&) = delete;
  HostPool& operator=(const HostPool&) = delete;

  /// Returns at once. Every element of [0, n) is in exactly one call of `work`: [k * chunk, (k + 1) * chunk).
  /// What `work` holds is gone when wait() returns.
  std::shared_ptr<const HostPiece> post(std::int64_t n, HostWork work, std::int64_t chunk = kChunk);
  /// Pieces that have chunks to take.
  [[nodiscard]] std::size_t waiting() const;
  [[nodiscard]] int size() const { return static_cast<int>(threads_.size()); }

 private:
  void run(const std::stop_token& stop);

  mutable std::mutex mutex_;
  std::condition_variable_any posted_;
  std::deque<std::shared_ptr<HostPiece>> queue_;  // those with chunks to take
  std::vector<std::jthread> threads_;             // last: they end first
};

}  // namespace sc
