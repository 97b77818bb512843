// Many transfers of one file in flight at once: the raw engines below BlockFile. No torch.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "common/storage/file_ops.h"

namespace sc {

/// Memory, offset and size of every transfer are multiples of this: what O_DIRECT asks of any disk in use.
inline constexpr std::int64_t kBlockAlign = 4096;

struct BlockRequest {
  enum class Kind : std::uint8_t { read, write };
  Kind kind;
  Bytes offset;                // in the file
  std::span<std::byte> bytes;  // lives until the result is there
  std::uint64_t id;            // the caller's, returned with the result
};
struct BlockResult {
  std::uint64_t id;
  std::int64_t res;  // what the system call said: bytes moved, perhaps fewer than asked, or -errno
};

/// One queue of transfers; nothing is continued, repeated or checked.
///   Order    results come in any order; requests in flight must not overlap where one of them writes.
///   Threads  one at a time uses it.
///   Errors   results carry the file's. submit() and reap() throw std::runtime_error if the queue itself
///            fails.
class BlockIo {
 public:
  virtual ~BlockIo() = default;  // everything has been reaped before
  /// Returns at once. At most `depth` requests are in flight.
  virtual void submit(const BlockRequest& request) = 0;
  /// Blocks until one request in flight has ended.
  virtual BlockResult reap() = 0;

  BlockIo(const BlockIo&) = delete;
  BlockIo& operator=(const BlockIo&) = delete;

 protected:
  BlockIo() = default;
};

/// threads: `depth` threads, each with a handle of its own on the file, each in one system call at a time.
/// io_uring: one ring that the kernel serves (liburing, where the build has it).
enum class IoEngine : std::uint8_t { threads, io_uring };
std::string_view name_of(IoEngine engine);

struct OpenedIo {
  std::unique_ptr<BlockIo> io;
  IoEngine engine;
  std::string refusal;  // one line: why it is not the wanted engine; empty if it is
};
/// The wanted engine, or the other one where that is refused (by the kernel, a container, a limit, this
/// build).
/// An engine counts as there when it has written the file's first 4096 bytes and read them again.
///   Errors  InputError (exit 69) if both are refused.
OpenedIo open_block_io(IoEngine wanted, File& file, int depth);

/// Lets `io` move at most `mbps` MB (10^6 bytes) a second, reads and writes together, as a disk of that speed
/// would, one request behind the other: reap() sleeps until the first of them may have passed. A pause saves
/// up nothing.
std::unique_ptr<BlockIo> limit_rate(std::unique_ptr<BlockIo> io, double mbps);

}  // namespace sc
