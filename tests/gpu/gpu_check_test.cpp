// Tests what a run on a GPU says about the GPU; needs no GPU.
#include "common/gpu/gpu_check.h"

#include <gtest/gtest.h>

#include "common/memory/ledger.h"
#include "common/model/ops_cuda.h"

namespace sc {
namespace {

GpuFacts h200() {
  return {.name = "NVIDIA H200",
          .memory = Bytes(std::int64_t{140} << 30),
          .capability = {9, 0},
          .cuda = "13.0",
          .driver = "13.1",
          .cudnn = "9.19.0",
          .cublas = "13.1.0"};
}

RunShape shape_of_gpt2(DType dtype, std::int64_t head_dim = 64, std::int64_t sequence = 1024) {
  RunShape shape;
  shape.workload.model = {.layers = 12, .heads = 12, .width = 12 * head_dim, .context = 1024};
  shape.workload.batch.sequence = sequence;
  shape.workload.precision.dtype = dtype;
  shape.ops = OpsBackend::fused;
  return shape;
}

TEST(GpuCheck, SaysWhichAttentionComputes) {
  const std::string bf16 = describe_gpu(h200(), shape_of_gpt2(DType::bf16), true);
  EXPECT_NE(bf16.find("fused operations, attention by cuDNN 9.19.0, one graph a step"), std::string::npos)
      << bf16;
  EXPECT_EQ(warn_of_attention(h200(), shape_of_gpt2(DType::bf16)), "");
  RunShape fixed_order = shape_of_gpt2(DType::bf16);
  fixed_order.ops = OpsBackend::deterministic;
  const std::string deterministic = describe_gpu(h200(), fixed_order, false);
  EXPECT_NE(deterministic.find("fused, deterministic operations"), std::string::npos) << deterministic;
  const std::string fp32 = describe_gpu(h200(), shape_of_gpt2(DType::f32), false);
  EXPECT_NE(fp32.find("attention by ATen, written out"), std::string::npos) << fp32;
  EXPECT_EQ(fp32.find("graph"), std::string::npos) << fp32;
}

TEST(GpuCheck, WarnsWithTheReasonOnHopper) {
  EXPECT_EQ(
      warn_of_attention(h200(), shape_of_gpt2(DType::f32)),
      "  warning  attention is not cuDNN's, whose kernel is made for this GPU, but written out in ATen: its "
      "kernel takes 16-bit numbers, and precision.dtype is f32\n");
  EXPECT_NE(warn_of_attention(h200(), shape_of_gpt2(DType::bf16, 20)).find("20 elements is no multiple of 8"),
            std::string::npos);
  EXPECT_NE(warn_of_attention(h200(), shape_of_gpt2(DType::f16, 256)).find("256 elements is longer than 128"),
            std::string::npos);
  EXPECT_NE(warn_of_attention(h200(), shape_of_gpt2(DType::bf16, 64, 1)).find("batch.sequence is 1"),
            std::string::npos);
  GpuFacts ampere = h200();
  ampere.capability = {8, 0};
  EXPECT_EQ(warn_of_attention(ampere, shape_of_gpt2(DType::f32)), "");
}

// The warning is one line, on any GPU, and the run's description says the same.
TEST(GpuCheck, WarnsWhereAGpuLacksTheKernel) {
  RunShape lacks = shape_of_gpt2(DType::bf16);
  lacks.cudnn_attention = false;
  GpuFacts ampere = h200();
  ampere.capability = {8, 6};
  for (const GpuFacts& gpu : {h200(), ampere}) {
    EXPECT_EQ(
        warn_of_attention(gpu, lacks),
        "  warning  attention is not cuDNN's, but written out in ATen: cuDNN has no kernel of this shape for "
        "this GPU\n");
    EXPECT_NE(describe_gpu(gpu, lacks, false).find("attention by ATen, written out"), std::string::npos);
  }
}

// The reasons for a warning are those of the operation that decides.
TEST(GpuCheck, TheReasonAgreesWithWhatComputes) {
  int with_reason = 0;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const std::int64_t head : {4, 8, 20, 64, 128, 136, 256}) {
      for (const std::int64_t sequence : {1, 2, 1024}) {
        const bool cudnn = why_not_cudnn_attention(shape_of_gpt2(dtype, head, sequence)).empty();
        EXPECT_EQ(cudnn, attention_uses_cudnn(to_aten(dtype), sequence, head));
        with_reason += cudnn ? 0 : 1;
      }
    }
  }
  EXPECT_GT(with_reason, 0);
}

}  // namespace
}  // namespace sc
