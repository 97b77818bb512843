#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <limits>

#include "lessons/04_zero3/exercise/prefetch.h"
#include "tests/exercises/check.h"
#include "tests/exercises/world.h"

namespace sc::exercise {
namespace {

constexpr std::int64_t kSize = 240;  // elements of a block; 1 to 4 ranks divide it

float value(std::int64_t block, std::int64_t i) { return static_cast<float>(1000 * block + i); }

/// Looks at the parameters that a block is computed with, and notes how far communication had come then.
class MadeUpForward : public ShardedForward {
 public:
  MadeUpForward(const World& world, RecordingCommunicator& comm, int blocks, bool delays)
      : world_(world), comm_(comm), delays_(delays) {
    const std::int64_t size = kSize / to_int(comm.size()), begin = to_int(comm.rank()) * size;
    for (int block = 0; block < blocks; ++block) {
      slices_.push_back(at::empty({size}, at::kFloat));
      for (std::int64_t i = 0; i < size; ++i)
        slices_.back().mutable_data_ptr<float>()[i] = value(block, begin + i);
    }
  }
  int num_blocks() const override { return static_cast<int>(slices_.size()); }
  const at::Tensor& slice(int block) const override { return slices_.at(static_cast<std::size_t>(block)); }
  void compute(int block, const at::Tensor& params) override {
    const std::string text = where() + "before block " + std::to_string(block) + " was computed, ";
    require(block == next_, where() + "block " + std::to_string(block) + " was computed, it was block " +
                                std::to_string(next_) + "'s turn");
    const std::int64_t issued = comm_.record().operations(), due = std::min(block + 2, num_blocks());
    const std::string said = text + std::to_string(issued) + " all-gathers had been issued; ";
    require(issued >= due, said + std::to_string(due) + " can be");
    require(issued == due, said + "there is room for " + std::to_string(due));
    const std::int64_t waited = world_.traffic(static_cast<int>(comm_.rank())).waits;
    require(waited <= block + 1, text + std::to_string(waited) + " had been waited for; " +
                                     std::to_string(block + 1) + " are needed");
    for (std::int64_t i = 0; i < kSize; ++i)
      require(params.numel() == kSize && params.const_data_ptr<float>()[i] == value(block, i),
              where() + "block " + std::to_string(block) + " was not computed with its own parameters");
    ++next_;
  }
  [[nodiscard]] int computed() const { return next_; }
  [[nodiscard]] std::string where() const {
    return "rank " + std::to_string(to_int(comm_.rank())) + (delays_ ? ", with random delays: " : ": ");
  }

 private:
  const World& world_;
  RecordingCommunicator& comm_;
  bool delays_;
  std::vector<at::Tensor> slices_;
  int next_ = 0;
};

void check_world(int ranks, int blocks, bool delays) {
  World world(ranks, delays);
  world.run([&](RecordingCommunicator& comm) {
    MadeUpForward mine(world, comm, blocks, delays);
    std::array<at::Tensor, 2> pool;
    for (at::Tensor& buffer : pool)
      buffer = at::full({kSize}, std::numeric_limits<double>::quiet_NaN(), at::kFloat);
    forward(mine, pool, comm);
    require(mine.computed() == blocks, mine.where() + std::to_string(mine.computed()) + " of " +
                                           std::to_string(blocks) + " blocks were computed");
  });
  CommPlan plan;
  plan.add({CommKind::all_gather, DType::f32, Elements(kSize), WorldSize{ranks}}, blocks);
  for (int r = 0; r < ranks; ++r)
    require(world.issued(r) == plan, "one all-gather a block is needed, and nothing else");
}

std::string check() {
  for (const int ranks : {2, 1, 3})
    for (const int blocks : {5, 1, 2}) check_world(ranks, blocks, false);
  for (int turn = 0; turn < 5; ++turn) check_world(2, 5, true);
  return "1 to 3 ranks: while a block is computed the next one is on its way, in two buffers; delays change "
         "nothing";
}

}  // namespace

const Exercise kExercise{
    "prefetch", "gather block 0 before the loop; in it, issue the next gather before you wait for this one",
    check};

}  // namespace sc::exercise
