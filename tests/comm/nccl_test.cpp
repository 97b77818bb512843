// What only Nccl promises, on the GPUs of mpirun's ranks.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "common/comm/nccl/nccl_communicator.h"
#include "common/comm/recording_communicator.h"
#include "tests/comm/nccl_world.h"

namespace sc {
namespace {

using namespace std::chrono_literals;

using NcclTest = test::GpuRankTest<test::Nccl>;

[[maybe_unused]] const auto* const the_world = ::testing::AddGlobalTestEnvironment(new test::GpuWorld);

// Runs before anything else starts CUDA: counting ranks' GPUs may make no context, above all not on GPU 0.
TEST(NcclDevices, CountingGpusMakesNoContext) {
  const std::string reason = test::why_not(true);
  if (!reason.empty()) GTEST_SKIP() << reason;
  EXPECT_GE(visible_gpus(), 1);
  for (int device = 0; device < visible_gpus(); ++device) {
    EXPECT_FALSE(test::has_context(device));
  }
}

TEST_F(NcclTest, OnlyThisRanksGpuIsInUse) {
  for (int device = 0; device < visible_gpus(); ++device) {
    EXPECT_EQ(test::has_context(device), device == test::values().device.index());
  }
}

TEST_F(NcclTest, NamesBothVersions) {
  const std::string text = describe_nccl();
  EXPECT_EQ(text.find("NCCL 2."), 0u) << text;
  EXPECT_NE(text.find("(header 2."), std::string::npos) << text;
}

TEST_F(NcclTest, ZeroElementsAreNotIssued) {
  at::Tensor none = at::empty({0}, test::f32_on_gpu());
  EXPECT_EQ(comm().all_reduce(none).release(), nullptr);
}

// Sums as small as a step's loss, tokens and squares, on any number of ranks.
TEST_F(NcclTest, SmallSumsOfFp64GoInRankOrder) {
  const auto summand = [](std::int64_t r, std::int64_t i) {
    return (i % 2 == 0 ? 1e17 : -1.0) / static_cast<double>(3 + r) * (r % 2 == 0 ? 1.0 : -1.0);
  };
  for (const std::int64_t n : {1, 4, 32}) {
    at::Tensor mine = at::empty({n}, at::kDouble);
    std::vector<double> want(static_cast<std::size_t>(n));
    for (std::int64_t i = 0; i < n; ++i) {
      mine.mutable_data_ptr<double>()[i] = summand(rank(), i);
      double sum = summand(0, i);
      for (std::int64_t r = 1; r < world(); ++r) sum += summand(r, i);
      want[static_cast<std::size_t>(i)] = sum;
    }
    at::Tensor sums = mine.to(test::values().device);
    comm().all_reduce(sums).wait();
    const at::Tensor got = sums.cpu();
    for (std::int64_t i = 0; i < n; ++i)
      EXPECT_EQ(got.const_data_ptr<double>()[i], want[static_cast<std::size_t>(i)]) << n;
  }
}

// Nobody waits for the host here, so a missing edge between the streams gives wrong numbers.
TEST_F(NcclTest, StreamsWaitForEachOther) {
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
  const std::int64_t n = 1 << 22;
  at::Tensor t = at::ones({n}, test::f32_on_gpu());
  double expected = 1;
  for (int k = 0; k < 20; ++k) {
    t.add_(1);                    // 2 at first
    comm().all_reduce(t).wait();  // 2 world
    t.div_(static_cast<double>(2 * world())).add_(static_cast<double>(k));
    expected = (expected + 1) / 2 + k;
  }
  const at::Tensor host = t.cpu();
  EXPECT_FLOAT_EQ(host.const_data_ptr<float>()[0], static_cast<float>(expected));
  EXPECT_FLOAT_EQ(host.const_data_ptr<float>()[n - 1], static_cast<float>(expected));
}

// A stream that is not the caller's does not wait: two operations overlap with the caller's work by
// themselves.
TEST_F(NcclTest, ATicketBelongsToTheStreamThatWaits) {
  at::Tensor t = test::filled<float>(rank(), 100003, 1), copy;
  const c10::cuda::CUDAStream side = c10::cuda::getStreamFromPool();
  Ticket ticket = comm().all_reduce(t);
  {
    const c10::cuda::CUDAStreamGuard guard(side);
    ticket.wait();
    copy = t.clone();
    side.synchronize();
  }
  test::expect_values<float>(
      copy, 0, 100003, [&](std::int64_t i) { return test::expected_sum<float>(world(), i, 1); },
      "side stream");
}

/// A step as strategies have it: compute, reduce-scatter, update, all-gather, and a message round the ring.
struct Step {
  Communicator& comm;
  std::int64_t n = 4096, world = to_int(comm.size()), rank = to_int(comm.rank());
  at::Tensor full = at::full({n * world}, 1.0 + static_cast<double>(rank), test::f32_on_gpu());
  at::Tensor shard = at::empty({n}, test::f32_on_gpu()), received = at::full({n}, 0.0, test::f32_on_gpu());
  at::Tensor token = at::full({n}, static_cast<double>(rank), test::f32_on_gpu());

