// What the doctor program prints: one line a library, and what is wrong with it.
#pragma once

#include <string>
#include <vector>

namespace sc {

struct DoctorLine {
  std::string name, value;
  std::string fix = "";  // empty: nothing is wrong
};

/// CUDA's runtime and driver, the GPUs, NCCL. In the cpu preset: one line that says so.
std::vector<DoctorLine> gpu_lines();

}  // namespace sc
