// Tests lesson 06 on a disk that misbehaves under one rank: either all ranks end, that one with the file and
// the byte, and no loss was wrong until then; or the run goes on to the right bits.
#include <algorithm>
#include <filesystem>

#include "common/comm/recording_communicator.h"
#include "common/optim/lr_schedule.h"
#include "common/watch/deadline.h"
#include "lessons/06_infinity/infinity.h"
#include "lessons/06_infinity/window_plan.h"
#include "lessons/reference/reference_order.h"
#include "tests/storage/temp_dir.h"
#include "tests/support/fake_strategy.h"
#include "tests/support/faulty_block_io.h"
#include "tests/support/harness.h"
#include "tests/support/shuffling_block_io.h"

namespace sc {
namespace {

using namespace std::chrono_literals;
using Fault = FaultyBlockIo::Fault;
using IoFault = FaultyBlockIo::What;
using Kind = BlockRequest::Kind;

constexpr int kFaultWorld = 2;
constexpr std::int64_t kFaultSteps = 6, kFirst = -1;

/// Damage to one block, the first one of unit 1 (the embedding's padding rows never change), and how the run
/// ends.
struct Case {
  const char* name;
  Fault fault;
  std::int64_t update;             // when; kFirst: the first values
  const char* error;               // its start; R stands for the rank, B for the byte
  std::int64_t fewest, most;       // losses before it
  const char* rest = "are free|";  // and what else it says
};
constexpr const char* kChanged =
    "65|DIR/states of rank R: the 4096 bytes at byte B are not what was written there last: a write was "
    "lost, or somebody changed the file|";

// Update u is posted at the end of step u, and is over when step u + 1 is. The first pieces of update u + 1
// have been read by then.
const Case kCases[] = {
    {"a disk that is full before the start",
     {.kind = Kind::write, .what = IoFault::answers, .value = -ENOSPC},
     kFirst,
     "69|DIR/states of rank R: cannot write 4096 bytes at byte B: No space left on device (ENOSPC); the "
     "file takes ",
     0,
     0},
    {"a disk that is full later",
     {.kind = Kind::write, .what = IoFault::answers, .value = -ENOSPC},
     1,
     "73|DIR/states of rank R: cannot write 4096 bytes at byte B: No space left on device (ENOSPC); the "
     "file takes ",
     2,
     2},
    {"a broken disk, writing",
     {.kind = Kind::write, .what = IoFault::answers, .value = -EIO},
     1,
     "73|DIR/states of rank R: cannot write 4096 bytes at byte B: Input/output error (EIO); the file takes ",
     2,
     2},
    {"a broken disk, writing the first values",
     {.kind = Kind::write, .what = IoFault::answers, .value = -EIO},
     kFirst,
     "69|DIR/states of rank R: cannot write 4096 bytes at byte B: Input/output error (EIO); the file takes ",
     0,
     0},
    {"a broken disk, reading",
     {.kind = Kind::read, .what = IoFault::answers, .value = -EIO},
     2,
     "65|DIR/states of rank R: cannot read 4096 bytes at byte B: Input/output error (EIO)|",
     2,
     3,
     "dmesg"},
    {"a file that somebody cut",
     {.kind = Kind::read, .what = IoFault::answers, .value = 0},
     2,
     "65|DIR/states of rank R: cannot read 4096 bytes at byte B: No data available (ENODATA)|",
     2,
     3,
     "check the path"},
    {"a lost write", {.kind = Kind::write, .what = IoFault::loses}, 1, kChanged, 2, 3, "dmesg"},
    {"a lost first write", {.kind = Kind::write, .what = IoFault::loses}, kFirst, kChanged, 0, 1, "dmesg"},
    {"a block that changed", {.kind = Kind::read, .what = IoFault::flips}, 2, kChanged, 2, 3, "dmesg"},
    {"a broken engine",
     {.kind = Kind::write, .what = IoFault::breaks},
     1,
     "73|DIR/states of rank R: its engine failed: a broken queue|",
     2,
     2,
     ""},
};

/// What a rank trained, and the error that it threw.
struct Trained {
  std::vector<double> losses;
  std::exception_ptr error;
};

class InfinityFaults : public ::testing::Test {
 protected:
  [[nodiscard]] InfinityOptions options() const {
    InfinityOptions o;
    o.piece = 999, o.buffers = 3, o.block = 4096, o.disk = dir_.path().string();
    return o;
  }
  static Workload workload() {
    Workload w = test::odd_workload();
    w.batch.global = 2 * kFaultWorld;
    return w;
  }
  /// The byte at which the rank's first piece of unit 1 begins in its file, and the file's end.
  static std::pair<std::int64_t, std::int64_t> unit_1(int rank, const InfinityOptions& o) {
    std::int64_t begin = 0, end = 0;
    for (const Piece& piece :
         cut_pieces(ParamLayout(workload().model, WorldSize{kFaultWorld}), Rank{rank}, o.piece)) {
      end += extent_of(piece.range.size()).value();
      if (piece.unit == 0) begin = end;
    }
    return {begin, end};
  }
  /// Places a fault by update: blocks are written and read in order, once per update; the first values come
  /// before.
  static Fault placed(Fault fault, std::int64_t update, int rank, const InfinityOptions& o) {
    const auto [begin, end] = unit_1(rank, o);
    fault.nth = (begin + end * (fault.kind == Kind::write ? update + 1 : update)) / o.block;
    return fault;
  }
  static InfinityOptions with(InfinityOptions o, const Fault& fault) {
    o.wrap = [fault](auto io) { return std::make_unique<FaultyBlockIo>(std::move(io), fault); };
    return o;
  }
  /// Trains all ranks, of which `faulty` has a disk of its own.
  std::vector<Trained> train(const InfinityOptions& others, int faulty, const Fault& fault) const {
    const Deadline deadline(60s, "a disk's error left a rank behind");
    std::vector<Trained> ranks(kFaultWorld);
    const auto thrown = test::on_ranks(kFaultWorld, [&](Communicator& comm) {
      const int rank = to_int(comm.rank());
      try {
        train_rank(comm, rank == faulty ? with(others, fault) : others, ranks[rank].losses);
      } catch (...) {
        comm.abort();
        throw;
      }
    });
    for (int rank = 0; rank < kFaultWorld; ++rank) ranks[rank].error = thrown[rank];
    EXPECT_TRUE(std::filesystem::is_empty(dir_.path()));
    return ranks;
  }

