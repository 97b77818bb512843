// What a machine and its containers leave.
#include "common/run/host_memory.h"

#include <gtest/gtest.h>

namespace sc {
namespace {

TEST(HostMemory, IsReadFromMeminfo) {
  EXPECT_EQ(available_of("MemTotal:       25769803 kB\nMemAvailable:   12345 kB\nBuffers: 1 kB\n", "", ""),
            Bytes(12345 * 1024));
  EXPECT_FALSE(available_of("MemTotal:       25769803 kB\n", "", ""));
  EXPECT_FALSE(available_of("MemAvailable: much", "", ""));
  const std::optional<Bytes> here = available_host_memory();
  ASSERT_TRUE(here);
  EXPECT_GT(here->value(), std::int64_t{64} << 20);
}

TEST(HostMemory, OfAContainerIsWhatIsLeftOfItsLimit) {
  const char* machine = "MemAvailable: 12345 kB\n";
  EXPECT_EQ(available_of(machine, "max\n", "5000\n"), Bytes(12345 * 1024));
  EXPECT_EQ(available_of(machine, "7000\n", "5000\n"), Bytes(2000));
  EXPECT_EQ(available_of(machine, "7000\n", "7001\n"), Bytes(0));
  EXPECT_EQ(available_of(machine, "99000000\n", "5000\n"), Bytes(12345 * 1024));
  EXPECT_EQ(available_of("", "7000\n", "5000\n"), Bytes(2000));
}

}  // namespace
}  // namespace sc
