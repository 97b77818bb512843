// A process that is killed in the middle of its file operations, on demand. No torch.
#pragma once

#include <cstdint>
#include <memory>

#include "common/storage/file_ops.h"

namespace sc {

/// `inner`, but in place of the `nth` operation that changes anything (is_mutating(); counted from 1) the
/// process ends at once, as kill -9 would end it. Of a write the first half is written.
///   Threads  any number.
std::unique_ptr<FileOps> crash_at(std::int64_t nth, std::unique_ptr<FileOps> inner);

}  // namespace sc
