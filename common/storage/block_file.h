// State that lives on disk during a run: extents that are written and read back whole, many requests at a
// time, with a checksum for every block. No torch.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/storage/block_io.h"

namespace sc {

class BlockPump;

/// One read or write of an extent; copies refer to the same transfer, and a default-constructed one has
/// ended. Thread-safe.
class DiskTransfer {
 public:
  using Clock = std::chrono::steady_clock;
  DiskTransfer() = default;
  /// Blocks until the transfer has ended. If it failed, every caller gets an InputError of its own.
  void wait();
  [[nodiscard]] bool done() const;
  [[nodiscard]] std::optional<Clock::time_point> ended_at() const;

 private:
  friend class BlockFile;
  friend class BlockPump;
  struct State;
  struct Outcome {
    Clock::time_point ended;
    std::optional<InputError> error;
  };
  explicit DiskTransfer(std::shared_future<Outcome> outcome) : outcome_(std::move(outcome)) {}
  std::shared_future<Outcome> outcome_;
};

/// A file without a name, cut into extents (what is read or written in one go, such as the optimizer states
/// of one piece), each cut into blocks. It vanishes with this object and with the process, however that ends.
/// A thread of its own issues requests in the order of calls and checks every result:
///   Sums     xxh3-64 of each block, taken when it is written, kept in memory (8 bytes per block), and
///            compared when it is read, so that changed, lost and stale blocks are found. The thread reads
///            each byte once more for it.
///   Repeats  EINTR and EAGAIN are repeated, short transfers continued; 1000 times in vain is an error.
///   Direct   past the page cache (O_DIRECT); if that is refused, through it, and notes() says so.
///   Memory   a span begins at a multiple of kBlockAlign, has extent_bytes(), and lives, unchanged by others,
///            until the wait (so it must outlive this object if the caller may leave without waiting). A
///            failed read may have overwritten it.
///   Order    an extent's transfer must have ended before its next one is requested, and an extent is written
///            before it is read (std::logic_error otherwise).
///   Errors   InputError with path, byte, the system's text, bytes needed and free. Exit 69 until every block
///            has been written once, since the run has not begun then; later 73 for a write, 65 for a read
///            and for a block that is not what was written.
///   Threads  any number, but one at a time for the same extent.
class BlockFile {
 public:
  struct Options {
    Path path;                            // its directory holds the file; errors show all of it
    Bytes block{1 << 20};                 // bytes of one request; a multiple of kBlockAlign
    int depth = 8;                        // requests in flight
    IoEngine engine = IoEngine::threads;  // the preferred engine: open_block_io()
    double mbps = 0;                      // limit_rate(); 0: no limit
    bool verify = true;                   // false: no checksums
    /// A function by which tests wrap the engine.
    std::function<std::unique_ptr<BlockIo>(std::unique_ptr<BlockIo>)> wrap = {};
  };
  struct Counts {
    Bytes read{0}, written{0};   // as the system counts them; repeated transfers count again
    std::int64_t continued = 0;  // requests that moved fewer bytes than asked
    std::int64_t repeated = 0;   // EINTR, EAGAIN
    double sum_seconds = 0;      // time that the thread spent on checksums
  };

  /// Reserves space for all extents at once. The caller must write each extent once before anything else.
  /// `ops` must outlive this object.
  BlockFile(FileOps& ops, const Options& options, const std::vector<Bytes>& extents);
  /// Waits for requests in flight; transfers that have not ended fail.
  ~BlockFile();
  BlockFile(const BlockFile&) = delete;
  BlockFile& operator=(const BlockFile&) = delete;

  [[nodiscard]] DiskTransfer read(std::size_t extent, std::span<std::byte> into);
  [[nodiscard]] DiskTransfer write(std::size_t extent, std::span<const std::byte> from);

  /// The bytes that a transfer moves: those asked for, rounded up to kBlockAlign.
  [[nodiscard]] Bytes extent_bytes(std::size_t extent) const { return extents_.at(extent).bytes; }
  [[nodiscard]] Bytes size() const { return size_; }
  [[nodiscard]] IoEngine engine() const { return engine_; }
  /// Remarks for the user: a refused engine, no O_DIRECT.
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }
  [[nodiscard]] Counts counts() const;

 private:
  struct Extent {
    Bytes offset, bytes;
    std::size_t first_block;
    DiskTransfer last = {};
    bool written = false;
  };
  std::unique_ptr<File> open(FileOps& ops);
  void go_direct(File& file);
  DiskTransfer start(BlockRequest::Kind kind, std::size_t extent, std::span<std::byte> bytes);

  const Path path_;
  std::vector<Extent> extents_;
  Bytes size_{0};
  IoEngine engine_;
  std::vector<std::string> notes_;
  std::unique_ptr<File> file_;
  std::unique_ptr<BlockPump> pump_;
};

}  // namespace sc
