// Tests that a loader on a GPU gives the same batches as one on the CPU, however steps, prefetches and
// evaluations take turns.
#include <optional>

#include "common/data/loader.h"
#include "common/data/loader_plan.h"
#include "common/data/token_file.h"
#include "common/data/tokenizer.h"
#include "tests/storage/temp_dir.h"
#include "tests/support/gpu.h"

namespace sc {
namespace {

using test::TempDir;

class LoaderCudaTest : public test::GpuTest {
 protected:
  /// Rows of many lengths, padded: steps differ in their number of targets.
  void set_up() override {
    std::vector<TokenId> tokens;
    for (int document = 0; document < 200; ++document) {
      for (int i = 0; i <= document % 7; ++i)
        tokens.push_back(static_cast<TokenId>((document * 31 + i) % 250));
      tokens.push_back(ByteTokenizer::kEndOfText);
    }
    write_token_file(*ops_, dir_ / "a.bin", tokens);
    workload_.data.source = (dir_ / "a.bin").string();
    workload_.data.packing = Packing::pad_masked;
    workload_.data.validation_fraction = 0.2;
    workload_.data.validation_rows = 10;
    workload_.batch = {.sequence = 6, .global = 12, .micro = 2};
    data_.emplace(Dataset::open(*ops_, workload_, dir_ / "cache"));
    sampler_.emplace(*data_, workload_);
    const DataShare share{.rank = 1, .ranks = 2};
    host_.emplace(*sampler_, host_ledger_, share);
    gpu_.emplace(*sampler_, gpu_ledger_.emplace(at::Device(at::kCUDA)), share);
  }

  static void expect_equal(std::span<const Batch> gpu, std::span<const Batch> host) {
    ASSERT_EQ(gpu.size(), host.size());
    ASSERT_FALSE(host.empty());
    for (std::size_t m = 0; m < host.size(); ++m) {
      EXPECT_TRUE(gpu[m].tokens.is_cuda());
      EXPECT_TRUE(at::equal(gpu[m].tokens.cpu(), host[m].tokens)) << m;
      EXPECT_TRUE(at::equal(gpu[m].targets.cpu(), host[m].targets)) << m;
      EXPECT_TRUE(at::equal(gpu[m].scale.cpu(), host[m].scale)) << m;
    }
  }

  TempDir dir_;
  std::unique_ptr<FileOps> ops_ = posix_file_ops(Syncing::skip);
  Workload workload_;
  std::optional<Dataset> data_;
  std::optional<Sampler> sampler_;
  Ledger host_ledger_{at::Device(at::kCPU)};
  std::optional<Ledger> gpu_ledger_;
  std::optional<Loader> host_, gpu_;
};

// Tries every order of three decisions: is the next step prefetched while this one's copies wait, is there an
// evaluation in between, is another step prefetched than the one that comes. Copies are held back, so that
// memory which is written too early shows.
TEST_F(LoaderCudaTest, BatchesAreTheCpusInEveryOrder) {
  expect_equal(gpu_->train(100), host_->train(100));  // everything has been used once
  for (std::int64_t step = 0; step < 16; ++step) {
    SCOPED_TRACE(step);
    std::span<const Batch> batches;
    {
      const test::HeldStream held;
      batches = gpu_->train(step);
      if (step % 2 == 0) gpu_->prefetch(step + 1);
    }
    expect_equal(batches, host_->train(step));
    if (step / 2 % 2 == 0) {
      {
        const test::HeldStream held;
        batches = gpu_->validation();
      }
      expect_equal(batches, host_->validation());
    }
    if (step / 4 % 2 == 0) gpu_->prefetch(step + 3);
  }
}

TEST_F(LoaderCudaTest, BytesAreThePlans) {
  MemoryPlan plan;
  plan_loader(workload_.batch, ceil_div(workload_.data.validation_rows, workload_.batch.micro), 2,
              DeviceKind::cuda, plan);
  EXPECT_EQ(gpu_ledger_->peak(Purpose::workspace), plan.of(Purpose::workspace));
  EXPECT_EQ(gpu_ledger_->peak(Purpose::workspace, Place::pinned), plan.of(Purpose::workspace, Place::pinned));
  EXPECT_EQ(gpu_ledger_->peak_total(), plan.total());
}

}  // namespace
}  // namespace sc
