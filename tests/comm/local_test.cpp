// Local and the decorators: the conformance list on worlds of 1 to 4 threads, and what only Local promises.
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <cmath>
#include <latch>

#include "common/comm/late_messages.h"
#include "common/comm/local_communicator.h"
#include "common/comm/rank_sum.h"
#include "common/comm/recording_communicator.h"
#include "tests/comm/conformance.h"
#include "tests/support/delaying_communicator.h"

namespace sc {
namespace {

struct Backend {
  const char* name;
  test::Wrap wrap;
};

std::unique_ptr<Communicator> recorded(std::unique_ptr<Communicator> inner) {
  return std::make_unique<RecordingCommunicator>(std::move(inner), RecordOptions{.trace_steps = 1});
}

const std::vector<Backend> kBackends = {
    {"Local", {}},
    {"Delaying", delayed},
    {"Recording", recorded},
    {"Late",
     [](std::unique_ptr<Communicator> inner) {
       return std::make_unique<LateMessages>(std::move(inner), std::chrono::microseconds(200));
     }},
    {"RecordingDelaying",
     [](std::unique_ptr<Communicator> inner) { return recorded(delayed(std::move(inner))); }},
};

using Parameters = std::tuple<std::size_t, int, std::size_t>;  // backend, world, case
class Conformance : public ::testing::TestWithParam<Parameters> {};

TEST_P(Conformance, Holds) {
  const auto [backend, world, which] = GetParam();
  test::run_local(world, test::conformance_cases()[which].body, kBackends[backend].wrap);
}

std::string name_of_case(const ::testing::TestParamInfo<Parameters>& info) {
  const auto [backend, world, which] = info.param;
  return kBackends[backend].name + std::to_string(world) + test::conformance_cases()[which].name;
}

INSTANTIATE_TEST_SUITE_P(Alone, Conformance,
                         ::testing::Combine(::testing::Range<std::size_t>(0, 3), ::testing::Range(1, 5),
                                            test::kEveryCase),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Stacked, Conformance,
                         ::testing::Combine(::testing::Values<std::size_t>(3, 4), ::testing::Values(2),
                                            test::kEveryCase),
                         name_of_case);

// The message of the error that a ticket throws when it is waited for.
template <class Error>
std::string error_of(Ticket ticket) {
  try {
    ticket.wait();
  } catch (const Error& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("another error: ") + error.what();
  }
  return "no error";
}

// All ranks are in this process, so one's abort is everybody's.
TEST(Local, OneRanksAbortFailsWhatTheOthersWaitFor) {
  for (const Backend& backend : kBackends) {
    SCOPED_TRACE(backend.name);
    std::latch all_issued(3);
    test::run_local(
        3,
        [&](Communicator& comm) {
          at::Tensor t = at::full({10}, 1.0), u = t.clone();
          Ticket sum, message;
          if (comm.rank() != Rank{2}) sum = comm.all_reduce(t), message = comm.recv(u, Rank{2});
          all_issued.arrive_and_wait();
          if (comm.rank() == Rank{2}) return comm.abort();
          for (Ticket* ticket : {&sum, &message})
            EXPECT_NE(error_of<AbortedError>(std::move(*ticket)).find("the group was aborted"),
                      std::string::npos);
        },
        backend.wrap);
  }
}

TEST(Local, DisagreeingRanksAreNamedOnAllRanks) {
  test::run_local(3, [](Communicator& comm) {
    at::Tensor t = at::full({comm.rank() == Rank{1} ? 12 : 10}, 1.0);
    const std::string text = error_of<InputError>(comm.all_reduce(t));
    EXPECT_NE(text.find("all_reduce of 10 f32"), std::string::npos) << text;
    EXPECT_NE(text.find("rank 1 issued all_reduce of 12 f32"), std::string::npos) << text;
    comm.barrier();  // the group goes on
    at::Tensor other = at::full({10}, 1.0, comm.rank() == Rank{2} ? at::kDouble : at::kFloat);
    EXPECT_NE(error_of<InputError>(comm.all_reduce(other)).find("rank 2 issued all_reduce of 10 f64"),
              std::string::npos);
    at::Tensor full = at::full({12}, 1.0), shard = at::full({4}, 1.0);
    const std::string kinds =
        error_of<InputError>(comm.rank() == Rank{0} ? comm.all_reduce(full) : comm.all_gather(shard, full));
    EXPECT_NE(kinds.find("issued all_reduce of 12 f32"), std::string::npos) << kinds;
    EXPECT_NE(kinds.find("issued all_gather of 12 f32"), std::string::npos) << kinds;
    const std::string roots =
        error_of<InputError>(comm.broadcast(full, Rank{comm.rank() == Rank{2} ? 1 : 0}));
    EXPECT_NE(roots.find("rank 2 issued broadcast of 12 f32 from rank 1"), std::string::npos) << roots;
    EXPECT_NE(roots.find("issued broadcast of 12 f32 from rank 0"), std::string::npos) << roots;
  });
}

TEST(Local, MessagesOfDifferentSizesAreRefusedOnBothSides) {
  test::run_local(2, [](Communicator& comm) {
    at::Tensor t = at::full({comm.rank() == Rank{0} ? 5 : 6}, 1.0);
    const std::string text =
        error_of<InputError>(comm.rank() == Rank{0} ? comm.send(t, Rank{1}) : comm.recv(t, Rank{0}));
    EXPECT_NE(text.find("message from rank 0 to rank 1: ranks disagree: rank 0 issued send of 5 f32, rank 1 "
                        "issued recv of 6 f32"),
              std::string::npos)
        << text;
  });
}

TEST(Local, WorldsAndRanksThatCannotBe) {
  EXPECT_THROW(LocalWorld(0), InputError);
  LocalWorld world(2);
  EXPECT_THROW((void)world.communicator(Rank{2}), InputError);
  EXPECT_THROW((void)world.communicator(Rank{-1}), InputError);
}

// The target of an operation is NaN from its issue on, so that a read without the wait never finds something
// plausible.
TEST(RankSum, WritesWhatItIsGivenAndNoMore) {
  for (const std::int64_t n : {1, 2048, 5000}) {
    std::vector<float> a(static_cast<std::size_t>(n) + 1, 1), b = a, sum(a.size(), 7);
    const void* const in[] = {a.data(), b.data()};
    void* const out[] = {sum.data()};
    sum_in_rank_order(DType::f32, in, out, n);
    EXPECT_EQ(std::ranges::count(sum, 2.0F), n);
    EXPECT_EQ(sum.back(), 7);
  }
}

TEST(Delaying, ShowsAReadBeforeTheWait) {
  std::latch looked(2);
  const auto body = [&](Communicator& comm) {
    at::Tensor t = at::full({100}, comm.rank() == Rank{0} ? 5.0 : 1.0);
    if (comm.rank() == Rank{1}) {
      looked.arrive_and_wait();
      return comm.send(t, Rank{0}).wait();
    }
    Ticket ticket = comm.recv(t, Rank{1});
    EXPECT_TRUE(std::isnan(t.const_data_ptr<float>()[50]));
    looked.arrive_and_wait();
    ticket.wait();
    EXPECT_EQ(t.const_data_ptr<float>()[50], 1.0f);
  };
  test::run_local(2, body, delayed);
}

// A message arrives later by the given time; neither its sender nor anybody in a collective waits for that.
TEST(LateMessages, ArriveLater) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kLate = std::chrono::milliseconds(60);
  test::run_local(
      2,
      [&](Communicator& comm) {
        at::Tensor t = at::full({3}, 1.0 + to_int(comm.rank()), at::kFloat);
        comm.barrier();
        const Clock::time_point began = Clock::now();
        if (comm.rank() == Rank{0}) return comm.send(t, Rank{1}).wait();
        Ticket first = comm.recv(t, Rank{0});
        EXPECT_FALSE(first.ready());
        first.wait();
        EXPECT_GE(Clock::now() - began, kLate);
        EXPECT_EQ(t[0].item<float>(), 1);
      },
      [&](std::unique_ptr<Communicator> inner) {
        return std::make_unique<LateMessages>(std::move(inner), kLate);
      });
}

}  // namespace
}  // namespace sc
