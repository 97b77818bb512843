#include "common/base/gpu_architectures.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

namespace sc {
namespace {

// Checks the default list of CudaArchitectures.cmake. Which images a GPU runs is CUDA's rule (CUDA C++
// programming guide, "binary compatibility", "PTX compatibility").
TEST(GpuArchitectures, TheBuildServesEveryGpuOf8AndNewer) {
  const std::string_view built = STAGECRAFT_GPU_ARCHITECTURES;
  for (const Capability gpu :
       {Capability{8, 0}, {8, 6}, {8, 7}, {8, 9}, {9, 0}, {10, 0}, {10, 3}, {12, 0}, {12, 1}})
    EXPECT_TRUE(architectures_serve(built, gpu)) << gpu.text();
  for (const Capability gpu : {Capability{7, 5}, {7, 0}, {6, 1}})
    EXPECT_FALSE(architectures_serve(built, gpu)) << gpu.text();
}

/// Each row: the architectures that were built, a GPU, and whether they serve it.
void expect_serves(const std::vector<std::tuple<std::string, Capability, bool>>& rows) {
  for (const auto& [built, gpu, serves] : rows)
    EXPECT_EQ(architectures_serve(built, gpu), serves) << built << " on " << gpu.text();
}

TEST(GpuArchitectures, MachineCodeServesItsMajorNumber) {
  expect_serves({{"80-real", {8, 9}, true},
                 {"86-real", {8, 0}, false},
                 {"80-real", {9, 0}, false},
                 {"90-real", {8, 9}, false},
                 {"90-real", {10, 0}, false},
                 {"75-real 90-real", {9, 0}, true}});
}

TEST(GpuArchitectures, PtxServesAllThatIsNewer) {
  expect_serves({{"80-virtual", {8, 0}, true},
                 {"80-virtual", {12, 0}, true},
                 {"86", {9, 0}, true},
                 {"86-virtual", {8, 0}, false},
                 {"100-virtual", {9, 0}, false},
                 {"", {9, 0}, false}});
}

TEST(GpuArchitectures, FeaturesOfOneGpuServeIt) {
  expect_serves(
      {{"90a", {9, 0}, true}, {"90a-real", {9, 0}, true}, {"90a", {10, 0}, false}, {"120a", {12, 1}, false}});
}

TEST(GpuArchitectures, TheRefusalNamesBoth) {
  const InputError old = no_kernels_for("GPU 0 (NVIDIA T4)", {7, 5}, "80 90-real");
  EXPECT_EQ(old.code(), ExitCode::missing);
  EXPECT_EQ(std::string(old.what()),
            "GPU 0 (NVIDIA T4), compute capability 7.5: the kernels need 8.0 or newer\n"
            "  fix: a newer GPU, or run.sh --preset cpu");
  const InputError other = no_kernels_for("GPU 1 (NVIDIA A100-SXM4-40GB)", {8, 0}, "90-real");
  EXPECT_EQ(other.code(), ExitCode::missing);
  EXPECT_EQ(std::string(other.what()),
            "GPU 1 (NVIDIA A100-SXM4-40GB), compute capability 8.0: this build has kernels for the CUDA "
            "architectures 90-real alone\n"
            "  fix: rm -r build/cuda, then start again: without CMAKE_CUDA_ARCHITECTURES the build serves "
            "8.0 and newer");
}

}  // namespace
}  // namespace sc
