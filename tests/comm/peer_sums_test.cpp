// Sums and gathers by copy engine: the conformance list on the GPUs of mpirun's ranks, the order of the sums in every dtype, and
// what a replayed graph of them leaves.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>

#include <vector>

#include "common/comm/nccl/nccl_communicator.h"
#include "tests/comm/conformance.h"
#include "tests/comm/nccl_world.h"

namespace sc {
namespace {

using namespace std::chrono_literals;

struct ByCopy {
  static constexpr bool kShare = false;
  static std::unique_ptr<Communicator> make(int device) {
    test::values().any_order = true;  // parts that do not come out even are NCCL's
    return NcclCommunicator::make(
        test::mpi().world(),
        {.device = device, .limit = 30s, .sums_by_copy = [](OpPurpose /*any*/) { return true; }});
  }
};

using PeerSumsTest = test::GpuRankTest<ByCopy>;
using PeerSumsConformance = test::GpuRankTest<ByCopy, ::testing::TestWithParam<std::size_t>>;

[[maybe_unused]] const auto* const the_world = ::testing::AddGlobalTestEnvironment(new test::GpuWorld);

TEST_P(PeerSumsConformance, Holds) { test::conformance_cases()[GetParam()].body(comm()); }

std::string name_of_case(const ::testing::TestParamInfo<std::size_t>& info) {
  return test::conformance_cases()[info.param].name;
}
INSTANTIATE_TEST_SUITE_P(PeerSums, PeerSumsConformance,
                         ::testing::Range<std::size_t>(0, test::conformance_cases().size()), name_of_case);

/// What rank r has: numbers whose sum in another order, or rounded in between, is another one.
at::Tensor summand(std::int64_t r, std::int64_t n, at::ScalarType type) {
  at::Tensor t = at::empty({n}, at::kFloat);
  auto* data = t.mutable_data_ptr<float>();
  for (std::int64_t i = 0; i < n; ++i)
    data[i] = static_cast<float>((i * 7919 + r * 104729) % 1009 - 504) / static_cast<float>(1 + (i + r) % 13);
  return t.to(type);
}
at::Tensor in_rank_order(std::int64_t world, std::int64_t n, at::ScalarType type) {
  at::Tensor sum = summand(0, n, type).to(at::kFloat);
  for (std::int64_t r = 1; r < world; ++r) sum.add_(summand(r, n, type));
  return sum.to(type);
}

TEST_F(PeerSumsTest, AddInRankOrderAndRoundOnce) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const std::int64_t part : {1, 7, 1000, 100003, 1 << 22}) {
      SCOPED_TRACE(std::string(at::toString(type)) + " " + std::to_string(part));
      const std::int64_t n = part * world();
      const at::Tensor mine = summand(rank(), n, type).to(test::values().device),
                       want = in_rank_order(world(), n, type);
      at::Tensor shard = at::empty({part}, mine.options());
      comm().reduce_scatter(mine, shard).wait();
      EXPECT_TRUE(shard.cpu().equal(want.narrow(0, rank() * part, part)));
      at::Tensor all = mine.clone();
      comm().all_reduce(all).wait();
      EXPECT_TRUE(all.cpu().equal(want));
      at::Tensor gathered = at::empty({n}, mine.options());
      comm().all_gather(shard, gathered).wait();
      EXPECT_TRUE(gathered.cpu().equal(want));
    }
  }
}

/// A sum, a gather, and a sum that begins before the gather has been waited for.
struct Step {
  Communicator& comm;
  std::int64_t n = 1 << 18, world = to_int(comm.size());
  at::TensorOptions options = test::f32_on_gpu();
  at::Tensor full = at::full({n * world}, 1.0 + static_cast<double>(to_int(comm.rank())), options);
  at::Tensor other = at::full({n * world}, 2.0, options), shard = at::empty({n}, options),
             second = at::empty({n}, options);

  void operator()() {
    comm.reduce_scatter(full, shard).wait();
    shard.div_(static_cast<double>(world)).add_(1);
    Ticket gather = comm.all_gather(shard, full), sum = comm.reduce_scatter(other, second);
    sum.wait();
    other.mul_(0.5).add_(1);  // only when everybody has read it
    gather.wait();
  }
};

TEST_F(PeerSumsTest, AGraphReplayedAThousandTimes) {
  Step eager{comm()}, graphed{comm()};
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool(/*isHighPriority=*/true));
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  for (int k = 0; k < 1003; ++k) eager();
  {
    at::cuda::CUDAGraph graph;
    graphed(), graphed();
    graph.capture_begin();
    graphed();
    graph.capture_end();
    for (int k = 0; k < 1000; ++k) graph.replay();
    graphed();  // and eager ones after it
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  EXPECT_TRUE(graphed.full.cpu().equal(eager.full.cpu()));
  EXPECT_TRUE(graphed.second.cpu().equal(eager.second.cpu()));
}

TEST_F(PeerSumsTest, AFirstUseIsNotCaptured) {
  if (world() == 1) GTEST_SKIP() << "nothing travels";
  at::Tensor t = at::full({1000 * world()}, 1.0, test::f32_on_gpu());
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool(/*isHighPriority=*/true));
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  at::cuda::CUDAGraph graph;
  graph.capture_begin();
  EXPECT_THROW((void)comm().all_reduce(t), DeviceError);
  graph.capture_end();
}

}  // namespace
}  // namespace sc