  void operator()() {
    full.mul_(2);
    Ticket sum = comm.reduce_scatter(full, shard);
    Ticket send, receive;
    if (world > 1) {
      receive = comm.recv(received, Rank{static_cast<int>((rank + world - 1) % world)});
      send = comm.send(token, Rank{static_cast<int>((rank + 1) % world)});
    }
    sum.wait();
    shard.div_(static_cast<double>(world)).add_(static_cast<double>(rank));
    Ticket gather = comm.all_gather(shard, full);
    send.wait(), receive.wait();
    token.copy_(received);
    gather.wait();
  }
};

TEST_F(NcclTest, StepInAGraphReplayedThreeTimes) {
  Step eager{comm()}, graphed{comm()};
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool(/*isHighPriority=*/true));
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  for (int k = 0; k < 5; ++k) eager();
  {
    at::cuda::CUDAGraph graph;  // gone before the communicator
    graphed(), graphed();
    graph.capture_begin();
    graphed();
    graph.capture_end();
    for (int k = 0; k < 3; ++k) graph.replay();
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  const at::Tensor want = eager.full.cpu(), got = graphed.full.cpu();
  for (std::int64_t i = 0; i < want.numel(); i += 1021) {
    EXPECT_EQ(got.const_data_ptr<float>()[i], want.const_data_ptr<float>()[i]) << i;
  }
  EXPECT_EQ(graphed.token.cpu().const_data_ptr<float>()[7], eager.token.cpu().const_data_ptr<float>()[7]);
}

/// Passes `token` on round a ring of ranks, and adds one to what arrives.
struct Ring {
  Communicator& comm;
  std::int64_t n = 1 << 20, world = to_int(comm.size()), rank = to_int(comm.rank());
  at::Tensor token = at::full({n}, static_cast<double>(rank), test::f32_on_gpu());
  at::Tensor received = at::full({n}, -1.0, test::f32_on_gpu());

