// How much memory programs on this machine can still have. No torch.
#pragma once

#include <optional>
#include <string_view>

#include "common/base/types.h"

namespace sc {

/// "MemAvailable" of /proc/meminfo, what can be had without swapping, or what the control group (a container)
/// has left of its limit if that is less. Empty where neither says. All three are the texts of the files.
///   Source  Linux, Documentation/filesystems/proc.rst (MemAvailable, in KiB), admin-guide/cgroup-v2.rst
///           (memory.max: bytes, or "max"; memory.current: bytes).
std::optional<Bytes> available_of(std::string_view meminfo, std::string_view memory_max,
                                  std::string_view memory_current);

/// That of this machine, now.
std::optional<Bytes> available_host_memory();
/// What its control group has left of its limit; empty where there is none.
std::optional<Bytes> host_memory_left_of_limit();

}  // namespace sc
