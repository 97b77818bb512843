// What a run takes where the command line names nothing.
#include "common/run/run_shape.h"

#include <gtest/gtest.h>

namespace sc {
namespace {

TEST(Threads, OneOnACpuAndAShareOfTheCoresBesideAGpu) {
  EXPECT_EQ(detail::default_threads(DeviceKind::cpu, 16, WorldSize{1}), 1);
  EXPECT_EQ(detail::default_threads(DeviceKind::cuda, 16, WorldSize{1}), 16);
  EXPECT_EQ(detail::default_threads(DeviceKind::cuda, 16, WorldSize{3}), 5);
  EXPECT_EQ(detail::default_threads(DeviceKind::cuda, 2, WorldSize{4}), 1);
}

}  // namespace
}  // namespace sc
