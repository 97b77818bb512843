#include <ATen/ops/zeros.h>

#include "lessons/03_zero2/exercise/two_alive.h"
#include "tests/exercises/check.h"
#include "tests/exercises/world.h"

namespace sc::exercise {
namespace {

constexpr int kBlocks = 5;
constexpr std::int64_t kSize = 240;  // elements of a block; 1 to 4 ranks divide it

float value(std::int64_t rank, std::int64_t block, std::int64_t i) {
  return static_cast<float>(rank + 1 + 7 * block) / static_cast<float>(i + 3);
}

/// Writes a block's gradient when it is computed, and notes how far communication had come then.
class MadeUpBlocks : public BlocksBackward {
 public:
  MadeUpBlocks(const World& world, RecordingCommunicator& comm)
      : moments(world, comm), rank_(to_int(comm.rank())) {
    for (int block = 0; block < kBlocks; ++block)
      slices_.push_back(at::zeros({kSize / to_int(comm.size())}, at::kFloat));
  }
  int num_blocks() const override { return kBlocks; }
  std::int64_t size() const override { return kSize; }
  void compute(int block, at::Tensor& grads) override {
    require(grads.numel() == kSize, "a block's full gradient has " + std::to_string(kSize) + " elements");
    moments.note(block);
    for (std::int64_t i = 0; i < kSize; ++i) grads.mutable_data_ptr<float>()[i] = value(rank_, block, i);
  }
  at::Tensor& slice(int block) override { return slices_.at(static_cast<std::size_t>(block)); }
  Moments moments;

 private:
  std::int64_t rank_;
  std::vector<at::Tensor> slices_;
};

void check_order(const MadeUpBlocks& backward, const std::string& where) {
  backward.moments.require_descent(
      kBlocks - 1, where, "block", [](int block, const Moments::Moment& m, const std::string& text) {
        const int before = kBlocks - 1 - block;  // blocks that were computed
        require(m.issued == before, text + std::to_string(m.issued) +
                                        " reduce-scatters had been issued, not " + std::to_string(before));
        require(m.waited <= std::max(0, before - 1),
                text + std::to_string(m.waited) + " had been waited for; the last one may still travel");
      });
}

void check_sums(MadeUpBlocks& backward, int rank, int ranks, const std::string& where) {
  for (int block = 0; block < kBlocks; ++block)
    for (std::int64_t i = 0; i < kSize / ranks; ++i) {
      const std::int64_t at = rank * (kSize / ranks) + i;
      float sum = value(0, block, at);
      for (int r = 1; r < ranks; ++r) sum += value(r, block, at);
      require(backward.slice(block).const_data_ptr<float>()[i] == sum,
              where + "the slice of block " + std::to_string(block) + " is not the sum over ranks");
    }
}

struct Ran {
  std::unique_ptr<MadeUpBlocks> backward;
  Bytes peak;  // of gradients
};

void check_world(int ranks, bool delays) {
  World world(ranks, delays);
  const std::vector<Ran> ran = world.each([&](RecordingCommunicator& comm) {
    auto backward = std::make_unique<MadeUpBlocks>(world, comm);
    Ledger ledger(at::kCPU);
    backward_into_slices(*backward, ledger, comm);
    return Ran{std::move(backward), ledger.peak(Purpose::gradients)};
  });
  CommPlan plan;
  plan.add({CommKind::reduce_scatter, DType::f32, Elements(kSize), WorldSize{ranks}}, kBlocks);
  constexpr Bytes kTwo{2 * kSize * 4};
  for (int r = 0; r < ranks; ++r) {
    const auto& [backward, peak] = ran[static_cast<std::size_t>(r)];
    const std::string where = std::to_string(ranks) + " ranks, rank " + std::to_string(r) +
                              (delays ? ", with random delays: " : ": ");
    require(peak.value() > 0, where + "full gradients come from the ledger, which was not asked");
    require(peak <= kTwo, where + std::to_string(peak.value()) + " bytes of gradients were alive; " +
                              std::to_string(kTwo.value()) + " are two blocks");
    check_order(*backward, where);
    require(world.issued(r) == plan, where + "one reduce-scatter a block is needed, and nothing else");
    check_sums(*backward, r, ranks, where);
  }
}

std::string check() {
  for (const int ranks : {2, 1, 3}) check_world(ranks, false);
  for (int turn = 0; turn < 5; ++turn) check_world(2, true);
  return "1 to 3 ranks: two full gradients alive, each on its way while the next is computed; delays change "
         "nothing";
}

}  // namespace

const Exercise kExercise{"two_alive",
                         "block b computes into the memory of block b + 2: wait for that one's ticket, "
                         "right before compute(), and for no other",
                         check};

}  // namespace sc::exercise
