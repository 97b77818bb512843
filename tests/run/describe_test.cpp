// Tests the texts with which a run describes itself before it starts.
#include "common/run/describe.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <regex>

namespace sc {
namespace {

RunShape tiny_shape(int world) {
  RunShape shape;
  shape.workload.model = {.layers = 2, .heads = 2, .width = 32, .context = 32, .vocab = 257, .tied = true};
  shape.workload.batch = {.sequence = 32, .global = 12, .micro = 1};
  shape.mesh = Mesh(WorldSize{world});
  return shape;
}

const BatchPlan kThree{.global = 12, .micro = 1, .data_parallel = 3, .accumulation = 4, .note = ""};
const BatchPlan kOne{.global = 12, .micro = 1, .data_parallel = 1, .accumulation = 12, .note = ""};

// Elements stored: units of 13,312, 12,928 and 128 (each tensor rounded up to 64), rounded up to 64 x 3
// ranks. Parameters: 34,720 = 257 x 32 + 32 x 32 + 2 (12 x 32^2 + 13 x 32) + 2 x 32.
TEST(Describe, APlan) {
  EXPECT_EQ(
      describe_plan("01_data_parallel", tiny_shape(3), kThree),
      "01_data_parallel: plan for 3 ranks on the CPU\n"
      "  model    GPT of 34,720 parameters (P = 39,744 as stored): 2 blocks, 2 heads, width 32, context 32, "
      "vocabulary 257 (stored as 384), tied head\n"
      "  batch    12 rows of 32 tokens a step = 1 a micro-batch x 4 micro-batches x 3 data-parallel ranks\n"
      "  numbers  f32 parameters and activations, f32 gradients, f32 momentum, variance\n");
}

TEST(Describe, APlanOf16BitParametersOnGpus) {
  RunShape shape = tiny_shape(1);
  shape.device = DeviceKind::cuda;
  shape.workload.model.tied = false;
  shape.workload.precision.dtype = DType::bf16;
  shape.workload.precision.grad_dtype = DType::f32;
  const std::string text = describe_plan("00_one_device", shape, kOne);
  EXPECT_NE(text.find("00_one_device: plan for 1 rank on GPUs\n"), std::string::npos) << text;
  EXPECT_NE(text.find("untied head\n"), std::string::npos) << text;
  EXPECT_NE(text.find("x 12 micro-batches x 1 data-parallel rank\n"), std::string::npos) << text;
  EXPECT_NE(
      text.find(
          "  numbers  bf16 parameters and activations, f32 gradients, f32 master, momentum, variance\n"),
      std::string::npos)
      << text;
  shape.workload.precision = {.dtype = DType::bf16, .grad_dtype = DType::bf16, .reduce_dtype = DType::f32};
  const std::string wide = describe_plan("00_one_device", shape, kOne);
  EXPECT_NE(wide.find("bf16 gradients, summed over ranks in f32, f32 master"), std::string::npos) << wide;
}

TEST(Describe, ARunNamesTheMachine) {
  const Hardware hardware = describe_hardware();
  EXPECT_FALSE(hardware.host.empty());
  EXPECT_GE(hardware.cores, 1);
  EXPECT_GT(hardware.memory.value(), 1 << 20);
  const std::string text = describe_run("01_data_parallel", tiny_shape(3), kThree, "Open MPI");
  EXPECT_EQ(text.rfind("01_data_parallel\n  where    3 ranks on the CPU (", 0), 0U) << text;
  for (const std::string& part : {std::string("Open MPI"), hardware.cpu, versions().at("LibTorch")}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  }
  EXPECT_NE(describe_run("00_one_device", tiny_shape(1), kOne, "none").find("1 rank on the CPU (1 thread), "),
            std::string::npos);
}

TEST(Describe, Versions) {
  const std::regex form(
      "Stagecraft ([0-9a-f]{12}(-dirty)?|unknown)\nLibTorch \\d+\\.\\d+\\.\\d+\nOpen MPI \\d+\\.\\d+\\.\\d+\n"
      "g\\+\\+ \\d+\\.\\d+\\.\\d+\n");
  EXPECT_TRUE(std::regex_match(describe_versions(), form)) << describe_versions();
}

TEST(Describe, TheCommitIsWhatTheEnvironmentSays) {
  ::unsetenv("STAGECRAFT_COMMIT");
  const std::string found = source_commit();
  ::setenv("STAGECRAFT_COMMIT", "0123456789ab", 1);
  EXPECT_EQ(source_commit(), "0123456789ab");
  ::setenv("STAGECRAFT_COMMIT", "", 1);
  EXPECT_EQ(source_commit(), found);
  ::unsetenv("STAGECRAFT_COMMIT");
}

}  // namespace
}  // namespace sc
