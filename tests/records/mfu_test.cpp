#include "common/records/mfu.h"

#include <gtest/gtest.h>

namespace sc {
namespace {

// GPT-2 124M, whose vocabulary of 50,257 is stored as 50,304 rows.
Workload gpt2_124m() {
  Workload w;
  w.model = {.layers = 12, .heads = 12, .width = 768, .context = 1024, .vocab = 50257, .tied = true};
  w.batch.sequence = 1024;
  w.precision.dtype = DType::bf16;
  return w;
}

// GPT-2 has 124,439,808 parameters; 47 rows of 768 pad its vocabulary.
TEST(Mfu, CountsAsTheFormulaSays) {
  const ModelFlops f = flops_of(gpt2_124m(), "NVIDIA H200", 1, false);
  EXPECT_EQ(f.parameters, 124'439'808 + 47 * 768);
  EXPECT_EQ(f.a_token, 6.0 * 124'475'904 + 6.0 * 12 * 768 * 1024);
  EXPECT_EQ(f.peak, 989e12);
  EXPECT_EQ(f.peak_of, "NVIDIA H200, bf16");
  EXPECT_NEAR(*f.mfu(605'400), 605'400 * 803'478'528.0 / 989e12, 1e-12);
}

TEST(Mfu, AnUntiedHeadIsAMatrixMore) {
  Workload w = gpt2_124m();
  w.model.tied = false;
  EXPECT_EQ(flops_of(w, "NVIDIA H200", 1, false).parameters, 124'475'904 + 50'304 * 768);
}

TEST(Mfu, IsOfAllGpus) {
  const ModelFlops one = flops_of(gpt2_124m(), "NVIDIA A100-SXM4-80GB", 1, false);
  const ModelFlops four = flops_of(gpt2_124m(), "NVIDIA A100-SXM4-80GB", 4, false);
  EXPECT_EQ(one.peak, 312e12);
  EXPECT_NEAR(*four.mfu(4e5), *one.mfu(1e5), 1e-12);
}

TEST(Mfu, WithoutAPeakThereIsAReason) {
  Workload fp32 = gpt2_124m();
  fp32.precision.dtype = DType::f32;
  const ModelFlops cases[] = {flops_of(gpt2_124m(), "NVIDIA H200 NVL", 1, false),
                              flops_of(fp32, "NVIDIA H200", 1, false),
                              flops_of(gpt2_124m(), "NVIDIA H200", 2, true)};
  const char* const reasons[] = {"NVIDIA H200 NVL", "fp32", "share"};
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(cases[i].peak, std::nullopt);
    EXPECT_EQ(cases[i].mfu(1e5), std::nullopt);
    EXPECT_NE(cases[i].peak_of.find(reasons[i]), std::string::npos) << cases[i].peak_of;
  }
}

}  // namespace
}  // namespace sc
