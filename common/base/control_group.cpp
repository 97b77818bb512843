#include "common/base/control_group.h"

#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

namespace sc {
namespace {

// Whether `name` stands in a comma-separated list, as "memory" does in "cpu,memory".
bool among(std::string_view name, const std::string& list) {
  return ("," + list + ",").find("," + std::string(name) + ",") != std::string::npos;
}

struct Mount {
  std::string base, at;  // `base` is the subtree that is visible at `at`; a container sees only its own
};

// The mounts of cgroup version 2 if `controller` is empty, otherwise those of that version-1 controller.
std::vector<Mount> group_mounts(std::string_view controller, const std::string& top) {
  std::vector<Mount> mounts = {
      {"/", "/sys/fs/cgroup" + (controller.empty() ? "" : "/" + std::string(controller))}};
  std::istringstream lines(content_of(top + "/proc/self/mountinfo"));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string skipped, type, options;
    Mount mount;
    words >> skipped >> skipped >> skipped >> mount.base >> mount.at;
    while (words >> skipped && skipped != "-") {
    }
    words >> type >> skipped >> options;
    if (controller.empty() ? type == "cgroup2" : type == "cgroup" && among(controller, options))
      mounts.push_back(mount);
  }
  return mounts;
}

// Appends to `groups` the folders of the control group `path` and of its parents that this mount shows.
void add_groups(const Mount& mount, std::string path, const std::string& top,
                std::vector<std::string>& groups) {
  const std::string base = mount.base == "/" ? "" : mount.base;
  path = path.rfind(base + "/", 0) == 0 ? path.substr(base.size()) : "";
  for (;;) {
    const std::string group = top + mount.at + (path == "/" ? "" : path);
    if (std::filesystem::is_directory(group) &&
        std::find(groups.begin(), groups.end(), group) == groups.end())
      groups.push_back(group);
    if (path.empty()) return;
    path.resize(path.rfind('/'));
  }
}

}  // namespace

std::string content_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> control_groups(std::string_view controller, const std::string& top) {
  std::vector<std::string> groups;
  // A line of /proc/self/cgroup reads "4:memory:/job" in version 1 and "0::/job" in version 2.
  std::istringstream lines(content_of(top + "/proc/self/cgroup"));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string names = line.substr(first + 1, second - first - 1);
    if (!names.empty() && !among(controller, names)) continue;
    for (const Mount& mount : group_mounts(names.empty() ? "" : controller, top))
      add_groups(mount, line.substr(second + 1), top, groups);
  }
  return groups;
}

std::int64_t memory_kills(const std::string& top) {
  const std::vector<std::string> groups = control_groups("memory", top);
  if (groups.empty()) return 0;
  std::istringstream in(content_of(groups[0] + "/memory.events") +
                        content_of(groups[0] + "/memory.oom_control"));
  std::int64_t count = 0;
  for (std::string key; in >> key >> count;)
    if (key == "oom_kill") return count;
  return 0;
}

int usable_cores(const std::string& top) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  std::int64_t cores = ::sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
  for (const std::string& group : control_groups("cpu", top)) {
    std::int64_t quota = 0, period = 0;  // stays 0 or less without a quota: "max 100000", or -1 in version 1
    std::istringstream(content_of(group + "/cpu.max")) >> quota >> period;
    if (quota <= 0) {
      std::istringstream(content_of(group + "/cpu.cfs_quota_us")) >> quota;
      std::istringstream(content_of(group + "/cpu.cfs_period_us")) >> period;
    }
    if (quota > 0 && period > 0) cores = std::min(cores, (quota - 1) / period + 1);
  }
  return static_cast<int>(std::max<std::int64_t>(1, cores));
}

}  // namespace sc
