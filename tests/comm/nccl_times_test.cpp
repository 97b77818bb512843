// What a GPU measures of its waits: nothing where its stream is busy meanwhile, the delay where a peer is
// late.
#include <ATen/ops/full.h>

#include <thread>

#include "common/comm/nccl_communicator.h"
#include "common/comm/recording_communicator.h"
#include "tests/comm/nccl_world.h"

namespace sc {
namespace {

using namespace std::chrono_literals;
using Clock = CommRecord::Clock;

// So much longer than an operation of a few elements takes that half of it tells one from the other.
constexpr auto kDelay = 200ms;
constexpr auto kHalf = kDelay / 2;

struct Nccl {
  static constexpr bool kShare = false;
  static std::unique_ptr<Communicator> make(int device) {
    test::values().any_order = true;
    return NcclCommunicator::make(test::mpi().world(), {.device = device, .limit = 30s, .trace = true});
  }
};
class NcclTimes : public test::GpuRankTest<Nccl> {
 protected:
  /// The current stream does nothing else for kDelay. Can be captured.
  static void keep_busy() {
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
    const auto sleep = [](void*) { std::this_thread::sleep_for(kDelay); };
    ASSERT_EQ(cudaLaunchHostFunc(stream, sleep, nullptr), cudaSuccess);
  }
  /// Rank 0 is there first.
  static void late_peer(RecordingCommunicator& recorded, at::Tensor& t) {
    if (rank() != 0) keep_busy();
    recorded.all_reduce(t).wait();
  }
  /// All ranks begin together.
  static void together() {
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    comm().barrier();
  }
  static std::chrono::nanoseconds waited(RecordingCommunicator& recorded) {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    recorded.record().read_gpu_times();
    return recorded.record().waited();
  }
  static void expect_wait_of_late_peer(std::chrono::nanoseconds waited) {
    if (world() > 1 && rank() == 0) {
      EXPECT_GT(waited, kHalf);
    } else {
      EXPECT_LT(waited, kHalf);
    }
  }
};

TEST_F(NcclTimes, ABusyStreamDoesNotWait) {
  RecordingCommunicator recorded(comm());
  at::Tensor t = at::full({1000}, 1.0, test::f32_on_gpu());
  together();
  Ticket ticket = recorded.all_reduce(t);
  keep_busy();  // meanwhile the sum travels
  ticket.wait();
  EXPECT_LT(waited(recorded), kHalf);
}

TEST_F(NcclTimes, ALatePeerIsWaitedFor) {
  RecordingCommunicator recorded(comm());
  at::Tensor t = at::full({1000}, 1.0, test::f32_on_gpu());
  together();
  late_peer(recorded, t);
  EXPECT_EQ(recorded.record().waited(), 0ns) << "the host went on at once";
  expect_wait_of_late_peer(waited(recorded));
}

TEST_F(NcclTimes, InAGraphEveryLaunchIsMeasured) {
  RecordingCommunicator recorded(comm(), {.trace_steps = 2});
  at::Tensor t = at::full({1000}, 1.0, test::f32_on_gpu());
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool(/*isHighPriority=*/true));
  comm().all_reduce(t).wait();  // NCCL has connected before it is captured
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  at::cuda::CUDAGraph graph;
  graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
  late_peer(recorded, t);
  graph.capture_end();
  EXPECT_EQ(waited(recorded), 0ns);
  EXPECT_TRUE(recorded.record().spans().empty());
  for (int k = 0; k < 2; ++k) {
    recorded.set_step(k);
    recorded.record().reset_waited();
    together();
    recorded.record().set_gpu_origin(gpu_origin());
    const auto before = Clock::now();
    graph.replay();
    recorded.record().replayed(ended_on_current_stream());
    expect_wait_of_late_peer(waited(recorded));
    const auto after = Clock::now();
    const std::vector<OpSpan> spans = recorded.record().spans();
    ASSERT_EQ(spans.size(), static_cast<std::size_t>(k + 1));
    const OpSpan& span = spans.back();
    constexpr auto kSlack = 2ms;  // of the two clocks
    EXPECT_GE(*span.began, before - kSlack);
    EXPECT_LE(*span.began, *span.ended);
    EXPECT_LE(*span.ended, *span.wait_ended + kSlack);
    EXPECT_LE(*span.wait_began, *span.wait_ended);
    EXPECT_LE(*span.wait_ended, after + kSlack);
    expect_wait_of_late_peer(*span.wait_ended - *span.wait_began);
  }
}

TEST_F(NcclTimes, AMomentOnTheHostsClock) {
  const GpuOrigin origin = gpu_origin();
  keep_busy();
  const GpuMomentPtr later = gpu_moment();
  EXPECT_FALSE(origin.on_host(*later)) << "the GPU is not there yet";
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_GT(*later->since(*origin.moment), kHalf);
  EXPECT_LE(*origin.on_host(*later), Clock::now() + 2ms);
}

}  // namespace
}  // namespace sc
