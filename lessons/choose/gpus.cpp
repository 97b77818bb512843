// The table of GPUs: peak rates by the vendor's data sheets ("sparse" figures there halved), compute
// capabilities by CUDA's table. Only GPUs that the build has kernels for (tests/choose).
#include <array>
#include <vector>

#include "common/base/check.h"
#include "common/base/text.h"
#include "machine.h"

namespace sc::choose {
namespace {

constexpr double kT = 1e12, kG = 1e9, kPcie4 = 32 * kG, kPcie5 = 64 * kG;  // PCIe: x16, one way
constexpr Bytes gb(std::int64_t n) { return Bytes(n * 1'000'000'000); }

constexpr std::array<Gpu, 9> kGpus = {{
    {"H200",
     {9, 0},
     true,
     989 * kT,
     67 * kT,
     gb(141),
     4800 * kG,
     450 * kG,
     kPcie5,
     "NVIDIA H200 data sheet (SXM)"},
    {"H100",
     {9, 0},
     true,
     989 * kT,
     67 * kT,
     gb(80),
     3350 * kG,
     450 * kG,
     kPcie5,
     "NVIDIA H100 data sheet (SXM)"},
    {"A100-80GB",
     {8, 0},
     false,
     312 * kT,
     19.5 * kT,
     gb(80),
     2039 * kG,
     300 * kG,
     kPcie4,
     "NVIDIA A100 data sheet (SXM)"},
    {"A100-40GB",
     {8, 0},
     false,
     312 * kT,
     19.5 * kT,
     gb(40),
     1555 * kG,
     300 * kG,
     kPcie4,
     "NVIDIA A100 data sheet (SXM)"},
    {"B200",
     {10, 0},
     false,
     2250 * kT,
     75 * kT,
     gb(180),
     8000 * kG,
     900 * kG,
     kPcie5,
     "NVIDIA HGX and DGX B200 data sheets, an eighth"},
    {"L40S", {8, 9}, false, 362 * kT, 91.6 * kT, gb(48), 864 * kG, kPcie4, kPcie4, "NVIDIA L40S data sheet"},
    {"L4", {8, 9}, false, 121 * kT, 30.3 * kT, gb(24), 300 * kG, kPcie4, kPcie4, "NVIDIA L4 data sheet"},
    {"RTX4090",
     {8, 9},
     false,
     165.2 * kT,
     82.6 * kT,
     gb(24),
     1008 * kG,
     kPcie4,
     kPcie4,
     "NVIDIA Ada GPU architecture white paper"},
    {"RTX3090",
     {8, 6},
     false,
     71 * kT,
     35.6 * kT,
     gb(24),
     936 * kG,
     kPcie4,
     kPcie4,
     "NVIDIA Ampere GA102 white paper"},
}};

}  // namespace

std::span<const Gpu> known_gpus() { return kGpus; }

const Gpu& gpu_named(const std::string& name) {
  std::vector<std::string> names;
  std::string all;
  for (const Gpu& gpu : kGpus) {
    if (name == gpu.name) return gpu;
    names.emplace_back(gpu.name);
    all += (all.empty() ? "" : ", ") + names.back();
  }
  const std::string near = sc::nearest(name, names);
  throw InputError(ExitCode::usage, "--gpu " + name,
                   "no such GPU in the table" + (near.empty() ? "" : "; did you mean " + near + "?"),
                   "one of " + all);
}

}  // namespace sc::choose