  void operator()() {
    Ticket receive = comm.recv(received, Rank{static_cast<int>((rank + world - 1) % world)});
    Ticket send = comm.send(token, Rank{static_cast<int>((rank + 1) % world)});
    send.wait(), receive.wait();
    token.copy_(received).add_(1);
  }
  /// Checks the token after so many rounds.
  void expect(std::int64_t rounds) const {
    const at::Tensor host = token.cpu();
    const auto from = static_cast<double>(((rank - rounds) % world + world) % world);
    for (const std::int64_t i : {std::int64_t{0}, n / 2, n - 1})
      ASSERT_EQ(host.const_data_ptr<float>()[i], static_cast<float>(from + static_cast<double>(rounds)))
          << rounds;
  }
};

// What a pipeline's step needs, in one graph: it may be replayed any number of times, with eager rounds in
// between.
void expect_rounds_in_a_graph(Communicator& comm) {
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool(/*isHighPriority=*/true));
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  Ring ring{comm};
  for (int k = 0; k < 3; ++k) ring();  // an odd number: the slots of the graph are not those of the start
  ring.expect(3);
  at::cuda::CUDAGraph graph;
  graph.capture_begin();
  ring(), ring(), ring();
  graph.capture_end();
  std::int64_t rounds = 3;
  for (int replay = 1; replay <= 1000; ++replay) {
    graph.replay();
    rounds += 3;
    if (replay % 250 != 0) continue;
    ring.expect(rounds);
    ring();
    rounds += 1;
  }
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  ring.expect(rounds);
}

TEST_F(NcclTest, MessagesInAGraphReplayedAThousandTimes) {
  if (world() == 1) GTEST_SKIP() << "nobody to send to";
  expect_rounds_in_a_graph(comm());
}

// Messages over NCCL are used between hosts, and if memory cannot be opened.
TEST_F(NcclTest, MessagesByNcclCarryTheSame) {
  if (world() == 1) GTEST_SKIP() << "nobody to send to";
  const std::unique_ptr<Communicator> by_nccl = NcclCommunicator::make(
      test::mpi().world(),
      {.device = test::values().device.index(), .limit = 30s, .messages_by_copy = false});
  Ring ring{*by_nccl};
  for (int k = 0; k < 20; ++k) ring();
  ring.expect(20);
}

// The messages are longer than all slots of a ring together, go both ways at once, and no slot divides their
// length.
TEST_F(NcclTest, MessagesLongerThanTheirRing) {
  if (world() == 1) GTEST_SKIP() << "nobody to send to";
  Ring ring{comm(), (std::int64_t{45} << 18) + 3};
  for (int k = 0; k < 3; ++k) ring();
  ring.expect(3);
}

// A message that nobody has received yet no longer needs its tensor: the sender may overwrite it.
TEST_F(NcclTest, ASendDoesNotWaitForItsReceiver) {
  if (world() == 1) GTEST_SKIP() << "nobody to send to";
  at::Tensor t = at::full({1000}, static_cast<double>(rank()), test::f32_on_gpu());
  if (rank() == 0) {
    comm().send(t, Rank{1}).wait();
    t.fill_(7);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  comm().barrier();
  if (rank() == 1) {
    comm().recv(t, Rank{0}).wait();
    EXPECT_EQ(t.cpu().const_data_ptr<float>()[999], 0.0F);
  }
}

TEST_F(NcclTest, CapturedOperationsAreNotOutstanding) {
  RecordingCommunicator recorded(comm());
  at::Tensor t = at::full({1000}, 1.0, test::f32_on_gpu());
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool(/*isHighPriority=*/true));
  recorded.all_reduce(t).wait();
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  at::cuda::CUDAGraph graph;
  graph.capture_begin();
  recorded.all_reduce(t).wait();
  EXPECT_TRUE(recorded.record().outstanding().empty());  // asking does not disturb the capture either
  graph.capture_end();
  graph.replay();
  recorded.record().replayed(ended_on_current_stream());
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_TRUE(recorded.record().outstanding().empty());
  EXPECT_EQ(t.cpu().const_data_ptr<float>()[999], static_cast<float>(world() * world()));
}

// Rank 0 comes first: its wait() returns to the host, its GPU waits, and the watchdog can see that.
TEST_F(NcclTest, AWaitedOperationIsOutstandingUntilTheGpuHasEnded) {
  RecordingCommunicator recorded(comm());
  at::Tensor t = at::full({1000}, 1.0, test::f32_on_gpu());
  Ticket ticket;
  if (rank() == 0) {
    ticket = recorded.all_reduce(t);
    ticket.wait();
    std::this_thread::sleep_for(50ms);
    EXPECT_EQ(recorded.record().outstanding().size(), world() > 1 ? 1u : 0u);
  }
  comm().barrier();
  if (rank() != 0) recorded.all_reduce(t).wait();
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_TRUE(recorded.record().outstanding().empty());
  EXPECT_EQ(t.cpu().const_data_ptr<float>()[0], static_cast<float>(world()));
}

TEST_F(NcclTest, AbortFromAnotherThreadEndsWhatWaitsOnTheGpu) {
  const auto group = comm().split(0);
  const auto inner = group->split(0);
  at::Tensor t = at::full({1000}, 1.0, test::f32_on_gpu()), u = t.clone();
  Ticket second;
  if (world() > 1 && rank() == 0) {  // the others never join
    group->all_reduce(t).wait();     // on the stream; it is the stream that hangs now
    second = inner->all_reduce(u);
  }
  comm().barrier();
  std::thread([&] {
    std::this_thread::sleep_for(100ms);
    group->abort();
  }).join();
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);  // comes back
  if (world() > 1 && rank() == 0) {
    EXPECT_TRUE(second.ready());
    EXPECT_THROW(second.wait(), AbortedError);
  }
  at::Tensor after = at::full({10}, 1.0, test::f32_on_gpu());
  comm().all_reduce(after).wait();
  EXPECT_EQ(after.cpu().const_data_ptr<float>()[9], static_cast<float>(world()));
}

