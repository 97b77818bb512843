// Tests sums and gathers by copy engine on the GPUs of mpirun's ranks: the order of the sums in every dtype,
// what a replayed graph of them leaves, and that multiprocessors only add.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <vector>

#include "common/comm/nccl/nccl_communicator.h"
#include "tests/comm/nccl_world.h"

namespace sc {
namespace {

using namespace std::chrono_literals;

struct ByCopy {
  static constexpr bool kShare = false;
  static std::unique_ptr<Communicator> make(int device) {
    return NcclCommunicator::make(test::mpi().world(), {.device = device, .limit = 30s});
  }
};

using PeerSumsTest = test::GpuRankTest<ByCopy>;

[[maybe_unused]] const auto* const the_world = ::testing::AddGlobalTestEnvironment(new test::GpuWorld);

/// A tensor in a window for sums; null for one rank, where nothing travels.
at::Tensor in_window(Communicator& comm, std::int64_t n, at::ScalarType type = at::kFloat) {
  return test::in_window(comm, n, test::f32_on_gpu().dtype(type), WindowUse::sums);
}

/// The summand of rank r: numbers whose sum differs if the order changes or if it is rounded in between.
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

// Gives windows back, when no rank works with them any more.
template <class... Tensors>
void let_go(Tensors&... windows) {
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  (windows.reset(), ...);
}

TEST_F(PeerSumsTest, AddInRankOrderAndRoundOnce) {
  if (world() == 1) GTEST_SKIP() << "nothing travels";
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const std::int64_t part : {1, 7, 1000, 100003, 1 << 22}) {
      SCOPED_TRACE(std::string(at::toString(type)) + " " + std::to_string(part));
      const std::int64_t n = part * world();
      const at::Tensor want = in_rank_order(world(), n, type);
      at::Tensor mine = in_window(comm(), n, type), gathered = in_window(comm(), n, type);
      mine.copy_(summand(rank(), n, type));
      at::Tensor shard = at::empty({part}, mine.options());
      comm().reduce_scatter(mine, shard).wait();
      EXPECT_TRUE(shard.cpu().equal(want.narrow(0, rank() * part, part)));
      comm().all_gather(shard, gathered).wait();
      EXPECT_TRUE(gathered.cpu().equal(want));
      comm().all_reduce(mine).wait();
      EXPECT_TRUE(mine.cpu().equal(want));
      // This tensor lies in no window, cannot be divided, and may be longer than the slots.
      const std::int64_t odd = 3 * std::min<std::int64_t>(n, 1 << 20) + 5;
      at::Tensor elsewhere = summand(rank(), odd, type).to(mine.device());
      comm().all_reduce(elsewhere).wait();
      EXPECT_TRUE(elsewhere.cpu().equal(in_rank_order(world(), odd, type)));
      let_go(mine, gathered);
    }
  }
}

/// A sum, a gather, and a sum that begins before the gather has been waited for.
struct Step {
  Communicator& comm;
  std::int64_t n = 1 << 18, world = to_int(comm.size());
  at::Tensor full = in_window(comm, n* world).fill_(1.0 + static_cast<double>(to_int(comm.rank())));
  at::Tensor other = in_window(comm, n*world).fill_(2.0), shard = at::empty({n}, test::f32_on_gpu()),
             second = at::empty({n}, test::f32_on_gpu());

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
  if (world() == 1) GTEST_SKIP() << "nothing travels";
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
  let_go(eager.full, eager.other, graphed.full, graphed.other);
}

// Rank 1 waits for a message that rank 0 sends when it has its sum, as a pipeline's stages do between tensor
// groups. If the sum's copies were queued after that message's, both would wait for ever.
struct Crossed {
  Communicator& comm;
  at::Tensor full = in_window(comm, std::int64_t{1 << 20} * to_int(comm.size())).fill_(1.0),
             shard = at::empty({1 << 20}, test::f32_on_gpu()),
             message = at::full({3 << 20}, 1.0, test::f32_on_gpu());
  int times = 4;

  void operator()() {
    std::vector<Ticket> receives, sends;
    for (int k = 0; k < times; ++k) {
      if (comm.rank() == Rank{1}) receives.push_back(comm.recv(message, Rank{0}));
      comm.reduce_scatter(full, shard).wait();
      if (comm.rank() == Rank{0}) sends.push_back(comm.send(message, Rank{1}));
      for (Ticket& ticket : receives) ticket.wait();
    }
    for (Ticket& ticket : sends) ticket.wait();
  }
};

void expect_idle_within(std::chrono::seconds limit, const char* what) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (cudaStreamQuery(c10::cuda::getCurrentCUDAStream()) == cudaErrorNotReady) {
    if (std::chrono::steady_clock::now() < end) continue;
    std::cerr << what << ": both wait\n";
    std::_Exit(1);  // nothing on the GPU ends any more
  }
}

TEST_F(PeerSumsTest, AReceiveThatWaitsHoldsUpNoSum) {
  if (world() == 1) GTEST_SKIP() << "nobody to send to";
  Crossed crossed{comm()};
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool(/*isHighPriority=*/true));
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  for (int k = 0; k < 5; ++k) crossed();
  expect_idle_within(20s, "eager");
  {
    at::cuda::CUDAGraph graph;
    graph.capture_begin();
    crossed();
    graph.capture_end();
    for (int k = 0; k < 100; ++k) graph.replay();
    expect_idle_within(20s, "in a graph");
  }
  let_go(crossed.full);
}

TEST_F(PeerSumsTest, MultiprocessorsAddAndCarryNothing) {
  if (world() == 1) {
    EXPECT_EQ(comm().window(Bytes(1000), WindowUse::sums), nullptr);
    return;
  }
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool(/*isHighPriority=*/true));
  Step step{comm()};
  at::Tensor mine = step.full.narrow(0, rank() * step.n, step.n);
  EXPECT_EQ(test::kernels_of([&] { comm().all_gather(step.shard, step.full).wait(); }), 0);
  EXPECT_EQ(test::kernels_of([&] { comm().all_gather(mine, step.full).wait(); }), 0);
  EXPECT_EQ(test::kernels_of([&] { comm().reduce_scatter(step.full, step.shard).wait(); }), 1);
  EXPECT_EQ(test::kernels_of([&] { comm().all_reduce(step.full).wait(); }), 1);
  at::Tensor elsewhere = at::full({step.n}, 1.0, test::f32_on_gpu());
  EXPECT_EQ(test::kernels_of([&] { comm().all_reduce(elsewhere).wait(); }), 1);
  mine.reset();
  let_go(step.full, step.other);
}

}  // namespace
}  // namespace sc
