// The build without GPU code.
#include "common/base/check.h"
#include "common/run/gpu.h"

namespace sc {
namespace {

[[noreturn]] void refuse() {
  throw InputError(ExitCode::missing, "--device cuda", "this build has no GPU code",
                   "run.sh --preset cuda, or --device cpu");
}

}  // namespace

struct Gpu::State {};

Gpu::Gpu(int) { refuse(); }
Gpu::~Gpu() = default;
at::Device Gpu::device() const { refuse(); }
GpuFacts Gpu::facts() const { refuse(); }
void Gpu::synchronize() { refuse(); }
Bytes Gpu::peak() const { refuse(); }
void Gpu::reset_peak() { refuse(); }
std::vector<Gpu::Constant> Gpu::constants() const { refuse(); }
Bytes Gpu::beside_allocator() const { refuse(); }
void Gpu::capture(const std::function<void()>&) { refuse(); }
bool Gpu::captured() const { refuse(); }
void Gpu::drop_graph() { refuse(); }
void Gpu::replay() { refuse(); }
std::int64_t replica_hash_cuda(const at::Tensor&) { refuse(); }
bool gpu_available() { return false; }

}  // namespace sc
