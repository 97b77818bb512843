// Tests the limits that control groups set for a process.
#include "common/base/control_group.h"

#include <gtest/gtest.h>

#include "tests/support/fake_machine.h"

namespace sc {
namespace {

using test::FakeMachine;

TEST(ControlGroup, AllAboveItCount) {
  FakeMachine machine;
  machine.file("/proc/self/cgroup", "5:cpu,cpuacct:/a/b\n4:memory:/c\n0::/d\n");
  machine.file(
      "/proc/self/mountinfo",
      "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n");
  for (const char* group : {"/sys/fs/cgroup/cpu,cpuacct/a/b", "/sys/fs/cgroup/d", "/sys/fs/cgroup/memory/c"})
    machine.file(std::string(group) + "/cgroup.procs", "");
  const std::string at = machine.top() + "/sys/fs/cgroup";
  EXPECT_EQ(control_groups("cpu", machine.top()),
            (std::vector<std::string>{at + "/cpu,cpuacct/a/b", at + "/cpu,cpuacct/a", at + "/cpu,cpuacct",
                                      at + "/d", at}));
  EXPECT_EQ(control_groups("memory", machine.top()),
            (std::vector<std::string>{at + "/memory/c", at + "/memory", at + "/d", at}));
}

TEST(ControlGroup, AQuotaIsSoManyCores) {
  const int here = usable_cores();
  EXPECT_GE(here, 1);
  FakeMachine machine;
  EXPECT_GE(usable_cores(machine.top()), here) << "affinity alone";
  machine.file("/proc/self/cgroup", "0::/job/step\n");
  machine.file("/sys/fs/cgroup/job/step/cpu.max", "max 100000\n");
  EXPECT_GE(usable_cores(machine.top()), here);
  machine.file("/sys/fs/cgroup/job/cpu.max", "50000 100000\n");
  EXPECT_EQ(usable_cores(machine.top()), 1) << "half a core is one thread";
}

TEST(ControlGroup, AQuotaOfVersion1) {
  FakeMachine machine;
  machine.file("/proc/self/cgroup", "5:cpu:/job\n");
  machine.file("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1\n");
  machine.file("/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  EXPECT_GE(usable_cores(machine.top()), usable_cores());
  machine.file("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "100000\n");
  EXPECT_EQ(usable_cores(machine.top()), 1);
}

TEST(ControlGroup, EndsForLackOfMemoryAreCounted) {
  FakeMachine machine;
  EXPECT_EQ(memory_kills(machine.top()), 0);
  machine.file("/proc/self/cgroup", "0::/job\n");
  machine.file("/sys/fs/cgroup/job/memory.events", "low 0\noom 5\noom_kill 2\noom_group_kill 1\n");
  EXPECT_EQ(memory_kills(machine.top()), 2);
  machine.file("/proc/self/cgroup", "4:memory:/old\n");
  machine.file("/sys/fs/cgroup/memory/old/memory.oom_control",
               "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");
  EXPECT_EQ(memory_kills(machine.top()), 3);
}

}  // namespace
}  // namespace sc
