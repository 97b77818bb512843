// The thread of a BlockFile: cuts transfers into blocks, keeps the engine busy, judges each result. Internal
// to storage; no torch.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "common/storage/block_file.h"

namespace sc {

struct DiskTransfer::State {
  // Set before it is handed over.
  BlockRequest::Kind kind;
  Bytes offset;             // of the extent in the file
  std::size_t first_block;  // its number in the file
  std::span<std::byte> bytes;
  // The pump's.
  std::size_t issued = 0;                // bytes
  std::size_t in_flight = 0;             // blocks
  std::optional<InputError> error = {};  // the first one
  std::promise<Outcome> outcome = {};    // for all

  void fail(const InputError& why);
  /// Nobody but the caller touches its bytes after this.
  void end_if_complete();
};

/// `error` with this exit code, and what `path`'s file takes and its file system has.
InputError with_room(const InputError& error, ExitCode code, FileOps& ops, const Path& path, Bytes file_size);

class BlockPump {
 public:
  using State = DiskTransfer::State;
  BlockPump(FileOps& ops, const BlockFile::Options& options, std::unique_ptr<BlockIo> io, Bytes file_size,
            std::size_t blocks);
  /// See ~BlockFile.
  ~BlockPump();
  BlockPump(const BlockPump&) = delete;
  BlockPump& operator=(const BlockPump&) = delete;

  void add(std::shared_ptr<State> transfer);
  [[nodiscard]] BlockFile::Counts counts() const;

 private:
  /// One block on its way; free without a transfer.
  struct Slot {
    std::shared_ptr<State> transfer;
    std::size_t block = 0;  // its number in the file
    Bytes offset = Bytes(0);
    std::span<std::byte> bytes;
    std::size_t done = 0;   // bytes that have moved
    int fruitless = 0;      // attempts in a row that moved none
    std::uint64_t sum = 0;  // write: what it will be, once it is there
  };

  void run();
  bool wait_for_work();
  void drop_waiting(const InputError& error);
  void issue_blocks();
  void issue_block(Slot& slot);
  void submit(const Slot& slot);
  void settle(const BlockResult& result);
  void count(const Slot& slot, std::int64_t res);
  void finish_block(const Slot& slot);
  void end_block(Slot& slot);
  void break_down(const std::string& why);
  std::uint64_t sum_of(std::span<const std::byte> bytes);
  [[nodiscard]] InputError refused(const Slot& slot, int error) const;

  FileOps& ops_;
  const BlockFile::Options options_;
  const Bytes file_size_;

  // The thread's own.
  std::unique_ptr<BlockIo> io_;
  std::vector<Slot> slots_;
  std::size_t in_flight_ = 0;       // slots that are not free
  std::shared_ptr<State> current_;  // its blocks are being issued
  std::vector<std::uint64_t> sums_;
  std::vector<bool> written_;
  std::size_t unwritten_;

  mutable std::mutex mutex_;  // for what follows
  std::condition_variable called_;
  std::deque<std::shared_ptr<State>> waiting_;
  bool closing_ = false;
  std::optional<InputError> broken_;
  BlockFile::Counts counts_;

  std::thread thread_;
};

}  // namespace sc
