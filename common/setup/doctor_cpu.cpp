#include "common/setup/doctor_lines.h"

namespace sc {

std::vector<DoctorLine> gpu_lines() { return {{"CUDA", "not in this build (preset cpu)"}}; }

}  // namespace sc