std::int64_t free_bytes() {
  std::size_t free = 0, total = 0;
  EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  return static_cast<std::int64_t>(free);
}

// The driver gives memory in pieces of 2 MiB, and keeps some. A loss in each round would be ten times that,
// since a communicator has MiB of buffers for each channel.
TEST_F(NcclTest, AGroupGivesItsMemoryBack) {
  at::Tensor t = at::full({1 << 20}, 1.0, test::f32_on_gpu());
  std::int64_t after_first = 0;
  for (int k = 0; k < 6; ++k) {
    auto part = comm().split(0);
    part->all_reduce(t).wait();
    if (world() > 1) {
      Ticket ticket = rank() == 0 ? part->send(t, Rank{1}) : rank() == 1 ? part->recv(t, Rank{0}) : Ticket();
      ticket.wait();
    }
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    part.reset();
    comm().barrier();
    if (k == 1) after_first = free_bytes();
  }
  EXPECT_GE(free_bytes(), after_first - (std::int64_t{16} << 20));
}

// Between windows copy engines gather: the numbers are the same, in place and in a graph too, and sums work
// there as anywhere.
TEST_F(NcclTest, WindowsGatherLikeAnyMemory) {
  constexpr std::int64_t kElements = 3 << 20;
  if (world() == 1) {
    EXPECT_EQ(comm().window(Bytes(1000)), nullptr);
    return;
  }
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool(/*isHighPriority=*/true));
  std::int64_t after_first = 0;
  for (int round = 0; round < 3; ++round) {
    at::Tensor shard = test::in_window(comm(), kElements),
               full = test::in_window(comm(), kElements * world());
    const auto expect_gathered = [&](float step) {
      const at::Tensor host = full.cpu();
      for (std::int64_t i = 0; i < host.numel(); i += 4099)
        ASSERT_EQ(host.const_data_ptr<float>()[i], step + static_cast<float>(i / kElements)) << i;
    };
    const auto step = [&] {
      shard.add_(1.0);
      comm().all_gather(shard, full).wait();
    };
    shard.fill_(rank());
    step(), step();
    expect_gathered(2);
    at::cuda::CUDAGraph graph;
    graph.capture_begin();
    step();
    graph.capture_end();
    for (int k = 1; k <= 3; ++k) {
      graph.replay();
      expect_gathered(static_cast<float>(2 + k));
    }
    if (nccl_may_use_copy_engines()) {
      EXPECT_EQ(test::kernels_of([&] { comm().all_gather(shard, full).wait(); }), 0);
    }
    full.zero_();
    at::Tensor own = full.narrow(0, rank() * kElements, kElements);
    own.fill_(10 + rank());
    comm().all_gather(own, full).wait();
    expect_gathered(10);
    own.reset();
    comm().all_reduce(shard).wait();
    EXPECT_EQ(shard.cpu().const_data_ptr<float>()[77],
              static_cast<float>(5 * world() + world() * (world() - 1) / 2));
    graph.reset();
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    comm().barrier();
    shard.reset(), full.reset();
    comm().barrier();
    if (round == 0) after_first = free_bytes();
  }
  EXPECT_GE(free_bytes(), after_first - (std::int64_t{16} << 20));
}

