// Tests StagedCommunicator: the conformance list on ranks that share GPUs, bit for bit with the sums of Mpi,
// and what only it promises.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include "common/comm/recording_communicator.h"
#include "common/comm/scratch.h"
#include "common/comm/staged/staged_communicator.h"
#include "tests/comm/conformance.h"
#include "tests/comm/nccl_world.h"
#include "tests/support/gpu.h"

namespace sc {
namespace {

std::int64_t pinned_bytes = 0;

struct Staged {
  static constexpr bool kShare = true;
  static std::unique_ptr<Communicator> make(int device) {
    return StagedCommunicator::make(test::mpi().world(), device, [](Bytes bytes) {
      pinned_bytes += bytes.value();
      return at::empty({bytes.value()}, at::TensorOptions().dtype(at::kByte).pinned_memory(true));
    });
  }
};

using StagedTest = test::GpuRankTest<Staged>;
using StagedConformance = test::GpuRankTest<Staged, ::testing::TestWithParam<std::size_t>>;

[[maybe_unused]] const auto* const the_world = ::testing::AddGlobalTestEnvironment(new test::GpuWorld);

TEST_P(StagedConformance, Holds) { test::conformance_cases()[GetParam()].body(comm()); }

INSTANTIATE_TEST_SUITE_P(Staged, StagedConformance, test::kEveryCase, test::name_of_case);

TEST_F(StagedTest, ScratchIsAllocatedOnceAGroup) {
  const std::int64_t before = pinned_bytes;
  EXPECT_GE(before, staged_scratch_bytes(comm().size()).value());
  at::Tensor t = at::full({3 * StagedCommunicator::kPiece}, 1.0, test::f32_on_gpu());
  comm().all_reduce(t).wait();
  EXPECT_EQ(pinned_bytes, before);
  const auto part = comm().split(static_cast<int>(rank() % 2));
  EXPECT_EQ(pinned_bytes, before + staged_scratch_bytes(part->size()).value());
  part->barrier();
}

// CPU and GPU tensors share a lane and stay in order: nothing overtakes.
TEST_F(StagedTest, HostAndGpuTensorsKeepTheirOrder) {
  const Rank next{static_cast<int>((rank() + 1) % world())},
      before{static_cast<int>((rank() + world() - 1) % world())};
  if (world() == 1) return;
  at::Tensor gpu = at::full({700'001}, static_cast<double>(rank()), test::f32_on_gpu()),
             cpu = at::full({3}, 100.0 + static_cast<double>(rank()));
  at::Tensor gpu_in = at::full({700'001}, -1.0, test::f32_on_gpu()), cpu_in = at::full({3}, -1.0);
  Ticket a = comm().recv(gpu_in, before), b = comm().recv(cpu_in, before);
  Ticket c = comm().send(gpu, next), d = comm().send(cpu, next);
  comm().barrier();
  for (Ticket* ticket : {&d, &c, &b, &a}) ticket->wait();
  EXPECT_EQ(gpu_in.cpu().const_data_ptr<float>()[700'000], static_cast<float>(to_int(before)));
  EXPECT_EQ(cpu_in.const_data_ptr<float>()[2], static_cast<float>(100 + to_int(before)));
}

TEST_F(StagedTest, ACaptureIsRefused) {
  at::Tensor t = at::full({10}, 1.0, test::f32_on_gpu());
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  at::cuda::CUDAGraph graph;
  graph.capture_begin();
  t.add_(1);
  EXPECT_THROW(comm().all_reduce(t), DeviceError);
  graph.capture_end();
  graph.replay();
  EXPECT_EQ(t.cpu().const_data_ptr<float>()[9], 2.0F);
}

// The host blocks while the stream still computes; the stream itself waits for the transfer alone.
TEST_F(StagedTest, ABusyStreamDoesNotWait) {
  RecordingCommunicator recorded(comm());
  at::Tensor t = at::full({1000}, 1.0, test::f32_on_gpu());
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  comm().barrier();
  test::BusyWork busy;
  busy.enqueue();
  recorded.all_reduce(t).wait();
  EXPECT_TRUE(busy.has_ended());
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  recorded.record().read_gpu_times();
  const auto since_then = test::BusyWork::Clock::now() - busy.ended();
  EXPECT_GT(recorded.record().waited(), std::chrono::nanoseconds(0));
  EXPECT_LE(recorded.record().waited(), since_then + test::kGpuResolution);
}

}  // namespace
}  // namespace sc
