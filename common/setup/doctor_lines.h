// What the doctor program prints: one line per library, and what is wrong with it.
#pragma once

#include <string>
#include <vector>

namespace sc {

struct DoctorLine {
  std::string name, value;
  std::string fix = "";  // empty: nothing is wrong
};

/// The lines about CUDA's runtime and driver, the GPUs and NCCL; without GPU code one that says so.
std::vector<DoctorLine> gpu_lines();

}  // namespace sc
