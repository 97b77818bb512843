// What the control groups of this process (a container, a job of Slurm or systemd) let it use. No torch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sc {

/// The folders of this process's control group and of all above it up to the mount, those of version 2 and
/// those of version 1 for `controller` ("memory", "cpu"). Each of them may set a limit; the least one counts.
/// `top` stands before every path (tests). common/setup/lib.sh does the same.
///   Source  Linux, Documentation/admin-guide/cgroup-v2.rst and cgroup-v1; man 7 cgroups (/proc/PID/cgroup),
///           man 5 proc (/proc/PID/mountinfo).
std::vector<std::string> control_groups(std::string_view controller, const std::string& top = "");

/// Cores that this process may use: its affinity, or fewer where a quota of its control groups says so.
int usable_cores(const std::string& top = "");

/// How many processes the system has ended because this process's own group was out of memory.
std::int64_t memory_kills(const std::string& top = "");

/// The text of a small file; empty where it cannot be read.
std::string content_of(const std::string& path);

}  // namespace sc
