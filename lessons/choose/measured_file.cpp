#include "common/storage/bounded_file.h"
#include "measured.h"

namespace sc::choose {

Measured Measured::read(const std::string& path) {
  return parse(read_file_up_to(*posix_file_ops(), path, kMostBytes), path);
}

}  // namespace sc::choose
