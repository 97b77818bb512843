#include "common/data/loader.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "common/data/loader_plan.h"
#include "tests/storage/temp_dir.h"

namespace sc {
namespace {

class LoaderTest : public test::InTempDir {
 protected:
  LoaderTest() {
    std::string text;
    for (int i = 0; i < 4000; ++i) text += static_cast<char>('a' + i * i % 23);
    ops_->create(dir_ / "text.txt")->append(as_bytes(text));
    workload_.data.source = (dir_ / "text.txt").string();
    workload_.batch = {.sequence = 16, .global = 12, .micro = 2};
    workload_.data.validation_fraction = 0.2;
    workload_.data.validation_rows = 10;
    data_.emplace(Dataset::open(*ops_, workload_, dir_ / "cache"));
    sampler_.emplace(*data_, workload_);
  }

  Workload workload_;
  std::optional<Dataset> data_;
  std::optional<Sampler> sampler_;
  Ledger ledger_{at::Device(at::kCPU)};
};

/// What a loader handed out as one tensor, [batches, 2 (tokens, targets), B, T].
at::Tensor joined(std::span<const Batch> batches) {
  std::vector<at::Tensor> parts;
  for (const Batch& batch : batches) {
    parts.push_back(batch.tokens.unsqueeze(0));
    parts.push_back(batch.targets.unsqueeze(0));
  }
  return at::cat(parts);
}

TEST_F(LoaderTest, RanksInOrderAreWorldOne) {
  Loader one(*sampler_, ledger_, {});
  for (const std::int64_t step : {0, 1, 7}) {
    const at::Tensor reference = joined(one.train(step));
    EXPECT_EQ(reference.size(0), 12);  // 6 micro-batches
    for (const std::int64_t ranks : {2, 3, 6}) {
      std::vector<at::Tensor> parts;
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        Loader loader(*sampler_, ledger_, {.rank = rank, .ranks = ranks});
        parts.push_back(joined(loader.train(step)));
      }
      EXPECT_TRUE(at::equal(at::cat(parts), reference)) << ranks << " ranks, step " << step;
    }
  }
}

TEST_F(LoaderTest, TargetsAreTheNextTokensAndScaleIsTheReciprocalOfTheirNumber) {
  Loader loader(*sampler_, ledger_, {.rank = 1, .ranks = 2});
  const auto batches = loader.train(3);
  ASSERT_EQ(batches.size(), 3U);
  for (const Batch& batch : batches) {
    EXPECT_EQ(batch.tokens.sizes(), (at::IntArrayRef{2, 16}));
    EXPECT_TRUE(at::equal(batch.tokens.slice(1, 1), batch.targets.slice(1, 0, 15)));
    EXPECT_FLOAT_EQ(batch.scale.item<float>(), 1.0F / (12 * 16));
  }
}

// The loss is multiplied by fp16's scale and by what --inject asks for; neither outlives its step.
TEST_F(LoaderTest, TheLossIsMultipliedByWhatIsHandedIn) {
  Loader loader(*sampler_, ledger_, {});
  const auto scale_of = [&](std::int64_t step, const LossFactor& factor) {
    return loader.train(step, factor)[0].scale.item<float>();
  };
  EXPECT_EQ(scale_of(0, {.loss_scale = at::full({}, 4096.0, at::kFloat)}), 4096.0F / (12 * 16));
  EXPECT_TRUE(std::isnan(scale_of(1, {.factor = std::nan("")})));
  for (const Batch& batch : loader.train(2, {.factor = std::nan("")}))
    EXPECT_TRUE(std::isnan(batch.loss_factor));
  EXPECT_EQ(scale_of(3, {}), 1.0F / (12 * 16));
  EXPECT_EQ(loader.train(4)[0].loss_factor, 1);
}

TEST_F(LoaderTest, EvaluationIsTheSameOnAnyWorldAndEvenlyLong) {
  Loader one(*sampler_, ledger_, {});
  const at::Tensor reference = joined(one.validation()).clone();
  EXPECT_EQ(reference.size(0), 10);
  for (const std::int64_t ranks : {2, 3, 4, 7}) {
    std::vector<at::Tensor> parts;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      Loader loader(*sampler_, ledger_, {.rank = rank, .ranks = ranks});
      const auto batches = loader.validation();
      EXPECT_EQ(static_cast<std::int64_t>(batches.size()), ceil_div(5, ranks));
      parts.push_back(joined(batches));
    }
    const at::Tensor all = at::cat(parts);
    EXPECT_TRUE(at::equal(all.slice(0, 0, 10), reference)) << ranks;
    const at::Tensor surplus = all.slice(0, 10).unflatten(0, {-1, 2}).select(1, 1);
    EXPECT_EQ(surplus.numel() == 0 ? -1 : surplus.max().item<std::int64_t>(), -1) << ranks;
  }
}

TEST_F(LoaderTest, BytesAreThePlansAndAllocatedOnce) {
  for (const std::int64_t ranks : {1, 2, 3, 6, 12}) {
    Ledger ledger{at::Device(at::kCPU)};
    if (ranks == 12) workload_.batch.micro = 1;
    const Sampler sampler(*data_, workload_);
    Loader loader(sampler, ledger, {.rank = 0, .ranks = ranks});
    loader.train(0);
    loader.validation();
    MemoryPlan plan;
    plan_loader(workload_.batch, sampler.evaluated_at_once(), ranks, DeviceKind::cpu, plan);
    EXPECT_EQ(ledger.peak(Purpose::workspace), plan.of(Purpose::workspace)) << ranks;
    EXPECT_EQ(ledger.peak_total(), plan.total()) << ranks;
  }
  // The bytes are counted by hand: two ranks have 3 training and 3 evaluation micro-batches of 2 x 16 tokens,
  // twice 8 bytes each, and the scale.
  workload_.batch.micro = 2;
  MemoryPlan plan;
  plan_loader(workload_.batch, Sampler(*data_, workload_).evaluated_at_once(), 2, DeviceKind::cpu, plan);
  EXPECT_EQ(plan.total(), Bytes(3 * 2 * 16 * 16 + 4));
}

}  // namespace
}  // namespace sc