  static test::RankResult reference() {
    return test::run_local<ReferenceOrder>(
               1, workload(), {.virtual_ranks = kFaultWorld, .reduce_every = ReduceEvery::micro_batch},
               kFaultSteps)
        .at(0);
  }

  sc::test::TempDir dir_;

 private:
  static void train_rank(Communicator& transport, const InfinityOptions& o, std::vector<double>& losses) {
    RecordingCommunicator comm(transport);
    test::Alone<Infinity> rank(
        comm, test::shape_for(workload(), kFaultWorld, to_int(comm.rank()), CommBackend::local), o, /*lr=*/0,
        /*scales_loss=*/false, comm.shared_record());
    const RunShape& shape = rank.shape;
    for (std::int64_t step = 0; step < kFaultSteps; ++step) {
      rank.scalars.lr.fill_(learning_rate(shape.workload.optim, step, shape.workload.steps));
      const std::vector<Batch> batches = test::made_up_step(shape, step);
      const StepResult result = rank.lesson.train_step(batches);
      losses.push_back(result.sums.data_ptr<double>()[0] / result.sums.data_ptr<double>()[1]);
    }
  }
};

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  const std::size_t at = text.find(what);
  return at == std::string::npos ? text : text.replace(at, what.size(), with);
}

bool aborted(const std::exception_ptr& error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const AbortedError&) {
    return true;
  } catch (...) {
  }
  return false;
}

TEST_F(InfinityFaults, EveryRankEndsAndNoLossWasWrong) {
  InfinityOptions host = options(), late = options();
  host.grads_at = GradsAt::host, host.buffers = 1;
  late.grads_at = GradsAt::host, late.update = UpdateKind::delayed, late.warm_steps = 0;
  for (const InfinityOptions& o : {options(), host, late}) {
    const Fault none{.kind = Kind::read, .what = IoFault::answers, .nth = 1 << 30};
    const std::vector<double> right = train(o, 0, none)[0].losses;
    ASSERT_EQ(right.size(), kFaultSteps);
    for (const Case& c : kCases)
      for (int faulty = 0; faulty < kFaultWorld; ++faulty) {
        SCOPED_TRACE(std::string(c.name) + ", rank " + std::to_string(faulty) + ", " +
                     std::to_string(o.buffers) + " buffers" +
                     (o.update == UpdateKind::delayed ? ", delayed" : ""));
        const std::vector<Trained> ranks = train(o, faulty, placed(c.fault, c.update, faulty, o));
        const std::exception_ptr error = ranks[faulty].error;
        ASSERT_TRUE(error);
        const std::string said =
            sc::test::input_error([&] { std::rethrow_exception(error); }, dir_.path().string());
        const std::string start = replaced(replaced(c.error, "rank R", "rank " + std::to_string(faulty)),
                                           "byte B", "byte " + std::to_string(unit_1(faulty, o).first));
        EXPECT_EQ(said.substr(0, start.size()), start);
        EXPECT_NE(said.find(c.rest), std::string::npos) << said;
        EXPECT_TRUE(aborted(ranks[1 - faulty].error)) << "the other rank waits for it";
        const std::size_t losses = ranks[faulty].losses.size();
        EXPECT_GE(losses, c.fewest);
        EXPECT_LE(losses, c.most);
        for (const Trained& rank : ranks)
          EXPECT_TRUE(std::equal(rank.losses.begin(), rank.losses.end(), right.begin()));
      }
  }
}

