// Tests the record: what was issued in which phase and step, how long it was waited for, what is outstanding.
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <latch>
#include <stdexcept>
#include <thread>

#include "common/comm/forwarding_communicator.h"
#include "common/comm/late_messages.h"
#include "common/comm/local_communicator.h"
#include "common/comm/recording_communicator.h"
#include "tests/comm/conformance.h"
#include "tests/support/delaying_communicator.h"

namespace sc {
namespace {

using namespace std::chrono_literals;

Bytes sent_in_training(const RecordingCommunicator& comm, std::int64_t step) {
  Bytes sent;
  for (const OpSpan& span : comm.record().spans()) {
    if (span.phase == Phase::train && span.step == step) sent += span.sent;
  }
  return sent;
}

TEST(Record, CountsByPhaseAndStep) {
  test::run_local(2, [](Communicator& inner) {
    RecordingCommunicator comm(inner, {.trace_steps = 5});
    at::Tensor t = at::full({10}, 1.0), full = at::full({8}, 1.0, at::kDouble),
               shard = at::full({4}, 1.0, at::kDouble), none = at::full({0}, 1.0);
    comm.set_phase("train");
    comm.set_step(3);
    comm.all_reduce(t).wait();
    comm.all_reduce(t).wait();
    comm.all_reduce(none).wait();  // counts nowhere: a plan has no operation without elements
    comm.set_step(4);
    comm.reduce_scatter(full, shard).wait();
    const auto part = comm.split(0);  // shares the record, and is no operation of the plan
    part->broadcast(t, Rank{0}).wait();
    comm.set_phase("check");
    comm.all_gather(shard, full).wait();

    const CommPlan third{{{{CommKind::all_reduce, DType::f32, Elements(10), WorldSize{2}}, 2}}},
        fourth{{{{CommKind::reduce_scatter, DType::f64, Elements(8), WorldSize{2}}, 1},
                {{CommKind::broadcast, DType::f32, Elements(10), WorldSize{2}}, 1}}},
        check{{{{CommKind::all_gather, DType::f64, Elements(8), WorldSize{2}}, 1}}};
    EXPECT_TRUE(comm.recorded("train", 3) == third);
    EXPECT_TRUE(comm.recorded("train", 4) == fourth);
    EXPECT_TRUE(comm.recorded("check", 4) == check);
    EXPECT_TRUE(comm.recorded("eval", 4) == CommPlan{});
    EXPECT_TRUE(comm.recorded("train", 5) == CommPlan{});
    EXPECT_EQ(sent_in_training(comm, 3).value(), 2 * 40);
    EXPECT_EQ(sent_in_training(comm, 4).value(), 32 + 40);
    EXPECT_THROW((void)comm.recorded("training", 3), std::invalid_argument);
  });
}

// For copies copies_test.cpp tests the same.
TEST(Record, KnowsWhatAnOperationCarriesAndHowItsGroupLies) {
  test::run_local(4, [](Communicator& inner) {
    RecordingCommunicator comm(inner);
    comm.set_phase("train");
    at::Tensor t = at::full({10}, 1.0);
    const int me = static_cast<int>(to_int(comm.rank()));
    const auto same_parity = comm.split(me % 2), uneven = comm.split(me == 2 ? 1 : 0);
    comm.all_reduce(t, {OpPurpose::sums}).wait();
    same_parity->all_reduce(t, {OpPurpose::gradients, 3}).wait();
    uneven->all_reduce(t).wait();
    const CommPlan expected{
        {{{CommKind::all_reduce, DType::f32, Elements(10), WorldSize{4}, 1, OpPurpose::sums}, 1},
         {{CommKind::all_reduce, DType::f32, Elements(10), WorldSize{2}, 2, OpPurpose::gradients, 3}, 1},
         {{CommKind::all_reduce, DType::f32, Elements(10), uneven->size(), me == 2 ? 1 : 0}, 1}}};
    EXPECT_TRUE(comm.recorded("train", 0) == expected) << "rank " << me;
  });
}

/// A backend that takes anything, and notes what it was asked for.
class Notes : public ForwardingCommunicator {
 public:
  Notes() : ForwardingCommunicator(LocalWorld(2).communicator(Rank{0})) {}
  Ticket issue(const Operation& op, const at::Tensor& /*from*/, const at::Tensor& /*to*/,
               std::optional<Rank> /*peer*/) override {
    asked.push_back(op);
    return {};
  }
  std::vector<Operation> asked;
};

// A tensor that no check lets through passes through decorators, which forward what was checked before.
TEST(Record, ArgumentsAreCheckedOnceBeforeAnybodyIssues) {
  auto owned = std::make_unique<Notes>();
  Notes& backend = *owned;
  RecordingCommunicator comm(std::make_unique<LateMessages>(std::move(owned), std::chrono::nanoseconds(0)));
  at::Tensor columns = at::full({4, 4}, 1.0).select(1, 0);
  EXPECT_THROW(comm.all_reduce(columns), InputError);
  EXPECT_THROW(comm.send(columns, Rank{1}), InputError);
  EXPECT_TRUE(backend.asked.empty());
  const Operation checked{CommKind::all_reduce, DType::f32, Elements(4), WorldSize{2}, 1, OpPurpose::sums};
  comm.issue(checked, columns, columns, {}).wait();
  ASSERT_EQ(backend.asked.size(), 1U);
  EXPECT_TRUE(backend.asked[0] == checked);
}

class RecordOfOne : public ::testing::Test {
 protected:
  LocalWorld world_{1};
  RecordingCommunicator comm_{world_.communicator(Rank{0}), {.keep_steps = 3, .trace_steps = 2}};
  at::Tensor t_ = at::full({10}, 1.0);
};

TEST_F(RecordOfOne, WhatIsNotKeptIsNotEmpty) {
  comm_.set_phase("train");
  for (int step = 0; step < 10; ++step) {
    comm_.set_step(step);
    comm_.all_reduce(t_).wait();
  }
  EXPECT_EQ(comm_.recorded("train", 7).count.size(), 1u);
  EXPECT_THROW((void)comm_.recorded("train", 6), std::out_of_range);
  EXPECT_TRUE(comm_.recorded("eval", 6) == CommPlan{});
}

TEST(Record, WaitingTimeAndOutstandingOperations) {
  std::latch seen(2);
  test::run_local(2, [&](Communicator& inner) {
    RecordingCommunicator comm(inner);
    comm.set_phase("train");
    comm.set_step(7);
    at::Tensor t = at::full({10}, 1.0), u = at::full({3}, 1.0);
    if (comm.rank() == Rank{1}) {
      seen.arrive_and_wait();
      comm.all_reduce(t).wait();
      comm.send(u, Rank{0}).wait();
      return;
    }
    EXPECT_TRUE(comm.record().outstanding().empty());
    Ticket receive = comm.recv(u, Rank{1});
    Ticket sum = comm.all_reduce(t);
    const RankSet both{0, 2, 1};
    const Operation receives{CommKind::recv, DType::f32, Elements(3), WorldSize{2}},
        sums{CommKind::all_reduce, DType::f32, Elements(10), WorldSize{2}};
    const std::vector<OutstandingOp> issued = {{1, receives, {both, Rank{1}, 0}, false, Phase::train, 7},
                                               {2, sums, {both, {}, 1}, false, Phase::train, 7}};
    EXPECT_TRUE(comm.record().outstanding() == issued);
    std::thread other([&] {  // the watchdog's view while this rank waits
      while (comm.record().outstanding().size() != 2 || !comm.record().outstanding()[1].waiting)
        std::this_thread::sleep_for(1ms);
      seen.arrive_and_wait();
    });
    sum.wait();
    receive.wait();
    other.join();
    EXPECT_TRUE(comm.record().outstanding().empty());
    EXPECT_GT(comm.record().waited(), 0ns);
    comm.record().reset_waited();
    EXPECT_EQ(comm.record().waited(), 0ns);
  });
}

TEST_F(RecordOfOne, AnOperationThatEndedIsNotOutstanding) {
  Ticket ticket = comm_.all_reduce(t_);
  EXPECT_TRUE(comm_.record().outstanding().empty());  // ended, not waited for
  ticket.wait();
  { const Ticket dropped = comm_.all_reduce(t_); }
  EXPECT_TRUE(comm_.record().outstanding().empty());
  EXPECT_EQ(comm_.dropped_tickets(), 1);
}

TEST_F(RecordOfOne, SpansOfTheFirstSteps) {
  RecordingCommunicator off(world_.communicator(Rank{0}));
  for (int step = 0; step < 4; ++step) {
    for (RecordingCommunicator* c : {&off, &comm_}) {
      c->set_phase("train");
      c->set_step(step);
      c->all_reduce(t_).wait();
      c->barrier();
    }
  }
  EXPECT_TRUE(off.record().spans().empty());
  const std::vector<OpSpan> spans = comm_.record().spans();
  ASSERT_EQ(spans.size(), 4u);  // two steps of an all_reduce and a barrier
  EXPECT_EQ(spans[2].step, 1);
  EXPECT_EQ(spans[1].op.kind, CommKind::barrier);
  for (const OpSpan& span : spans) {
    ASSERT_TRUE(span.ended && span.wait_began && span.wait_ended);
    EXPECT_LE(span.issued, *span.ended);
    EXPECT_LE(span.issued, *span.wait_began);
    EXPECT_LE(*span.wait_began, *span.wait_ended);
    EXPECT_LE(*span.ended, *span.wait_ended);
  }
}

TEST_F(RecordOfOne, OtherPhasesTakeNoStepFromTheTrace) {
  comm_.barrier();  // at the start, as every run has one
  for (int step = 0; step < 4; ++step) {
    comm_.set_step(step);
    comm_.set_phase("train");
    comm_.all_reduce(t_).wait();
    comm_.set_phase("check");
    comm_.barrier();
  }
  std::vector<std::int64_t> trained;
  for (const OpSpan& span : comm_.record().spans()) {
    if (span.phase == Phase::train) trained.push_back(span.step);
  }
  EXPECT_EQ(trained, (std::vector<std::int64_t>{0, 1}));
}

TEST_F(RecordOfOne, RefusedOperationsAreNotRecorded) {
  at::Tensor undefined;
  EXPECT_THROW(comm_.all_reduce(undefined), InputError);
  EXPECT_EQ(comm_.record().operations(), 0);
}

}  // namespace
}  // namespace sc
