// The thread of a BlockFile: cuts transfers into blocks, keeps the engine busy, checks each result. Internal
// to storage; no torch.
#pragma once

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "common/base/text.h"
#include "common/storage/block_file.h"

namespace sc {

struct DiskTransfer::State {
  // `kind` to `bytes` are set before the transfer is handed over.
  BlockRequest::Kind kind;
  Bytes offset;             // of the extent in the file
  std::size_t first_block;  // its number in the file
  std::span<std::byte> bytes;
  // Only the pump's thread uses `issued` and what follows.
  std::size_t issued = 0;                // bytes
  std::size_t in_flight = 0;             // blocks
  std::optional<InputError> error = {};  // the first one
  std::promise<Outcome> outcome = {};    // shared by all waiters

  void fail(const InputError& why) {
    if (!error) error = why;
  }
  /// Reports the end of a complete transfer; after that only the caller may touch the bytes.
  void end_if_complete() {
    if (in_flight > 0 || (!error && issued < bytes.size())) return;
    outcome.set_value({Clock::now(), error});
  }
};

/// An error with another exit code, which adds the size of `path`'s file and the free space there.
inline InputError with_room(const InputError& error, ExitCode code, FileOps& ops, const Path& path,
                            Bytes file_size) {
  std::string text = fmt::format("{}; the file takes {}", error.message(), human_bytes(file_size));
  try {
    text += fmt::format(", {} are free", human_bytes(ops.free_space(parent_of(path)).bytes));
  } catch (const InputError&) {  // the first error is the one to report
  }
  return {code, error.where(), text, error.fix()};
}

class BlockPump {
 public:
  using State = DiskTransfer::State;
  using Kind = BlockRequest::Kind;
  BlockPump(FileOps& ops, const BlockFile::Options& options, std::unique_ptr<BlockIo> io, Bytes file_size,
            std::size_t blocks)
      : ops_(ops),
        options_(options),
        file_size_(file_size),
        io_(std::move(io)),
        slots_(static_cast<std::size_t>(options.depth)),
        sums_(blocks),
        written_(blocks),
        unwritten_(blocks),
        thread_([this] { run(); }) {}

  /// Ends all transfers, as ~BlockFile promises.
  ~BlockPump() {
    {
      const std::scoped_lock lock(mutex_);
      closing_ = true;
      called_.notify_one();
    }
    thread_.join();
  }

  BlockPump(const BlockPump&) = delete;
  BlockPump& operator=(const BlockPump&) = delete;

  void add(std::shared_ptr<State> transfer) {
    const std::scoped_lock lock(mutex_);
    if (broken_) {
      transfer->fail(*broken_);
      return transfer->end_if_complete();
    }
    waiting_.push_back(std::move(transfer));
    called_.notify_one();
  }

  [[nodiscard]] BlockFile::Counts counts() const {
    const std::scoped_lock lock(mutex_);
    return counts_;
  }

 private:
  static constexpr int kMostFruitless = 1000;
  // The pause before a request is repeated for which the system had no resources.
  static constexpr auto kPause = std::chrono::milliseconds(1);

  /// One block in flight; a slot without a transfer is free.
  struct Slot {
    std::shared_ptr<State> transfer;
    std::size_t block = 0;  // its number in the file
    Bytes offset = Bytes(0);
    std::span<std::byte> bytes;
    std::size_t done = 0;   // bytes that have moved
    int fruitless = 0;      // attempts in a row that moved nothing
    std::uint64_t sum = 0;  // for a write: the block's checksum once it is written
  };

  void run() {
    try {
      while (wait_for_work()) {
        issue_blocks();
        // Requests made meanwhile are served when the first of these returns: the queue is as good as full.
        if (in_flight_ > 0) settle(io_->reap());
      }
    } catch (const std::exception& error) {
      break_down(error.what());
    }
  }

  // Blocks until there is something to do; false when the pump shall end.
  bool wait_for_work() {
    std::unique_lock lock(mutex_);
    const bool idle = in_flight_ == 0 && current_ == nullptr;
    called_.wait(lock, [&] { return !idle || closing_ || !waiting_.empty(); });
    if (!closing_) return true;
    lock.unlock();
    drop_waiting({ExitCode::cannot_write, options_.path.string(), "closed before this transfer ended", ""});
    return in_flight_ > 0;
  }

  // Fails all transfers that still have blocks to issue.
  void drop_waiting(const InputError& error) {
    std::deque<std::shared_ptr<State>> dropped;
    {
      const std::scoped_lock lock(mutex_);
      dropped.swap(waiting_);
    }
    const std::shared_ptr<State> current = std::exchange(current_, nullptr);
    if (current != nullptr && !current->error)
      dropped.push_back(current);  // otherwise it ends with its last block
    for (const auto& transfer : dropped) {
      transfer->fail(error);
      transfer->end_if_complete();
    }
  }

  void issue_blocks() {
    for (Slot& slot : slots_) {
      if (slot.transfer != nullptr) continue;
      if (current_ != nullptr && current_->error) current_ = nullptr;
      if (current_ == nullptr) {
        const std::scoped_lock lock(mutex_);
        if (waiting_.empty()) return;
        current_ = std::move(waiting_.front());
        waiting_.pop_front();
      }
      issue_block(slot);
    }
  }

