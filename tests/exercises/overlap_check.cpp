#include <ATen/ops/full.h>

#include <limits>

#include "lessons/01_data_parallel/exercise/overlap.h"
#include "tests/exercises/check.h"
#include "tests/exercises/world.h"

namespace sc::exercise {
namespace {

const std::vector<std::int64_t> kUnits = {700, 130, 130, 130, 40};  // elements; embeddings are the largest
constexpr std::int64_t kArena = 700 + 3 * 130 + 40;

float value(std::int64_t rank, std::int64_t i) {
  return static_cast<float>(rank + 1) / static_cast<float>(i + 3);
}

/// Writes a unit's gradient when it is computed, and notes how far communication had come then.
class MadeUpBackward : public Backward {
 public:
  MadeUpBackward(const World& world, RecordingCommunicator& comm)
      : moments(world, comm),
        rank_(to_int(comm.rank())),
        grads_(at::full({kArena}, std::numeric_limits<double>::quiet_NaN(), at::kFloat)) {}
  int last_unit() const override { return static_cast<int>(kUnits.size()) - 1; }
  Range range(int unit) const override {
    Range r;
    for (int u = 0; u <= unit; ++u) r = {r.end, r.end + kUnits.at(static_cast<std::size_t>(u))};
    return r;
  }
  at::Tensor& grads() override { return grads_; }
  void compute(int unit) override {
    moments.note(unit);
    const Range r = range(unit);
    for (std::int64_t i = r.begin; i < r.end; ++i) grads_.mutable_data_ptr<float>()[i] = value(rank_, i);
  }
  Moments moments;

 private:
  std::int64_t rank_;
  at::Tensor grads_;
};

std::vector<Range> cut(std::int64_t size) {
  std::vector<Range> buckets;
  for (std::int64_t end = kArena; end > 0; end -= size)
    buckets.push_back({std::max<std::int64_t>(0, end - size), end});
  return buckets;
}

// The number of buckets that are complete before `unit` is computed.
std::int64_t complete_before(const MadeUpBackward& backward, const std::vector<Range>& buckets, int unit) {
  std::int64_t count = 0;
  for (const Range& bucket : buckets) count += bucket.begin >= backward.range(unit).end ? 1 : 0;
  return count;
}

void check_order(const MadeUpBackward& backward, const std::vector<Range>& buckets,
                 const std::string& where) {
  backward.moments.require_descent(
      backward.last_unit(), where, "unit", [&](int unit, const Moments::Moment& m, const std::string& text) {
        const std::int64_t due = complete_before(backward, buckets, unit);
        const std::string issued = text + std::to_string(m.issued) + " all-reduces had been issued; ";
        require(m.issued >= due, issued + std::to_string(due) + " can be");
        require(m.issued == due, issued + "only " + std::to_string(due) + " buckets are complete");
        require(m.waited == 0, text + "somebody had already waited: the network works while nobody computes");
      });
}

void check_world(int ranks, const std::vector<Range>& buckets) {
  World world(ranks);
  const auto backward = world.each([&](RecordingCommunicator& comm) {
    auto mine = std::make_unique<MadeUpBackward>(world, comm);
    backward_and_reduce(*mine, buckets, comm);
    return mine;
  });
  CommPlan plan;
  for (const Range& bucket : buckets)
    plan.add({CommKind::all_reduce, DType::f32, Elements(bucket.size()), WorldSize{ranks}});
  for (int r = 0; r < ranks; ++r) {
    MadeUpBackward& mine = *backward[static_cast<std::size_t>(r)];
    const std::string where = std::to_string(buckets.size()) + " buckets, rank " + std::to_string(r) + ": ";
    check_order(mine, buckets, where);
    require(world.issued(r) == plan, where + "one all-reduce a bucket is needed, and nothing else");
    for (std::int64_t i = 0; i < kArena; ++i) {
      float sum = value(0, i);
      for (int other = 1; other < ranks; ++other) sum += value(other, i);
      require(mine.grads().const_data_ptr<float>()[i] == sum,
              where + "gradient " + std::to_string(i) + " is not the sum over ranks");
    }
  }
}

std::string check() {
  for (const int ranks : {2, 1, 3})
    for (const std::int64_t size : {130, 40, 170, 999, 2000}) check_world(ranks, cut(size));
  return "1 to 3 ranks: each bucket is issued before the next unit is computed, and nobody waits before the "
         "last";
}

}  // namespace

const Exercise kExercise{
    "overlap",
    "the arena fills from its end: after compute(unit) everything from range(unit).begin on is complete",
    check};

}  // namespace sc::exercise
