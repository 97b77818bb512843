// How much memory programs on this machine can still have. No torch.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/base/types.h"

namespace sc {

/// What a control group has left of its limit, from the texts of its files: memory.max, memory.current and
/// memory.stat of version 2, or memory.limit_in_bytes, memory.usage_in_bytes and memory.stat of version 1.
/// Pages of files are given back when somebody needs memory, so they count as left. Empty: it has no limit.
///   Source  Linux, Documentation/admin-guide/cgroup-v2.rst (bytes, or "max") and cgroup-v1/memory.rst.
std::optional<Bytes> left_of_limit(std::string_view limit, std::string_view used, std::string_view stat);

/// What this machine has free ("MemAvailable" of /proc/meminfo: what can be had without swapping), or what
/// the control groups of this process (a container, a job) have left if that is less. Empty where neither
/// says.
/// `top` stands before every path (tests).
std::optional<Bytes> available_host_memory(const std::string& top = "");
/// The least that a control group of this process has left of its limit; empty where none has one.
std::optional<Bytes> host_memory_left_of_limit(const std::string& top = "");

}  // namespace sc
