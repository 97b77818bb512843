// Tests that copies that differ in one bit are found: lesson 01's replicas, lesson 07's replicas of a stage
// and both copies of the tied matrix. Every rank that compares says so, the others do not.
#include <atomic>
#include <set>

#include "common/base/check.h"
#include "common/watch/deadline.h"
#include "lessons/01_data_parallel/data_parallel.h"
#include "lessons/07_pipeline/pipeline.h"
#include "lessons/11_combined/combined.h"
#include "tests/support/harness.h"

namespace sc {
namespace {

/// Makes ranks of lesson S differ (or not) and compares after each of `steps`. The result is what each rank
/// found, or "".
template <class S>
struct Ranks {
  int world;
  Workload workload;
  typename S::Options options;
  std::vector<std::int64_t> steps = {4};
  /// Whether a rank hung, which must be a planted mistake; later results then mean nothing.
  static inline std::atomic<bool> hung = false;

  std::vector<std::string> compare(const std::function<void(int rank, S&)>& damage,
                                   const std::set<int>& throwing) const {
    LocalWorld ranks(world);
    const std::unique_ptr<Communicator> first = ranks.communicator(Rank{0});
    std::vector<std::string> found(static_cast<std::size_t>(world));
    std::atomic<std::size_t> still_to_throw = throwing.size();
    // A rank that waits for ranks that have thrown is aborted, and so is one that waits for nobody.
    const Deadline deadline(std::chrono::seconds(6), [&] {
      hung = true;
      first->abort();
    });
    std::vector<std::jthread> threads;
    for (int r = 0; r < world; ++r)
      threads.emplace_back([&, r] {
        const std::unique_ptr<Communicator> comm = ranks.communicator(Rank{r});
        std::string& text = found[static_cast<std::size_t>(r)];
        try {
          test::Alone<S> rank(*comm, shape_of(r), options);
          damage(r, rank.lesson);
          for (const std::int64_t step : steps) rank.lesson.after_step(step);
        } catch (const ClaimError& error) {
          text = error.what();
        } catch (const AbortedError&) {  // of a group in which nobody differs
        } catch (const std::exception& error) {
          text = std::string("unexpected: ") + error.what();
        }
        if (!text.empty() && --still_to_throw == 0) comm->abort();  // all that shall throw have
      });
    threads.clear();
    return found;
  }

  /// Runs the case, and requires that exactly the ranks in `throwing` found something, and all say `message`.
  void expect(const std::function<void(int rank, S&)>& damage, const std::set<int>& throwing,
              const std::string& message = "") const {
    ASSERT_FALSE(hung) << "ranks waited for each other";
    if (::testing::Test::HasFailure()) return;
    const std::vector<std::string> found = compare(damage, throwing);
    EXPECT_FALSE(hung) << "a rank waited for nobody";
    for (int r = 0; r < world; ++r)
      EXPECT_EQ(found[static_cast<std::size_t>(r)], throwing.contains(r) ? message : "") << "rank " << r;
  }

 private:
  [[nodiscard]] RunShape shape_of(int rank) const {
    return test::shape_for(workload, world, rank, CommBackend::local,
                           typename S::Plans(options).mesh(WorldSize{world}));
  }
};

/// Flips one bit of element `i` of a slice.
void flip(const StateSlice& slice, std::int64_t i, int byte_from_end = 0) {
  at::Tensor one = at::empty({1}, slice.values->dtype() == DType::bf16 ? at::kBFloat16 : at::kFloat);
  slice.read({i, i + 1}, one);
  auto* bytes = static_cast<unsigned char*>(one.mutable_data_ptr());
  bytes[byte_from_end == 0 ? 0 : one.nbytes() - static_cast<std::size_t>(byte_from_end)] ^= 1;
  slice.write({i, i + 1}, one);
}

/// The newest parameters that a rank has of a unit; if it has two copies, the last.
template <class S>
StateSlice params_of(const S& lesson, int unit) {
  std::optional<StateSlice> found;
  for (const StateSlice& slice : lesson.state())
    if (slice.purpose == Purpose::parameters && slice.unit == unit) found = slice;
  return found.value();
}

// wte has 128 x 20 = 2560 elements; wpe follows it with 12 x 20.
constexpr std::int64_t kTied = 2560;
Workload workload(bool tied = true) {
  Workload w = test::odd_workload();
  w.model.tied = tied;
  return w;
}
/// The first, a middle and the last element of a range.
std::vector<std::int64_t> places(Range range) {
  return {range.begin, (range.begin + range.end) / 2, range.end - 1};
}

std::string of_rank(int odd) {
  return "step 4: rank " + std::to_string(odd) +
         "'s parameters differ from rank 0's: replicas must stay equal to the bit";
}
std::string of_unit(int unit) {
  return "step 4: two copies of unit " + std::to_string(unit) + " differ: they must stay equal to the bit";
}

// A flipped bit in any unit's vector, padding included, on any rank is found; all three ranks say the same.
TEST(DataParallelCopies, AnyBitOfAnyRankIsFound) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Workload w = workload();
    w.precision = {.dtype = dtype, .grad_dtype = dtype, .reduce_dtype = dtype};
    const Ranks<DataParallel> ranks{3, w, {.bucket = {}, .verify_replicas = 1}};
    ranks.expect([](int, DataParallel&) {}, {});
    for (const int odd : {0, 1, 2})
      for (int unit = 0; unit < 5; ++unit)
        for (const int place : {0, 1, 2}) {
          SCOPED_TRACE("rank " + std::to_string(odd) + ", unit " + std::to_string(unit) + ", place " +
                       std::to_string(place));
          ranks.expect(
              [=](int rank, DataParallel& lesson) {
                if (rank != odd) return;
                const StateSlice slice = params_of(lesson, unit);
                ASSERT_EQ(slice.range, (Range{0, lesson.layout().unit(unit).sharded_size}));
                flip(slice, places(slice.range)[static_cast<std::size_t>(place)], place);
              },
              {0, 1, 2}, of_rank(odd == 0 ? 1 : odd));  // rank 0 is what the others are compared with
        }
  }
}

