#include <ATen/ops/zeros.h>

#include <atomic>

#include "lessons/03_zero2/exercise/two_alive.h"
#include "tests/exercises/check.h"
#include "tests/exercises/world.h"
#include "tests/support/delaying_communicator.h"

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
  struct Moment {
    int block;
    std::int64_t issued, waited;  // operations, before the block was computed
  };
  MadeUpBlocks(const World& world, RecordingCommunicator& comm, bool watched)
      : world_(world), comm_(comm), watched_(watched) {
    for (int block = 0; block < kBlocks; ++block)
      slices_.push_back(at::zeros({kSize / to_int(comm.size())}, at::kFloat));
  }
  int num_blocks() const override { return kBlocks; }
  std::int64_t size() const override { return kSize; }
  void compute(int block, at::Tensor& grads) override {
    require(grads.numel() == kSize, "a block's full gradient has " + std::to_string(kSize) + " elements");
    const int me = static_cast<int>(comm_.rank());
    moments_.push_back({block, comm_.record().operations(), watched_ ? world_.waits(me) : 0});
    for (std::int64_t i = 0; i < kSize; ++i) grads.mutable_data_ptr<float>()[i] = value(me, block, i);
  }
  at::Tensor& slice(int block) override { return slices_.at(static_cast<std::size_t>(block)); }
  [[nodiscard]] const std::vector<Moment>& moments() const { return moments_; }

 private:
  const World& world_;
  RecordingCommunicator& comm_;
  bool watched_;
  std::vector<at::Tensor> slices_;
  std::vector<Moment> moments_;
};

void check_order(const MadeUpBlocks& backward, const std::string& where) {
  int block = kBlocks - 1;
  for (const MadeUpBlocks::Moment& m : backward.moments()) {
    require(m.block == block, where + "block " + std::to_string(m.block) + " was computed, it was block " +
                                  std::to_string(block) + "'s turn");
    const int before = kBlocks - 1 - block;  // blocks that were computed
    const std::string text = where + "before block " + std::to_string(block) + " was computed, ";
    require(m.issued == before, text + std::to_string(m.issued) + " reduce-scatters had been issued, not " +
                                    std::to_string(before));
    require(m.waited <= std::max(0, before - 1),
            text + std::to_string(m.waited) + " had been waited for; the last one may still travel");
    --block;
  }
  require(block == -1, where + "block " + std::to_string(block) + " was never computed");
}

void check_sums(MadeUpBlocks& backward, int rank, int ranks, const std::string& where) {
  for (int block = 0; block < kBlocks; ++block) {
    for (std::int64_t i = 0; i < kSize / ranks; ++i) {
      const std::int64_t at = rank * (kSize / ranks) + i;
      float sum = value(0, block, at);
      for (int r = 1; r < ranks; ++r) sum += value(r, block, at);
      require(backward.slice(block).const_data_ptr<float>()[i] == sum,
              where + "the slice of block " + std::to_string(block) + " is not the sum over ranks");
    }
  }
}

std::unique_ptr<Communicator> delayed(std::unique_ptr<Communicator> comm) {
  static std::atomic<std::uint64_t> seed = 1;
  return std::make_unique<DelayingCommunicator>(std::move(comm), seed++);
}

void check_world(int ranks, bool watched) {
  const auto world = watched ? std::make_unique<World>(ranks) : std::make_unique<World>(ranks, delayed);
  std::vector<std::unique_ptr<MadeUpBlocks>> backward(static_cast<std::size_t>(ranks));
  std::vector<Bytes> peak(static_cast<std::size_t>(ranks));
  world->run([&](RecordingCommunicator& comm) {
    const auto me = static_cast<std::size_t>(comm.rank());
    backward[me] = std::make_unique<MadeUpBlocks>(*world, comm, watched);
    Ledger ledger(at::kCPU);
    backward_into_slices(*backward[me], ledger, comm);
    peak[me] = ledger.peak(Purpose::gradients);
  });
  CommPlan plan;
  plan.add({CommKind::reduce_scatter, DType::f32, Elements(kSize), WorldSize{ranks}}, kBlocks);
  constexpr Bytes kTwo{2 * kSize * 4};
  for (int r = 0; r < ranks; ++r) {
    const auto me = static_cast<std::size_t>(r);
    const std::string where = std::to_string(ranks) + " ranks, rank " + std::to_string(r) +
                              (watched ? ": " : ", with random delays: ");
    require(peak[me].value() > 0, where + "full gradients come from the ledger, which was not asked");
    require(peak[me] <= kTwo, where + std::to_string(peak[me].value()) + " bytes of gradients were alive; " +
                                  std::to_string(kTwo.value()) + " are two blocks");
    check_order(*backward[me], where);
    require(world->issued(r) == plan, where + "one reduce-scatter a block is needed, and nothing else");
    check_sums(*backward[me], r, ranks, where);
  }
}

std::string check() {
  for (const int ranks : {2, 1, 3}) check_world(ranks, true);
  for (int turn = 0; turn < 5; ++turn) check_world(2, false);
  return "1 to 3 ranks: two full gradients alive, each on its way while the next is computed; delays change "
         "nothing";
}

}  // namespace
}  // namespace sc::exercise

int main() {
  return sc::exercise::judge({"two_alive",
                              "block b computes into the memory of block b + 2: wait for that one's ticket, "
                              "right before compute(), and for no other",
                              sc::exercise::check});
}
