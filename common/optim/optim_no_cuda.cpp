// The build without GPU code.
#include "common/base/check.h"
#include "common/optim/optim_cuda.h"

namespace sc {
namespace {

[[noreturn]] void refuse() {
  throw InputError(ExitCode::missing, "the optimizer", "this build has no GPU code",
                   "cmake --preset cuda && cmake --build --preset cuda, or --device cpu");
}

}  // namespace

void adamw_step_cuda(const AdamWHyper&, const StepScalars&, std::span<const Range>, const at::Tensor&,
                     at::Tensor&, at::Tensor&, at::Tensor&, at::Tensor*) {
  refuse();
}
void add_sums_of_squares_cuda(std::span<const at::Tensor>, at::Tensor&) { refuse(); }
void finish_sums_cuda(at::Tensor&) { refuse(); }
void global_norm_and_clip_cuda(const at::Tensor&, double, const StepScalars&) { refuse(); }

}  // namespace sc
