#include "common/base/host_pool.h"

#include <algorithm>

#include "common/base/types.h"

namespace sc {

HostPiece::HostPiece(std::int64_t n, HostWork work, std::int64_t chunk)
    : n_(n), chunk_(chunk), work_(std::move(work)), left_(ceil_div(n, chunk)) {}

bool HostPiece::done() const {
  const std::lock_guard lock(mutex_);
  return left_ == 0;
}

void HostPiece::wait() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return left_ == 0; });
  if (error_) std::rethrow_exception(error_);
}

void HostPiece::take_chunks() {
  for (std::int64_t begin = 0; (begin = next_.fetch_add(chunk_)) < n_;) {
    if (begin == 0) began_ = Clock::now();
    std::exception_ptr error;
    try {
      work_(begin, std::min(n_, begin + chunk_));
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = error;
    if (--left_ > 0) continue;
    work_ = nullptr;
    ended_ = Clock::now();
    changed_.notify_all();
  }
}

HostPool::HostPool(int threads) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this](const std::stop_token& stop) { run(stop); });
}

std::shared_ptr<const HostPiece> HostPool::post(std::int64_t n, HostWork work, std::int64_t chunk) {
  const std::shared_ptr<HostPiece> piece(new HostPiece(n, std::move(work), chunk));
  if (n == 0) return piece;
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(piece);
  }
  posted_.notify_all();
  return piece;
}

std::size_t HostPool::waiting() const {
  const std::lock_guard lock(mutex_);
  return queue_.size();
}

void HostPool::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (posted_.wait(lock, stop, [this] { return !queue_.empty(); })) {
    const std::shared_ptr<HostPiece> piece = queue_.front();
    lock.unlock();
    piece->take_chunks();
    lock.lock();
    if (!queue_.empty() && queue_.front() == piece) queue_.pop_front();
  }
}

}  // namespace sc
