#include "common/memory/formula.h"

#include <gtest/gtest.h>

#include "common/memory/planned_buffers.h"

namespace sc {
namespace {

void expect(const Formula& formula, const char* text, std::int64_t value) {
  EXPECT_EQ(formula.text(), text);
  EXPECT_EQ(formula.value(), value) << text;
}

TEST(Formula, IsWorkedOutAsItIsRead) {
  const Formula P("P", 12), N("N", 4), L("L", 5);
  expect(4 * P, "4 P", 48);
  expect(4 * (2 * P / N), "4 x 2 P/N", 24);
  expect(4 * ((P - 2 * N) / N), "4 (P - 2 N)/N", 4);
  expect(2 * (1 + 3 * L) * P * N, "2 (1 + 3 L) P N", 2 * 16 * 48);
  expect(P - (N - 1) - L, "P - (N - 1) - L", 4);
  expect(4 * (N - 1) * 256 * Formula("KiB", 1024), "4 (N - 1) 256 KiB", 12 * 256 * 1024);
  expect(times(2, N) * Formula("MiB", 1024 * 1024), "2 x N MiB", 8 * 1024 * 1024);
  expect(P / (N - 1), "P/(N - 1)", 4);
  expect(8 * Formula(), "8", 8);
  expect(copies(1, 4 * P), "4 P", 48);
  expect(copies(2, 4 * P), "2 (4 P)", 96);
  EXPECT_THROW(P / L, std::logic_error);
}

TEST(PlannedBuffers, AreTakenOnceAndAsDeclared) {
  MemoryPlan plan;
  plan.add({Purpose::gradients, "grads", Formula("unit", 3), DType::bf16});
  plan.add({Purpose::gradients, "grads", Formula("unit", 5), DType::bf16});
  plan.add({Purpose::master, "master", 7, DType::f32, Place::host});
  plan.add({Purpose::momentum, "on disk", 4096, DType::u8, Place::disk});
  plan.add_nonempty({Purpose::variance, "nothing", 0, DType::f32});
  Ledger ledger(at::kCPU);
  PlannedBuffers buffers(ledger, plan);
  const std::vector<at::Tensor> grads = buffers.all_zeros("grads");
  ASSERT_EQ(grads.size(), 2U);
  EXPECT_EQ(grads[0].numel(), 3);
  EXPECT_EQ(grads[1].numel(), 5);
  EXPECT_EQ(grads[1].scalar_type(), at::kBFloat16);
  const at::Tensor master = buffers.zeros("master");
  const auto reserved = buffers.reserve_disk();
  EXPECT_TRUE(differences(plan.by_name(), ledger.peaks_by_name()).empty());
  for (const char* none : {"grads", "master", "nothing"}) EXPECT_FALSE(buffers.zeros(none).defined()) << none;
}

}  // namespace
}  // namespace sc
