// Stand-ins that refuse, for a build without GPU code.
#include "common/base/gpu_code.h"
#include "common/optim/optim_cuda.h"

namespace sc {

void adamw_step_cuda(const AdamWHyper&, const StepScalars&, std::span<const Range>, const at::Tensor&,
                     at::Tensor&, at::Tensor&, at::Tensor&, at::Tensor*) {
  refuse_without_gpu_code();
}
void add_sums_of_squares_cuda(std::span<const at::Tensor>, at::Tensor&) { refuse_without_gpu_code(); }
void finish_sums_cuda(at::Tensor&) { refuse_without_gpu_code(); }
void norm_and_clip_cuda(const NormAndClip&) { refuse_without_gpu_code(); }

}  // namespace sc
