// Exercise of lesson 06; what is asked for stands in fetch_ahead.cpp.
#pragma once

#include <cstdint>

namespace sc {

/// Pieces of the optimizer's states on a disk, and a window of buffers in memory, one piece each. A number
/// counts pieces over all updates: update u of piece i is number u * pieces() + i.
class PiecesOnDisk {
 public:
  virtual ~PiecesOnDisk() = default;
  [[nodiscard]] virtual int pieces() const = 0;
  /// At most as many as there are pieces.
  [[nodiscard]] virtual int buffers() const = 0;
  /// Begins to read the states of the number's piece into a buffer.
  virtual void read(std::int64_t number, int buffer) = 0;
  virtual void wait_read(std::int64_t number) = 0;
  /// AdamW, on the states in that buffer. Returns when it has ended; the disk goes on meanwhile.
  virtual void update(std::int64_t number, int buffer) = 0;
  /// Begins to write them back.
  virtual void write(std::int64_t number, int buffer) = 0;
  virtual void wait_written(std::int64_t number) = 0;
};

void update_through_window(PiecesOnDisk& disk, std::int64_t updates);

}  // namespace sc
