// How much memory programs on this machine can still have. No torch.
#pragma once

#include <optional>
#include <string_view>

#include "common/base/types.h"

namespace sc {

/// "MemAvailable" of the text of /proc/meminfo: what can be had without swapping. Empty if it is not there.
std::optional<Bytes> available_of(std::string_view meminfo);

/// The same of this machine, or what its control group (a container) has left if that is less. Empty where
/// neither says.
///   Source  Linux, Documentation/filesystems/proc.rst (MemAvailable, in KiB), admin-guide/cgroup-v2.rst
///           (memory.max, memory.current).
std::optional<Bytes> available_host_memory();

}  // namespace sc
