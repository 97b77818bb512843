// The engine io_uring. Internal to storage; no torch.
#pragma once

#include "common/storage/block_io.h"

namespace sc {

/// Opens a ring of io_uring for `file`.
///   Errors  std::runtime_error with the reason if the kernel, a container or this build refuses.
std::unique_ptr<BlockIo> open_uring_io(File& file, int depth);

}  // namespace sc