// If two copies are damaged, the first is named; ranks whose copies differ in the same way still differ from
// rank 0.
TEST(DataParallelCopies, TheFirstThatDiffersIsNamed) {
  const Ranks<DataParallel> ranks{4, workload(), {.bucket = {}, .verify_replicas = 1}};
  const auto on = [](const std::set<int>& odd) {
    return [odd](int rank, DataParallel& lesson) {
      if (odd.contains(rank)) flip(params_of(lesson, 2), 7);
    };
  };
  ranks.expect(on({2, 3}), {0, 1, 2, 3}, of_rank(2));
  ranks.expect(on({1, 2, 3}), {0, 1, 2, 3}, of_rank(1));
  ranks.expect(on({0, 1}), {0, 1, 2, 3}, of_rank(2));
  ranks.expect(on({0, 1, 2, 3}), {});  // all alike
}

TEST(DataParallelCopies, AreComparedBehindEveryFewSteps) {
  const auto damage = [](int rank, DataParallel& lesson) {
    if (rank == 1) flip(params_of(lesson, 4), 0);
  };
  Ranks<DataParallel> ranks{2, workload(), {.bucket = {}, .verify_replicas = 3}, {0, 1, 3, 4, 6}};
  ranks.expect(damage, {});
  ranks.steps = {0, 1, 2};
  ranks.expect(damage, {0, 1},
               "step 2: rank 1's parameters differ from rank 0's: replicas must stay equal to the bit");
  ranks.options.verify_replicas = 0;
  ranks.expect(damage, {});
}

/// Makes rank `odd`'s parameters of a unit differ at `place` of `of` (of all of them if empty).
std::function<void(int, Pipeline&)> differs(std::set<int> odd, int unit, int place, Range of = {}) {
  return [odd = std::move(odd), unit, place, of](int rank, Pipeline& lesson) {
    if (!odd.contains(rank)) return;
    const StateSlice slice = params_of(lesson, unit);
    flip(slice, places(of.size() > 0 ? of : slice.range)[static_cast<std::size_t>(place)], place);
  };
}

// Two stages of two replicas, three blocks: ranks 0 and 1 hold units 0, 1, 2, ranks 2 and 3 units 3, 4 and
// the copy of wte. If a rank differs, both replicas of its stage say so; the other stage finds nothing.
TEST(PipelineCopies, AnyBitOfAnyReplicaIsFound) {
  for (const ReplicaStates states : {ReplicaStates::whole, ReplicaStates::sharded}) {
    const Ranks<Pipeline> ranks{
        4, workload(), {.replicas = 2, .states = states, .split = "2,1", .verify_replicas = 1}};
    ranks.expect([](int, Pipeline&) {}, {});
    for (int rank = 0; rank < 4; ++rank) {
      const std::set<int> stage = rank < 2 ? std::set{0, 1} : std::set{2, 3};
      const std::vector<int> units = rank < 2 ? std::vector{0, 1, 2} : std::vector{3, 4, 0};
      for (const int unit : units)
        for (const int place : {0, 1, 2}) {
          SCOPED_TRACE("rank " + std::to_string(rank) + ", unit " + std::to_string(unit) + ", place " +
                       std::to_string(place) + (states == ReplicaStates::whole ? ", whole" : ", sharded"));
          ranks.expect(differs({rank}, unit, place), stage, of_unit(unit));
        }
    }
  }
}

