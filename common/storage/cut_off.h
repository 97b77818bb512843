// A mapped file that somebody shortens: reading the lost pages is SIGBUS, which says nothing. No torch.
#pragma once

#include <cstddef>
#include <span>

#include "common/storage/file_ops.h"

namespace sc {

/// A mapping whose file SIGBUS will name.
struct Guarded;

/// From now on the signal inside `bytes` prints "error: PATH: was cut off while it was read" and ends the
/// process with 65.
/// Any other SIGBUS goes where it went before. Thread-safe.
Guarded* guard(std::span<const std::byte> bytes, const Path& path);
void unguard(Guarded& guarded) noexcept;

/// Seconds for which this process lets others say it first: of several ranks that read one file, one message
/// is enough.
void set_cut_off_patience(unsigned seconds);

}  // namespace sc
