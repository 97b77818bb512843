// Handles a mapped file that somebody truncates: reading the lost pages raises SIGBUS, which has no message.
// No torch.
#pragma once

#include <cstddef>
#include <span>

#include "common/storage/file_ops.h"

namespace sc {

/// A mapping whose file is named when SIGBUS occurs in it.
struct Guarded;

/// From now on a SIGBUS inside `bytes` prints "error: PATH: was cut off while it was read" and ends the
/// process with 65. Any other SIGBUS goes to the previous handler. Thread-safe.
Guarded* guard(std::span<const std::byte> bytes, const Path& path);
void unguard(Guarded& guarded) noexcept;

/// Sets how many seconds this process waits before it prints a file's loss: if several ranks read it, one
/// message is enough.
void set_cut_off_patience(unsigned seconds);

}  // namespace sc