// One rank per stage: wte is on the first and on the last of them, and on no other. wpe, which follows it in
// unit 0, has no copy, nor has any other unit.
TEST(PipelineCopies, BothEndsOfTheTiedMatrixAreCompared) {
  for (const int stages : {2, 3}) {
    const int last = stages - 1;
    const Ranks<Pipeline> ranks{stages, workload(), {.verify_replicas = 1}};
    for (const int end : {0, last})
      for (const int place : {0, 1, 2})
        ranks.expect(differs({end}, 0, place, {0, kTied}), {0, last}, of_unit(0));
    ranks.expect(differs({0}, 0, 0, {kTied, kTied + 1}), {});  // wpe's first
    ranks.expect(differs({0}, 0, 2), {});                      // wpe's last, or padding
    ranks.expect(differs({0}, 1, 1), {});
    ranks.expect(differs({last}, 4, 1), {});
    if (stages == 3) ranks.expect(differs({1}, 2, 1), {});
  }
  const Ranks<Pipeline> untied{2, workload(false), {.verify_replicas = 1}};
  untied.expect(differs({0}, 0, 0), {});
  untied.expect(differs({1}, 4, 2), {});
  const Ranks<Pipeline> alone{1, workload(), {.verify_replicas = 1}};
  alone.expect(differs({0}, 0, 0), {});
}

// Replicas agree, but not with the other end: each pair of ends says so, stage 1 (ranks 2 and 3) does not.
TEST(PipelineCopies, EndsOfAllReplicasAreCompared) {
  for (const ReplicaStates states : {ReplicaStates::whole, ReplicaStates::sharded}) {
    const Ranks<Pipeline> ranks{6, workload(), {.replicas = 2, .states = states, .verify_replicas = 1}};
    for (const int place : {0, 1, 2}) {
      ranks.expect(differs({0, 1}, 0, place, {0, kTied}), {0, 1, 4, 5}, of_unit(0));
      ranks.expect(differs({4, 5}, 0, place, {0, kTied}), {0, 1, 4, 5}, of_unit(0));
      ranks.expect(differs({0, 1, 4, 5}, 0, place, {0, kTied}), {});
    }
    ranks.expect(differs({0, 1}, 0, 0, {kTied, kTied + 1}), {});
    ranks.expect(differs({2, 3}, 2, 1), {});
  }
}

TEST(PipelineCopies, AreComparedBehindEveryFewSteps) {
  Ranks<Pipeline> ranks{2, workload(), {.verify_replicas = 3}, {0, 1, 3, 4, 6}};
  ranks.expect(differs({1}, 0, 0), {});
  ranks.steps = {0, 1, 2};
  ranks.expect(differs({1}, 0, 0), {0, 1},
               "step 2: two copies of unit 0 differ: they must stay equal to the bit");
  ranks.options.verify_replicas = 0;
  ranks.expect(differs({1}, 0, 0), {});
}

/// Makes rank `odd`'s parameters of a unit's segment differ.
std::function<void(int, Combined&)> part_differs(int odd, int unit, Segment segment) {
  return [=](int rank, Combined& lesson) {
    for (const StateSlice& slice : lesson.state())
      if (rank == odd && slice.purpose == Purpose::parameters && slice.unit == unit &&
          slice.segment == segment)
        return flip(slice, slice.range.begin);
  };
}

// Each axis of a mesh compares what it has twice: a data group all vectors, a tensor group what is not cut,
// two ends the tied matrix's rows.
TEST(CombinedCopies, EachAxisComparesWhatItHasTwice) {
  const auto of = [](const char* mesh) { return CombinedOptions{.mesh = mesh, .verify_replicas = 1}; };
  Workload w = workload();
  w.batch = {.sequence = 12, .global = 4, .micro = 2};
  const Ranks<Combined> data{4, w, of("1x2x2")};
  data.expect([](int, Combined&) {}, {});
  for (const int rank : {1, 3}) data.expect(part_differs(rank, 1, Segment::sharded), {1, 3}, of_unit(1));
  const Ranks<Combined> tensor{2, w, of("1x1x2")};
  for (const int rank : {0, 1}) {
    tensor.expect(part_differs(rank, 2, Segment::whole), {0, 1}, of_unit(2));
    tensor.expect(part_differs(rank, 2, Segment::sharded), {});  // its own
  }
  const Ranks<Combined> ends{4, w, of("2x1x2")};
  for (const int rank : {1, 3}) ends.expect(part_differs(rank, 0, Segment::sharded), {1, 3}, of_unit(0));
}

}  // namespace
}  // namespace sc
