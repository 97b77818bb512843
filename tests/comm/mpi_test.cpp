// Mpi: the conformance list on the ranks of mpirun, and what only Mpi promises.
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <functional>

#include "common/comm/scratch.h"
#include "tests/comm/conformance.h"
#include "tests/comm/mpi_test_main.h"
#include "tests/comm/pmpi_counter.h"
#include "tests/support/answers.h"

namespace sc {
namespace {

class Conformance : public ::testing::TestWithParam<std::size_t> {};

TEST_P(Conformance, Holds) { test::conformance_cases()[GetParam()].body(test::mpi_world()); }

INSTANTIATE_TEST_SUITE_P(Mpi, Conformance, test::kEveryCase, test::name_of_case);

// For one operation of each kind, with counts that the ranks divide and counts that they do not, every rank
// must give MPI exactly wire_bytes() bytes to send.
TEST(Mpi, SendsExactlyTheWireBytes) {
  Communicator& comm = test::mpi_world();
  const std::int64_t world = to_int(comm.size());
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t n : {0, 1, 3, 64, 100003, 600001}) {
      const at::TensorOptions options = dtype == DType::f32 ? at::kFloat : at::kBFloat16;
      at::Tensor t = at::full({n}, 1.0, options), full = at::full({n * world}, 1.0, options),
                 shard = at::full({n}, 1.0, options);
      const auto expect_sent = [&](CommKind kind, std::int64_t elements, const std::function<Ticket()>& issue,
                                   bool last_of_chain = false) {
        comm.barrier();
        test::reset_wire_count();
        issue().wait();
        const Operation op{kind, dtype, Elements(elements), comm.size()};
        const std::int64_t expected = last_of_chain ? 0 : wire_bytes(op, comm.rank()).value();
        EXPECT_EQ(test::wire_count().bytes, expected) << describe(op) << ", rank " << to_int(comm.rank());
        EXPECT_EQ(test::wire_count().collectives, 0);
      };
      expect_sent(CommKind::all_reduce, n, [&] { return comm.all_reduce(t); });
      expect_sent(CommKind::reduce_scatter, n * world, [&] { return comm.reduce_scatter(full, shard); });
      expect_sent(CommKind::all_gather, n * world, [&] { return comm.all_gather(shard, full); });
      expect_sent(
          CommKind::broadcast, n, [&] { return comm.broadcast(t, Rank{0}); },
          to_int(comm.rank()) == world - 1);
      if (world == 1) continue;
      const Rank next{static_cast<int>((to_int(comm.rank()) + 1) % world)};
      const Rank before{static_cast<int>((to_int(comm.rank()) + world - 1) % world)};
      Ticket receive = comm.recv(shard, before);
      expect_sent(CommKind::send, n, [&] { return comm.send(t, next); });
      EXPECT_EQ(test::wire_count().messages, 1) << "up to 1 GiB a message is one of MPI's";
      receive.wait();
    }
  }
}

// Three pieces of a copy and ten of a sum, the last ones short: each lands where it belongs. Every sum is a
// whole number below 2^24, so that fp32 holds it.
TEST(Mpi, LongTensorsArriveWhole) {
  Communicator& comm = test::mpi_world();
  const std::int64_t n = 600'001, world = to_int(comm.size()), rank = to_int(comm.rank());
  const at::Tensor base = at::arange(n * world, at::kFloat), mine = base.narrow(0, rank * n, n).clone();
  const std::int64_t ranks = world * (world - 1) / 2;  // 0 + 1 + ... of all ranks
  at::Tensor full = base.add(rank), shard = at::zeros({n}), gathered = at::zeros({n * world}),
             left = at::zeros({n});
  comm.reduce_scatter(full, shard).wait();
  EXPECT_TRUE(at::equal(shard, mine.mul(world).add(ranks)));
  comm.all_reduce(full).wait();
  EXPECT_TRUE(at::equal(full, base.mul(world).add(ranks)));
  comm.all_gather(mine, gathered).wait();
  EXPECT_TRUE(at::equal(gathered, base));
  at::Tensor told = rank == world - 1 ? mine.clone() : at::zeros({n});
  comm.broadcast(told, Rank{static_cast<int>(world - 1)}).wait();
  EXPECT_TRUE(at::equal(told, base.narrow(0, (world - 1) * n, n)));
  if (world == 1) return;
  Ticket receive = comm.recv(left, Rank{static_cast<int>((rank + world - 1) % world)});
  comm.send(mine, Rank{static_cast<int>((rank + 1) % world)}).wait();
  receive.wait();
  EXPECT_TRUE(at::equal(left, base.narrow(0, (rank + world - 1) % world * n, n)));
}

TEST(Mpi, SumOfWireBytesOverRanks) {  // every element of every contribution travels once to its owner, and
                                      // once back
  for (const std::int64_t n : {0, 1, 3, 63, 64, 100003}) {
    for (int world = 1; world <= 5; ++world) {
      std::int64_t sum = 0, most = 0;
      const Operation op{CommKind::all_reduce, DType::f32, Elements(n), WorldSize{world}};
      for (int r = 0; r < world; ++r) {
        const std::int64_t sent = wire_bytes(op, Rank{r}).value();
        sum += sent;
        most = std::max(most, sent);
      }
      EXPECT_EQ(sum, 2 * (world - 1) * n * 4);
      EXPECT_EQ(wire_bytes(op).value(), most);
    }
  }
}

TEST(Mpi, ScratchIsFourPiecesFromEveryOtherRankAndAllocatedOnce) {
  test::expect_counts({{mpi_scratch_bytes(WorldSize{1}).value(), 0},
                       {mpi_scratch_bytes(WorldSize{2}).value(), 4 * 262144},
                       {mpi_scratch_bytes(WorldSize{4}).value(), 12 * 262144}});
  const std::int64_t before = test::mpi_scratch_bytes();
  EXPECT_GE(before, mpi_scratch_bytes(test::mpi_world().size()).value());
  at::Tensor t = at::full({300000}, 1.0);
  test::mpi_world().all_reduce(t).wait();
  EXPECT_EQ(test::mpi_scratch_bytes(), before);
  const auto part = test::mpi_world().split(static_cast<int>(to_int(test::mpi_world().rank()) % 2));
  EXPECT_EQ(test::mpi_scratch_bytes(), before + mpi_scratch_bytes(part->size()).value());
  part->all_reduce(t).wait();
  EXPECT_EQ(test::mpi_scratch_bytes(), before + mpi_scratch_bytes(part->size()).value());
}

// A rank that expects another length gets an error, and so does every later operation of the group.
TEST(Mpi, UnexpectedLengthIsAnErrorOfTheGroup) {
  Communicator& world = test::mpi_world();
  const auto pair = world.split(to_int(world.rank()) < 2 ? 0 : -1);
  if (pair && pair->size() == WorldSize{2}) {
    const bool first = pair->rank() == Rank{0};
    at::Tensor shard = at::full({first ? 10 : 30}, 1.0), full = at::full({first ? 20 : 60}, 1.0);
    std::string text = "no error";
    try {
      pair->all_gather(shard, full).wait();
    } catch (const DeviceError& error) {
      text = error.what();
    }
    EXPECT_NE(text.find(first ? "all_gather of 20 f32: MPI_ERR_TRUNCATE"
                              : "rank 0 sent 40 bytes where 120 were expected"),
              std::string::npos)
        << text;
    EXPECT_THROW(pair->all_reduce(full).wait(), DeviceError);
  }
  world.barrier();
}

}  // namespace
}  // namespace sc