  void issue_block(Slot& slot) {
    State& transfer = *current_;
    const auto block = static_cast<std::size_t>(options_.block.value());
    const auto begin = transfer.issued;
    slot = {.transfer = current_,
            .block = transfer.first_block + begin / block,
            .offset = transfer.offset + Bytes(static_cast<std::int64_t>(begin)),
            .bytes = transfer.bytes.subspan(begin, std::min(block, transfer.bytes.size() - begin))};
    if (transfer.kind == Kind::write) slot.sum = sum_of(slot.bytes);
    transfer.issued += slot.bytes.size();
    ++transfer.in_flight;
    ++in_flight_;
    if (transfer.issued == transfer.bytes.size()) current_ = nullptr;
    submit(slot);
  }

  void submit(const Slot& slot) {
    io_->submit({slot.transfer->kind, slot.offset + Bytes(static_cast<std::int64_t>(slot.done)),
                 slot.bytes.subspan(slot.done), static_cast<std::uint64_t>(&slot - slots_.data())});
  }

  void settle(const BlockResult& result) {
    Slot& slot = slots_[result.id];
    const std::size_t asked = slot.bytes.size() - slot.done;
    count(slot, result.res);
    // With O_DIRECT a continued transfer must be aligned, so the odd bytes of a short one are moved again.
    auto moved = static_cast<std::size_t>(std::max<std::int64_t>(result.res, 0));
    if (moved < asked) moved -= moved % kBlockAlign;
    slot.done += moved;
    slot.fruitless = moved > 0 ? 0 : slot.fruitless + 1;
    if (slot.done == slot.bytes.size()) {
      finish_block(slot);
      return end_block(slot);
    }
    const bool again = result.res > 0 || result.res == -EINTR || result.res == -EAGAIN;
    if (again && slot.fruitless <= kMostFruitless && !slot.transfer->error) {
      if (result.res == -EAGAIN) std::this_thread::sleep_for(kPause);
      return submit(slot);
    }
    const int nothing_moved =
        slot.transfer->kind == Kind::read ? ENODATA : EIO;  // ENODATA: somebody truncated the file
    slot.transfer->fail(refused(slot, result.res < 0 ? static_cast<int>(-result.res) : nothing_moved));
    end_block(slot);
  }

  void count(const Slot& slot, std::int64_t res) {
    const std::scoped_lock lock(mutex_);
    if (res > 0) (slot.transfer->kind == Kind::read ? counts_.read : counts_.written) += Bytes(res);
    if (res > 0 && res < static_cast<std::int64_t>(slot.bytes.size() - slot.done)) ++counts_.continued;
    if (res == -EINTR || res == -EAGAIN) ++counts_.repeated;
  }

  void finish_block(const Slot& slot) {
    if (slot.transfer->kind == Kind::write) {
      sums_[slot.block] = slot.sum;
      if (!written_[slot.block]) --unwritten_;
      written_[slot.block] = true;
    } else if (sum_of(slot.bytes) != sums_[slot.block]) {
      slot.transfer->fail(
          {ExitCode::data, options_.path.string(),
           fmt::format("the {} bytes at byte {} are not what was written there last: a write was lost, "
                       "or somebody changed the file",
                       slot.bytes.size(), slot.offset.value()),
           "look for the disk's errors (dmesg), or use another disk"});
    }
  }

  void end_block(Slot& slot) {
    const std::shared_ptr<State> transfer = std::exchange(slot.transfer, nullptr);
    --in_flight_;
    --transfer->in_flight;
    transfer->end_if_complete();
  }

  // Fails everything, because the engine itself failed and nothing more can be requested.
  void break_down(const std::string& why) {
    io_.reset();
    const InputError error(ExitCode::cannot_write, options_.path.string(), "its engine failed: " + why, "");
    {
      const std::scoped_lock lock(mutex_);
      broken_ = error;
    }
    drop_waiting(error);
    for (Slot& slot : slots_) {
      if (slot.transfer == nullptr) continue;
      slot.transfer->fail(error);
      end_block(slot);
    }
  }

  // The checksum of a block, or 0 if the file has none.
  std::uint64_t sum_of(std::span<const std::byte> bytes) {
    if (!options_.verify) return 0;
    const auto begin = DiskTransfer::Clock::now();
    const std::uint64_t sum = XXH3_64bits(bytes.data(), bytes.size());
    const std::chrono::duration<double> took = DiskTransfer::Clock::now() - begin;
    const std::scoped_lock lock(mutex_);
    counts_.sum_seconds += took.count();
    return sum;
  }

  [[nodiscard]] InputError refused(const Slot& slot, int error) const {
    const bool reads = slot.transfer->kind == Kind::read;
    const std::string action =
        fmt::format("{} {} bytes at byte {}", reads ? "read" : "write", slot.bytes.size() - slot.done,
                    slot.offset.value() + static_cast<std::int64_t>(slot.done));
    InputError bare = file_error(reads ? FileIntent::read : FileIntent::write, options_.path, action, error);
    if (reads) return bare;
    return with_room(bare, unwritten_ > 0 ? ExitCode::missing : bare.code(), ops_, options_.path, file_size_);
  }

  FileOps& ops_;
  const BlockFile::Options options_;
  const Bytes file_size_;

  // Only the pump's thread uses `io_` and the members down to `mutex_`.
  std::unique_ptr<BlockIo> io_;
  std::vector<Slot> slots_;
  std::size_t in_flight_ = 0;       // slots that are not free
  std::shared_ptr<State> current_;  // the transfer whose blocks are being issued
  std::vector<std::uint64_t> sums_;
  std::vector<bool> written_;
  std::size_t unwritten_;

  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable called_;
  std::deque<std::shared_ptr<State>> waiting_;
  bool closing_ = false;
  std::optional<InputError> broken_;
  BlockFile::Counts counts_;

  std::thread thread_;
};

}  // namespace sc
