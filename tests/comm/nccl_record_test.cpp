// What the watchdog sees if a transport's tickets return to the host before the operation has ended, and if a
// transport blocks while it issues; and which GPU a rank takes. Needs no GPU.
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <thread>

#include "common/comm/forwarding_communicator.h"
#include "common/comm/local_communicator.h"
#include "common/comm/nccl/nccl_communicator.h"
#include "common/comm/nccl/nccl_devices.h"
#include "common/comm/recording_communicator.h"
#include "common/comm/staged/staged_communicator.h"
#include "tests/watch/refusal.h"

namespace sc {
namespace {

using Flag = std::shared_ptr<std::atomic<bool>>;

class LateTicket : public TicketState {
 public:
  explicit LateTicket(Flag done) : done_(std::move(done)) {}
  bool ready() override { return *done_; }
  void wait() override {}
  void dropped() noexcept override {}
  std::function<bool()> ended_later() override {
    return [done = done_] { return done->load(); };
  }

 private:
  Flag done_;
};

/// A world of one whose all_reduce ends when `done` says so, as on a GPU; `while_issuing` runs inside it.
class LateCommunicator : public ForwardingCommunicator {
 public:
  LateCommunicator() : ForwardingCommunicator(LocalWorld(1).communicator(Rank{0})) {}
  Ticket issue(const Operation& op, const at::Tensor&, const at::Tensor&, std::optional<Rank>) override {
    if (op.kind != CommKind::all_reduce) return {};
    if (while_issuing) while_issuing();
    return Ticket(std::make_unique<LateTicket>(done));
  }

