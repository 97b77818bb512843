// How much memory programs on this machine can still get. No torch.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/base/types.h"

namespace sc {

/// What a control group has left of its limit, from the texts of its files: memory.max, memory.current and
/// memory.stat of version 2, or memory.limit_in_bytes, memory.usage_in_bytes and memory.stat of version 1.
/// Cached file pages count as left, since the kernel frees them on demand. Empty: there is no limit.
///   Source  Linux, Documentation/admin-guide/cgroup-v2.rst (bytes, or "max") and cgroup-v1/memory.rst.
std::optional<Bytes> left_of_limit(std::string_view limit, std::string_view used, std::string_view stat);

/// This machine's available memory ("MemAvailable" of /proc/meminfo: without swapping), or what the control
/// groups of this process (a container, a job) have left if that is less. Empty if neither is known. Tests
/// put `top` before every path.
std::optional<Bytes> available_host_memory(const std::string& top = "");
/// The least that any of this process's control groups has left; nullopt if none has a limit.
std::optional<Bytes> host_memory_left_of_limit(const std::string& top = "");

}  // namespace sc
