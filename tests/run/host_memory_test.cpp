// Tests the memory that a machine and its control groups leave to a process.
#include "common/run/host_memory.h"

#include <gtest/gtest.h>

#include "tests/support/answers.h"
#include "tests/support/fake_machine.h"

namespace sc {
namespace {

using test::FakeMachine;

TEST(HostMemory, IsReadFromMeminfo) {
  FakeMachine machine;
  machine.file("/proc/meminfo", "MemTotal:       25769803 kB\nMemAvailable:   12345 kB\nBuffers: 1 kB\n");
  EXPECT_EQ(available_host_memory(machine.top()), Bytes(12345 * 1024));
  machine.file("/proc/meminfo", "MemTotal:       25769803 kB\n");
  EXPECT_FALSE(available_host_memory(machine.top()));
  machine.file("/proc/meminfo", "MemAvailable: much");
  EXPECT_FALSE(available_host_memory(machine.top()));
  const std::optional<Bytes> here = available_host_memory();
  ASSERT_TRUE(here);
  EXPECT_GT(here->value(), std::int64_t{64} << 20);
}

TEST(HostMemory, OfAGroupIsWhatIsLeftOfItsLimit) {
  EXPECT_FALSE(left_of_limit("max\n", "5000\n", ""));
  EXPECT_FALSE(left_of_limit("", "", ""));
  test::expect_each<std::optional<Bytes>>({{left_of_limit("7000\n", "5000\n", ""), Bytes(2000)},
                                           {left_of_limit("7000\n", "7001\n", ""), Bytes(0)}});
  // The kernel gives pages of files back under pressure, so they count as free.
  EXPECT_EQ(left_of_limit("7000\n", "6000\n", "anon 3000\ninactive_file 1000\nactive_file 500\n"),
            Bytes(2500));
  // Control groups of version 1 count the pages of groups below them in the total_ fields.
  EXPECT_EQ(
      left_of_limit("7000\n", "6000\n", "inactive_file 1\ntotal_inactive_file 10\ntotal_active_file 20\n"),
      Bytes(1030));
}

TEST(HostMemory, IsNoMoreThanAGroupOfThisProcessHasLeft) {
  FakeMachine machine;
  machine.file("/proc/meminfo", "MemAvailable: 12345 kB\n");
  machine.file("/proc/self/cgroup", "0::/job/step\n");
  machine.file("/sys/fs/cgroup/job/step/memory.max", "max\n");
  machine.file("/sys/fs/cgroup/job/step/memory.current", "10\n");
  EXPECT_EQ(available_host_memory(machine.top()), Bytes(12345 * 1024));
  EXPECT_FALSE(host_memory_left_of_limit(machine.top()));
  machine.file("/sys/fs/cgroup/job/memory.max", "7000\n");
  machine.file("/sys/fs/cgroup/job/memory.current", "5000\n");
  EXPECT_EQ(available_host_memory(machine.top()), Bytes(2000)) << "the group above has a limit";
  machine.file("/sys/fs/cgroup/job/step/memory.max", "1010\n");
  EXPECT_EQ(host_memory_left_of_limit(machine.top()), Bytes(1000)) << "the least counts";
  machine.file("/sys/fs/cgroup/other/memory.max", "1\n");
  machine.file("/sys/fs/cgroup/other/memory.current", "1\n");
  EXPECT_EQ(host_memory_left_of_limit(machine.top()), Bytes(1000)) << "another process's does not";
}

TEST(HostMemory, KnowsGroupsOfVersion1) {
  FakeMachine machine;
  machine.file("/proc/meminfo", "MemAvailable: 12345 kB\n");
  machine.file("/proc/self/cgroup", "4:memory:/job\n2:cpu,cpuacct:/elsewhere\n0::/\n");
  machine.file("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  machine.file("/sys/fs/cgroup/memory/memory.usage_in_bytes", "400000000\n");
  EXPECT_EQ(available_host_memory(machine.top()), Bytes(12345 * 1024)) << "no limit is a huge one";
  machine.file("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "52428800\n");
  machine.file("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "45000000\n");
  EXPECT_EQ(available_host_memory(machine.top()), Bytes(7428800));
}

// Pages of files count as free only up to the bytes in use. The smallest limit of the machine and of its
// control groups counts, of either version.
TEST(HostMemory, IsTheLeastOfAllThatLimitIt) {
  test::expect_each<std::optional<Bytes>>(
      {{left_of_limit("7000", "100", "inactive_file 500\nactive_file 300\n"), Bytes(7000)},
       {left_of_limit("7000", "6800", "active_file 300\n"), Bytes(500)},
       {left_of_limit("7000", "7400", "active_file 300\n"), Bytes(0)},
       {left_of_limit("7000", "7200", "active_file 300\n"), Bytes(100)},
       {left_of_limit("7000", "6000", "workingset_active_file 900\nactive_file 5\n"), Bytes(1005)}});
  FakeMachine machine;
  machine.file("/proc/meminfo", "MemAvailable: 5 kB\n");
  machine.file("/proc/self/cgroup", "4:memory:/old\n0::/new\n");
  machine.file("/sys/fs/cgroup/new/memory.max", "9000\n");
  machine.file("/sys/fs/cgroup/new/memory.current", "2000\n");
  test::expect_each<std::optional<Bytes>>(
      {{available_host_memory(machine.top()), Bytes(5120)},  // The machine's.
       {host_memory_left_of_limit(machine.top()), Bytes(7000)}});
  machine.file("/sys/fs/cgroup/memory/old/memory.limit_in_bytes", "6000\n");
  machine.file("/sys/fs/cgroup/memory/old/memory.usage_in_bytes", "2000\n");
  EXPECT_EQ(available_host_memory(machine.top()), Bytes(4000)) << "the older group's";
  machine.file("/sys/fs/cgroup/new/memory.max", "5000\n");
  EXPECT_EQ(available_host_memory(machine.top()), Bytes(3000)) << "the newer group's";
  machine.file("/sys/fs/cgroup/new/memory.stat", "inactive_file 1500\n");
  EXPECT_EQ(available_host_memory(machine.top()), Bytes(4000)) << "with pages of files the older one's again";
}

// A container that shares the host's control-group name space reads the host's path, but mounts its own
// group.
TEST(HostMemory, IsFoundWhereAContainerSeesItsOwnPartOfTheTree) {
  FakeMachine machine;
  machine.file("/proc/self/cgroup", "0::/docker/4711/inner\n");
  machine.file("/proc/self/mountinfo",
               "30 23 0:26 /docker/4711 /groups ro,nosuid - cgroup2 cgroup rw,nsdelegate\n"
               "31 23 0:27 / /sys rw - sysfs sysfs rw\n");
  machine.file("/groups/memory.max", "9000\n");
  machine.file("/groups/memory.current", "1000\n");
  EXPECT_EQ(host_memory_left_of_limit(machine.top()), Bytes(8000));
  machine.file("/groups/inner/memory.max", "3000\n");
  machine.file("/groups/inner/memory.current", "1000\n");
  EXPECT_EQ(host_memory_left_of_limit(machine.top()), Bytes(2000));
}

}  // namespace
}  // namespace sc
