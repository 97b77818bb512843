// Nccl: the conformance list on the GPUs of mpirun's ranks. In processes without windows: beside a window
// nothing that NCCL does for a missing rank can be aborted, and the list has an abort.
#include "tests/comm/conformance.h"
#include "tests/comm/nccl_world.h"

namespace sc {
namespace {

using NcclConformance = test::GpuRankTest<test::Nccl, ::testing::TestWithParam<std::size_t>>;

TEST_P(NcclConformance, Holds) { test::conformance_cases()[GetParam()].body(comm()); }

INSTANTIATE_TEST_SUITE_P(Nccl, NcclConformance, test::kEveryCase, test::name_of_case);

}  // namespace
}  // namespace sc
