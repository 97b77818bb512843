#include "common/storage/block_io.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "common/storage/uring_io.h"

namespace sc {
namespace {

class ThreadsIo final : public BlockIo {
 public:
  ThreadsIo(File& file, int depth) {
    for (int i = 0; i < depth; ++i) {
      threads_.emplace_back([this, own = std::shared_ptr<File>(file.again())](const std::stop_token& stop) {
        work(*own, stop);
      });
    }
  }

  void submit(const BlockRequest& request) override {
    const std::scoped_lock lock(mutex_);
    waiting_.push_back(request);
    submitted_.notify_one();
  }

  BlockResult reap() override {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [&] { return !results_.empty(); });
    const BlockResult result = results_.front();
    results_.pop_front();
    return result;
  }

 private:
  void work(File& file, const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (submitted_.wait(lock, stop, [&] { return !waiting_.empty(); })) {
      const BlockRequest request = waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      const std::int64_t res = request.kind == BlockRequest::Kind::read
                                   ? file.read_some(request.bytes, request.offset)
                                   : file.write_some(request.bytes, request.offset);
      lock.lock();
      results_.push_back({request.id, res});
      ended_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable_any submitted_;
  std::condition_variable ended_;
  std::deque<BlockRequest> waiting_;
  std::deque<BlockResult> results_;
  std::vector<std::jthread> threads_;  // declared last: they end before the members that they use
};

class RateLimit final : public BlockIo {
 public:
  RateLimit(std::unique_ptr<BlockIo> io, double mbps) : io_(std::move(io)), bytes_per_second_(mbps * 1e6) {}

  void submit(const BlockRequest& request) override {
    const std::chrono::duration<double> takes(static_cast<double>(request.bytes.size()) / bytes_per_second_);
    free_ = std::max(free_, Clock::now()) + std::chrono::duration_cast<Clock::duration>(takes);
    queue_.emplace_back(request.id, free_);
    io_->submit(request);
  }

  BlockResult reap() override {
    const auto [id, passes] = queue_.front();
    queue_.pop_front();
    while (!results_.contains(id)) {
      const BlockResult result = io_->reap();
      results_.emplace(result.id, result);
    }
    std::this_thread::sleep_until(passes);
    return results_.extract(id).mapped();
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::unique_ptr<BlockIo> io_;
  double bytes_per_second_;
  Clock::time_point free_;  // when everything submitted so far has passed
  std::deque<std::pair<std::uint64_t, Clock::time_point>> queue_;  // ids, and when each of them has passed
  std::map<std::uint64_t, BlockResult> results_;                   // by id, those whose turn has not come
};

void probe_once(BlockIo& io, BlockRequest::Kind kind, std::span<std::byte> bytes) {
  for (int attempt = 0;; ++attempt) {
    io.submit({kind, Bytes(0), bytes, 0});
    const std::int64_t res = io.reap().res;
    if (res == static_cast<std::int64_t>(bytes.size())) return;
    if ((res == -EINTR || res == -EAGAIN) && attempt < 10) continue;
    throw std::runtime_error(res < 0 ? errno_text(static_cast<int>(-res)) : "a short transfer");
  }
}

void probe(BlockIo& io) {
  struct alignas(kBlockAlign) Page {
    std::array<std::byte, kBlockAlign> bytes;
  };
  const auto written = std::make_unique<Page>(), read = std::make_unique<Page>();
  written->bytes.fill(std::byte{0x5c});
  probe_once(io, BlockRequest::Kind::write, written->bytes);
  probe_once(io, BlockRequest::Kind::read, read->bytes);
  if (read->bytes != written->bytes) throw std::runtime_error("it read other bytes than it had written");
}

}  // namespace

std::string_view name_of(IoEngine engine) { return engine == IoEngine::threads ? "threads" : "io_uring"; }

OpenedIo open_block_io(IoEngine wanted, File& file, int depth) {
  const IoEngine other = wanted == IoEngine::threads ? IoEngine::io_uring : IoEngine::threads;
  std::string refusal;
  for (const IoEngine engine : {wanted, other}) {
    try {
      auto io =
          engine == IoEngine::threads ? std::make_unique<ThreadsIo>(file, depth) : open_uring_io(file, depth);
      probe(*io);
      if (!refusal.empty()) refusal += fmt::format("; {} takes its place", name_of(engine));
      return {std::move(io), engine, refusal};
    } catch (const std::exception& error) {
      refusal +=
          fmt::format("{}{} is refused here: {}", refusal.empty() ? "" : "; ", name_of(engine), error.what());
    }
  }
  throw InputError(
      ExitCode::missing, file.path().string(), refusal,
      "use a local file system (ext4, xfs, btrfs, tmpfs); raise the limit of threads (ulimit -u)");
}

std::unique_ptr<BlockIo> limit_rate(std::unique_ptr<BlockIo> io, double mbps) {
  return std::make_unique<RateLimit>(std::move(io), mbps);
}

}  // namespace sc
