// Tests the waiting time that a GPU measures: none while its stream is busy, and until the last rank arrives
// if a peer is late. Measured times are compared with other events, never with a number.
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>

#include "common/comm/nccl/nccl_communicator.h"
#include "common/comm/recording_communicator.h"
#include "tests/comm/nccl_world.h"
#include "tests/support/gpu.h"

namespace sc {
namespace {

using namespace std::chrono_literals;
using Clock = CommRecord::Clock;
using std::chrono::nanoseconds;

class NcclTimes : public test::GpuRankTest<test::Nccl> {
 protected:
  /// Issues a sum for which rank 0 comes first and the others late.
  void late_peer(RecordingCommunicator& recorded, at::Tensor& t) {
    if (rank() != 0) busy_.enqueue();
    recorded.all_reduce(t).wait();
  }
  /// Lets all ranks begin together.
  void together() {
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    comm().barrier();
    began_ = Clock::now();
  }
  /// An origin, and how far it may lie from its moment on the host.
  GpuOrigin origin() {
    const auto before = Clock::now();
    GpuOrigin found = gpu_origin();
    off_ = Clock::now() - before + test::kGpuResolution;
    return found;
  }
  static nanoseconds waited(RecordingCommunicator& recorded) {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    recorded.record().read_gpu_times();
    return recorded.record().waited();
  }
  /// When the last of the late ranks arrived. Collective; the ranks of a host have one clock.
  Clock::time_point last_was_there() const {
    at::Tensor mine =
        at::full({1}, busy_.ended().time_since_epoch().count(), test::f32_on_gpu().dtype(at::kLong));
    at::Tensor all = at::empty({world()}, mine.options());
    comm().all_gather(mine, all).wait();
    const at::Tensor host = all.cpu();
    const auto* ended = host.const_data_ptr<std::int64_t>();
    return Clock::time_point(Clock::duration(*std::max_element(ended, ended + world())));
  }
  /// Checks that a rank's wait lasts until the latest peer arrives; `waited` is the time measured so far.
  void expect_wait_of_late_peer(nanoseconds waited, const OpSpan& span) {
    const auto now = Clock::now();
    const auto last = last_was_there();
    if (world() > 1 && rank() == 0) {
      EXPECT_GE(*span.wait_ended + off_, last);
      EXPECT_GE(waited + off_, last - *span.wait_began);
    } else {
      EXPECT_LE(waited, now - (rank() == 0 ? began_ : busy_.ended()) + test::kGpuResolution);
    }
  }

  test::BusyWork busy_;
  Clock::time_point began_;
  nanoseconds off_{};
};

TEST_F(NcclTimes, ABusyStreamDoesNotWait) {
  RecordingCommunicator recorded(comm());
  at::Tensor t = at::full({1000}, 1.0, test::f32_on_gpu());
  together();
  Ticket ticket = recorded.all_reduce(t);
  busy_.enqueue();  // meanwhile the sum travels
  ticket.wait();
  const nanoseconds measured = waited(recorded);
  EXPECT_LE(measured, Clock::now() - busy_.ended() + test::kGpuResolution);
}

TEST_F(NcclTimes, ALatePeerIsWaitedFor) {
  RecordingCommunicator recorded(comm(), {.trace_steps = 1});
  at::Tensor t = at::full({1000}, 1.0, test::f32_on_gpu());
  together();
  recorded.record().set_gpu_origin(origin());
  late_peer(recorded, t);
  EXPECT_EQ(recorded.record().waited(), 0ns) << "the host went on at once";
  const nanoseconds measured = waited(recorded);
  expect_wait_of_late_peer(measured, recorded.record().spans().at(0));
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
    recorded.record().set_gpu_origin(origin());
    const auto before = Clock::now();
    graph.replay();
    recorded.record().replayed(ended_on_current_stream());
    const nanoseconds measured = waited(recorded);
    const auto after = Clock::now();
    const std::vector<OpSpan> spans = recorded.record().spans();
    ASSERT_EQ(spans.size(), static_cast<std::size_t>(k + 1));
    const OpSpan& span = spans.back();
    EXPECT_GE(*span.began + off_, before);
    EXPECT_LE(*span.began, *span.ended);
    EXPECT_LE(*span.ended, *span.wait_ended + off_);
    EXPECT_LE(*span.wait_began, *span.wait_ended);
    EXPECT_LE(*span.wait_ended, after + off_);
    expect_wait_of_late_peer(measured, span);
    expect_wait_of_late_peer(*span.wait_ended - *span.wait_began, span);
  }
}

TEST_F(NcclTimes, AMomentOnTheHostsClock) {
  const GpuOrigin origin = this->origin();
  GpuMomentPtr later;
  {
    const test::HeldStream held;
    busy_.enqueue();
    later = gpu_moment();
    EXPECT_FALSE(origin.on_host(*later)) << "the GPU is not there yet";
  }
  EXPECT_GE(*later->since(*origin.moment) + test::kGpuResolution, busy_.ended() - busy_.began());
  EXPECT_GE(*origin.on_host(*later) + off_, busy_.ended());
  EXPECT_LE(*origin.on_host(*later), Clock::now() + off_);
}

}  // namespace
}  // namespace sc
