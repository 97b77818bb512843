// What this process may use by its control groups, which a container, Slurm or systemd sets. No torch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sc {

/// The folders of this process's control group and of all its parents up to the mount: those of version 2,
/// and those of version 1 for `controller` ("memory", "cpu"). Each may set a limit, and the smallest counts.
/// Tests put `top` before every path. common/setup/lib.sh does the same in bash.
///   Source  Linux, Documentation/admin-guide/cgroup-v2.rst and cgroup-v1; man 7 cgroups (/proc/PID/cgroup),
///           man 5 proc (/proc/PID/mountinfo).
std::vector<std::string> control_groups(std::string_view controller, const std::string& top = "");

/// Cores that this process may use: those of its affinity mask, or fewer if a cgroup quota says so.
int usable_cores(const std::string& top = "");

/// How many processes the kernel has killed because this process's control group was out of memory.
std::int64_t memory_kills(const std::string& top = "");

/// The content of a small text file; empty if it cannot be read.
std::string content_of(const std::string& path);

}  // namespace sc