// The window outlives its group here, and is the last owner of NCCL's communicator.
TEST_F(NcclTest, WindowsGiveTheirMemoryBack) {
  if (world() == 1) return;
  constexpr std::int64_t kElements = 16 << 20;
  std::int64_t after_first = 0;
  for (int k = 0; k < 5; ++k) {
    auto part = comm().split(0);
    at::Tensor full = test::in_window(*part, kElements * world());
    at::Tensor own = full.narrow(0, rank() * kElements, kElements).fill_(k);
    part->all_gather(own, full).wait();
    const at::Tensor host = full.cpu();
    for (int r = 0; r < world(); ++r)
      EXPECT_EQ(host.const_data_ptr<float>()[(r + 1) * kElements - 1], static_cast<float>(k));
    own.reset();
    part.reset();
    comm().barrier();
    full.reset();
    comm().barrier();
    if (k == 1) after_first = free_bytes();
  }
  EXPECT_GE(free_bytes(), after_first - (std::int64_t{16} << 20));
}

// The driver gives memory in pieces of 2 MiB. With the first window come NCCL's own tables; the second takes
// its bytes, neither twice nor once for each rank, and at most a piece or two of tables.
TEST_F(NcclTest, AWindowTakesItsBytesOnce) {
  if (world() == 1) return;
  constexpr std::int64_t kPiece = 2 << 20, kBytes = 33 * (1 << 20) + 1000, kPieces = 17;
  static_assert(ceil_div(kBytes, kPiece) == kPieces);
  at::Tensor first = test::in_window(comm(), 1000 * world());
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  comm().barrier();
  const std::int64_t before = free_bytes();
  at::Tensor second = test::in_window(comm(), kBytes / 4);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  const std::int64_t taken = before - free_bytes();
  EXPECT_GE(taken, kPieces * kPiece);
  EXPECT_LE(taken, (kPieces + 2) * kPiece);
  comm().barrier();
  first.reset(), second.reset();
  comm().barrier();
}

// Nothing is pending here, because pending work would end only with the process.
TEST_F(NcclTest, AGroupWithAWindowCanBeAborted) {
  if (world() == 1) return;
  auto part = comm().split(0);
  at::Tensor full = test::in_window(*part, 1000 * world()), t = at::full({1000}, 1.0, test::f32_on_gpu());
  part->abort();
  EXPECT_THROW(part->all_reduce(t), AbortedError);
  EXPECT_THROW((void)part->window(Bytes(1000)), AbortedError);
  full.reset();
  part.reset();
  comm().barrier();
  comm().all_reduce(t).wait();
  EXPECT_EQ(t.cpu().const_data_ptr<float>()[9], static_cast<float>(world()));
}

TEST_F(NcclTest, ATensorOfAnotherGpuIsRefused) {
  if (visible_gpus() < 2 || world() > 1) return;  // among several ranks the other GPU is another rank's
  at::Tensor t = at::full({10}, 1.0, at::TensorOptions().dtype(at::kFloat).device(at::kCUDA, 1));
  EXPECT_THROW(comm().all_reduce(t), InputError);
}

}  // namespace
}  // namespace sc
