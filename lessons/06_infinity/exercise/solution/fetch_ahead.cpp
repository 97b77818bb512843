#include "lessons/06_infinity/exercise/fetch_ahead.h"

#include <algorithm>

namespace sc {

void update_through_window(PiecesOnDisk& disk, std::int64_t updates) {
  const std::int64_t all = updates * disk.pieces(), buffers = disk.buffers();
  const std::int64_t ahead = std::max<std::int64_t>(0, buffers - 2);  // one buffer is updated, one written
  const auto buffer_of = [&](std::int64_t number) { return static_cast<int>(number % buffers); };
  for (std::int64_t number = 0, next = 0; number < all; ++number) {
    for (; next < all && next <= number + ahead; ++next) {
      if (next >= buffers) disk.wait_written(next - buffers);
      disk.read(next, buffer_of(next));
    }
    disk.wait_read(number);
    disk.update(number, buffer_of(number));
    disk.write(number, buffer_of(number));
  }
  for (std::int64_t number = std::max<std::int64_t>(0, all - buffers); number < all; ++number)
    disk.wait_written(number);
}

}  // namespace sc
