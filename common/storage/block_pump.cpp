#include "common/storage/block_pump.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "common/base/text.h"

namespace sc {
namespace {

using Kind = BlockRequest::Kind;

constexpr int kMostFruitless = 1000;
constexpr auto kPause =
    std::chrono::milliseconds(1);  // before a request is repeated that the system had no room for

}  // namespace

void DiskTransfer::State::fail(const InputError& why) {
  if (!error) error = why;
}

void DiskTransfer::State::end_if_complete() {
  if (in_flight > 0 || (!error && issued < bytes.size())) return;
  outcome.set_value({Clock::now(), error});
}

InputError with_room(const InputError& error, ExitCode code, FileOps& ops, const Path& path,
                     Bytes file_size) {
  std::string text = fmt::format("{}; the file takes {}", error.message(), human_bytes(file_size));
  try {
    text += fmt::format(", {} are free", human_bytes(ops.free_space(parent_of(path)).bytes));
  } catch (const InputError&) {  // the first error is the one to report
  }
  return {code, error.where(), text, error.fix()};
}

BlockPump::BlockPump(FileOps& ops, const BlockFile::Options& options, std::unique_ptr<BlockIo> io,
                     Bytes file_size, std::size_t blocks)
    : ops_(ops),
      options_(options),
      file_size_(file_size),
      io_(std::move(io)),
      slots_(static_cast<std::size_t>(options.depth)),
      sums_(blocks),
      written_(blocks),
      unwritten_(blocks),
      thread_([this] { run(); }) {}

BlockPump::~BlockPump() {
  {
    const std::scoped_lock lock(mutex_);
    closing_ = true;
    called_.notify_one();
  }
  thread_.join();
}

void BlockPump::add(std::shared_ptr<State> transfer) {
  const std::scoped_lock lock(mutex_);
  if (broken_) {
    transfer->fail(*broken_);
    return transfer->end_if_complete();
  }
  waiting_.push_back(std::move(transfer));
  called_.notify_one();
}

BlockFile::Counts BlockPump::counts() const {
  const std::scoped_lock lock(mutex_);
  return counts_;
}

void BlockPump::run() {
  try {
    while (wait_for_work()) {
      issue_blocks();
      // Who calls meanwhile is served when the first of these is back: the queue is as good as full.
      if (in_flight_ > 0) settle(io_->reap());
    }
  } catch (const std::exception& error) {
    break_down(error.what());
  }
}

/// False at the end.
bool BlockPump::wait_for_work() {
  std::unique_lock lock(mutex_);
  const bool idle = in_flight_ == 0 && current_ == nullptr;
  called_.wait(lock, [&] { return !idle || closing_ || !waiting_.empty(); });
  if (!closing_) return true;
  lock.unlock();
  drop_waiting({ExitCode::cannot_write, options_.path.string(), "closed before this transfer ended", ""});
  return in_flight_ > 0;
}

/// All transfers that still have blocks to issue.
void BlockPump::drop_waiting(const InputError& error) {
  std::deque<std::shared_ptr<State>> dropped;
  {
    const std::scoped_lock lock(mutex_);
    dropped.swap(waiting_);
  }
  const std::shared_ptr<State> current = std::exchange(current_, nullptr);
  if (current != nullptr && !current->error) dropped.push_back(current);  // else it ends with its last block
  for (const auto& transfer : dropped) {
    transfer->fail(error);
    transfer->end_if_complete();
  }
}

void BlockPump::issue_blocks() {
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

void BlockPump::issue_block(Slot& slot) {
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

void BlockPump::submit(const Slot& slot) {
  io_->submit({slot.transfer->kind, slot.offset + Bytes(static_cast<std::int64_t>(slot.done)),
               slot.bytes.subspan(slot.done), static_cast<std::uint64_t>(&slot - slots_.data())});
}

void BlockPump::settle(const BlockResult& result) {
  Slot& slot = slots_[result.id];
  const std::size_t asked = slot.bytes.size() - slot.done;
  count(slot, result.res);
  // What O_DIRECT continues must be aligned: the odd bytes of a short transfer move once more.
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
      slot.transfer->kind == Kind::read ? ENODATA : EIO;  // ENODATA: somebody cut the file
  slot.transfer->fail(refused(slot, result.res < 0 ? static_cast<int>(-result.res) : nothing_moved));
  end_block(slot);
}

void BlockPump::count(const Slot& slot, std::int64_t res) {
  const std::scoped_lock lock(mutex_);
  if (res > 0) (slot.transfer->kind == Kind::read ? counts_.read : counts_.written) += Bytes(res);
  if (res > 0 && res < static_cast<std::int64_t>(slot.bytes.size() - slot.done)) ++counts_.continued;
  if (res == -EINTR || res == -EAGAIN) ++counts_.repeated;
}

void BlockPump::finish_block(const Slot& slot) {
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

void BlockPump::end_block(Slot& slot) {
  const std::shared_ptr<State> transfer = std::exchange(slot.transfer, nullptr);
  --in_flight_;
  --transfer->in_flight;
  transfer->end_if_complete();
}

/// The engine itself failed: nothing can be asked of it any more.
void BlockPump::break_down(const std::string& why) {
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

/// 0 where none is wanted.
std::uint64_t BlockPump::sum_of(std::span<const std::byte> bytes) {
  if (!options_.verify) return 0;
  const auto begin = DiskTransfer::Clock::now();
  const std::uint64_t sum = XXH3_64bits(bytes.data(), bytes.size());
  const std::chrono::duration<double> took = DiskTransfer::Clock::now() - begin;
  const std::scoped_lock lock(mutex_);
  counts_.sum_seconds += took.count();
  return sum;
}

InputError BlockPump::refused(const Slot& slot, int error) const {
  const bool reads = slot.transfer->kind == Kind::read;
  const std::string action =
      fmt::format("{} {} bytes at byte {}", reads ? "read" : "write", slot.bytes.size() - slot.done,
                  slot.offset.value() + static_cast<std::int64_t>(slot.done));
  InputError bare = file_error(reads ? FileIntent::read : FileIntent::write, options_.path, action, error);
  if (reads) return bare;
  return with_room(bare, unwritten_ > 0 ? ExitCode::missing : bare.code(), ops_, options_.path, file_size_);
}

}  // namespace sc