  Flag done = std::make_shared<std::atomic<bool>>(false);
  std::function<void()> while_issuing;
};

/// An all_reduce that somebody waits for, as the record shows it.
OutstandingOp sum(std::int64_t number, Phase phase = Phase::setup, std::int64_t step = 0) {
  return {number, {CommKind::all_reduce, DType::f32, Elements(10)}, {{0, 1, 1}, {}, number}, true, phase,
          step};
}

class RecordOfLateTickets : public ::testing::Test {
 protected:
  LateCommunicator late_;
  ProgressBoard board_{WorldSize{1}};
  RecordingCommunicator comm_{late_, {.trace_steps = 2, .board = &board_}};
  at::Tensor t_ = at::full({10}, 1.0);
};

TEST_F(RecordOfLateTickets, OutstandingAndWaitingUntilTheGpuHasEnded) {
  const Flag first = late_.done;
  comm_.all_reduce(t_).wait();
  late_.done = std::make_shared<std::atomic<bool>>(false);
  comm_.all_reduce(t_).wait();
  EXPECT_TRUE(comm_.record().outstanding() == (std::vector{sum(1), sum(2)}));
  EXPECT_TRUE(board_.read(Rank{0}).waiting);
  *first = true;
  EXPECT_TRUE(comm_.record().outstanding() == (std::vector{sum(2)}));
  EXPECT_TRUE(board_.read(Rank{0}).waiting);
  *late_.done = true;
  EXPECT_TRUE(comm_.record().outstanding().empty());
  EXPECT_FALSE(board_.read(Rank{0}).waiting);
}

TEST_F(RecordOfLateTickets, NothingIsKeptWithoutAWatchdog) {
  RecordingCommunicator comm(late_);
  std::vector<std::weak_ptr<std::atomic<bool>>> flags;
  for (int k = 0; k < 100; ++k) {
    late_.done = std::make_shared<std::atomic<bool>>(false);
    flags.push_back(late_.done);
    comm.all_reduce(t_).wait();
    *late_.done = true;  // seen when the next operation is issued
  }
  int alive = 0;
  for (const auto& flag : flags) alive += flag.expired() ? 0 : 1;
  EXPECT_LE(alive, 2);
}

TEST_F(RecordOfLateTickets, ARankThatIsStuckWhileItIssuesWaits) {
  comm_.set_phase("train");
  comm_.set_step(3);
  std::latch inside(2), seen(2);
  late_.while_issuing = [&] {
    inside.arrive_and_wait();
    seen.arrive_and_wait();
  };
  std::thread rank([&] { comm_.all_reduce(t_).wait(); });
  inside.arrive_and_wait();
  const std::vector<OutstandingOp> out = comm_.record().outstanding();
  const bool waiting = board_.read(Rank{0}).waiting;
  seen.arrive_and_wait();
  rank.join();
  EXPECT_TRUE(out == (std::vector{sum(1, Phase::train, 3)}));
  EXPECT_TRUE(waiting);
}

TEST_F(RecordOfLateTickets, WhatABackendRefusesCountsNowhere) {
  comm_.set_phase("train");
  *late_.done = true;
  comm_.all_reduce(t_).wait();
  late_.while_issuing = [] { throw DeviceError("refused"); };
  EXPECT_THROW(comm_.all_reduce(t_), DeviceError);
  late_.while_issuing = nullptr;
  comm_.all_reduce(t_).wait();
  CommPlan two;
  two.add({CommKind::all_reduce, DType::f32, Elements(10), WorldSize{1}}, 2);
  EXPECT_TRUE(comm_.recorded("train", 0) == two);
  EXPECT_EQ(comm_.record().operations(), 2);
  EXPECT_EQ(comm_.record().spans().size(), 2u);
  EXPECT_TRUE(comm_.record().outstanding().empty());
  EXPECT_FALSE(board_.read(Rank{0}).waiting);
}

TEST_F(RecordOfLateTickets, AReplayedGraphIsOutstandingUntilItEnds) {
  const Flag ended = std::make_shared<std::atomic<bool>>(false);
  comm_.record().replayed([] { return false; });  // there is nothing in it yet
  EXPECT_TRUE(comm_.record().outstanding().empty());
  *late_.done = true;
  comm_.set_phase("train");
  comm_.all_reduce(t_).wait();
  comm_.set_step(5);
  comm_.record().replayed([ended] { return ended->load(); });
  OutstandingOp graph = sum(2, Phase::train, 5);
  graph.replayed = true, graph.with.collective = 1;
  EXPECT_TRUE(comm_.record().outstanding() == (std::vector{graph}));
  EXPECT_EQ(board_.read(Rank{0}).operations, 2);
  EXPECT_TRUE(comm_.recorded("train", 5) == CommPlan{});
  *ended = true;
  EXPECT_TRUE(comm_.record().outstanding().empty());
  EXPECT_FALSE(board_.read(Rank{0}).waiting);
}

Launch local(int rank, int ranks) {
  return {"Open MPI", Rank{rank}, WorldSize{ranks}, Rank{rank}, WorldSize{ranks}};
}

TEST(Gpu, EachLocalRankTakesOne) {
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(gpu_of(local(rank, 4), 4, false), rank);
  EXPECT_EQ(gpu_of({"Slurm", Rank{9}, WorldSize{16}, Rank{1}, WorldSize{8}}, 8, false), 1);
}

TEST(Gpu, SharedOnesGoRound) {
  EXPECT_EQ(gpu_of(local(0, 3), 2, true), 0);
  EXPECT_EQ(gpu_of(local(1, 3), 2, true), 1);
  EXPECT_EQ(gpu_of(local(2, 3), 2, true), 0);
}

TEST(Gpu, MoreRanksThanGpusAreRefusedWithTheFix) {
  const InputError error = test::refusal_of([] { (void)gpu_of(local(0, 3), 2, false); });
  EXPECT_EQ(error.code(), ExitCode::missing);
  EXPECT_EQ(error.message(), "3 ranks on this host, but 2 GPUs");
  EXPECT_EQ(error.fix(), "-n 2, or --share-gpu to let ranks share one (slow)");
}

TEST(Staged, ScratchIsTwoPiecesAndTwoForEachOtherRank) {
  EXPECT_EQ(staged_scratch_bytes(WorldSize{1}).value(), 2 * 1048576);
  EXPECT_EQ(staged_scratch_bytes(WorldSize{4}).value(), 8 * 1048576);
}

#ifdef STAGECRAFT_NO_GPU_CODE
template <class Make>
void expect_missing(const Make& make) {
  const InputError error = test::refusal_of(make);
  EXPECT_EQ(error.code(), ExitCode::missing);
  EXPECT_EQ(error.message(), "this build has no GPU code");
}

TEST(WithoutGpuCode, EverythingRefuses) {
  expect_missing([] { NcclCommunicator::make(LocalWorld(1).communicator(Rank{0}), {}); });
  expect_missing([] { StagedCommunicator::make(LocalWorld(1).communicator(Rank{0}), 0, {}); });
  expect_missing([] { (void)visible_gpus(); });
  expect_missing([] { (void)gpu_of(local(0, 1), false); });
  EXPECT_EQ(describe_nccl(), "");
}
#endif

}  // namespace
}  // namespace sc
