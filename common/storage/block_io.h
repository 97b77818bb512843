// Many transfers of one file in flight at the same time: the raw engines below BlockFile. No torch.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "common/storage/file_ops.h"

namespace sc {

/// The number of bytes of which memory, offset and size of every transfer are multiples, as O_DIRECT needs.
inline constexpr std::int64_t kBlockAlign = 4096;

struct BlockRequest {
  enum class Kind : std::uint8_t { read, write };
  Kind kind;
  Bytes offset;                // in the file
  std::span<std::byte> bytes;  // must live until the result arrives
  std::uint64_t id;            // the caller's, returned with the result
};
struct BlockResult {
  std::uint64_t id;
  std::int64_t res;  // of the system call: bytes moved, perhaps fewer than asked, or -errno
};

/// A queue of transfers that neither continues, repeats nor checks them.
///   Order    results come in any order; requests in flight must not overlap if one of them writes.
///   Threads  one at a time.
///   Errors   those of the file are in results. submit() and reap() throw std::runtime_error if the queue
///            itself fails.
class BlockIo {
 public:
  virtual ~BlockIo() = default;  // all results must have been reaped
  /// Starts a request and returns at once. At most `depth` requests may be in flight.
  virtual void submit(const BlockRequest& request) = 0;
  /// Blocks until one request in flight has ended.
  virtual BlockResult reap() = 0;

  BlockIo(const BlockIo&) = delete;
  BlockIo& operator=(const BlockIo&) = delete;

 protected:
  BlockIo() = default;
};

/// threads: `depth` threads, each with its own handle on the file and one system call at a time. io_uring: a
/// ring served by the kernel (liburing, if the build has it).
enum class IoEngine : std::uint8_t { threads, io_uring };
std::string_view name_of(IoEngine engine);

struct OpenedIo {
  std::unique_ptr<BlockIo> io;
  IoEngine engine;
  std::string refusal;  // why it is not the preferred engine, one line; empty if it is
};
/// Opens the preferred engine, or the other one if that is refused (by the kernel, a container, a limit, this
/// build). An engine is accepted when it has written the file's first 4096 bytes and read them back.
///   Errors  InputError (exit 69) if both are refused.
OpenedIo open_block_io(IoEngine wanted, File& file, int depth);

/// Limits `io` to `mbps` MB (10^6 bytes) per second, reads and writes together, like a disk of that speed
/// that serves one request after another: reap() sleeps until the first of them would have ended. Idle time
/// does not accumulate.
std::unique_ptr<BlockIo> limit_rate(std::unique_ptr<BlockIo> io, double mbps);

}  // namespace sc