TEST_F(InfinityFaults, InterruptedAndShortTransfersChangeNothing) {
  const Workload w = workload();
  const test::RankResult right = reference();
  for (const Kind kind : {Kind::read, Kind::write})
    for (const auto& [what, value] :
         {std::pair(IoFault::answers, -EINTR), std::pair(IoFault::answers, -EAGAIN),
          std::pair(IoFault::cuts, 100), std::pair(IoFault::cuts, 4096)})
      for (int faulty = 0; faulty < kFaultWorld; ++faulty) {
        SCOPED_TRACE(std::to_string(static_cast<int>(kind)) + ", " + std::to_string(value));
        InfinityOptions two_pages = options();
        two_pages.block = 8192;
        const Fault fault{.kind = kind, .what = what, .value = value, .nth = 7, .times = 50};
        const Deadline deadline(60s, "a transfer that was cut left a rank behind");
        std::vector<test::RankResult> ranks(kFaultWorld);
        const auto thrown = test::on_ranks(kFaultWorld, [&](Communicator& comm) {
          const int rank = to_int(comm.rank());
          Ledger ledger(at::kCPU);
          ranks[rank] = test::run_rank<Infinity>(
              comm, test::shape_for(w, kFaultWorld, rank, CommBackend::local),
              rank == faulty ? with(two_pages, fault) : two_pages, kFaultSteps, ledger);
        });
        for (const std::exception_ptr& error : thrown)
          if (error) std::rethrow_exception(error);
        test::expect_equals_reference(ranks, right);
      }
}

TEST_F(InfinityFaults, RequestsThatOvertakeOthersChangeNothing) {
  const Workload w = workload();
  const test::RankResult right = reference();
  for (const auto late : {ShufflingBlockIo::Order::reads_last, ShufflingBlockIo::Order::writes_last})
    for (const GradsAt grads : {GradsAt::device, GradsAt::host})
      for (const std::int64_t buffers : {1, 2, 3, 5}) {
        SCOPED_TRACE(std::to_string(static_cast<int>(late)) + " late, " + std::to_string(buffers) +
                     " buffers");
        InfinityOptions o = options();
        o.piece = 300, o.buffers = buffers, o.grads_at = grads;
        o.wrap = [late](auto io) { return std::make_unique<ShufflingBlockIo>(std::move(io), late, 1); };
        const Deadline deadline(60s, "a transfer that was late left a rank behind");
        test::expect_equals_reference(test::run_local<Infinity>(kFaultWorld, w, o, kFaultSteps), right);
      }
}

// Backward may expect a piece while forward's read of it is still on its way.
TEST_F(InfinityFaults, PartsThatAreReadTwiceOnASlowDiskChangeNothing) {
  const Workload w = workload();
  const test::RankResult right = reference();
  for (const std::int64_t prefetch : {0, 1, 5})
    for (const std::int64_t buffers : {1, 2, 3, 5, 20}) {
      SCOPED_TRACE("prefetch " + std::to_string(prefetch) + ", " + std::to_string(buffers) + " buffers");
      InfinityOptions o = options();
      o.parameters = ParametersOn::sharded, o.params_at = ParamsAt::disk;
      o.prefetch = prefetch, o.buffers = buffers, o.piece = 4'000'000;
      o.wrap = [](auto io) {
        return std::make_unique<ShufflingBlockIo>(std::move(io), ShufflingBlockIo::Order::reads_last, 1);
      };
      const Deadline deadline(60s, "parameters that were late left a rank behind");
      test::expect_equals_reference(test::run_local<Infinity>(kFaultWorld, w, o, kFaultSteps), right);
    }
}

}  // namespace
}  // namespace sc
