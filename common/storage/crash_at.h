// Kills the process in the middle of its file operations, for tests. No torch.
#pragma once

#include <cstdint>
#include <memory>

#include "common/storage/file_ops.h"

namespace sc {

/// Wraps `inner` so that the process ends at once, as by kill -9, in place of the `nth` operation that
/// changes anything (is_mutating(); counted from 1). Of a write, the first half is done. Thread-safe.
std::unique_ptr<FileOps> crash_at(std::int64_t nth, std::unique_ptr<FileOps> inner);

}  // namespace sc
